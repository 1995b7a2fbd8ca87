"""Progress reports for tests: true ones of Spark 4.3, and batches made to measure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from tidewise.engines.spark.progress import BatchProgress, EventTimes, SourceProgress, parse_progress

UNIX_S = 1_790_000_000.0
"""Where the clock of the run begins."""
_TOLD_BY_SPARK = Path(__file__).parent / "data" / "progress.jsonl"


def told_by_spark(name: str) -> list[str]:
    """The reports of a query of a real run: plain, agg (limited to 1,500 rows a batch, 1,000 come per second), ..."""
    lines = _TOLD_BY_SPARK.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if json.loads(line)["name"] == name]


def a_batch(
    *,
    batch_id: int,
    began_s: float,
    duration_s: float,
    start: float | None,
    end: float | None,
    latest: float | None,
    rows: int | None = None,
    query_id: str = "query",
    run_id: str = "run-1",
    add_batch_s: float | None = None,
    event_time: EventTimes | None = None,
) -> BatchProgress:
    """A batch of one source; its rows are what lies between start and end unless said otherwise."""
    if rows is None:
        rows = int((end or 0) - (start or 0))
    return BatchProgress(
        query_id=query_id,
        run_id=run_id,
        name=None,
        batch_id=batch_id,
        began_unix_s=UNIX_S + began_s,
        durations_ms={
            "triggerExecution": 1000 * duration_s,
            "addBatch": 1000 * (duration_s if add_batch_s is None else add_batch_s),
        },
        rows=rows,
        sources=(SourceProgress(description="made", start=start, end=end, latest=latest, rows=rows, metrics={}),),
        event_time=event_time or EventTimes(),
        state=(),
    )


Offsets = Mapping[str, Mapping[int, int]]
"""By topic and partition."""


def a_kafka_source(start: Offsets | None, end: Offsets, latest: Offsets | None, *, rows: int) -> dict[str, object]:
    """One source as Spark 4.3 tells of it."""
    behind = (
        [] if latest is None else [at - end[topic][key] for topic, parts in latest.items() for key, at in parts.items()]
    )
    metrics = (
        {}
        if not behind
        else {
            "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
            "maxOffsetsBehindLatest": str(max(behind)),
            "minOffsetsBehindLatest": str(min(behind)),
        }
    )
    return {
        "description": "KafkaV2[Subscribe[orders]]",
        "startOffset": start,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": rows,
        "inputRowsPerSecond": 100.0,
        "processedRowsPerSecond": 100.0,
        "metrics": metrics,
    }


def a_kafka_batch(
    *,
    batch_id: int,
    began_s: float,
    start: Offsets | None,
    end: Offsets,
    latest: Offsets | None,
    duration_s: float = 0.5,
    rows: int | None = None,
    run_id: str = "run-1",
) -> BatchProgress:
    """A batch of one Kafka source; every record between start and end is a row unless said otherwise."""
    if rows is None:
        begun = {} if start is None else start
        rows = sum(at - begun.get(topic, {}).get(key, 0) for topic, parts in end.items() for key, at in parts.items())
    return parse_progress(
        json.dumps(
            {
                "id": "query",
                "runId": run_id,
                "name": None,
                "timestamp": datetime.fromtimestamp(UNIX_S + began_s, UTC).isoformat(timespec="milliseconds"),
                "batchId": batch_id,
                "numInputRows": rows,
                "durationMs": {"triggerExecution": 1000 * duration_s, "addBatch": 900 * duration_s},
                "sources": [a_kafka_source(start, end, latest, rows=rows)],
                "stateOperators": [],
                "sink": {"description": "ForeachBatchSink"},
            }
        )
    )
