"""Recoveries measured from reports, against what the simulator knows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import Censored, Configuration, JobStatus, LatencyMethod, Observation, recovery_s
from tidewise.engines.simulator import Simulator, load_profile
from tidewise.observe import Recovered, RecoveryWatch
from tidewise.observe.recoveries import FOUND
from tidewise.testing.strategies import observations
from tidewise.workload import Noisy, Sine

ONE = Configuration(executors=4, commit_interval_s=2.0)


def report(time_s: float, **facts: object) -> Observation:
    usual = Observation(
        time_s=time_s,
        window_s=10.0,
        configuration=ONE,
        status=JobStatus.RUNNING,
        input_rate_per_s=100.0,
        processed_rate_per_s=100.0,
        backlog_records=50.0,
        latency_p50_s=1.0,
        latency_method=LatencyMethod.EVENT_TIME,
    )
    return replace(usual, **facts)  # type: ignore[arg-type]  # facts are fields of a report


def down(time_s: float, **facts: object) -> Observation:
    return report(
        time_s,
        status=JobStatus.DOWN,
        processed_rate_per_s=0.0,
        latency_p50_s=None,
        latency_method=None,
        **facts,
    )


def followed(watch: RecoveryWatch, reports: list[Observation]) -> list[Recovered]:
    return [ended for each in reports for ended in watch.learn(each)]


def test_a_downtime_that_nobody_told_of_is_found_and_measured() -> None:
    watch = RecoveryWatch()
    before = [report(10.0 * step) for step in range(1, 31)]
    failure = [down(310.0), down(320.0)]
    # At 330 s the output of what arrived at 305 s comes; at 350 s all is as before.
    after = [report(330.0, latency_p50_s=20.0), report(340.0, latency_p50_s=8.0)]
    calm = [report(10.0 * step) for step in range(35, 45)]
    (found,) = followed(watch, [*before, *failure, *after, *calm])
    assert (found.kind, found.at_s, found.configuration, found.rate_per_s) == (FOUND, 305.0, ONE, 100.0)
    assert found.took_s == pytest.approx(35.0, abs=10.0)


def test_a_recovery_is_on_until_the_job_is_calm_again() -> None:
    watch = RecoveryWatch()
    before, calm = ([report(10.0 * step) for step in steps] for steps in (range(1, 31), range(33, 40)))
    told = {}
    for each in [*before, down(310.0), report(320.0, latency_p50_s=8.0), *calm]:
        watch.learn(each)
        told[each.time_s] = watch.is_on
    assert (told[300.0], told[310.0], told[320.0], told[390.0]) == (False, True, True, False)


def test_a_failure_that_was_told_keeps_its_kind_and_its_time() -> None:
    watch = RecoveryWatch()
    followed(watch, [report(10.0 * step) for step in range(1, 31)])
    assert watch.failed("driver-kill", 302.0) == ()
    (found,) = followed(watch, [down(310.0), *[report(10.0 * step) for step in range(32, 60)]])
    assert (found.kind, found.at_s) == ("driver-kill", 302.0)


def test_a_failure_that_was_told_after_it_showed_is_one_failure() -> None:
    watch = RecoveryWatch()
    followed(watch, [*[report(10.0 * step) for step in range(1, 31)], down(310.0)])
    assert watch.failed("driver-kill", 303.0) == ()
    (found,) = followed(watch, [report(10.0 * step) for step in range(32, 60)])
    assert (found.kind, found.at_s) == ("driver-kill", 303.0)


def test_a_job_that_does_not_recover_is_given_up_at_the_limit() -> None:
    watch = RecoveryWatch(limit_s=100.0)
    reports = [report(10.0 * step) for step in range(1, 31)] + [down(10.0 * step) for step in range(31, 60)]
    (found,) = followed(watch, reports)
    assert isinstance(found.took_s, Censored)
    assert 85.0 <= found.took_s.at_least <= 100.0


def test_a_change_that_stops_the_job_is_no_failure_and_ends_what_was_followed() -> None:
    watch = RecoveryWatch()
    before = [report(10.0 * step) for step in range(1, 31)]
    change = report(310.0, status=JobStatus.CHANGING, processed_rate_per_s=0.0, latency_p50_s=None, latency_method=None)
    assert followed(watch, [*before, change, *[report(10.0 * step) for step in range(32, 60)]]) == []
    watch = RecoveryWatch()
    followed(watch, before)
    watch.failed("executor-kill", 301.0)
    (cut,) = watch.learn(change)
    assert isinstance(cut.took_s, Censored)


def test_a_stall_is_found_and_a_job_that_commits_seldom_has_none() -> None:
    stalls = [
        report(300.0 + 10.0 * step, processed_rate_per_s=0.0, backlog_records=50.0 + 1000.0 * step, latency_p50_s=None)
        for step in range(1, 4)
    ]
    before = [report(10.0 * step) for step in range(1, 31)]
    watch = RecoveryWatch()
    found = followed(watch, [*before, *stalls, *[report(10.0 * step) for step in range(34, 60)]])
    assert [each.kind for each in found] == [FOUND]
    seldom = replace(ONE, commit_interval_s=60.0)
    lumpy = [
        report(
            10.0 * step,
            configuration=seldom,
            processed_rate_per_s=600.0 if step % 6 == 0 else 0.0,
            backlog_records=1000.0 * (step % 6),
            latency_p50_s=30.0,
        )
        for step in range(1, 100)
    ]
    assert followed(RecoveryWatch(), lumpy) == []


def stop_between_two_reports(*, arrives_per_s: float = 100.0, after: Configuration = ONE) -> list[Recovered]:
    """Up at the end of every report: less is done in one, and what waited meanwhile is output in the next."""
    before = [report(10.0 * step) for step in range(1, 31)]
    dip = report(310.0, input_rate_per_s=arrives_per_s, processed_rate_per_s=60.0, backlog_records=450.0)
    late = report(320.0, configuration=after, processed_rate_per_s=140.0, latency_p50_s=5.0)
    calm = [report(10.0 * step, configuration=after) for step in range(33, 60)]
    return followed(RecoveryWatch(), [*before, dip, late, *calm])


def test_a_stop_between_two_reports_is_found_by_what_it_left_undone_and_made_late() -> None:
    (found,) = stop_between_two_reports()
    assert (found.kind, found.at_s, found.rate_per_s) == (FOUND, 305.0, 100.0)
    assert found.took_s == pytest.approx(10.0, abs=10.0)


def test_what_is_late_because_more_arrived_or_by_a_change_is_no_failure() -> None:
    assert stop_between_two_reports(arrives_per_s=150.0) == []
    assert stop_between_two_reports(after=replace(ONE, executors=3)) == []
    assert stop_between_two_reports(after=replace(ONE, executors=5, cores_per_executor=2.0)) == []


def test_executors_that_joined_after_it_do_not_hide_a_failure() -> None:
    (found,) = stop_between_two_reports(after=replace(ONE, executors=5))
    assert (found.kind, found.at_s, found.configuration) == (FOUND, 305.0, ONE)


def test_a_job_that_has_become_slower_has_not_failed() -> None:
    # Batches that take longer than a report: in some of them nothing is done, and each is later than the one before.
    before = [report(10.0 * step) for step in range(1, 31)]
    slower = [
        report(300.0 + 10.0 * step, processed_rate_per_s=done, backlog_records=1000.0, latency_p50_s=wait_s)
        for step, (done, wait_s) in enumerate([(80.0, 1.6), (74.0, 2.2), (0.0, None), (140.0, 4.0), (0.0, None)], 1)
    ]
    calm = [report(10.0 * step, latency_p50_s=4.0) for step in range(36, 60)]
    assert followed(RecoveryWatch(), [*before, *slower, *calm]) == []


def test_a_job_whose_reports_always_go_up_and_down_has_not_failed() -> None:
    lumpy = [report(10.0 * step, processed_rate_per_s=125.0 if step % 2 else 72.0) for step in range(1, 31)]
    late = report(320.0, processed_rate_per_s=125.0, latency_p50_s=2.5)
    calm = [report(10.0 * step) for step in range(33, 60)]
    assert followed(RecoveryWatch(), [*lumpy, report(310.0, processed_rate_per_s=66.0), late, *calm]) == []


@given(reports=st.lists(observations(), max_size=12), faults=st.lists(st.floats(-1e6, 1e6), max_size=3))
def test_whatever_is_reported_nothing_breaks(reports: list[Observation], faults: list[float]) -> None:
    watch = RecoveryWatch()
    for at_s in faults:
        watch.failed("f", at_s)
    ended = followed(watch, sorted(reports, key=lambda each: each.time_s))
    for each in ended:
        assert isinstance(each.took_s, Censored) or each.took_s >= 0.0


@pytest.mark.parametrize(("profile", "kind"), [("paper-cluster", "network-delay"), ("spark-local", "driver-kill")])
@pytest.mark.parametrize("told", [True, False])
def test_against_what_the_simulator_knows(profile: str, kind: str, told: bool) -> None:
    """Failures every 20 minutes at changing load; the truth is second by second, the watch has a report every 10 s."""
    errors_s = []
    for seed in (1, 2):
        mean = 60_000.0 if profile == "paper-cluster" else 120_000.0
        rates = Noisy(load=Sine(mean_per_s=mean, amplitude_share=0.3, period_s=3600.0), share=0.1).rates_per_s(
            9000, seed
        )
        simulator = Simulator(profile=load_profile(profile), rates_per_s=rates, seed=seed)
        job = simulator.launch(Configuration(executors=12, memory_mib_per_executor=4096, commit_interval_s=10.0))
        watch = RecoveryWatch(limit_s=600.0)
        measured: list[Recovered] = []
        faults = [1200.0 * number + 3.0 * seed for number in range(1, 8)]
        waiting = list(faults)
        for until in range(10, 9001, 10):
            while waiting and waiting[0] < until:
                at_s = waiting.pop(0)
                simulator.clock.wait_until(at_s)
                job.inject(kind)
                if told:
                    measured += watch.failed(kind, at_s)
            simulator.clock.wait_until(float(until))
            measured += followed(watch, list(job.reports()))
        series = job.series()
        waited = np.where(np.isnan(series["latency_p50_s"]), np.inf, series["latency_p50_s"]).tolist()
        up = (series["up"] > 0.5).tolist()
        for at_s in faults:
            truth = recovery_s(waited_s=waited, up=up, fault_s=at_s, end=int(at_s) + 600)
            (match,) = [each for each in measured if abs(each.at_s - at_s) <= 60.0]
            assert isinstance(truth, float)
            assert isinstance(match.took_s, float)
            # From the same moment: one that was found is known from when it showed.
            errors_s.append(match.at_s + match.took_s - (at_s + truth))
        assert len(measured) == len(faults)
    assert np.mean(np.abs(errors_s)) <= 10.0
    assert np.max(np.abs(errors_s)) <= 30.0
