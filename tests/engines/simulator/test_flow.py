"""A continuous job: queue, failures and replay, against arithmetic done by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engines.simulator.parts import change, continuous_profile, run_to_end
from tidewise.core import ChangeStatus, Configuration, JobStatus, Mechanism, PermanentError, Purpose, TemporaryError
from tidewise.engines.simulator import Simulator, SimulatorProfile
from tidewise.engines.simulator.latency import wait_in_flow


def test_a_job_with_room_outputs_at_once() -> None:
    job = run_to_end(continuous_profile(), np.full(600, 500.0), executors=1)
    series = job.series()
    assert np.allclose(series["latency_p50_s"], 1.0)
    assert np.allclose(series["processed_rate_per_s"], 500.0)
    assert np.allclose(series["busy_share"], 0.5)


def test_an_overloaded_job_falls_behind_by_what_it_lacks() -> None:
    job = run_to_end(continuous_profile(), np.full(600, 1500.0), executors=1)
    series = job.series()
    assert series["backlog_records"][-1] == pytest.approx(600 * 500.0)
    assert np.allclose(series["busy_share"], 1.0)
    # A record that arrives at t waits until 1000/s have served 1500 t: half of t.
    assert series["latency_p50_s"][200] == pytest.approx(1.0 + 100.25, abs=0.5)
    assert np.isnan(series["latency_p50_s"][-1])


@pytest.mark.parametrize("utilisation", [0.2, 0.5, 0.8])
def test_the_bad_seconds_of_a_failure_are_downtime_and_catching_up(utilisation: float) -> None:
    downtime_s, replayed_s = 20.0, 5.0
    profile = continuous_profile(detection_s=10.0, downtime_s=downtime_s)
    # Checkpoints every 10 s from the start; noticed at 315 = injected at 305 + 10: 5 s are done again.
    simulator = Simulator(profile=profile, rates_per_s=np.full(1200, 1000.0 * utilisation), seed=1)
    job = simulator.launch(Configuration(executors=1, commit_interval_s=10.0))
    simulator.clock.wait_until(305.0)
    job.inject("crash")
    simulator.clock.wait_until(1200.0)
    series = job.series()
    bad = (series["latency_p50_s"] > 2.0) | (series["up"] < 0.5)
    by_hand = downtime_s + (downtime_s + replayed_s) * utilisation / (1.0 - utilisation)
    # Waits of up to a second are still good, which ends the bad stretch a little early.
    assert bad.sum() == pytest.approx(by_hand, abs=1.0 + utilisation / (1.0 - utilisation) + 1.5)
    assert not bad[:314].any()
    assert (series["up"] < 0.5).sum() == downtime_s


def _with_a_worker_away(deployed_for: Mechanism | None) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    whole = continuous_profile(detection_s=10.0, downtime_s=60.0).model_dump(mode="json")
    whole["failures"]["crash"]["executor_away_s"] = 40.0
    whole["mechanisms"]["in-place-rescale"] = {"gap_s": 5.0, "replays": True, "survives_with_fewer": True}
    simulator = Simulator(
        profile=SimulatorProfile.model_validate(whole),
        rates_per_s=np.full(600, 500.0),
        seed=1,
        deployed_for=deployed_for,
    )
    job = simulator.launch(Configuration(executors=4, commit_interval_s=10.0))
    simulator.clock.wait_until(300.0)
    job.inject("crash")
    simulator.clock.wait_until(600.0)
    return job.series()


def test_a_job_deployed_for_in_place_rescale_goes_on_without_the_executor_that_is_away() -> None:
    series = _with_a_worker_away(Mechanism.IN_PLACE_RESCALE)
    down = np.flatnonzero(series["up"] < 0.5)
    # Noticed at 310, on three executors from 315; the fourth is back at 340.
    assert down.tolist() == [*range(310, 315), *range(340, 345)]
    assert (series["executors"][316:340] == 3).all()
    assert series["executors"][350] == 4
    assert series["backlog_records"][-1] == 0.0


@pytest.mark.parametrize("deployed_for", [None, Mechanism.REDEPLOY])
def test_any_other_job_waits_for_it(deployed_for: Mechanism | None) -> None:
    series = _with_a_worker_away(deployed_for)
    assert np.flatnonzero(series["up"] < 0.5).tolist() == list(range(310, 370))
    assert (series["executors"] == 4).all()


def test_without_replay_nothing_is_done_twice() -> None:
    profile = continuous_profile(downtime_s=20.0, replays=False)
    simulator = Simulator(profile=profile, rates_per_s=np.full(600, 500.0), seed=1)
    job = simulator.launch(Configuration(executors=1, commit_interval_s=10.0))
    simulator.clock.wait_until(305.0)
    job.inject("crash")
    simulator.clock.wait_until(600.0)
    assert job.series()["processed_rate_per_s"].sum() == pytest.approx(600 * 500.0)


def test_a_failure_in_a_failure_makes_the_downtime_longer_and_loses_nothing() -> None:
    profile = continuous_profile(downtime_s=30.0)
    simulator = Simulator(profile=profile, rates_per_s=np.full(900, 200.0), seed=1)
    job = simulator.launch(Configuration(executors=1, commit_interval_s=10.0))
    for at_s in (305.0, 320.0):
        simulator.clock.wait_until(at_s)
        job.inject("crash")
    simulator.clock.wait_until(900.0)
    series = job.series()
    assert (series["up"] < 0.5).sum() == 45
    assert series["backlog_records"][-1] == 0.0


def test_replayed_records_come_before_those_that_wait() -> None:
    # Overloaded since the start; 90 s between checkpoints, broken just before the second: 89 s are done again.
    simulator = Simulator(profile=continuous_profile(), rates_per_s=np.full(900, 1200.0), seed=1)
    job = simulator.launch(Configuration(executors=1, commit_interval_s=90.0))
    simulator.clock.wait_until(179.0)
    before = job.series()
    job.inject("crash")
    simulator.clock.wait_until(900.0)
    after = job.series()
    # A record that waited at 175 s has 20 s of downtime and 89 s of old work before it now.
    waited = 0.2 * 175.5 / 1.0
    assert np.isnan(before["latency_p50_s"][175])
    assert after["latency_p50_s"][175] == pytest.approx(1.0 + waited + 20.0 + 89.0, abs=2.0)


def test_everything_since_the_start_is_done_again_before_the_first_checkpoint() -> None:
    simulator = Simulator(profile=continuous_profile(), rates_per_s=np.full(200, 100.0), seed=1)
    job = simulator.launch(Configuration(executors=1, commit_interval_s=60.0))
    simulator.clock.wait_until(4.0)
    job.inject("crash")
    simulator.clock.wait_until(200.0)
    assert job.series()["processed_rate_per_s"].sum() == pytest.approx(200 * 100.0 + 400.0)


def test_a_report_at_the_end_of_a_change_tells_the_new_configuration() -> None:
    whole = continuous_profile().model_dump(mode="json")
    whole["mechanisms"]["redeploy"]["gap_s"] = 39.6
    simulator = Simulator(profile=SimulatorProfile.model_validate(whole), rates_per_s=np.full(300, 100.0), seed=1)
    job = simulator.launch(Configuration(executors=2))
    simulator.clock.wait_until(70.0)
    target = job.observed().with_executors(1)
    job.change(change("a", job.observed(), target, Mechanism.REDEPLOY))
    simulator.clock.wait_until(110.0)
    report = job.reports()[-1]
    assert (report.time_s, report.status, report.configuration) == (110.0, JobStatus.RUNNING, target)


def test_a_change_to_what_runs_already_is_over_at_once() -> None:
    simulator = Simulator(profile=continuous_profile(), rates_per_s=np.full(300, 100.0), seed=1)
    job = simulator.launch(Configuration(executors=2))
    simulator.clock.wait_until(60.0)
    job.change(change("a", job.observed(), job.observed(), Mechanism.REDEPLOY))
    assert job.change_outcome("a") is not None
    simulator.clock.wait_until(300.0)
    assert (job.series()["up"] == 1.0).all()


def test_a_change_can_fail_and_leaves_the_job_as_it_was() -> None:
    whole = continuous_profile().model_dump(mode="json")
    for mechanism in whole["mechanisms"].values():
        mechanism["failure_share"] = 1.0
    for mechanism in (Mechanism.LIVE, Mechanism.HANDOVER, Mechanism.REDEPLOY):
        simulator = Simulator(profile=SimulatorProfile.model_validate(whole), rates_per_s=np.full(300, 100.0), seed=1)
        job = simulator.launch(Configuration(executors=2))
        simulator.clock.wait_until(60.0)
        job.change(change("a", job.observed(), job.observed().with_executors(4), mechanism))
        simulator.clock.wait_until(300.0)
        outcome = job.change_outcome("a")
        assert outcome is not None
        assert outcome.status is ChangeStatus.FAILED
        assert job.observed().executors == 2
        assert job.series()["cores"][-1] == 2.0
        assert (job.series()["up"] == 1.0).all()


def test_a_fault_is_the_same_whatever_was_changed_before_it() -> None:
    whole = continuous_profile().model_dump(mode="json")
    whole["failures"]["crash"]["downtime_spread_share"] = 0.5
    profile = SimulatorProfile.model_validate(whole)

    def downtime_s(*, changed: bool) -> float:
        simulator = Simulator(profile=profile, rates_per_s=np.full(600, 100.0), seed=7)
        job = simulator.launch(Configuration(executors=2))
        simulator.clock.wait_until(60.0)
        if changed:
            job.change(change("a", job.observed(), job.observed().with_executors(4), Mechanism.LIVE))
        simulator.clock.wait_until(300.0)
        job.inject("crash")
        simulator.clock.wait_until(600.0)
        return float((job.series()["up"][300:] < 0.5).sum())

    assert downtime_s(changed=True) == downtime_s(changed=False)


def test_an_executor_lost_while_others_join_is_still_missed() -> None:
    simulator = Simulator(profile=continuous_profile(), rates_per_s=np.full(300, 100.0), seed=1)
    job = simulator.launch(Configuration(executors=2))
    simulator.clock.wait_until(100.0)
    job.change(change("a", job.observed(), job.observed().with_executors(4), Mechanism.LIVE))
    simulator.clock.wait_until(113.0)
    job.inject("executor-kill")
    simulator.clock.wait_until(116.0)
    assert job.observed().executors == 3
    simulator.clock.wait_until(129.0)
    assert job.observed().executors == 4


def test_executors_join_while_the_job_runs_on() -> None:
    simulator = Simulator(profile=continuous_profile(), rates_per_s=np.full(300, 1500.0), seed=1)
    job = simulator.launch(Configuration(executors=1))
    simulator.clock.wait_until(60.0)
    job.change(change("a", job.observed(), job.observed().with_executors(4), Mechanism.LIVE))
    simulator.clock.wait_until(70.0)
    assert job.observed().executors == 1
    assert job.change_outcome("a") is None
    simulator.clock.wait_until(300.0)
    outcome = job.change_outcome("a")
    assert outcome is not None
    assert outcome.finished_at_s == 75.0
    assert outcome.gap_s == 0.0
    series = job.series()
    assert (series["up"] == 1.0).all()
    assert series["backlog_records"][-1] == 0.0
    # Executors that are still starting are paid for.
    assert series["cores"][61] == 4.0
    assert series["executors"][61] == 1.0


def test_a_redeploy_stops_the_job_for_its_gap_and_brings_the_target() -> None:
    simulator = Simulator(profile=continuous_profile(), rates_per_s=np.full(300, 100.0), seed=1)
    job = simulator.launch(Configuration(executors=2))
    target = Configuration(executors=1, memory_mib_per_executor=2048)
    simulator.clock.wait_until(60.0)
    job.change(change("a", job.observed(), target, Mechanism.REDEPLOY))
    with pytest.raises(TemporaryError, match="still on"):
        job.change(change("b", job.observed(), target, Mechanism.REDEPLOY))
    simulator.clock.wait_until(90.0)
    assert job.reports()[-1].status is JobStatus.CHANGING
    simulator.clock.wait_until(300.0)
    assert job.observed() == target
    assert (job.series()["up"] < 0.5).sum() == 40


def test_a_handover_pays_twice_while_it_prepares() -> None:
    simulator = Simulator(profile=continuous_profile(), rates_per_s=np.full(300, 100.0), seed=1)
    job = simulator.launch(Configuration(executors=2))
    target = Configuration(executors=3, memory_mib_per_executor=2048)
    simulator.clock.wait_until(60.0)
    job.change(change("a", job.observed(), target, Mechanism.HANDOVER))
    simulator.clock.wait_until(300.0)
    double = job.meter()[Purpose.DOUBLE_RUNNING]
    assert double.core_s == pytest.approx(25 * (3 + 1))
    assert double.memory_mib_s == pytest.approx(25 * (3 * 2048 + 512))
    assert (job.series()["up"] < 0.5).sum() == 2


def test_the_meter_counts_every_core_second() -> None:
    job = run_to_end(continuous_profile(), np.full(600, 500.0), executors=3)
    meter = job.meter()
    assert meter[Purpose.EXECUTORS].core_s == pytest.approx(1800.0)
    assert meter[Purpose.DRIVER].core_s == pytest.approx(600.0)
    assert meter[Purpose.CONTROLLER].core_s == pytest.approx(60.0)


def test_what_the_cluster_cannot_hold_is_refused_and_changes_nothing() -> None:
    profile = continuous_profile().model_copy(update={"cluster_cores": 4.0})
    simulator = Simulator(profile=profile, rates_per_s=np.full(60, 1.0), seed=1)
    job = simulator.launch(Configuration(executors=2))
    with pytest.raises(PermanentError, match="4 cores"):
        job.change(change("a", job.observed(), job.observed().with_executors(5), Mechanism.LIVE))
    assert job.observed().executors == 2
    assert job.change_outcome("a") is None


def test_memory_slows_a_job_and_then_kills_it() -> None:
    profile = continuous_profile()
    roomy = run_to_end(profile, np.full(600, 100.0), executors=1, memory_mib=2048)
    tight = run_to_end(profile, np.full(600, 100.0), executors=1, memory_mib=310)
    dead = run_to_end(profile, np.full(600, 100.0), executors=1, memory_mib=256)
    assert (roomy.series()["up"] == 1.0).all()
    assert tight.series()["busy_share"].mean() > 1.5 * roomy.series()["busy_share"].mean()
    assert (tight.series()["up"] == 1.0).all()
    assert (dead.series()["up"] < 0.5).mean() > 0.5


@given(
    # Whole numbers, so that no rounding decides in which second a record is served.
    rates=st.lists(st.integers(min_value=1, max_value=3000), min_size=30, max_size=200),
    capacity=st.integers(min_value=100, max_value=3000),
)
@settings(max_examples=50, deadline=None)
def test_waiting_times_equal_those_of_a_queue_walked_record_by_record(rates: list[int], capacity: int) -> None:
    arrived = np.cumsum(rates).astype(np.float64)
    done, backlog, total = [], 0.0, 0.0
    for rate in rates:
        served = min(capacity, backlog + rate)
        backlog += rate - served
        total += served
        done.append(total)
    waits = wait_in_flow(np.array(rates, dtype=np.float64), arrived, np.array(done))
    for second in range(len(rates)):
        position = arrived[second] - rates[second] / 2
        later = [index for index, reached in enumerate(done) if reached >= position]
        if not later:
            assert np.isnan(waits[second])
        elif np.isfinite(waits[second]):
            assert waits[second] <= max(0.0, later[0] + 1 - (second + 0.5)) + 1e-6
            assert waits[second] >= max(0.0, later[0] - (second + 0.5)) - 1e-6


@given(seed=st.integers(min_value=0, max_value=2**31), executors=st.integers(min_value=1, max_value=20))
@settings(max_examples=15, deadline=None)
def test_the_same_seed_gives_the_same_run_and_nothing_is_lost(seed: int, executors: int) -> None:
    rates = np.random.default_rng(seed).uniform(0.0, 4000.0, 400)
    profile = continuous_profile(noise_share=0.2)

    def once() -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
        simulator = Simulator(profile=profile, rates_per_s=rates, seed=seed)
        job = simulator.launch(Configuration(executors=executors))
        simulator.clock.wait_until(123.4)
        job.inject("crash")
        simulator.clock.wait_until(400.0)
        return job.series()

    first, second = once(), once()
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name])
    processed = first["processed_rate_per_s"].sum()
    assert processed + first["backlog_records"][-1] >= rates.sum() - 1e-3  # replays are processed on top


@given(executors=st.integers(min_value=1, max_value=12), seed=st.integers(min_value=0, max_value=1000))
@settings(max_examples=20, deadline=None)
def test_more_executors_never_do_worse(executors: int, seed: int) -> None:
    rates = np.random.default_rng(seed).uniform(500.0, 6000.0, 300)
    fewer = run_to_end(continuous_profile(), rates, executors=executors).series()
    more = run_to_end(continuous_profile(), rates, executors=executors + 1).series()
    assert (more["backlog_records"] <= fewer["backlog_records"] + 1e-6).all()
