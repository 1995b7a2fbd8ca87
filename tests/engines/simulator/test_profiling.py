"""Copies beside the job: measured on the same input, paid for, and not noticed by the job."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engines.simulator.parts import batch_profile, continuous_profile
from tidewise.core import Censored, Configuration, ProfileRequest, Purpose, Reason
from tidewise.engines.simulator import SimulatedJob, Simulator


def _profile(*candidates: Configuration, inject_failure: bool) -> ProfileRequest:
    return ProfileRequest(
        request_id="p",
        candidates=candidates,
        settle_s=30.0,
        measure_s=60.0,
        inject_failure=inject_failure,
        recovery_limit_s=120.0,
        requested_at_s=100.0,
        deadline_s=2000.0,
        reason=Reason(code="test", sentence="A test wants it."),
    )


def _launch(rate_per_s: float) -> tuple[Simulator, SimulatedJob]:
    simulator = Simulator(profile=continuous_profile(), rates_per_s=np.full(1200, rate_per_s), seed=1)
    job = simulator.launch(Configuration(executors=4, commit_interval_s=10.0))
    simulator.clock.wait_until(100.0)
    return simulator, job


def test_a_copy_shows_what_a_configuration_would_do() -> None:
    simulator, job = _launch(1500.0)
    small, right = (
        Configuration(executors=1, commit_interval_s=10.0),
        Configuration(executors=2, commit_interval_s=10.0),
    )
    job.profile(_profile(small, right, inject_failure=False))
    simulator.clock.wait_until(219.0)
    assert job.profile_outcome("p") is None
    simulator.clock.wait_until(220.0)
    outcome = job.profile_outcome("p")
    assert outcome is not None
    overloaded, healthy = outcome.measurements
    assert overloaded.busy_share == pytest.approx(1.0)
    assert overloaded.processed_rate_per_s == pytest.approx(1000.0)
    assert healthy.busy_share == pytest.approx(0.75)
    assert healthy.latency_p50_s == pytest.approx(1.0)
    assert healthy.recovery_s is None


def test_a_broken_copy_shows_its_recovery_or_that_it_never_came() -> None:
    simulator, job = _launch(1500.0)
    job.profile(
        _profile(
            Configuration(executors=1, commit_interval_s=10.0),
            Configuration(executors=3, commit_interval_s=10.0),
            inject_failure=True,
        )
    )
    simulator.clock.wait_until(1000.0)
    outcome = job.profile_outcome("p")
    assert outcome is not None
    overloaded, healthy = outcome.measurements
    assert isinstance(overloaded.recovery_s, Censored)
    assert 60.0 < overloaded.recovery_s.at_least <= 120.0
    # Down for 20 s with up to 10 s done again, at utilisation 0.5: 20 + 30 at the most.
    assert isinstance(healthy.recovery_s, float)
    assert 45.0 <= healthy.recovery_s <= 51.0


def test_copies_are_paid_for_and_the_job_does_not_notice() -> None:
    simulator, job = _launch(1500.0)
    other_simulator, other = _launch(1500.0)
    job.profile(_profile(Configuration(executors=2), inject_failure=False))
    job.profile(_profile(Configuration(executors=2), inject_failure=False))
    simulator.clock.wait_until(1200.0)
    other_simulator.clock.wait_until(1200.0)
    for name, values in job.series().items():
        np.testing.assert_array_equal(values, other.series()[name])
    # 30 s to come up, 30 to settle, 60 measured: two executors and a driver, once although it was asked for twice.
    assert job.meter()[Purpose.PROFILING].core_s == pytest.approx(120 * 3)
    assert other.meter()[Purpose.PROFILING].core_s == 0.0


def test_a_copy_in_batches_has_a_latency_too() -> None:
    simulator = Simulator(profile=batch_profile(), rates_per_s=np.full(1200, 500.0), seed=1)
    job = simulator.launch(Configuration(executors=4, commit_interval_s=10.0))
    simulator.clock.wait_until(100.0)
    job.profile(_profile(Configuration(executors=1, commit_interval_s=10.0), inject_failure=False))
    simulator.clock.wait_until(400.0)
    outcome = job.profile_outcome("p")
    assert outcome is not None
    # 5,000 records every 10 s take 5.5 s.
    assert outcome.measurements[0].latency_p50_s == pytest.approx(10.5, abs=0.6)


def test_a_recovery_that_the_load_cuts_off_is_known_as_far_as_it_was_seen() -> None:
    simulator = Simulator(profile=continuous_profile(), rates_per_s=np.full(300, 1500.0), seed=1)
    job = simulator.launch(Configuration(executors=4, commit_interval_s=10.0))
    simulator.clock.wait_until(100.0)
    # Up at 130, settled at 160, measured until 220, broken at 229: 70 s are left, and one executor never recovers.
    job.profile(_profile(Configuration(executors=1, commit_interval_s=10.0), inject_failure=True))
    simulator.clock.wait_until(300.0)
    outcome = job.profile_outcome("p")
    assert outcome is not None
    recovery = outcome.measurements[0].recovery_s
    assert isinstance(recovery, Censored)
    assert 20.0 < recovery.at_least <= 71.0


@pytest.mark.parametrize("detection_s", [0.0, 4.0])
def test_a_copy_is_broken_so_that_it_is_noticed_just_before_a_commit(detection_s: float) -> None:
    profile = continuous_profile(detection_s=detection_s)
    simulator = Simulator(profile=profile, rates_per_s=np.full(1200, 500.0), seed=1)
    job = simulator.launch(Configuration(executors=1, commit_interval_s=60.0))
    job.profile(_profile(Configuration(executors=1, commit_interval_s=60.0), inject_failure=True))
    simulator.clock.wait_until(1200.0)
    outcome = job.profile_outcome("p")
    assert outcome is not None
    # 20 s down and 59 s done again, at utilisation 0.5: 20 + 79 from the notice on.
    assert outcome.measurements[0].recovery_s == pytest.approx(detection_s + 99.0, abs=3.0)


def test_a_copy_that_the_load_leaves_no_time_for_is_a_result_too() -> None:
    simulator, job = _launch(1500.0)
    simulator.clock.wait_until(1190.0)
    job.profile(_profile(Configuration(executors=2), inject_failure=True))
    simulator.clock.wait_until(1300.0)
    outcome = job.profile_outcome("p")
    assert outcome is None or outcome.measurements[0].detail
