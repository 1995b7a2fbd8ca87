"""Reports from what Spark tells: nothing lost, nothing invented, and the truth of a known job found again."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.spark.job_model import ModelJob
from tests.engines.spark.progress_samples import UNIX_S, a_batch, told_by_spark
from tidewise.core import Configuration, InvalidValueError, JobStatus, LatencyMethod, Observation
from tidewise.engines.spark.latency import LatencyChoice
from tidewise.engines.spark.operators import StageSample
from tidewise.engines.spark.progress import EventTimes, StateOperator, parse_progress
from tidewise.engines.spark.reports import ExecutorSample, Reporter

_ONE = Configuration(executors=1, commit_interval_s=1.0)


def _reporter(window_s: float = 10.0, latency: LatencyChoice = LatencyChoice.AUTO) -> Reporter:
    reporter = Reporter(window_s=window_s, latency=latency)
    reporter.status(JobStatus.RUNNING, 0.0)
    reporter.configuration(_ONE, 0.0)
    return reporter


def _tell(
    reporter: Reporter,
    batch_id: int,
    *,
    began_s: float,
    duration_s: float = 0.5,
    start: float | None,
    end: float | None,
    latest: float | None,
    rows: int | None = None,
    query_id: str = "query",
    run_id: str = "run-1",
) -> None:
    progress = a_batch(
        batch_id=batch_id,
        began_s=began_s,
        duration_s=duration_s,
        start=start,
        end=end,
        latest=latest,
        rows=rows,
        query_id=query_id,
        run_id=run_id,
    )
    reporter.batch(progress, began_s + duration_s)


def _tell_seconds(reporter: Reporter, first: int, stop: int, *, rate: int = 100, query_id: str = "query") -> None:
    """A batch each second with what came in the second before."""
    for second in range(first, stop):
        _tell(
            reporter,
            second,
            began_s=float(second),
            start=rate * (second - 1),
            end=rate * second,
            latest=rate * second,
            query_id=query_id,
        )


# A job whose truth is known


def _waves(seconds: int, low: float, high: float) -> list[float]:
    return [low + (high - low) * (0.5 - 0.5 * math.cos(2 * math.pi * second / 97)) for second in range(seconds)]


def _share_of(latencies_s: list[float], share: float) -> float:
    return latencies_s[min(len(latencies_s) - 1, int(share * len(latencies_s)))]


@pytest.mark.parametrize("interval_s", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("event_times", [True, False])
def test_the_latency_of_each_window_is_that_of_its_batches(interval_s: float, event_times: bool) -> None:
    job = ModelJob(rates_per_s=_waves(300, 200, 700), capacity_per_s=1000.0, fixed_s=0.3, interval_s=interval_s)
    for report in job.reports(_reporter(), event_times=event_times)[3:]:
        # A batch is told of 0.15 s after its commit, so that it may count in the window after its own.
        true_s = job.latencies_s(report.time_s - report.window_s - 0.15, report.time_s - 0.15)
        assert report.latency_p50_s == pytest.approx(_share_of(true_s, 0.5), rel=0.1)
        assert report.latency_p95_s == pytest.approx(_share_of(true_s, 0.95), rel=0.1)
        assert report.latency_p99_s == pytest.approx(_share_of(true_s, 0.99), rel=0.1)
        assert (report.latency_method is LatencyMethod.EVENT_TIME) == event_times


def test_the_latency_behind_a_backlog_is_the_time_to_work_it_off() -> None:
    # 150 rows each second at most, and 140 come: a burst of ten seconds takes long to work off.
    rates = [140.0] * 60 + [300.0] * 10 + [140.0] * 130
    job = ModelJob(rates_per_s=rates, capacity_per_s=1000.0, fixed_s=0.2, interval_s=1.0, most_rows=150)
    reports = job.reports(_reporter())
    late = next(report for report in reports if report.time_s == 150.0)
    true_s = _share_of(job.latencies_s(140.0, 150.0), 0.95)
    assert true_s > 5.0
    assert late.latency_p95_s == pytest.approx(true_s, rel=0.15)
    committed = max(batch.end for batch in job.batches() if batch.committed_s <= 150.0)
    assert late.backlog_records == pytest.approx(job.arrived(150.0) - committed, rel=0.15)


@pytest.mark.parametrize("interval_s", [0.0, 1.0, 4.0])
def test_the_true_capacity_is_found_though_every_batch_has_a_fixed_cost(interval_s: float) -> None:
    job = ModelJob(
        rates_per_s=_waves(600, 150, 750),
        capacity_per_s=1000.0,
        fixed_s=0.4,
        interval_s=interval_s,
        # A batch in sixty takes three times as long; the others are a little off.
        slow=lambda number: 3.0 if number % 60 == 5 else 1.0 + 0.05 * math.sin(7.0 * number),
    )
    reports = [report for report in job.reports(_reporter()) if report.time_s > 100.0]
    rates = sorted(report.true_rate_per_s or 0.0 for report in reports)
    assert rates[len(rates) // 2] == pytest.approx(1000.0, rel=0.15)
    processed = sum(report.processed_rate_per_s for report in reports)
    busy = sum(report.busy_share or 0.0 for report in reports)
    assert processed / busy == pytest.approx(1000.0, rel=0.15)


def test_without_a_difference_in_rows_the_phases_tell_the_fixed_cost() -> None:
    reporter = _reporter()
    for second in range(1, 31):
        progress = a_batch(
            batch_id=second,
            began_s=float(second),
            duration_s=0.6,
            add_batch_s=0.4,
            start=100 * (second - 1),
            end=100 * second,
            latest=100 * second,
        )
        reporter.batch(progress, second + 0.6)
    assert reporter.observations(30.0)[-1].busy_share == pytest.approx(0.4, abs=0.03)
    detail = reporter.detail().queries[0]
    assert detail.fixed_cost_s == pytest.approx(0.2)


def test_executors_of_another_kind_make_other_costs() -> None:
    reporter = _reporter()
    first = ModelJob(rates_per_s=_waves(200, 100, 400), capacity_per_s=500.0, fixed_s=0.3, interval_s=1.0)
    first.reports(reporter)
    fixed_s = reporter.detail().queries[0].fixed_cost_s
    assert fixed_s == pytest.approx(0.3, rel=0.1)
    reporter.configuration(replace(_ONE, commit_interval_s=2.0), 200.0)
    reporter.configuration(replace(_ONE, cores_per_executor=2.0), 201.0)
    position = 1e6
    for number in range(6):
        rows = 1000.0 * (number + 1)
        _tell(
            reporter,
            500 + number,
            began_s=210.0 + 10 * number,
            duration_s=0.8 + rows / 2000,
            start=position,
            end=position + rows,
            latest=position + rows,
        )
        position += rows
        # The line that was found stays until the new batches give another.
        assert reporter.detail().queries[0].fixed_cost_s == pytest.approx(0.3 if number < 5 else 0.8, rel=0.1)


def test_the_true_capacity_is_found_though_every_batch_is_off_by_chance() -> None:
    chance = random.Random(5)  # noqa: S311 - a repeatable test, no secret
    # The rows of a batch take less than it is off by: a busy machine slows batches for no reason of theirs.
    job = ModelJob(
        rates_per_s=_waves(1200, 500, 2000),
        capacity_per_s=10_000.0,
        fixed_s=0.8,
        interval_s=2.0,
        slow=lambda _: chance.lognormvariate(0.0, 0.2),
    )
    shares = [report.busy_share or 0.0 for report in job.reports(_reporter()) if report.time_s > 300.0]
    assert 0.05 < sum(shares) / len(shares) < 0.25
    assert max(shares) < 0.4


def test_a_batch_is_busy_in_every_window_it_runs_in() -> None:
    reporter = _reporter()
    _tell(reporter, 0, began_s=5.0, duration_s=20.0, start=0, end=200, latest=200)
    assert [report.busy_share for report in reporter.observations(30.0)] == pytest.approx([0.5, 1.0, 0.5])


def test_a_batch_that_was_only_thought_to_run_is_made_up_for() -> None:
    reporter = _reporter()
    _tell(reporter, 0, began_s=0.0, duration_s=2.0, start=0, end=200, latest=200)
    _tell(reporter, 1, began_s=2.0, duration_s=2.0, start=200, end=400, latest=400)
    first = reporter.observations(10.0)[0]
    assert first.busy_share == pytest.approx(1.0)
    reporter.idle("query", 10.5)
    for number in (2, 3, 4):  # 9 s of work
        start = 200 * number
        began_s = 11.0 + 3 * (number - 2)
        _tell(reporter, number, began_s=began_s, duration_s=3.0, start=start, end=start + 200, latest=start + 200)
    reporter.idle("query", 20.0)
    second = reporter.observations(20.0)[0]
    assert second.busy_share == pytest.approx(0.3)  # less the 6 s too many of the first window


def test_a_busy_time_is_not_carried_into_an_idle_one() -> None:
    reporter = _reporter()
    reporter.observations(20.0)
    _tell(reporter, 0, began_s=1.0, duration_s=25.0, start=0, end=200, latest=200)
    reporter.idle("query", 27.0)
    assert [report.busy_share for report in reporter.observations(40.0)] == pytest.approx([1.0, 0.0])


def test_input_and_backlog_are_those_of_the_source() -> None:
    job = ModelJob(rates_per_s=_waves(400, 200, 700), capacity_per_s=1000.0, fixed_s=0.3, interval_s=1.0)
    for report in job.reports(_reporter())[2:]:
        begin_s = report.time_s - report.window_s
        true_rate = (job.arrived(report.time_s) - job.arrived(begin_s)) / report.window_s
        assert report.input_rate_per_s == pytest.approx(true_rate, rel=0.1)
        committed = max(batch.end for batch in job.batches() if batch.committed_s + 0.15 <= report.time_s)
        assert report.backlog_records == pytest.approx(job.arrived(report.time_s) - committed, rel=0.15, abs=20)


def test_a_load_that_is_steady_is_never_overestimated() -> None:
    reporter = _reporter(window_s=5.0)
    ModelJob(rates_per_s=[300.0] * 200, capacity_per_s=1000.0, fixed_s=0.3, interval_s=2.0).reports(reporter)
    assert reporter.detail().queries[0].overestimated_records == 0.0


# Real reports


def test_a_real_run_makes_reports() -> None:
    reporter = Reporter(window_s=2.0)
    reporter.status(JobStatus.RUNNING, 0.0)
    reporter.configuration(Configuration(executors=1, commit_interval_s=2.0), 0.0)
    batches = [parse_progress(text) for text in told_by_spark("plain")]
    start_unix_s = batches[0].began_unix_s
    for batch in batches:
        reporter.batch(batch, batch.committed_unix_s - start_unix_s)
    reports = reporter.observations(12.0)
    assert len(reports) == 6
    # 1,000 records come each second, and at most 1,500 are taken in a batch.
    for report in reports[3:]:
        assert report.input_rate_per_s == pytest.approx(1000.0, rel=0.1)
    last = reports[-1]
    # The last batch began 10.53 s after the first, with 10,582 there, and led to 6,061.
    assert last.backlog_records == pytest.approx(10582 + 1470 - 6061, rel=0.02)
    assert last.latency_p95_s is not None
    assert last.latency_p95_s > 4.0
    assert last.latency_method is LatencyMethod.WAIT_BATCH_BACKLOG


def test_a_real_stateful_query_has_latency_by_event_time_and_a_state() -> None:
    reporter = _reporter(window_s=5.0)
    batches = [parse_progress(text) for text in told_by_spark("agg")]
    for batch in batches:
        reporter.batch(batch, batch.committed_unix_s - batches[0].began_unix_s)
    last = reporter.observations(12.0)[-1]
    assert last.latency_method is LatencyMethod.EVENT_TIME
    assert last.latency_p50_s is not None
    assert 1.0 < last.latency_p50_s < 10.0
    assert last.state_mib is not None
    assert last.state_mib > 0.0
    assert reporter.detail().queries[0].watermark_delay_s is not None


# Windows


def test_reports_begin_when_status_and_configuration_are_known() -> None:
    reporter = Reporter(window_s=5.0)
    assert reporter.observations(100.0) == []
    assert reporter.detail().time_s is None
    reporter.status(JobStatus.RUNNING, 3.0)
    assert reporter.observations(100.0) == []
    reporter.configuration(_ONE, 7.0)
    assert [report.time_s for report in reporter.observations(18.0)] == [12.0, 17.0]
    assert reporter.observations(18.0) == []
    assert reporter.detail().time_s == 17.0


def test_a_change_of_status_ends_a_window_and_none_is_too_short_to_be_seen() -> None:
    reporter = _reporter()
    reporter.status(JobStatus.DOWN, 13.0)
    reporter.status(JobStatus.CHANGING, 13.001)
    reporter.status(JobStatus.RUNNING, 14.0)
    reporter.status(JobStatus.RUNNING, 16.0)
    seen = [(round(report.time_s, 3), report.status) for report in reporter.observations(30.0)]
    assert seen == [
        (10.0, JobStatus.RUNNING),
        (13.0, JobStatus.RUNNING),
        (13.05, JobStatus.DOWN),
        (14.0, JobStatus.CHANGING),
        (20.0, JobStatus.RUNNING),
        (30.0, JobStatus.RUNNING),
    ]


def test_a_downtime_that_is_told_of_too_late_is_still_seen() -> None:
    reporter = _reporter()
    reporter.observations(10.0)
    reporter.status(JobStatus.RUNNING, 9.8)
    reporter.status(JobStatus.DOWN, 9.5)
    statuses = [report.status for report in reporter.observations(20.0)]
    assert statuses == [JobStatus.RUNNING, JobStatus.DOWN, JobStatus.RUNNING]


def test_the_configuration_is_that_of_the_end_of_the_window() -> None:
    reporter = _reporter()
    reporter.configuration(_ONE.with_executors(2), 15.0)
    assert [report.configuration.executors for report in reporter.observations(20.0)] == [1, 2]


# Counting


def test_a_batch_counts_where_it_commits() -> None:
    reporter = _reporter()
    _tell(reporter, 0, began_s=2.0, start=0, end=200, latest=200)
    _tell(reporter, 1, began_s=5.0, duration_s=20.0, start=200, end=500, latest=500)
    processed = [report.processed_rate_per_s * report.window_s for report in reporter.observations(30.0)]
    assert processed == pytest.approx([200.0, 0.0, 300.0])


def test_what_waited_before_the_query_was_seen_is_backlog_and_not_input() -> None:
    reporter = _reporter()
    _tell(reporter, 0, began_s=2.0, start=0, end=200, latest=1_000_000)
    first = reporter.observations(10.0)[0]
    assert first.input_rate_per_s == 0.0
    assert first.backlog_records == 999_800.0


def test_a_batch_that_is_told_twice_counts_once_and_one_that_runs_twice_counts_twice() -> None:
    reporter = _reporter()
    for run_id in ("run-1", "run-1", "run-2"):
        _tell(reporter, 0, began_s=2.0, start=0, end=200, latest=200, run_id=run_id)
    report = reporter.observations(10.0)[0]
    assert report.processed_rate_per_s * report.window_s == pytest.approx(400.0)
    assert report.backlog_records == 0.0


def test_a_batch_whose_report_is_lost_is_not() -> None:
    reporter = _reporter()
    _tell(reporter, 0, began_s=2.0, start=0, end=200, latest=200)
    _tell(reporter, 2, began_s=4.0, start=300, end=400, latest=400)
    report = reporter.observations(10.0)[0]
    assert report.processed_rate_per_s * report.window_s == pytest.approx(400.0)


def test_a_source_that_counts_anew_goes_on() -> None:
    reporter = _reporter()
    _tell(reporter, 0, began_s=2.0, start=5000, end=5200, latest=5200)
    _tell(reporter, 1, began_s=3.0, start=0, end=100, latest=100)
    report = reporter.observations(10.0)[0]
    assert report.processed_rate_per_s * report.window_s == pytest.approx(300.0)


def test_arrivals_go_on_while_the_job_is_down() -> None:
    reporter = _reporter()
    _tell_seconds(reporter, 1, 20)
    reporter.status(JobStatus.DOWN, 20.0)
    down = reporter.observations(60.0)[-1]
    assert down.status is JobStatus.DOWN
    assert down.input_rate_per_s == pytest.approx(100.0)
    assert down.backlog_records == pytest.approx(6000 - 1900)
    assert down.latency_p95_s is None
    assert down.busy_share == 0.0


def test_a_load_that_falls_away_leaves_no_imagined_backlog() -> None:
    reporter = _reporter()
    _tell_seconds(reporter, 1, 20, rate=10_000)
    reporter.observations(30.0)
    reporter.idle("query", 31.0)
    idle = reporter.observations(50.0)[-1]
    assert idle.is_idle
    assert reporter.detail().queries[0].overestimated_records > 0.0


def test_a_load_that_falls_a_little_loses_nothing() -> None:
    reporter = _reporter(window_s=1.0)
    _tell_seconds(reporter, 1, 11)
    before = reporter.observations(13.0)[-1]
    for second in (11, 12, 13):
        start = 1000 + 60 * (second - 11)
        _tell(reporter, second, began_s=float(second), start=start, end=start + 60, latest=start + 60)
    after = reporter.observations(14.0)[-1]
    # At 13 s there seemed to be 1,300 records; at 14 s there are about 1,245: nothing has come, and nothing has gone.
    assert after.input_rate_per_s == 0.0
    assert after.backlog_records == pytest.approx(before.backlog_records - after.processed_rate_per_s)
    assert reporter.detail().queries[0].overestimated_records == 0.0


def test_a_correction_makes_no_peak_of_a_short_window() -> None:
    reporter = _reporter()
    _tell_seconds(reporter, 1, 20)
    reporter.observations(20.0)
    _tell(reporter, 20, began_s=20.0, duration_s=2.0, start=1900, end=2000, latest=5000)
    reporter.status(JobStatus.CHANGING, 20.5)
    reporter.status(JobStatus.RUNNING, 21.0)
    inputs = [(report.window_s, report.input_rate_per_s) for report in reporter.observations(30.0)]
    assert [window_s for window_s, _ in inputs] == [0.5, 0.5, 9.0]
    rate_per_s = inputs[0][1]
    assert rate_per_s < 2000.0
    assert 2000.0 + sum(window_s * rate for window_s, rate in inputs) == pytest.approx(5000.0 + 10 * rate_per_s)


def test_what_came_in_an_outage_is_no_burst_after_it() -> None:
    reporter = _reporter(window_s=5.0)
    _tell_seconds(reporter, 1, 20)
    reporter.status(JobStatus.DOWN, 20.0)
    assert reporter.observations(50.0)[-1].load_per_s == pytest.approx(100.0)
    # Three times as many came as before, which only the first batch after the outage tells.
    reporter.status(JobStatus.RUNNING, 50.0)
    _tell(reporter, 20, began_s=50.0, duration_s=4.0, start=1900, end=11_200, latest=11_200)
    after = reporter.observations(55.0)[-1]
    assert after.input_rate_per_s > 1000.0, "the books make up for what was guessed"
    assert 250.0 < after.load_per_s <= 310.0


def test_a_guess_that_was_too_high_does_not_look_like_silence() -> None:
    reporter = _reporter(window_s=1.0)
    _tell_seconds(reporter, 1, 11)
    reporter.observations(13.0)
    for second in (11, 12, 13):
        start = 1000 + 60 * (second - 11)
        _tell(reporter, second, began_s=float(second), start=start, end=start + 60, latest=start + 60)
    after = reporter.observations(14.0)[-1]
    assert after.input_rate_per_s == 0.0
    assert after.load_per_s == pytest.approx(60.0, rel=0.15)


def test_the_load_of_a_job_with_long_batches_is_told_without_leaps() -> None:
    # A batch takes far longer than a report, so that most reports have to guess what arrives.
    true_rate = _waves(600, 300, 700)
    job = ModelJob(rates_per_s=true_rate, capacity_per_s=1500.0, fixed_s=8.0, interval_s=0.0)
    reports = [report for report in job.reports(_reporter(window_s=5.0)) if report.time_s > 60.0]
    assert max(report.input_rate_per_s for report in reports) > 1000.0, "the books do leap"
    assert min(report.load_per_s for report in reports) > 300 / 1.1
    assert max(report.load_per_s for report in reports) < 1.1 * 700


def test_a_source_that_does_not_tell_has_as_much_input_as_output() -> None:
    reporter = _reporter()
    _tell(reporter, 0, began_s=2.0, start=None, end=None, latest=None, rows=100)
    _tell(reporter, 1, began_s=3.0, start=None, end=None, latest=None, rows=300)
    report = reporter.observations(10.0)[0]
    assert report.input_rate_per_s == report.processed_rate_per_s == pytest.approx(40.0)
    assert report.backlog_records == 0.0
    assert not reporter.detail().backlog_known


def test_queries_are_summed_and_the_worst_latency_counts() -> None:
    alone, together = _reporter(), _reporter()
    _tell_seconds(alone, 1, 20)
    _tell_seconds(together, 1, 20)
    for second in range(5, 20, 5):
        start = 7 * (second - 5)
        _tell(
            together,
            second,
            began_s=float(second),
            duration_s=4.0,
            start=start,
            end=start + 35,
            latest=start + 35,
            query_id="slow",
        )
    one, two = alone.observations(20.0)[-1], together.observations(20.0)[-1]
    assert two.processed_rate_per_s == pytest.approx(one.processed_rate_per_s + 7.0)
    assert one.latency_p95_s is not None
    assert two.latency_p95_s is not None
    assert two.latency_p95_s > 4.0 > one.latency_p95_s
    assert one.busy_share is not None
    assert two.busy_share is not None
    assert two.busy_share > 0.7 > one.busy_share
    together.ended("slow")
    assert len(together.detail().queries) == 1


# Latency


def test_silence_is_told_when_output_was_due() -> None:
    reporter = _reporter()
    _tell_seconds(reporter, 1, 20)
    calm, silent = reporter.observations(30.0)[1:]
    assert calm.latency_p95_s is not None
    assert silent.latency_p95_s is None
    assert silent.busy_share is not None
    assert silent.busy_share > 0.1


def test_a_query_with_nothing_to_do_keeps_its_latency() -> None:
    reporter = _reporter()
    _tell_seconds(reporter, 1, 20)
    calm = reporter.observations(20.0)[-1]
    reporter.idle("query", 22.0)
    idle = reporter.observations(60.0)[-1]
    assert idle.latency_p95_s == calm.latency_p95_s
    assert idle.is_idle


def test_a_source_that_cannot_be_counted_is_waited_for_until_it_says_that_it_idles() -> None:
    busy, idle = _reporter(), _reporter()
    for reporter in (busy, idle):
        for second in range(1, 20):
            _tell(reporter, second, began_s=float(second), start=None, end=None, latest=None, rows=100)
    idle.idle("query", 33.0)
    # 11 s after the last trigger it may have nothing to do; at 40 s it would have said so.
    assert [report.latency_p95_s is None for report in busy.observations(40.0)] == [False, False, False, True]
    assert [report.latency_p95_s is None for report in idle.observations(40.0)] == [False, False, False, False]
    assert idle.observations(60.0)[-1].latency_p95_s is not None


def test_one_silent_query_among_several_is_silence() -> None:
    reporter = _reporter()
    _tell_seconds(reporter, 1, 40)
    _tell_seconds(reporter, 1, 20, query_id="other")
    reports = reporter.observations(40.0)
    assert reports[1].latency_p95_s is not None
    assert reports[-1].latency_p95_s is None


def test_events_of_the_future_have_no_latency_below_nothing() -> None:
    reporter = _reporter()
    times = EventTimes(avg_unix_s=UNIX_S + 20.0, max_unix_s=UNIX_S + 30.0)
    batch = a_batch(batch_id=0, began_s=2.0, duration_s=1.0, start=0, end=10, latest=10, event_time=times)
    reporter.batch(batch, 3.0)
    assert reporter.observations(10.0)[0].latency_p99_s == 0.0


def test_a_long_interval_is_not_taken_for_silence() -> None:
    reporter = Reporter(window_s=5.0)
    reporter.status(JobStatus.RUNNING, 0.0)
    reporter.configuration(Configuration(executors=1, commit_interval_s=30.0), 0.0)
    for number in range(4):
        start = 3000 * number
        _tell(reporter, number, began_s=30.0 * number, start=start, end=start + 3000, latest=start + 3000)
    reports = [report for report in reporter.observations(115.0) if report.time_s > 5.0]
    assert all(report.latency_p95_s is not None for report in reports)


def test_after_an_idle_time_records_have_not_waited_for_all_of_it() -> None:
    reporter = _reporter()
    _tell(reporter, 0, began_s=1.0, start=0, end=100, latest=100)
    _tell(reporter, 1, began_s=95.0, start=100, end=200, latest=200)
    report = reporter.observations(100.0)[-1]
    assert report.latency_p99_s is not None
    assert report.latency_p99_s < 3.0


def test_after_a_restart_they_have() -> None:
    reporter = _reporter()
    _tell(reporter, 0, began_s=1.0, start=0, end=100, latest=100)
    _tell(reporter, 1, began_s=95.0, start=100, end=9500, latest=9500, run_id="run-2")
    report = reporter.observations(100.0)[-1]
    assert report.latency_p99_s is not None
    assert report.latency_p99_s > 90.0


@pytest.mark.parametrize(
    ("choice", "method"),
    [
        (LatencyChoice.AUTO, LatencyMethod.EVENT_TIME),
        (LatencyChoice.EVENT_TIME, LatencyMethod.EVENT_TIME),
        (LatencyChoice.BACKLOG, LatencyMethod.WAIT_BATCH_BACKLOG),
    ],
)
def test_the_method_can_be_chosen(choice: LatencyChoice, method: LatencyMethod) -> None:
    reporter = _reporter(latency=choice)
    times = EventTimes(avg_unix_s=UNIX_S - 5.0, max_unix_s=UNIX_S - 2.0)
    batch = a_batch(batch_id=0, began_s=2.0, duration_s=1.0, start=0, end=10, latest=10, event_time=times)
    reporter.batch(batch, 3.0)
    report = reporter.observations(10.0)[0]
    assert report.latency_method is method
    if method is LatencyMethod.EVENT_TIME:  # committed at 3 s, event times from -8 to -2 s
        assert report.latency_p50_s == pytest.approx(8.0, abs=0.01)
        assert report.latency_p95_s == pytest.approx(10.7, abs=0.01)


def test_event_times_that_were_asked_for_and_are_missing_make_no_latency() -> None:
    reporter = _reporter(latency=LatencyChoice.EVENT_TIME)
    _tell_seconds(reporter, 1, 10)
    report = reporter.observations(10.0)[0]
    assert report.latency_p95_s is None
    assert report.latency_method is None


# Executors and stages


def test_executor_samples_are_averaged_and_fade() -> None:
    reporter = _reporter()
    reporter.executors(ExecutorSample(executors=2, cpu_share=0.4, memory_share=0.5, gc_share=0.1), 2.0)
    reporter.executors(ExecutorSample(executors=2, cpu_share=0.8, memory_share=0.3), 7.0)
    reports = reporter.observations(50.0)
    assert reports[0].cpu_share == pytest.approx(0.6)
    assert reports[0].memory_share == 0.5
    assert reports[1].cpu_share == 0.8
    assert reports[4].cpu_share is None
    with pytest.raises(InvalidValueError, match="cpu_share"):
        ExecutorSample(executors=1, cpu_share=math.nan)


def test_what_was_too_late_and_what_the_query_counts_add_up_and_replays_do_not_count_twice() -> None:
    reporter = _reporter()
    late = StateOperator(name="a", rows=1, memory_bytes=1, partitions=1, commit_ms=1.0, dropped_rows=3, metrics={})
    for number, run in ((1, "run-1"), (2, "run-1"), (2, "run-2"), (3, "run-2")):
        batch = a_batch(
            batch_id=number, began_s=float(number), duration_s=0.5, start=0, end=100, latest=100, run_id=run
        )
        observed = {"dead_letters.records": 2.0, "mean.size": 0.5}
        reporter.batch(replace(batch, state=(late,), observed=observed), number + 0.5)
    (detail,) = reporter.detail().queries
    assert detail.dropped_records == 9
    assert detail.observed == {"dead_letters.records": 6}


def test_stages_and_executors_are_in_the_detail() -> None:
    reporter = _reporter()
    stage = StageSample(stage_id=3, name="aggregate", seconds=0.4, tasks=4, rows=1000, skew=1.5)
    sample = ExecutorSample(executors=2)
    reporter.stages("query", [stage], 0.0)
    reporter.executors(sample, 1.0)
    assert reporter.detail().stages == (stage,)
    assert reporter.detail().executors == sample


@pytest.mark.parametrize("window_s", [0.0, -1.0, 0.1, math.nan, math.inf])
def test_a_window_that_cannot_be_is_refused(window_s: float) -> None:
    with pytest.raises(InvalidValueError, match="window_s"):
        Reporter(window_s=window_s)


# Whatever happens

_STEP = st.fixed_dictionaries(
    {
        "what": st.sampled_from(["batch"] * 6 + ["idle", "again", "down", "changing", "running", "executors", "look"]),
        "after_s": st.floats(0.0, 12.0),
        "duration_s": st.floats(0.001, 25.0),
        "arrivals": st.integers(0, 5000),
        "most_rows": st.sampled_from([100, 1000, 10**9]),
        "told_late_s": st.sampled_from([0.0, 0.1, 3.0, 30.0]),
    }
)


class _Story:
    """Steps of a job's life, told to a reporter in an order that need not be that of time."""

    def __init__(self, window_s: float) -> None:
        self.reporter = _reporter(window_s)
        self.reports: list[Observation] = []
        self.now_s = 1.0
        self.arrived = 50
        self.committed = 0
        self.found: int | None = None
        self.replayed = 0
        self.batches = 0
        self.executors = 1
        self.last: tuple[int, int, int] | None = None
        self.runs = 1

    def step(self, step: dict[str, object]) -> None:
        after_s, what = step["after_s"], step["what"]
        assert isinstance(after_s, float)
        assert isinstance(step["arrivals"], int)
        self.now_s += after_s
        self.arrived += step["arrivals"]
        if what == "batch":
            self._batch(step)
        elif what == "again" and self.last is not None:
            number, start, end = self.last
            self.runs += 1
            self._tell(number, 0.5, start, end)
            self.replayed += end - start
        elif what == "idle":
            self.reporter.idle("query", self.now_s)
        elif what == "executors":
            self.executors = self.executors % 5 + 1
            self.reporter.configuration(_ONE.with_executors(self.executors), self.now_s)
        elif what in {"down", "changing", "running"}:
            self.reporter.status(JobStatus(str(what)), self.now_s)
        elif what == "look":
            self.reports += self.reporter.observations(self.now_s)

    def _batch(self, step: dict[str, object]) -> None:
        duration_s, most_rows, late_s = step["duration_s"], step["most_rows"], step["told_late_s"]
        assert isinstance(duration_s, float)
        assert isinstance(most_rows, int)
        assert isinstance(late_s, float)
        start, end = self.committed, min(self.arrived, self.committed + most_rows)
        if self.found is None:
            self.found = self.arrived - start
        latest = self.arrived
        self.now_s += duration_s
        if late_s:
            self.reports += self.reporter.observations(self.now_s + late_s)
        self._tell(self.batches, duration_s, start, end, latest=latest)
        self.last = self.batches, start, end
        self.batches += 1
        self.committed = end

    def _tell(self, number: int, duration_s: float, start: int, end: int, *, latest: int | None = None) -> None:
        progress = a_batch(
            batch_id=number,
            began_s=self.now_s - duration_s,
            duration_s=duration_s,
            start=start,
            end=end,
            latest=self.arrived if latest is None else latest,
            run_id=f"run-{self.runs}",
        )
        self.reporter.batch(progress, self.now_s)


@given(steps=st.lists(_STEP, max_size=40), window_s=st.sampled_from([1.0, 5.0, 7.3]))
def test_nothing_is_lost_or_invented_whatever_happens(steps: list[dict[str, object]], window_s: float) -> None:
    story = _Story(window_s)
    for step in steps:
        story.step(step)
    story.reports += story.reporter.observations(story.now_s + 40.0)
    reports = story.reports
    assert reports[0].time_s - reports[0].window_s == 0.0
    for earlier, later in pairwise(reports):
        assert later.time_s - later.window_s == pytest.approx(earlier.time_s, abs=1e-9)
        assert later.window_s >= 0.049
    for report in reports:
        assert report.window_s <= window_s + 0.051
        assert report.status is not JobStatus.DOWN or report.latency_p95_s is None
    processed = sum(report.processed_rate_per_s * report.window_s for report in reports)
    arrived = sum(report.input_rate_per_s * report.window_s for report in reports)
    assert processed == pytest.approx(story.committed + story.replayed, abs=1e-3)
    details = story.reporter.detail().queries
    overestimated = details[0].overestimated_records if details else 0.0
    kept = processed - story.replayed + reports[-1].backlog_records - (story.found or 0) + overestimated
    assert arrived == pytest.approx(kept, abs=1e-3)
    # No window but the first of the query, and those that give up what was only imagined, is out of balance.
    gaps = [
        earlier.backlog_records
        + later.window_s * (later.input_rate_per_s - later.processed_rate_per_s)
        - later.backlog_records
        for earlier, later in pairwise(reports)
    ]
    assert sum(gap for gap in gaps if gap > 0.0) <= overestimated + 1e-3
