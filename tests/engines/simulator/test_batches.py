"""Micro-batches: triggers, fixed costs, commits and failures, against arithmetic done by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engines.simulator.parts import batch_profile, change, run_to_end
from tidewise.core import Configuration, Mechanism
from tidewise.engines.simulator import Simulator


def test_a_batch_takes_what_arrived_since_the_last_one() -> None:
    # 200 records/s, a batch every 10 s: 2,000 records, 0.5 s fixed and 2 s of work at 1,000/s.
    job = run_to_end(batch_profile(), np.full(600, 200.0), executors=1, commit_interval_s=10.0)
    series = job.series()
    busy = series["busy_share"][100:500].mean()
    assert busy == pytest.approx(0.2, abs=0.01)  # the fixed cost is not work on records
    # A record waits between 0 and 10 s for its batch, then 2.5 s.
    latency = series["latency_p50_s"][100:500]
    assert latency.min() == pytest.approx(3.0, abs=0.3)
    assert latency.max() == pytest.approx(12.0, abs=0.3)
    assert latency.mean() == pytest.approx(7.5, abs=0.3)


def test_reports_tell_the_batches_of_their_window() -> None:
    simulator = Simulator(profile=batch_profile(), rates_per_s=np.full(600, 200.0), seed=1, report_every_s=60)
    job = simulator.launch(Configuration(executors=1, commit_interval_s=10.0))
    simulator.clock.wait_until(600.0)
    report = job.reports()[5]
    assert report.latency_p50_s == pytest.approx(7.5, abs=0.2)
    assert report.latency_p95_s == pytest.approx(12.0, abs=0.2)
    assert report.busy_share == pytest.approx(0.2, abs=0.01)
    assert report.true_rate_per_s == pytest.approx(1000.0, rel=0.05)
    # 200 records/s at 1 ms each, and 0.2 s for each of the six batches.
    assert report.cpu_share == pytest.approx(0.2 + 6 * 0.2 / 60, abs=0.01)


def test_a_long_interval_is_not_taken_for_silence() -> None:
    # A batch of 22.5 s every minute, reports every 10 s: most windows see no commit, and all is well.
    simulator = Simulator(profile=batch_profile(), rates_per_s=np.full(600, 366.0), seed=1, report_every_s=10)
    job = simulator.launch(Configuration(executors=1, commit_interval_s=60.0))
    simulator.clock.wait_until(600.0)
    reports = [report for report in job.reports() if report.time_s > 90.0]
    assert all(report.latency_p95_s is not None for report in reports)
    assert sum(report.processed_rate_per_s > 0 for report in reports) < len(reports) / 3


def test_a_batch_that_outlasts_its_interval_is_seen_to_be_late() -> None:
    simulator = Simulator(profile=batch_profile(), rates_per_s=np.full(600, 3000.0), seed=1, report_every_s=10)
    job = simulator.launch(Configuration(executors=1, commit_interval_s=10.0))
    simulator.clock.wait_until(600.0)
    assert any(report.latency_p95_s is None for report in job.reports()[10:])


def test_without_an_interval_batches_follow_each_other() -> None:
    # d = 0.5 + 500 d / 1000, so every batch takes a second.
    job = run_to_end(batch_profile(), np.full(300, 500.0), executors=1, commit_interval_s=0.0)
    series = job.series()
    assert series["busy_share"][50:].mean() == pytest.approx(0.5, abs=0.01)
    assert series["latency_p50_s"][50:250].mean() == pytest.approx(1.5, abs=0.1)


def test_an_overloaded_job_makes_ever_longer_batches() -> None:
    job = run_to_end(batch_profile(), np.full(600, 1500.0), executors=1, commit_interval_s=1.0)
    assert job.series()["backlog_records"][-1] > 100_000


def test_a_failure_throws_the_running_batch_away_and_loses_nothing() -> None:
    simulator = Simulator(profile=batch_profile(), rates_per_s=np.full(600, 200.0), seed=1)
    job = simulator.launch(Configuration(executors=1, commit_interval_s=10.0))
    simulator.clock.wait_until(301.0)  # the batch that began at 300 commits at 302.5
    job.inject("crash")
    simulator.clock.wait_until(600.0)
    series = job.series()
    assert (series["up"] < 0.5).sum() == 20
    assert series["processed_rate_per_s"].sum() + series["backlog_records"][-1] == pytest.approx(600 * 200.0)
    assert series["latency_p50_s"][295] > 25.0


def test_a_query_restart_waits_for_the_running_batch() -> None:
    profile = batch_profile()
    restart = {"query-restart": {"gap_s": 2.0}}
    whole = profile.model_dump(mode="json")
    whole["mechanisms"] = restart | whole["mechanisms"]
    simulator = Simulator(profile=type(profile).model_validate(whole), rates_per_s=np.full(600, 200.0), seed=1)
    job = simulator.launch(Configuration(executors=1, commit_interval_s=10.0))
    simulator.clock.wait_until(301.0)
    target = Configuration(executors=1, commit_interval_s=5.0)
    job.change(change("a", job.observed(), target, Mechanism.QUERY_RESTART))
    simulator.clock.wait_until(600.0)
    outcome = job.change_outcome("a")
    assert outcome is not None
    assert outcome.finished_at_s == pytest.approx(302.5 + 2.0)
    assert job.observed() == target
    assert job.series()["latency_p50_s"][400:550].mean() == pytest.approx(2.5 + 1.5, abs=0.3)


def test_the_batch_after_a_handover_has_the_new_executors() -> None:
    # 2 executors are saturated by 2,000/s; 8 work the backlog of the gap off within seconds.
    simulator = Simulator(profile=batch_profile(), rates_per_s=np.full(400, 1900.0), seed=1)
    job = simulator.launch(Configuration(executors=2, commit_interval_s=1.0))
    simulator.clock.wait_until(100.0)
    target = Configuration(executors=8, memory_mib_per_executor=2048, commit_interval_s=1.0)
    job.change(change("a", job.observed(), target, Mechanism.HANDOVER))
    simulator.clock.wait_until(400.0)
    outcome = job.change_outcome("a")
    assert outcome is not None
    series = job.series()
    back = int(outcome.finished_at_s) + 1
    first_commit = back + int(np.argmax(series["processed_rate_per_s"][back:] > 0))
    backlog = series["backlog_records"][back - 1]
    assert first_commit - outcome.finished_at_s <= 0.5 + backlog / 8000.0 + 1.0


def test_executors_that_join_take_part_in_the_running_batch() -> None:
    def commit_s(*, more: bool) -> float:
        simulator = Simulator(profile=batch_profile(), rates_per_s=np.full(400, 500.0), seed=1)
        job = simulator.launch(Configuration(executors=1, commit_interval_s=60.0))
        simulator.clock.wait_until(121.0)  # a batch of 30,000 records began at 120: 30.5 s
        if more:
            job.change(change("a", job.observed(), job.observed().with_executors(4), Mechanism.LIVE))
        simulator.clock.wait_until(400.0)
        return 121.0 + float(np.argmax(job.series()["processed_rate_per_s"][121:] > 0))

    # The three others come at 136; what would have taken 14.5 s more takes a quarter of it.
    assert commit_s(more=False) == pytest.approx(150.5, abs=1.0)
    assert commit_s(more=True) == pytest.approx(139.6, abs=1.0)


def test_a_driver_that_is_dead_and_not_noticed_commits_nothing() -> None:
    whole = batch_profile().model_dump(mode="json")
    whole["failures"]["crash"] |= {"detection_s": 5.0, "serving_share": 0.0}
    simulator = Simulator(profile=type(batch_profile()).model_validate(whole), rates_per_s=np.full(400, 200.0), seed=1)
    job = simulator.launch(Configuration(executors=1, commit_interval_s=10.0))
    simulator.clock.wait_until(301.0)  # the batch that began at 300 would commit at 302.5
    job.inject("crash")
    simulator.clock.wait_until(400.0)
    assert (job.series()["processed_rate_per_s"][301:326] == 0.0).all()


def test_after_an_idle_time_nobody_is_said_to_have_waited_through_it() -> None:
    rates = np.concatenate((np.zeros(900), np.full(300, 500.0)))
    simulator = Simulator(profile=batch_profile(), rates_per_s=rates, seed=1)
    job = simulator.launch(Configuration(executors=1, commit_interval_s=1.0))
    simulator.clock.wait_until(1200.0)
    known = [report.latency_p95_s for report in job.reports() if report.latency_p95_s is not None]
    assert max(known) < 5.0


def test_cpu_is_where_the_work_is() -> None:
    job = run_to_end(batch_profile(), np.full(600, 200.0), executors=1, commit_interval_s=10.0)
    series = job.series()
    # 200 records/s at 1 ms each, and 0.2 s for a batch every 10 s.
    assert series["cpu_share"][100:500].mean() == pytest.approx(0.22, abs=0.005)
    assert series["cpu_share"].max() < 1.0


def test_a_job_whose_only_executor_dies_waits_for_another() -> None:
    simulator = Simulator(profile=batch_profile(), rates_per_s=np.full(300, 200.0), seed=1)
    job = simulator.launch(Configuration(executors=1, commit_interval_s=1.0))
    simulator.clock.wait_until(100.0)
    job.inject("executor-kill")
    simulator.clock.wait_until(300.0)
    series = job.series()
    assert (series["up"] < 0.5).sum() == 15
    assert series["backlog_records"][-1] < 1000.0


def test_warming_up_goes_on_after_a_lighter_failure() -> None:
    whole = batch_profile().model_dump(mode="json")
    whole["failures"]["crash"]["warm_up"] = {"share": 0.25, "duration_s": 60.0}
    profile = type(batch_profile()).model_validate(whole)

    def backlog(*, twice: bool) -> float:
        simulator = Simulator(profile=profile, rates_per_s=np.full(300, 400.0), seed=1)
        job = simulator.launch(Configuration(executors=2, commit_interval_s=1.0))
        simulator.clock.wait_until(100.0)
        job.inject("crash")
        simulator.clock.wait_until(125.0)
        if twice:
            job.inject("executor-kill")
        simulator.clock.wait_until(135.0)
        return float(job.series()["backlog_records"][134])

    assert backlog(twice=True) > backlog(twice=False)


def test_a_lost_executor_is_missed_until_it_is_replaced() -> None:
    simulator = Simulator(profile=batch_profile(), rates_per_s=np.full(300, 200.0), seed=1)
    job = simulator.launch(Configuration(executors=2, commit_interval_s=1.0))
    simulator.clock.wait_until(100.0)
    job.inject("executor-kill")
    simulator.clock.wait_until(105.0)
    assert job.observed().executors == 1
    simulator.clock.wait_until(130.0)
    assert job.observed().executors == 2


@given(
    seed=st.integers(min_value=0, max_value=2**31),
    interval_s=st.sampled_from([0.0, 0.5, 1.0, 7.0, 30.0]),
    executors=st.integers(min_value=1, max_value=5),
)
@settings(max_examples=25, deadline=None)
def test_every_record_is_committed_once_or_still_waits(seed: int, interval_s: float, executors: int) -> None:
    random = np.random.default_rng(seed)
    rates = random.uniform(0.0, 2000.0, 300)
    simulator = Simulator(profile=batch_profile(), rates_per_s=rates, seed=seed)
    job = simulator.launch(Configuration(executors=executors, commit_interval_s=interval_s))
    for at_s in sorted(random.uniform(10.0, 290.0, 3)):
        simulator.clock.wait_until(float(at_s))
        job.inject("crash" if random.random() < 0.5 else "executor-kill")
    simulator.clock.wait_until(300.0)
    series = job.series()
    assert series["processed_rate_per_s"].sum() + series["backlog_records"][-1] == pytest.approx(rates.sum())
    assert (series["latency_p50_s"][~np.isnan(series["latency_p50_s"])] >= 0).all()
