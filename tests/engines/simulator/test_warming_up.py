"""What a profile may say of a job that is new to its work: cold records, batches, executors, and the first plan."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import numpy as np
import pytest

from tests.engines.simulator.parts import batch_profile, change, run_to_end
from tidewise.core import Configuration, Mechanism
from tidewise.engines.simulator import SimulatedJob, Simulator, SimulatorProfile, load_profile, shipped_profiles
from tidewise.engines.simulator.latency import Floats

LATER = ("fixed_core_s", "fixed_warms_up", "join_s", "cold_s_per_record", "plans_after_s")
ONE = Configuration(executors=1, commit_interval_s=10.0)


def profile_with(**parts: Mapping[str, object]) -> SimulatorProfile:
    """The profile of round numbers, with these values in its tables, `crash` among them."""
    whole = batch_profile().model_dump(mode="json")
    for name, values in parts.items():
        table = whole["failures"]["crash"] if name == "crash" else whole[name]
        table.update(values)
    return SimulatorProfile.model_validate(whole)


def latency_after_a_crash(profile: SimulatorProfile, *, executors: int = 1) -> Floats:
    simulator = Simulator(profile=profile, rates_per_s=np.full(400, 200.0), seed=1)
    job = simulator.launch(Configuration(executors=executors, commit_interval_s=10.0))
    simulator.clock.wait_until(100.0)
    job.inject("crash")  # for 20 s
    simulator.clock.wait_until(400.0)
    return job.series()["latency_p50_s"]


def test_what_executors_do_for_every_batch_shrinks_with_their_cores() -> None:
    profile = profile_with(batch={"fixed_core_s": 2.0})
    for executors in (1, 4):
        series = run_to_end(profile, np.full(600, 200.0), executors=executors, commit_interval_s=10.0).series()
        took_s = 0.5 + 2.0 / executors + 2.0 / executors
        assert series["latency_p50_s"][100:500].mean() == pytest.approx(5.0 + took_s, abs=0.3)


def test_cold_records_take_longer_however_many_executors_there_are() -> None:
    warm_up = {"share": 1.0, "duration_s": 1000.0, "cold_s_per_record": 0.004}
    for executors, took_s in ((1, 0.005), (4, 0.00425)):
        late = latency_after_a_crash(profile_with(crash={"warm_up": warm_up}), executors=executors)
        # The first batch after the crash, at 120 s, holds what came from 90 s on.
        assert late[91] == pytest.approx(29.0 + 0.5 + 30 * 200 * took_s, rel=0.05)


def test_the_fixed_cost_warms_up_where_the_profile_says_so() -> None:
    crash = {"warm_up": {"share": 0.1, "duration_s": 1000.0}}
    usual, slow = (
        latency_after_a_crash(profile_with(crash=crash, batch={"fixed_warms_up": warms_up}))[91]
        for warms_up in (False, True)
    )
    assert slow - usual == pytest.approx(5.0 - 0.5, abs=0.2)


def test_what_comes_after_the_plan_waits_for_the_second_batch() -> None:
    late = latency_after_a_crash(profile_with(crash={"plans_after_s": 5.0}))
    # At 120 s a batch begins that holds what had come by 105 s: 3,000 records, 3.5 s. The next, at 130 s, has the rest.
    assert late[92] == pytest.approx(123.5 - 92.5, abs=0.6)
    assert late[106] == pytest.approx(135.5 - 106.5, abs=0.6)
    at_the_end = latency_after_a_crash(profile_with(crash={"plans_after_s": 30.0}))
    assert np.array_equal(at_the_end, latency_after_a_crash(batch_profile()), equal_nan=True)


@pytest.mark.parametrize("join_s", [0.0, 6.0])
def test_a_job_stands_still_while_an_executor_joins(join_s: float) -> None:
    simulator = Simulator(
        profile=profile_with(live={"join_s": join_s}), rates_per_s=np.full(400, 200.0), seed=1, report_every_s=10
    )
    job = simulator.launch(ONE)
    simulator.clock.wait_until(105.0)
    job.change(change("a", ONE, ONE.with_executors(2), Mechanism.LIVE))  # it joins at 120 s, as a batch begins
    simulator.clock.wait_until(400.0)
    assert _took_s(job) == pytest.approx(0.5 + 1.0 + join_s, abs=0.1)


def _took_s(job: SimulatedJob) -> float:
    """How long the batch took that began at 120 s: half of its records had come by 115 s."""
    (latency_s,) = [one.latency_p50_s for one in job.reports() if one.time_s == 130.0]
    assert latency_s is not None
    return latency_s - 5.0


def test_profiles_that_say_nothing_of_it_are_what_they_were() -> None:
    for name in shipped_profiles():
        profile = load_profile(name)
        before = re.sub(f',"({"|".join(LATER)})":(0.0|false|null)', "", profile.model_dump_json())
        assert "join_s" not in before
        assert profile.digest == hashlib.sha256(before.encode()).hexdigest()[:12]
        said = profile.model_dump(mode="json")
        said["live"]["join_s"] = 1.0
        assert SimulatorProfile.model_validate(said).digest != profile.digest
