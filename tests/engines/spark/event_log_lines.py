"""Lines of an event log as Spark 4.3 writes them, made up for a small job."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

UNIX_MS = 1_794_804_151_258
QUERY = "2bf9a36a-ae03-435d-97cd-af529de3335d"
STREAMING = "org.apache.spark.sql.streaming.StreamingQueryListener$"


def ms(at_s: float) -> int:
    """Seconds of the application as Spark's milliseconds."""
    return UNIX_MS + round(1000 * at_s)


def moment(at_s: float) -> str:
    return datetime.fromtimestamp(ms(at_s) / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def line(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":")) + "\n"


def started(*, executor_memory: str = "2g", master: str = "spark://host:7077") -> list[str]:
    properties = {"spark.master": master, "spark.executor.memory": executor_memory, "spark.app.name": "clicks"}
    return [
        line({"Event": "SparkListenerLogStart", "Spark Version": "4.3.0"}),
        line({"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": properties}),
        line(
            {
                "Event": "SparkListenerApplicationStart",
                "App Name": "clicks",
                "App ID": "app-1",
                "Timestamp": ms(0.0),
                "User": "ada",
            }
        ),
    ]


def executor_added(at_s: float, name: str = "0", *, cores: int = 2) -> str:
    info = {"Host": "127.0.0.1", "Total Cores": cores, "Log Urls": {}, "Resource Profile Id": 0}
    return line(
        {"Event": "SparkListenerExecutorAdded", "Timestamp": ms(at_s), "Executor ID": name, "Executor Info": info}
    )


def executor_removed(at_s: float, name: str) -> str:
    return line(
        {
            "Event": "SparkListenerExecutorRemoved",
            "Timestamp": ms(at_s),
            "Executor ID": name,
            "Removed Reason": "Worker shutting down",
        }
    )


def query_started(at_s: float, *, run: str = "run-1") -> str:
    return line(
        {
            "Event": f"{STREAMING}QueryStartedEvent",
            "id": QUERY,
            "runId": run,
            "name": "counts",
            "timestamp": moment(at_s),
            "jobTags": [],
        }
    )


def query_terminated(*, run: str = "run-1", exception: str | None = None) -> str:
    return line(
        {
            "Event": f"{STREAMING}QueryTerminatedEvent",
            "id": QUERY,
            "runId": run,
            "exception": exception,
            "errorClassOnException": None,
        }
    )


def query_idle(at_s: float, *, run: str = "run-1") -> str:
    return line({"Event": f"{STREAMING}QueryIdleEvent", "id": QUERY, "runId": run, "timestamp": moment(at_s)})


def progress(
    batch: int, *, began_s: float, took_s: float = 1.0, start: int, end: int, latest: int, run: str = "run-1"
) -> str:
    took_ms = round(1000 * took_s)
    source = {
        "description": "KafkaV2[Subscribe[clicks]]",
        "startOffset": json.dumps({"clicks": {"0": start}}),
        "endOffset": json.dumps({"clicks": {"0": end}}),
        "latestOffset": json.dumps({"clicks": {"0": latest}}),
        "numInputRows": end - start,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
        "metrics": {},
    }
    report = {
        "id": QUERY,
        "runId": run,
        "name": "counts",
        "timestamp": moment(began_s),
        "batchId": batch,
        "batchDuration": took_ms,
        "durationMs": {"triggerExecution": took_ms, "addBatch": took_ms - 100, "walCommit": 50, "commitOffsets": 50},
        "eventTime": {},
        "stateOperators": [],
        "sources": [source],
        "sink": {"description": "NoopTable", "numOutputRows": 1, "metrics": {}},
        "observedMetrics": {},
    }
    return line({"Event": f"{STREAMING}QueryProgressEvent", "progress": report})


def batch_job(number: int, batch: int, *, began_s: float, took_s: float, rows: int, cpu_s: float) -> list[str]:
    """The events of the job of one batch: a stage of one task."""
    properties = {"sql.streaming.queryId": QUERY, "streaming.sql.batchId": str(batch)}
    metrics = {
        "Executor Deserialize CPU Time": 0,
        "Executor Run Time": round(1000 * took_s),
        "Executor CPU Time": round(1e9 * cpu_s),
        "JVM GC Time": 10,
        "Shuffle Read Metrics": {"Total Records Read": 0},
        "Input Metrics": {"Bytes Read": 0, "Records Read": rows},
    }
    stage = {
        "Stage ID": number,
        "Stage Attempt ID": 0,
        "Stage Name": "start at NativeMethodAccessorImpl.java:0",
        "Number of Tasks": 1,
        # The last comes first, as Spark lists them; two are of one operator, and some are of none.
        "RDD Info": [
            {"RDD ID": 8, "Scope": '{"id":"spark_plan_5","name":"WholeStageCodegen (1)"}'},
            {"RDD ID": 7, "Scope": '{"id":"spark_plan_4","name":"MicroBatchScan"}'},
            {"RDD ID": 6, "Scope": '{"id":"spark_plan_4","name":"MicroBatchScan"}'},
            {"RDD ID": 9},
        ],
        "Submission Time": ms(began_s),
        "Completion Time": ms(began_s + took_s),
    }
    return [
        line(
            {
                "Event": "SparkListenerJobStart",
                "Job ID": number,
                "Submission Time": ms(began_s),
                "Stage Infos": [],
                "Stage IDs": [number, number + 100_000],
                "Properties": properties,
            }
        ),
        line(
            {
                "Event": "SparkListenerTaskEnd",
                "Stage ID": number,
                "Stage Attempt ID": 0,
                "Task Info": {"Task ID": number, "Finish Time": ms(began_s + took_s)},
                "Task Metrics": metrics,
            }
        ),
        line({"Event": "SparkListenerStageCompleted", "Stage Info": stage}),
        line(
            {
                "Event": "SparkListenerJobEnd",
                "Job ID": number,
                "Completion Time": ms(began_s + took_s),
                "Job Result": {"Result": "JobSucceeded"},
            }
        ),
    ]


def application_ended(at_s: float) -> str:
    return line({"Event": "SparkListenerApplicationEnd", "Timestamp": ms(at_s), "ExitCode": 0})


def a_steady_job(
    *, seconds: int, executors: int = 4, rate_per_s: int = 1000, took_s: float = 0.4, every_s: int = 2
) -> list[str]:
    """A job that reads all that has come every two seconds, from its tenth second on; its log has its end."""
    lines = [*started(), *(executor_added(5.0, str(name)) for name in range(executors)), query_started(9.0)]
    for batch in range((seconds - 10) // every_s):
        began_s = 10.0 + every_s * batch
        end = rate_per_s * every_s * (batch + 1)
        lines += batch_job(
            batch, batch, began_s=began_s, took_s=took_s / 2, rows=rate_per_s * every_s, cpu_s=took_s / 4
        )
        lines.append(
            progress(batch, began_s=began_s, took_s=took_s, start=end - rate_per_s * every_s, end=end, latest=end)
        )
    return [*lines, query_terminated(), application_ended(float(seconds))]
