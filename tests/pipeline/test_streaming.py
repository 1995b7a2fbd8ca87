"""What Spark does not tell of a topic is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from tidewise.pipeline.streaming import late_rows, lost_lines


def progress(*sources: dict[str, Any], operators: Sequence[dict[str, Any]] = ()) -> StreamingQueryProgress:
    return StreamingQueryProgress.fromJson(
        {
            "id": "d1d5c1d0-0000-4000-8000-000000000000",
            "runId": "d1d5c1d0-0000-4000-8000-000000000001",
            "name": "tables",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "batchId": 3,
            "batchDuration": 100,
            "numInputRows": sum(source["numInputRows"] for source in sources),
            "inputRowsPerSecond": 1.0,
            "processedRowsPerSecond": 1.0,
            "durationMs": {},
            "eventTime": {},
            "stateOperators": list(operators),
            "sources": list(sources),
            "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
        }
    )


def topic(*, start: dict[str, int] | None, end: dict[str, int], rows: int) -> dict[str, Any]:
    return {
        "description": "KafkaV2[Subscribe[metrics]]",
        "startOffset": None if start is None else {"metrics": start},
        "endOffset": {"metrics": end},
        "latestOffset": None,
        "numInputRows": rows,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
    }


@pytest.mark.parametrize(
    ("source", "lost"),
    [
        pytest.param(topic(start={"0": 10, "1": 20}, end={"0": 30, "1": 50}, rows=50), 0, id="all-read"),
        pytest.param(topic(start={"0": 10, "1": 20}, end={"0": 30, "1": 50}, rows=37), 13, id="some-deleted"),
        pytest.param(topic(start={"0": 10}, end={"0": 30, "1": 5}, rows=25), 0, id="a-new-partition"),
        pytest.param(topic(start=None, end={"0": 30}, rows=12), 0, id="from-whatever-was-there"),
        pytest.param({**topic(start={"0": 0}, end={"0": 9}, rows=3), "description": "FileStreamSource"}, 0, id="files"),
    ],
)
def test_lines_that_a_topic_deleted_before_they_were_read_are_counted(source: dict[str, Any], lost: int) -> None:
    assert lost_lines(progress(source)) == lost


def test_rows_that_were_dropped_as_late_are_counted() -> None:
    operator = {
        "operatorName": "dedupeWithinWatermark",
        "numRowsTotal": 7,
        "numRowsUpdated": 7,
        "numRowsRemoved": 0,
        "allUpdatesTimeMs": 1,
        "allRemovalsTimeMs": 1,
        "commitTimeMs": 1,
        "memoryUsedBytes": 1,
        "numRowsDroppedByWatermark": 5,
        "numShufflePartitions": 2,
        "numStateStoreInstances": 2,
        "customMetrics": {},
    }
    assert late_rows(progress(operators=[operator, operator])) == 10
    assert late_rows(progress()) == 0
