"""Progress reports: true ones are read, wrong ones are refused with one kind of error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.spark.progress_samples import told_by_spark
from tidewise.engines.spark.progress import UnreadableProgressError, count_offset, parse_progress


def test_a_report_of_a_stateful_query_is_read() -> None:
    progress = parse_progress(told_by_spark("agg")[2])
    assert progress.name == "agg"
    assert progress.batch_id == 2
    assert progress.rows == 1500
    assert progress.duration_s == pytest.approx(0.815)
    assert progress.committed_unix_s == pytest.approx(progress.began_unix_s + 0.815)
    assert progress.durations_ms["addBatch"] == 611
    assert (progress.start, progress.end, progress.latest) == (1521, 3021, 8503)
    assert progress.backlog_known
    assert progress.executed
    times = progress.event_time
    assert times.min_unix_s is not None
    assert times.avg_unix_s is not None
    assert times.max_unix_s is not None
    assert times.min_unix_s < times.avg_unix_s < times.max_unix_s < progress.began_unix_s
    assert progress.watermark_delay_s is not None
    assert progress.watermark_delay_s > 2.0
    operator = progress.state[0]
    assert operator.name == "stateStoreSave"
    assert operator.partitions == 2
    assert operator.commit_ms > 0
    assert operator.metrics["rocksdbCommitFileSyncLatencyMs"] > 0
    assert progress.state_rows == operator.rows > 0
    assert progress.state_bytes == operator.memory_bytes > 0


def test_the_first_batch_begins_where_its_rows_do_and_has_no_watermark() -> None:
    progress = parse_progress(told_by_spark("agg")[0])
    assert progress.sources[0].start is None
    assert (progress.start, progress.end) == (0, 21)
    assert progress.watermark_delay_s is None


def test_a_query_without_state_and_event_time_says_so() -> None:
    progress = parse_progress(told_by_spark("plain")[1])
    assert progress.state_rows is None
    assert progress.state_bytes is None
    assert progress.event_time.max_unix_s is None


@pytest.mark.parametrize("name", ["files", "rate", "rmb"])
def test_sources_that_cannot_be_counted_or_do_not_tell_have_no_backlog(name: str) -> None:
    progress = parse_progress(told_by_spark(name)[0])
    assert progress.rows > 0
    assert not progress.backlog_known


def test_a_report_of_a_kafka_source_is_read_by_partition() -> None:
    first, second, *_ = (parse_progress(text) for text in told_by_spark("kafka"))
    assert [(one.topic, one.partition, one.start, one.end, one.latest) for one in second.sources[0].partitions] == [
        ("orders", 0, 30, 60, 3660),
        ("orders", 1, 10, 20, 1220),
        ("orders", 2, 10, 20, 1220),
    ]
    assert (second.start, second.end, second.latest) == (50, 100, 6100)
    assert second.sources[0].metrics["maxOffsetsBehindLatest"] == str(3660 - 60)
    # Spark does not say where the first batch began; its rows do.
    assert (first.start, first.end) == (0, 50)


def test_the_first_batch_after_a_restart_does_not_say_what_is_newest() -> None:
    runs = [parse_progress(text) for text in told_by_spark("kafka")]
    again = next(one for one in runs if one.run_id != runs[0].run_id)
    assert not again.backlog_known
    assert all(one.latest is None for one in again.sources[0].partitions)


def test_partitions_are_those_of_kafka_only() -> None:
    for name in ("plain", "agg", "files", "rate", "rmb"):
        assert parse_progress(told_by_spark(name)[0]).sources[0].partitions == ()


def test_a_trigger_that_found_nothing_is_no_batch() -> None:
    report = json.loads(told_by_spark("plain")[1])
    report["durationMs"] = {"latestOffset": 1, "triggerExecution": 2}
    assert not parse_progress(json.dumps(report)).executed


@pytest.mark.parametrize(
    ("offset", "counted"),
    [
        ({"orders": {"0": 10, "1": 32}, "refunds": {"0": 8}}, 50.0),
        ('{"orders": {"0": 10}}', 10.0),
        ({"records": 7}, 7.0),
        ({"offset": 10, "timestamp": 1000}, 10.0),
        ({"logOffset": 3}, None),
        (4, None),
        ("4", None),
        ("{broken", None),
        (None, None),
        ({}, None),
        ({"records": True}, None),
        ({"orders": {"0": None}}, None),
        ({"orders": {"0": float("nan")}}, None),
        ([1, 2], None),
    ],
)
def test_offsets_are_counted_where_they_count_records(offset: object, counted: float | None) -> None:
    assert count_offset(offset) == counted


def test_one_source_that_cannot_be_counted_makes_the_sum_unknown() -> None:
    report = json.loads(told_by_spark("plain")[1])
    report["sources"].append(json.loads(told_by_spark("files")[0])["sources"][0])
    progress = parse_progress(json.dumps(report))
    assert progress.end is None
    assert progress.latest is None
    assert not progress.backlog_known


def test_event_times_that_no_calendar_has_are_unknown() -> None:
    report = json.loads(told_by_spark("agg")[2])
    report["eventTime"]["max"] = "+52000-01-01T00:00:00.000Z"
    assert parse_progress(json.dumps(report)).event_time.max_unix_s is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "3", '"text"', "{}", '{"id": "a", "runId": "b"}', "[" * 100_000],
)
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(UnreadableProgressError, match="progress report"):
        parse_progress(text)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("id", 3),
        ("runId", ""),
        ("timestamp", "yesterday"),
        ("timestamp", None),
        ("batchId", -1),
        ("batchId", "one"),
        ("batchId", 10**400),
        ("numInputRows", float("nan")),
        ("numInputRows", True),
        ("durationMs", [1]),
        ("durationMs", {"addBatch": float("inf")}),
        ("sources", {"a": 1}),
        ("sources", [3]),
        ("stateOperators", "none"),
        ("eventTime", 5),
    ],
)
def test_a_wrong_value_is_named(key: str, value: object) -> None:
    report = json.loads(told_by_spark("agg")[2])
    report[key] = value
    with pytest.raises(UnreadableProgressError, match="in a progress report of Spark must be"):
        parse_progress(json.dumps(report))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(key=st.sampled_from(sorted(json.loads(told_by_spark("agg")[2]))), value=_JSON)
def test_whatever_stands_in_a_report_it_is_read_or_refused(key: str, value: object) -> None:
    report = json.loads(told_by_spark("agg")[2])
    report[key] = value
    try:
        progress = parse_progress(json.dumps(report))
    except UnreadableProgressError:
        return
    assert progress.rows >= 0
    assert progress.duration_s >= 0.0


def test_what_a_query_observes_is_read_as_numbers() -> None:
    told = json.loads(told_by_spark("agg")[2])
    told["observedMetrics"] = {"dead_letters": {"records": 3, "first": "a"}, "odd": 5}
    assert parse_progress(json.dumps(told)).observed == {"dead_letters.records": 3.0}
