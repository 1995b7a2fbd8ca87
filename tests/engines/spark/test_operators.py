"""Stages of a batch become operators that a policy can scale by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engines.spark.progress_samples import a_batch
from tidewise.core import Configuration, JobStatus, OperatorKind
from tidewise.engines.spark.operators import StageSample, logged_operators, operators_of, stage_names
from tidewise.engines.spark.progress import StateOperator
from tidewise.engines.spark.reports import Reporter

READS = StageSample(stage_id=10, name="start", seconds=0.4, tasks=4, rows=1000, batch_id=7, is_done=True, run_s=0.8)
COUNTS = StageSample(
    stage_id=11, name="start", seconds=0.2, tasks=2, rows=100, batch_id=7, is_done=True, run_s=0.1, shuffled_rows=100
)
PLAIN = a_batch(batch_id=7, began_s=0.0, duration_s=0.7, start=0, end=1000, latest=1000)


def _with_state(*names: str) -> object:
    return replace(
        PLAIN,
        state=tuple(
            StateOperator(name=name, rows=1, memory_bytes=1, partitions=2, commit_ms=1.0, dropped_rows=0, metrics={})
            for name in names
        ),
    )


@pytest.mark.parametrize(
    ("states", "kind"),
    [
        (("stateStoreSave",), OperatorKind.WINDOW),
        (("dedupe",), OperatorKind.WINDOW),
        (("transformWithStateExec",), OperatorKind.WINDOW),
        (("symmetricHashJoin",), OperatorKind.JOIN),
        (("symmetricHashJoin", "stateStoreSave"), OperatorKind.JOIN),
        ((), OperatorKind.CONTINUOUS),
    ],
)
def test_what_reads_is_continuous_and_what_has_state_is_not(states: tuple[str, ...], kind: OperatorKind) -> None:
    latest = _with_state(*states)
    found = operators_of([READS, COUNTS], latest, name="", slots=3, rate_per_s=500.0)  # type: ignore[arg-type]  # a batch
    assert [one.kind for one in found] == [OperatorKind.CONTINUOUS, kind]
    assert [one.name for one in found] == ["stage 1", "stage 2"]
    assert [one.channels for one in found] == [3, 2]
    assert [one.input_rate_per_s for one in found] == [500.0, 50.0]
    assert [one.throughput_per_channel_per_s for one in found] == [pytest.approx(1250.0), pytest.approx(1000.0)]
    assert [one.latency_s for one in found] == [0.4, 0.2]


def test_both_sides_of_a_join_read() -> None:
    other = replace(READS, stage_id=11, rows=3000)
    joins = replace(COUNTS, stage_id=12, rows=4000, shuffled_rows=4000)
    latest = _with_state("symmetricHashJoin")
    found = operators_of([READS, other, joins], latest, name="", slots=8, rate_per_s=400.0)  # type: ignore[arg-type]  # a batch
    assert [one.kind for one in found] == [OperatorKind.CONTINUOUS, OperatorKind.CONTINUOUS, OperatorKind.JOIN]
    assert [one.input_rate_per_s for one in found] == [100.0, 300.0, 400.0]


def test_the_newest_batch_counts_that_is_done_and_has_rows() -> None:
    older = replace(READS, stage_id=5, batch_id=6)
    empty = replace(READS, stage_id=20, batch_id=8, rows=0)
    running = replace(READS, stage_id=21, batch_id=9, is_done=False)
    found = operators_of([older, READS, COUNTS, empty, running], PLAIN, name="a ", slots=8, rate_per_s=1.0)
    assert [(one.name, one.channels) for one in found] == [("a stage 1", 4), ("a stage 2", 2)]


SCAN = ("MicroBatchScan", "WholeStageCodegen (1)", "EventTimeWatermark", "WholeStageCodegen (2)", "Exchange")
SAVE = ("Exchange", "WholeStageCodegen (4)", "StateStoreRestore", "WholeStageCodegen (5)", "StateStoreSave")
JOIN = ("Exchange", "Exchange", "StreamingSymmetricHashJoin", "WholeStageCodegen (5)", "Exchange")


def test_stages_are_named_after_what_they_do() -> None:
    assert stage_names([SCAN, SAVE]) == ["MicroBatchScan", "StateStoreSave"]
    assert stage_names([SCAN, SCAN, JOIN, SAVE]) == [
        "MicroBatchScan 1",
        "MicroBatchScan 2",
        "StreamingSymmetricHashJoin",
        "StateStoreSave",
    ]
    sessions = ("Exchange", "Sort", "SessionWindowStateStoreRestore", "MergingSessions", "SessionWindowStateStoreSave")
    assert stage_names([sessions]) == ["SessionWindowStateStoreSave"]
    twice = ("Exchange", "ObjectHashAggregate", *SAVE[1:], "StateStoreSave", "GlobalLimit")
    assert stage_names([SCAN, SAVE, twice]) == ["MicroBatchScan", "StateStoreSave", "StateStoreSave + GlobalLimit"]
    assert stage_names([("Exchange", "WholeStageCodegen (3)"), (), ("WholeStageCodegen (1)",)]) == [
        "Exchange",
        "stage 2",
        "stage 3",
    ]


def test_an_event_log_tells_operators_by_its_rdds() -> None:
    scan, exchange = '{"id":"4","name":"MicroBatchScan"}', '{"id":"10","name":"Exchange"}'
    rdds: list[dict[str, object]] = [
        {"RDD ID": 12, "Scope": exchange},
        {"RDD ID": 2, "Scope": scan},
        {"RDD ID": 10, "Scope": scan},
        {"RDD ID": 11},
    ]
    assert logged_operators(rdds) == ("MicroBatchScan", "Exchange")
    assert logged_operators([]) == ()


def test_names_come_with_the_reports_and_tell_a_join_from_what_comes_after_it() -> None:
    reads, other = replace(READS, operators=SCAN), replace(READS, stage_id=11, operators=SCAN)
    joins = replace(COUNTS, stage_id=12, operators=JOIN)
    counts = replace(COUNTS, stage_id=13, operators=SAVE)
    latest = _with_state("symmetricHashJoin", "stateStoreSave")
    found = operators_of([reads, other, joins, counts], latest, name="a ", slots=8, rate_per_s=400.0)  # type: ignore[arg-type]  # a batch
    assert [(one.name, one.kind) for one in found] == [
        ("a MicroBatchScan 1", OperatorKind.CONTINUOUS),
        ("a MicroBatchScan 2", OperatorKind.CONTINUOUS),
        ("a StreamingSymmetricHashJoin", OperatorKind.JOIN),
        ("a StateStoreSave", OperatorKind.WINDOW),
    ]


def test_what_is_not_known_stays_unknown() -> None:
    assert operators_of([], PLAIN, name="", slots=8, rate_per_s=1.0) == []
    assert operators_of([replace(READS, batch_id=None)], PLAIN, name="", slots=8, rate_per_s=1.0) == []
    uncounted = replace(READS, rows=0, run_s=None)
    first, second = operators_of([uncounted, COUNTS], PLAIN, name="", slots=8, rate_per_s=500.0)
    assert first.throughput_per_channel_per_s is None
    assert (first.input_rate_per_s, second.input_rate_per_s) == (500.0, 50.0)


def test_reports_have_operators_while_the_job_runs_and_stages_are_fresh() -> None:
    reporter = Reporter(window_s=5.0)
    reporter.status(JobStatus.RUNNING, 0.0)
    reporter.configuration(Configuration(executors=2, slots_per_executor=1, commit_interval_s=1.0), 0.0)
    for second in range(60):
        rows = 100 * second
        batch = a_batch(batch_id=second, began_s=second, duration_s=0.5, start=rows, end=rows + 100, latest=rows + 100)
        reporter.batch(batch, second + 0.5)
    reporter.stages("query", [READS, COUNTS], 12.0)
    reporter.stages("unheard of", [READS], 12.0)
    reporter.status(JobStatus.DOWN, 20.0)
    reporter.status(JobStatus.RUNNING, 25.0)
    reports = {report.time_s: report.operators for report in reporter.observations(60.0)}
    assert [one.name for one in reports[15.0]] == ["query stage 1", "query stage 2"]
    assert reports[15.0][0].channels == 2
    assert reports[15.0][0].input_rate_per_s == pytest.approx(100.0, rel=0.2)
    assert reports[25.0] == (), "a job that is down has no operators"
    assert reports[30.0] != ()
    assert reports[50.0] == (), "the stages are of long ago"
