"""Each figure against small series worked out by hand, and what must hold for any series."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import (
    Censored,
    ChangeStatus,
    Configuration,
    Mechanism,
    Origin,
    Prices,
    Promises,
    Purpose,
    Usage,
)
from tidewise.experiments.comparison import spread_of
from tidewise.experiments.hindsight import judge
from tidewise.experiments.measures import (
    Baseline,
    Percentiles,
    Summary,
    baseline_of,
    counted_latency_s,
    good_seconds,
    summarise,
    undecided_seconds,
)
from tidewise.experiments.record import ChangeRecord, FaultRecord, RunRecord
from tidewise.experiments.series import Series

CONFIGURATION = Configuration(executors=2)
Latencies = npt.ArrayLike


def series_of(latency_s: Latencies, *, up: npt.ArrayLike | None = None, rate: npt.ArrayLike | None = None) -> Series:
    """A series of these median latencies; p95 is half as much again, p99 twice."""
    latency = np.asarray(latency_s, dtype=np.float64)
    count = latency.size
    ones = np.ones(count)
    return Series(
        second=np.arange(count),
        input_rate_per_s=ones * 100 if rate is None else np.asarray(rate, dtype=np.float64),
        processed_rate_per_s=ones * 100,
        backlog_records=ones,
        latency_p50_s=latency,
        latency_p95_s=latency * 1.5,
        latency_p99_s=latency * 2,
        up=np.ones(count, dtype=np.bool_) if up is None else np.asarray(up),
        busy_share=ones * 0.5,
        cpu_share=ones * 0.5,
        memory_share=ones * 0.5,
        state_mib=ones,
        executors=np.full(count, 2),
        cores=ones * 2,
        memory_mib=ones * 2048,
        forecast_per_s=ones * np.nan,
    )


def record_of(series: Series, **values: object) -> RunRecord:
    full: dict[str, Any] = {
        "name": "run",
        "engine": "simulator",
        "profile": "paper-cluster",
        "load": "ysb",
        "policy": "some",
        "seed": 1,
        "duration_s": float(len(series)),
        "start": CONFIGURATION,
        "promises": Promises(latency_p95_s=2.0, recovery_s=180.0),
        "prices": Prices(core_hour=0.1, gib_hour=0.01, currency="EUR"),
        "meter": {},
        "versions": {},
        "plan": {},
        "complete": True,
        "created": "2025-03-01",
    }
    full.update(values)
    return RunRecord(**full)


def change(at_s: float, **values: object) -> ChangeRecord:
    full: dict[str, Any] = {
        "requested_at_s": at_s,
        "finished_at_s": at_s + 5,
        "mechanism": Mechanism.HANDOVER,
        "origin": Origin.POLICY,
        "source": CONFIGURATION,
        "target": CONFIGURATION.with_executors(3),
        "status": ChangeStatus.APPLIED,
        "reason": "the load rises",
    }
    full.update(values)
    return ChangeRecord(**full)


BASELINE = Baseline(median_latency_s=1.0, meter={}, seconds=10)
"""A second is good up to 2 s."""


def summary_of(series: Series, **values: object) -> Summary:
    return summarise(record_of(series, **values), series, replace(BASELINE, seconds=len(series)))


def took(latency_s: Latencies, *failures_s: float, up: npt.ArrayLike | None = None) -> list[float | Censored]:
    faults = tuple(FaultRecord(at_s=at_s, kind="kill") for at_s in failures_s)
    return [recovery.took_s for recovery in summary_of(series_of(latency_s, up=up), faults=faults).recoveries]


# Cost


def test_spending_is_counted_for_executors_alone_and_altogether() -> None:
    meter = {
        Purpose.EXECUTORS: Usage(core_s=7200, memory_mib_s=3600 * 1024),
        Purpose.DRIVER: Usage(core_s=3600),
        Purpose.PROFILING: Usage(memory_mib_s=3600 * 2048),
    }
    static = {Purpose.EXECUTORS: Usage(core_s=14400, memory_mib_s=3600 * 4096), Purpose.DRIVER: Usage(core_s=3600)}
    series = series_of(np.ones(10))
    base = replace(BASELINE, meter=static)
    summary = summarise(record_of(series, meter=meter), series, base)
    assert (summary.executors.core_h, summary.executors.gib_h) == (2.0, 1.0)
    assert (summary.all_in.core_h, summary.all_in.gib_h) == (3.0, 3.0)
    assert summary.executors.cost == pytest.approx(0.1 * 2 + 0.01 * 1)
    assert summary.all_in.cost == pytest.approx(0.1 * 3 + 0.01 * 3)
    over = summary.over_baseline
    assert over is not None
    assert (over.core, over.gib, over.all_in_core, over.all_in_gib) == (0.5, 0.25, 0.6, 0.75)
    assert over.cost == pytest.approx(0.33 / 0.54)


def test_a_baseline_of_another_length_gives_no_shares_but_its_latency() -> None:
    series = series_of(np.full(10, 1.5))
    summary = summarise(record_of(series), series, replace(BASELINE, seconds=11))
    assert summary.over_baseline is None
    assert summary.good_limit_s == 2.0


def test_nothing_spent_by_the_baseline_is_no_share_at_all() -> None:
    over = summary_of(series_of(np.ones(10))).over_baseline
    assert over is not None
    assert over.core is None


# Good seconds


def test_the_limit_is_twice_the_median_of_the_baselines_up_seconds_with_output() -> None:
    static = series_of([1.0, 1.2, 1.4, 50.0, np.nan], up=[True, True, True, False, True])
    assert baseline_of(record_of(static), static).median_latency_s == 1.2


def test_down_and_never_output_seconds_are_bad_whatever_their_latency() -> None:
    series = series_of([1.0, 2.0, np.nan, 2.1, 1.0], up=[True, True, True, True, False])
    summary = summary_of(series)
    assert summary.good_share == pytest.approx(2 / 5)
    assert (summary.never_output_s, summary.down_s) == (1, 1)


def test_a_second_in_which_nothing_arrived_is_good_while_the_job_is_up() -> None:
    series = series_of([1.0, np.nan, np.nan, 5.0], up=[True, True, False, True], rate=[9.0, 0.0, 0.0, 9.0])
    summary = summary_of(series)
    assert summary.good_share == 0.5
    assert summary.never_output_s == 0
    assert summary.latency_p50 == Percentiles(p50_s=1.0, p95_s=5.0, p99_s=5.0)  # nobody waited in the quiet ones


def test_the_promise_is_held_against_the_95th_percentile_of_each_second() -> None:
    series = series_of([1.0, 1.3, 1.4, 1.0], up=[True, True, True, False])  # p95: 1.5, 1.95, 2.1, 1.5
    assert summary_of(series).promise_share == 0.5
    assert summary_of(series, promises=Promises(recovery_s=60.0)).promise_share is None


def test_without_a_baseline_the_limit_is_twice_the_runs_own_median() -> None:
    series = series_of([1.0, 3.0, 3.0, 6.5])
    summary = summarise(record_of(series), series)
    assert summary.good_limit_s == 6.0
    assert summary.good_share == 0.75
    assert summary.over_baseline is None


def test_a_job_that_never_gave_output_has_no_good_second() -> None:
    series = series_of(np.full(5, np.nan))
    summary = summarise(record_of(series), series)
    assert summary.good_limit_s is None
    assert summary.good_share == 0.0
    assert summary.latency_p50 == Percentiles(p50_s=math.inf, p95_s=math.inf, p99_s=math.inf)
    assert not summary.kept_promises


def test_a_job_to_which_nothing_came_has_no_percentiles() -> None:
    series = series_of(np.full(5, np.nan), rate=np.zeros(5))
    assert summary_of(series).latency_p50 is None
    assert summary_of(series).good_share == 1.0


# What the end of the run left waiting


def test_records_that_had_not_waited_too_long_when_the_run_ended_are_neither_good_nor_bad() -> None:
    latency = np.ones(100)
    latency[96:] = np.nan  # by the end they had waited 4, 3, 2 and 1 s; the limits are 2 s
    summary = summary_of(series_of(latency))
    assert summary.good_share == summary.promise_share == pytest.approx(96 / 98)
    assert (summary.never_output_s, summary.undecided_s) == (2, 2)
    assert summary.latency_p50 == Percentiles(p50_s=1.0, p95_s=1.0, p99_s=math.inf)
    latency[96:98] = 1.0
    summary = summary_of(series_of(latency))
    assert summary.good_share == summary.promise_share == 1.0
    assert summary.latency_p50 == Percentiles(p50_s=1.0, p95_s=1.0, p99_s=1.0)


def test_a_healthy_job_with_a_long_trigger_has_a_99th_percentile() -> None:
    seconds = np.arange(3600)
    latency = 62.0 - seconds % 60  # a batch begins every minute and takes 2 s
    latency[seconds + latency > 3600] = np.nan
    series = series_of(latency)
    summary = summarise(record_of(series), series)
    assert summary.undecided_s == 60
    assert summary.good_share == 1.0
    assert summary.latency_p50 == Percentiles(p50_s=32.0, p95_s=59.0, p99_s=62.0)


def test_a_job_that_is_down_when_the_run_ends_is_bad_and_not_undecided() -> None:
    latency = np.ones(100)
    latency[99] = np.nan
    up = np.ones(100, dtype=bool)
    up[99] = False
    summary = summary_of(series_of(latency, up=up))
    assert (summary.good_share, summary.undecided_s, summary.never_output_s) == (0.99, 0, 1)


def test_where_nothing_is_decided_nothing_is_good() -> None:
    summary = summary_of(series_of([np.nan, np.nan]))
    assert (summary.good_share, summary.promise_share, summary.latency_p50) == (0.0, 0.0, None)


# Percentiles


def test_percentiles_are_over_all_seconds() -> None:
    latency = np.ones(100)
    latency[:6] = np.nan  # never output: infinite
    up = np.ones(100, dtype=bool)
    up[6:10] = False  # waited 1 s, but count as more than the 2 s that would be good
    summary = summary_of(series_of(latency, up=up))
    assert summary.latency_p50 == Percentiles(p50_s=1.0, p95_s=math.inf, p99_s=math.inf)
    latency[:6] = 40.0
    assert summary_of(series_of(latency, up=up)).latency_p50 == Percentiles(p50_s=1.0, p95_s=40.0, p99_s=40.0)
    latency[:6] = 1.0
    summary = summary_of(series_of(latency, up=up))
    above_s = math.nextafter(2.0, math.inf)
    assert summary.latency_p50 == Percentiles(p50_s=1.0, p95_s=1.0, p99_s=above_s)
    assert summary.latency_p95 == Percentiles(p50_s=1.5, p95_s=1.5, p99_s=above_s)


def test_a_down_second_counts_with_its_own_wait_where_that_is_longer() -> None:
    summary = summary_of(series_of([1.0, 30.0], up=[True, False]))
    assert summary.latency_p50 is not None
    assert summary.latency_p50.p99_s == 30.0


def test_percentiles_and_good_seconds_agree_on_what_is_good() -> None:
    up = np.ones(1000, dtype=bool)
    up[100:200] = False
    series = series_of(np.ones(1000), up=up)
    counted = counted_latency_s(series, series.latency_p50_s, 2.0)
    assert (counted <= 2.0).mean() == summary_of(series).good_share == 0.9


# Recoveries


def test_recovery_ends_where_fifteen_calm_seconds_begin() -> None:
    latency = np.ones(400)
    latency[100:140] = 10.0
    assert took(latency, 100.0) == [40.0]
    latency[150] = 2.5  # calm for 10 s only
    assert took(latency, 100.0) == [51.0]


def test_a_failure_that_becomes_visible_late_is_measured_from_its_start() -> None:
    latency = np.ones(400)
    up = np.ones(400, dtype=bool)
    up[120:143] = False
    latency[143:160] = 8.0
    assert took(latency, 100.0, up=up) == [60.0]
    assert took(latency, 99.5, up=up) == [60.5]


def test_a_failure_without_a_bad_second_within_two_minutes_was_not_felt() -> None:
    latency = np.ones(400)
    latency[220:240] = 10.0
    assert took(latency, 100.0) == [0.0]
    latency[219] = 10.0
    assert took(latency, 100.0) == [140.0]


def test_a_stray_bad_second_before_the_job_goes_down_is_not_its_recovery() -> None:
    latency = np.ones(400)
    latency[205] = 9.0  # chance, five seconds after the failure
    up = np.ones(400, dtype=np.bool_)
    up[230:250] = False  # noticed after 30 s, down for 20
    latency[230:250] = 15.0
    series = series_of(latency, up=up)
    recovery = summarise(record_of(series, faults=(FaultRecord(at_s=200.0, kind="crash"),)), series).recoveries[0]
    assert recovery.took_s == 50.0


def test_recovery_is_held_against_the_latency_just_before_the_failure() -> None:
    latency = np.full(400, 0.5)
    latency[:100] = 0.2  # long ago: only the last 120 s tell
    latency[250:300] = 1.1  # good by the limit of 2 s, yet above twice 0.5 s
    assert took(latency, 250.0) == [50.0]


def test_down_seconds_before_the_failure_do_not_tell_what_was_usual() -> None:
    latency = np.ones(400)
    latency[40:100] = 9.0
    up = np.ones(400, dtype=bool)
    up[40:100] = False
    latency[100:130] = 3.0
    assert took(latency, 100.0, up=up) == [30.0]


def test_recovery_does_not_depend_on_the_latency_of_the_static_run() -> None:
    latency = np.full(5000, 3.0)
    latency[:1000] = 1.0
    latency[3000:3030] = 30.0
    up = np.ones(5000, dtype=bool)
    up[3000:3030] = False
    series = series_of(latency, up=up)
    record = record_of(series, faults=(FaultRecord(at_s=3000.0, kind="kill"),))
    for median_s in (0.1, 1.2, 3.0, 100.0, None):
        baseline = Baseline(median_latency_s=median_s, meter={}, seconds=len(series))
        assert [recovery.took_s for recovery in summarise(record, series, baseline).recoveries] == [30.0]
    assert judge(series, record.faults, record.promises)[1] == 30.0


def test_a_failure_in_the_first_second_is_held_against_the_runs_own_median() -> None:
    latency = np.full(400, 5.0)
    latency[:30] = 11.0
    assert took(latency, 0.5) == [29.5]


def test_the_next_failure_cuts_a_recovery_off() -> None:
    latency = np.ones(600)
    latency[100:350] = 10.0
    # What the first left does not tell what was usual before the second.
    assert took(latency, 100.0, 300.0) == [Censored(at_least=200.0), 50.0]


def test_a_job_that_stays_slow_after_a_failure_is_held_against_that_from_the_next_on() -> None:
    latency = np.ones(3000)
    latency[100:] = 3.0
    latency[1500:1540] = 30.0
    assert took(latency, 100.0, 1500.0) == [Censored(at_least=1400.0), 40.0]


def test_the_end_of_the_run_cuts_a_recovery_off() -> None:
    latency = np.ones(200)
    latency[100:] = 10.0
    assert took(latency, 100.0) == [Censored(at_least=100.0)]


def test_calm_that_the_end_cut_off_proves_only_the_time_to_the_last_bad_second() -> None:
    latency = np.ones(150)
    latency[100:140] = 10.0
    assert took(latency, 100.0) == [Censored(at_least=40.0)]


def test_a_failure_just_before_the_end_may_still_have_been_felt() -> None:
    assert took(np.ones(150), 100.0) == [Censored(at_least=0.0)]
    assert took(np.ones(220), 100.0) == [0.0]


def test_two_faults_in_one_second_are_one_failure() -> None:
    latency = np.ones(400)
    latency[100:140] = 10.0
    assert took(latency, 100.0, 100.5) == [40.0, 39.5]


def test_mean_max_and_slow_recoveries_count_what_was_cut_off() -> None:
    latency = np.ones(1000)
    latency[100:140] = 10.0
    latency[400:590] = 10.0
    latency[790:] = 10.0
    faults = tuple(FaultRecord(at_s=at_s, kind="kill") for at_s in (100.0, 400.0, 790.0))
    summary = summary_of(series_of(latency), faults=faults)
    assert summary.recovery_mean_s == Censored(at_least=(40 + 190 + 210) / 3)
    assert summary.recovery_max_s == Censored(at_least=210.0)
    assert summary.recoveries_over() == 2
    assert summary_of(series_of(latency[:700]), faults=faults[:2]).recovery_max_s == 190.0
    assert summary_of(series_of(latency)).recovery_mean_s is None


def test_promises_are_kept_when_both_are() -> None:
    latency = np.ones(1000)
    latency[100:140] = 10.0
    faults = (FaultRecord(at_s=100.0, kind="kill"),)
    assert summary_of(series_of(latency), faults=faults).kept_promises
    tight = Promises(latency_p95_s=2.0, recovery_s=39.0)
    assert not summary_of(series_of(latency), faults=faults, promises=tight).kept_promises
    strict = Promises(latency_p95_s=2.0, good_share=0.97)
    assert not summary_of(series_of(latency), faults=faults, promises=strict).kept_promises


# Changes


def test_changes_are_counted_by_mechanism() -> None:
    changes = (
        change(10, gap_s=2.0),
        change(100, status=ChangeStatus.FAILED, gap_s=3.0),
        change(200, origin=Origin.ROLLBACK),
        change(300, mechanism=Mechanism.LIVE, status=None, finished_at_s=None),
    )
    summary = summary_of(series_of(np.ones(400)), changes=changes)
    handover, live = summary.uses
    assert (handover.mechanism, handover.count, handover.failed, handover.rollbacks) == (Mechanism.HANDOVER, 3, 1, 1)
    assert handover.gap_s == 5.0
    assert (live.mechanism, live.count) == (Mechanism.LIVE, 1)
    assert (summary.changes, summary.failed_changes, summary.rollbacks, summary.change_gap_s) == (4, 1, 1, 5.0)


def test_bad_seconds_of_a_change_last_from_its_request_until_calm() -> None:
    latency = np.ones(400)
    latency[95:100] = 9.0  # before the request
    latency[102:104] = 9.0
    latency[110:120] = 9.0
    latency[126:130] = 9.0  # less than 15 s after: still the same trouble
    latency[200:210] = 9.0  # after calm: not the change's
    (use,) = summary_of(series_of(latency), changes=(change(100),)).uses
    assert use.bad_s_per_change == 16.0


def test_a_bad_second_belongs_to_the_last_change_only() -> None:
    latency = np.ones(400)
    latency[100:130] = 9.0
    changes = (change(100), change(110, mechanism=Mechanism.LIVE))
    handover, live = summary_of(series_of(latency), changes=changes).uses
    assert (handover.bad_s_per_change, live.bad_s_per_change) == (10.0, 20.0)


def test_bad_seconds_of_failures_are_not_blamed_on_changes() -> None:
    latency = np.ones(600)
    latency[110:150] = 9.0
    latency[300:310] = 9.0
    faults = (FaultRecord(at_s=110.0, kind="kill"),)
    changes = (change(105), change(120), change(300))
    (use,) = summary_of(series_of(latency), faults=faults, changes=changes).uses
    assert use.bad_s_per_change == 5.0  # 0 and 10; the second was asked for during the recovery
    (only,) = summary_of(series_of(latency), faults=faults, changes=(change(120),)).uses
    assert only.bad_s_per_change is None


# Over seeds


def test_a_spread_has_mean_and_range_and_tells_what_was_cut_off() -> None:
    spread = spread_of([1.0, 3.0])
    assert spread is not None
    assert (spread.mean, spread.least, spread.most, spread.censored) == (2.0, 1.0, 3.0, False)
    cut = spread_of([1.0, Censored(at_least=5.0)])
    assert cut is not None
    assert (cut.most, cut.censored) == (5.0, True)
    assert spread_of([1.0, None]) is None
    assert spread_of([]) is None


# Whatever the series


@st.composite
def runs(draw: st.DrawFn) -> Series:
    seconds = draw(st.lists(st.tuples(st.sampled_from([0.1, 1.0, 1.9, 2.1, 30.0, None]), st.booleans()), min_size=1))
    rate = draw(st.lists(st.sampled_from([0.0, 100.0]), min_size=len(seconds), max_size=len(seconds)))
    latency = [np.nan if value is None else value for value, _ in seconds]
    return series_of(latency, up=[up for _, up in seconds], rate=rate)


def ascending(percentiles: Percentiles | None) -> bool:
    return percentiles is None or 0 <= percentiles.p50_s <= percentiles.p95_s <= percentiles.p99_s


@given(runs())
def test_shares_are_shares_and_percentiles_ascend(series: Series) -> None:
    for summary in (summary_of(series), summarise(record_of(series), series)):
        assert 0 <= summary.good_share <= 1
        assert summary.promise_share is not None
        assert 0 <= summary.promise_share <= 1
        assert ascending(summary.latency_p50)
        assert ascending(summary.latency_p95)


@given(runs(), st.sampled_from([None, 0.5, 2.0, 30.0, 500.0]))
def test_a_second_is_good_bad_or_undecided_and_only_waiting_ones_are_undecided(
    series: Series, limit_s: float | None
) -> None:
    good = good_seconds(series, series.latency_p50_s, limit_s)
    undecided = undecided_seconds(series, series.latency_p50_s, limit_s)
    assert not (good & undecided).any()
    assert np.isnan(series.latency_p50_s[undecided]).all()
    assert series.up[undecided].all()
    assert limit_s is not None or not undecided.any()
    if limit_s is not None:
        assert not undecided[: max(0, len(series) - int(limit_s))].any()  # older ones are late, whatever comes


@given(runs())
def test_records_that_come_out_in_time_after_all_make_no_figure_worse(series: Series) -> None:
    waiting = undecided_seconds(series, series.latency_p50_s, 2.0)
    latency = np.where(waiting, 0.1, series.latency_p50_s)
    out = replace(series, latency_p50_s=latency, latency_p95_s=latency * 1.5, latency_p99_s=latency * 2)
    before, after = summary_of(series), summary_of(out)
    assert after.good_share >= before.good_share
    assert after.never_output_s == before.never_output_s
    if before.latency_p50 is not None:
        assert not_better(before.latency_p50, after.latency_p50)


def not_better(worse: Percentiles | None, than: Percentiles | None) -> bool:
    if worse is None or than is None:
        return than is None
    return worse.p50_s >= than.p50_s and worse.p95_s >= than.p95_s and worse.p99_s >= than.p99_s


@given(runs(), st.data())
def test_a_second_down_improves_no_figure(series: Series, data: st.DataObject) -> None:
    second = data.draw(st.integers(0, len(series) - 1))
    up = series.up.copy()
    up[second] = False
    before, after = summary_of(series), summary_of(replace(series, up=up))
    assert after.good_share <= before.good_share
    assert after.promise_share is not None
    assert before.promise_share is not None
    assert after.promise_share <= before.promise_share
    assert not_better(after.latency_p50, before.latency_p50)
    assert not_better(after.latency_p95, before.latency_p95)
    assert after.down_s >= before.down_s


@given(st.integers(20, 60), st.integers(1, 40), st.integers(0, 200))
def test_more_downtime_after_the_first_bad_second_never_shortens_a_recovery(delay: int, bad: int, later: int) -> None:
    latency = np.ones(600)
    first = 100 + delay
    latency[first : first + bad] = 10.0
    up = np.ones(600, dtype=bool)
    (before,) = took(latency, 100.0, up=up)
    up[first + later] = False
    (after,) = took(latency, 100.0, up=up)
    assert isinstance(before, float)
    assert isinstance(after, float)
    assert after >= before
