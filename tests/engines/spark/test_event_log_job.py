"""A program seen through its event log: the reports that the agent would have given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engines.spark import event_log_lines as lines
from tidewise.core import JobStatus, Observation
from tidewise.engines.spark.event_log import EventLog
from tidewise.engines.spark.event_log_job import LoggedJob, judge_interval_s


def reports(text: list[str], *, window_s: float = 10.0) -> tuple[list[Observation], LoggedJob]:
    job = LoggedJob(window_s=window_s, commit_interval_s=2.0)
    found = []
    for one in text:
        job.take(json.loads(one))
        found += job.observations(job.latest_s - 1.0)
    return [*found, *job.observations(job.latest_s)], job


def test_a_steady_job_is_reported_as_it_was() -> None:
    found, job = reports(lines.a_steady_job(seconds=100))
    assert job.name == "clicks"
    assert job.batches == 45
    assert job.ended is not None
    assert job.problems == ()
    middle = found[3]
    assert middle.status is JobStatus.RUNNING
    assert middle.input_rate_per_s == pytest.approx(1000.0, rel=0.01)
    assert middle.processed_rate_per_s == pytest.approx(1000.0, rel=0.01)
    assert middle.latency_p95_s == pytest.approx(2.3, abs=0.2)
    assert middle.configuration.executors == 4
    assert middle.configuration.slots_per_executor == 2
    # 2 GiB and the overhead that Spark adds where none is set.
    assert middle.configuration.memory_mib_per_executor == 2048 + 384
    # A tenth of a second in a task for each batch, of four executors with two cores each.
    assert middle.cpu_share == pytest.approx(0.1 / (2.0 * 8), rel=0.05)
    (stage,) = middle.operators
    assert stage.name == "MicroBatchScan"
    assert stage.input_rate_per_s == pytest.approx(1000.0, rel=0.01)
    assert stage.throughput_per_channel_per_s == pytest.approx(10_000.0, rel=0.01)


def test_executors_that_come_and_go_are_counted() -> None:
    text = lines.a_steady_job(seconds=100)
    at = next(index for index, one in enumerate(text) if '"batchId":20,' in one)
    text[at:at] = [lines.executor_removed(50.0, "3"), lines.executor_removed(50.0, "2")]
    found, _ = reports(text)
    counts = [one.configuration.executors for one in found]
    assert counts[0] == 4
    assert counts[-1] == 2


@pytest.mark.parametrize(
    ("exception", "status"), [(None, JobStatus.CHANGING), ("java.lang.Error: gone", JobStatus.DOWN)]
)
def test_a_query_that_ends_and_comes_back_leaves_a_gap(exception: str | None, status: JobStatus) -> None:
    text = lines.a_steady_job(seconds=60)
    again = [
        lines.progress(
            25 + n, began_s=80.0 + 2 * n, took_s=0.4, start=50_000 + n, end=50_001 + n, latest=51_000, run="b"
        )
        for n in range(10)
    ]
    text[-2:] = [lines.query_terminated(exception=exception), lines.query_started(78.0, run="b"), *again]
    found, _ = reports(text)
    gone = [one for one in found if one.status is status]
    assert gone
    assert gone[0].time_s - gone[0].window_s == pytest.approx(58.4, abs=0.5)
    assert found[-1].status is JobStatus.RUNNING


def test_a_query_that_has_nothing_to_do_is_idle_and_not_late() -> None:
    text = [*lines.a_steady_job(seconds=40)[:-2], *(lines.query_idle(float(at)) for at in range(45, 120, 10))]
    found, _ = reports(text)
    assert found[-1].is_idle
    assert found[-1].time_s > 100.0


def test_in_local_mode_the_driver_is_the_executor() -> None:
    text = lines.a_steady_job(seconds=60, executors=0)
    text[:3] = lines.started(master="local[2]")
    text.insert(3, lines.executor_added(1.0, "driver", cores=2))
    found, job = reports(text)
    assert job.configuration is not None
    assert job.configuration.executors == 1
    assert job.configuration.memory_mib_per_executor == 1024
    assert found[2].processed_rate_per_s > 0.0


def test_events_that_are_not_as_spark_writes_them_are_noted_and_passed_by() -> None:
    text = lines.a_steady_job(seconds=60)
    broken = [
        {"Event": f"{lines.STREAMING}QueryProgressEvent", "progress": {"id": 3}},
        {"Event": f"{lines.STREAMING}QueryProgressEvent"},
        {"Event": "SparkListenerTaskEnd", "Stage ID": 1, "Task Info": {}},
        {"Event": "SparkListenerExecutorAdded", "Timestamp": "soon"},
        {"Event": "SparkListenerExecutorAdded", "Timestamp": float("nan"), "Executor ID": "9"},
        {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": 5},
    ]
    text[10:10] = [json.dumps(event) for event in broken]
    found, job = reports(text)
    assert len(job.problems) == len(broken)
    assert found[3].input_rate_per_s == pytest.approx(1000.0, rel=0.01)


@pytest.mark.parametrize(("every_s", "took_s", "expected_s"), [(2, 0.4, 2.0), (10, 1.0, 10.0), (1, 1.0, 0.0)])
def test_the_interval_of_a_trigger_is_judged_by_when_batches_begin(
    tmp_path: Path, every_s: int, took_s: float, expected_s: float
) -> None:
    text = lines.a_steady_job(seconds=120, every_s=every_s, took_s=took_s)
    (tmp_path / "app-1").write_text("".join(text), encoding="utf-8")
    assert judge_interval_s(EventLog(tmp_path)) == expected_s


def test_an_interval_cannot_be_judged_by_a_few_batches(tmp_path: Path) -> None:
    (tmp_path / "app-1").write_text("".join(lines.a_steady_job(seconds=16)), encoding="utf-8")
    assert judge_interval_s(EventLog(tmp_path)) is None


def test_what_is_kept_in_memory_does_not_grow_with_the_log() -> None:
    _, job = reports(lines.a_steady_job(seconds=2000))
    assert len(job._stages) == 0
    assert len(job._jobs) == 0
    assert sum(map(len, job._done.values())) <= 12
