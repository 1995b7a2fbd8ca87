"""What a copy shows is reported by the code that reports of the job, and its recovery by the one definition."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.spark.job_model import ModelJob
from tests.engines.spark.progress_samples import a_batch
from tidewise.core import Censored, Configuration
from tidewise.engines.spark.copy_record import Commit, CopyRecord, waited_s
from tidewise.engines.spark.latency import LatencyChoice

RATE_PER_S = 100.0


def _record(*, measure_s: float = 20.0, interval_s: float = 1.0) -> CopyRecord:
    return CopyRecord(
        Configuration(executors=2, commit_interval_s=interval_s),
        latency=LatencyChoice.AUTO,
        measure_s=measure_s,
        launched_s=0.0,
    )


def _tell(record: CopyRecord, model: ModelJob, *, until_s: float = math.inf, query: str = "q") -> None:
    for number, batch in enumerate(model.batches()):
        if batch.committed_s <= until_s:
            progress = a_batch(
                batch_id=number,
                began_s=batch.began_s,
                duration_s=batch.committed_s - batch.began_s,
                start=batch.start,
                end=batch.end,
                latest=batch.latest,
                query_id=query,
            )
            record.batch(query, progress, batch.committed_s)


def test_what_was_measured_is_that_time_and_no_other() -> None:
    # Three times as many records come before it, and none of them counts.
    model = ModelJob(rates_per_s=[300.0] * 30 + [100.0] * 40, capacity_per_s=1000.0, fixed_s=0.2, interval_s=1.0)
    record = _record()
    _tell(record, model)
    report = record.measured(40.0).observation
    assert (report.time_s, report.window_s) == (60.0, 20.0)
    assert report.configuration.executors == 2
    assert report.input_rate_per_s == pytest.approx(100.0, rel=0.05)
    assert report.processed_rate_per_s == pytest.approx(100.0, rel=0.1)
    truth = model.latencies_s(40.0, 60.0)
    assert report.latency_p95_s == pytest.approx(truth[int(0.95 * len(truth))], rel=0.15)
    assert report.busy_share is not None
    assert 0.0 < report.busy_share < 0.4


@pytest.mark.parametrize("measure_s", [3.0, 7.3, 20.0, 33.0])
@pytest.mark.parametrize("from_s", [0.1, 11.7, 30.0])
def test_it_may_begin_any_time_and_take_any_time(measure_s: float, from_s: float) -> None:
    model = ModelJob(rates_per_s=[RATE_PER_S] * 80, capacity_per_s=1000.0, fixed_s=0.2, interval_s=1.0)
    record = _record(measure_s=measure_s)
    _tell(record, model)
    report = record.measured(from_s).observation
    assert report.time_s == pytest.approx(from_s + measure_s)
    assert report.window_s == pytest.approx(measure_s)
    if from_s > 1.0:
        assert report.processed_rate_per_s == pytest.approx(RATE_PER_S, rel=0.5)


def test_a_copy_that_does_not_keep_up_shows_it() -> None:
    model = ModelJob(rates_per_s=[RATE_PER_S] * 100, capacity_per_s=50.0, fixed_s=0.1, interval_s=1.0, most_rows=200)
    record = _record()
    _tell(record, model)
    report = record.measured(60.0).observation
    assert report.input_rate_per_s == pytest.approx(100.0, rel=0.1)
    assert report.processed_rate_per_s < 60.0
    assert report.backlog_records > 1000.0
    assert report.busy_share is not None
    assert report.busy_share > 0.9


def _steady(from_s: float, to_s: float, *, lag_s: float = 0.5) -> list[Commit]:
    return [
        Commit(
            began_s=float(second),
            committed_s=second + lag_s,
            end=second * RATE_PER_S,
            newest=second * RATE_PER_S,
        )
        for second in range(int(from_s), int(to_s))
    ]


def test_records_wait_until_the_batch_that_holds_them_is_committed() -> None:
    commits = _steady(0, 10)
    waits = waited_s(commits, origin_s=0.0, seconds=10)
    # What comes in the middle of a second is in the batch that begins at its end and takes half a second.
    assert waits[1:9] == pytest.approx([1.0] * 8)
    assert waits[9] == math.inf, "nobody has committed what came after the last batch began"


def test_a_batch_that_leaves_some_over_makes_them_wait_longer() -> None:
    commits = [
        Commit(began_s=0.0, committed_s=0.5, end=0.0, newest=0.0),
        Commit(began_s=10.0, committed_s=11.0, end=500.0, newest=1000.0),
        Commit(began_s=12.0, committed_s=13.0, end=1000.0, newest=1000.0),
    ]
    waits = waited_s(commits, origin_s=0.0, seconds=13)
    assert waits[:5] == pytest.approx([11.0 - 0.5 - second for second in range(5)])
    assert waits[5:10] == pytest.approx([13.0 - 5.5 - second for second in range(5)])
    assert math.isnan(waits[10])
    assert waits[12] == math.inf


@given(
    gaps_s=st.lists(st.floats(0.2, 5.0), min_size=2, max_size=20),
    durations_s=st.lists(st.floats(0.05, 4.0), min_size=20, max_size=20),
)
def test_with_and_without_positions_the_waits_agree_where_batches_take_all(
    gaps_s: list[float], durations_s: list[float]
) -> None:
    commits, now_s = [], 0.0
    for gap_s, duration_s in zip(gaps_s, durations_s, strict=False):
        now_s += gap_s + duration_s
        position = now_s * RATE_PER_S
        commits.append(Commit(began_s=now_s, committed_s=now_s + duration_s, end=position, newest=position))
    blind = [Commit(began_s=one.began_s, committed_s=one.committed_s, end=None, newest=None) for one in commits]
    seconds = int(now_s) + 3
    known, guessed = (waited_s(one, origin_s=0.0, seconds=seconds) for one in (commits, blind))
    assert known == pytest.approx(guessed)


def _broken(*, again_s: float, until_s: float) -> CopyRecord:
    """Steady for a minute, broken just after 60 s, and at work again from then on, with all that has waited."""
    record = _record()
    for number, one in enumerate([*_steady(0, 61), *_steady(again_s, until_s)]):
        assert one.end is not None
        progress = a_batch(
            batch_id=number,
            began_s=one.began_s,
            duration_s=0.5,
            start=max(0.0, one.end - RATE_PER_S),
            end=one.end,
            latest=one.newest,
            query_id="q",
            run_id="run-1" if one.began_s < again_s else "run-2",
        )
        record.batch("q", progress, one.committed_s)
    return record


def test_a_recovery_is_measured_from_the_failure_to_the_last_bad_second() -> None:
    record = _broken(again_s=85.0, until_s=120.0)
    assert record.works_since_s(60.9) == 85.5
    found = record.recovery(from_s=0.0, broken_s=60.9, down_until_s=85.5, now_s=120.0, limit_s=100.0)
    assert not isinstance(found, Censored)
    assert 23.0 <= found <= 25.5


@pytest.mark.parametrize(("now_s", "limit_s"), [(80.0, 100.0), (90.0, 100.0), (120.0, 15.0)])
def test_a_recovery_that_is_not_over_is_censored(now_s: float, limit_s: float) -> None:
    record = _broken(again_s=85.0, until_s=now_s)
    works_s = record.works_since_s(60.9)
    found = record.recovery(
        from_s=0.0, broken_s=60.9, down_until_s=now_s if works_s is None else works_s, now_s=now_s, limit_s=limit_s
    )
    assert isinstance(found, Censored)
    assert found.at_least <= min(limit_s, now_s - 60.9) + 1.0


def test_the_worst_query_decides() -> None:
    record = _broken(again_s=85.0, until_s=120.0)
    for number, one in enumerate(_steady(0, 61)):  # this one never comes back
        progress = a_batch(
            batch_id=number, began_s=one.began_s, duration_s=0.5, start=0, end=one.end, latest=one.newest, query_id="r"
        )
        record.batch("r", progress, one.committed_s)
    assert record.works_since_s(60.9) is None
    assert isinstance(
        record.recovery(from_s=0.0, broken_s=60.9, down_until_s=120.0, now_s=120.0, limit_s=100.0), Censored
    )


def test_a_copy_that_was_never_heard_of_tells_how_long_it_has_been_missing() -> None:
    found = _record().recovery(from_s=0.0, broken_s=10.0, down_until_s=25.0, now_s=25.0, limit_s=100.0)
    assert found == Censored(at_least=15.0)


def _batch(record: CopyRecord, number: int, began_s: float, duration_s: float, *, end: float, latest: float) -> None:
    progress = a_batch(
        batch_id=number, began_s=began_s, duration_s=duration_s, start=0, end=end, latest=latest, query_id="q"
    )
    record.batch("q", progress, began_s + duration_s)


def test_a_batch_that_is_replayed_and_does_not_say_what_is_newest_does_not_hide_how_long_records_wait() -> None:
    """Spark tells no latest offset of a batch that it replays; the source gives 150 records a batch at most."""

    def commits(*, replay_tells: bool) -> list[Commit]:
        found = _steady(0, 60)
        newest = 85.0 * RATE_PER_S if replay_tells else None
        found.append(Commit(began_s=85.0, committed_s=88.0, end=60.0 * RATE_PER_S, newest=newest))
        end = 60.0 * RATE_PER_S
        for second in range(88, 200):
            end = min(second * RATE_PER_S, end + 150.0)
            found.append(Commit(began_s=float(second), committed_s=second + 0.5, end=end, newest=second * RATE_PER_S))
        return found

    told, untold = (waited_s(commits(replay_tells=tells), origin_s=0.0, seconds=180) for tells in (True, False))
    assert untold[60:] == pytest.approx(told[60:], nan_ok=True)
    # 28 s of records wait, and half a second of them is made up for in each second.
    assert sum(1 for wait_s in untold[60:] if wait_s > 2.0) == pytest.approx(75, abs=8)


def test_what_came_after_the_last_batch_that_tells_it_is_not_taken_to_be_committed() -> None:
    commits = [*_steady(0, 10), Commit(began_s=15.0, committed_s=16.0, end=9.0 * RATE_PER_S, newest=None)]
    waits = waited_s(commits, origin_s=0.0, seconds=16)
    assert waits[1:9] == pytest.approx([1.0] * 8)
    assert waits[9:] == [math.inf] * 7


def test_without_a_commit_there_is_no_latency_and_the_reason_is_told() -> None:
    """Commits every 90 s and one minute of measuring: what came before it, the start above all, must not stand in."""
    record = _record(measure_s=60.0, interval_s=90.0)
    for number, (began_s, duration_s) in enumerate([(60.0, 40.0), (100.0, 30.0), (180.0, 5.0), (270.0, 5.0)]):
        _batch(record, number, began_s, duration_s, end=began_s * RATE_PER_S, latest=began_s * RATE_PER_S)
    found = record.measured(186.0)
    assert found.observation.processed_rate_per_s == 0.0
    assert (found.observation.latency_p50_s, found.observation.latency_p95_s) == (None, None)
    assert found.detail == "no batch of q was committed while it was measured, so it has no latency"


def test_a_query_without_input_leaves_the_latency_to_the_others() -> None:
    record = _record()
    _tell(record, ModelJob(rates_per_s=[RATE_PER_S] * 80, capacity_per_s=1000.0, fixed_s=0.2, interval_s=1.0))
    slow = a_batch(batch_id=0, began_s=0.0, duration_s=30.0, start=0, end=9.0, latest=9.0, query_id="r")
    record.batch("r", slow, 30.0)
    record.idle("r", 45.0)
    found = record.measured(40.0)
    assert found.detail == ""
    assert found.observation.latency_p95_s is not None
    assert found.observation.latency_p95_s < 3.0


def test_where_no_records_come_nothing_is_late() -> None:
    record = _record()
    _batch(record, 0, 1.0, 0.5, end=10.0, latest=10.0)
    record.idle("q", 45.0)
    found = record.measured(40.0)
    assert found.observation.latency_p95_s is None
    assert found.detail == "no record came while it was measured, so it has no latency"


@pytest.mark.parametrize(
    ("batches", "caught_up"),
    [
        ([(40.0, 0.0)], False),
        ([(40.0, 0.0), (25.0, 0.0)], False),
        ([(40.0, 0.0), (25.0, 0.0), (24.0, 0.0)], True),  # as short as they get
        ([(40.0, 0.0), (9.0, 0.0)], True),
        ([(9.0, 0.0)], True),
        ([(9.0, 500.0)], False),  # within the interval, but it leaves some over
        ([(9.0, 500.0), (9.0, 400.0)], False),
        ([(9.0, 500.0), (9.0, 520.0)], True),  # it does not get any closer
    ],
)
def test_a_copy_has_caught_up_when_its_batches_are_as_they_will_be(
    batches: list[tuple[float, float]], caught_up: bool
) -> None:
    record = _record(interval_s=10.0)
    at_s = 0.0
    for number, (duration_s, behind) in enumerate(batches):
        newest = 1000.0 + at_s
        _batch(record, number, at_s, duration_s, end=newest - behind, latest=newest)
        at_s += max(duration_s, 10.0)
    assert record.has_caught_up() is caught_up
    record.idle("q", at_s + 1.0)
    assert record.has_caught_up(), "there is nothing left to do"


def test_the_level_to_get_back_to_is_that_of_the_time_since_it_was_measured() -> None:
    """Behind by 30 s until it had caught up: that is no level that 20 s after the failure would be good by."""
    record = _record()
    for number, one in enumerate([*_steady(0, 40, lag_s=30.0), *_steady(75, 100), *_steady(120, 200, lag_s=1.5)]):
        assert one.end is not None
        assert one.newest is not None
        _batch(record, number, one.began_s, one.duration_s, end=one.end, latest=one.newest)
    found, reached_back = (
        record.recovery(from_s=from_s, broken_s=100.5, down_until_s=100.5, now_s=200.0, limit_s=90.0)
        for from_s in (80.0, 0.0)
    )
    assert not isinstance(found, Censored)
    assert 15.0 <= found <= 25.0
    assert reached_back != found
