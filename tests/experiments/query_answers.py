"""What the measuring program says of a run, as Spark's own words came, cut down to what is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SCAN = ["MicroBatchScan", "WholeStageCodegen (1)", "EventTimeWatermark", "WholeStageCodegen (2)", "Exchange"]
SAVE = ["Exchange", "WholeStageCodegen (4)", "StateStoreRestore", "WholeStageCodegen (5)", "StateStoreSave"]


def a_batch(number: int, rows: int, ms: int, *, state_rows: int | None = None) -> dict[str, Any]:
    operators: list[dict[str, Any]] = [
        {
            "operatorName": "stateStoreSave",
            "numRowsTotal": state_rows,
            "memoryUsedBytes": 100 * (state_rows or 0),
            "commitTimeMs": 40,
            "numRowsDroppedByWatermark": 0,
            "numShufflePartitions": 2,
            "customMetrics": {},
        }
    ]
    return {
        "id": "query",
        "runId": "run",
        "timestamp": "2026-01-01T08:00:00.000Z",
        "batchId": number,
        "numInputRows": rows,
        "durationMs": {"addBatch": ms - 10, "triggerExecution": ms},
        "sources": [],
        "stateOperators": [] if state_rows is None else operators,
    }


def a_stage(number: int, batch: int, operators: Sequence[str], *, rows: int, run_ms: int) -> dict[str, Any]:
    return {
        "stage": number,
        "batch": batch,
        "operators": list(operators),
        "tasks": 2,
        "began_ms": 1_000 * number,
        "ended_ms": 1_000 * number + run_ms // 2,
        "run_ms": run_ms,
        "rows": rows,
        "longest_ms": 0.75 * run_ms,
    }


def an_answer(
    *,
    seconds: float = 10.0,
    cpu_s: float | None = 15.0,
    batches_ms: Sequence[int] = (900, 400, 500),
    keeps_state: bool = True,
) -> dict[str, Any]:
    """A run of so many batches of 1,000 events, and one without, which lets half of the state go."""
    last = len(batches_ms)
    rows = [100 * (number + 1) if keeps_state else None for number in range(last)]
    batches = [a_batch(number, 1_000, ms, state_rows=rows[number]) for number, ms in enumerate(batches_ms)]
    stages = []
    for number in range(last):
        stages.append(a_stage(2 * number, number, SCAN, rows=1_000, run_ms=300))
        if keeps_state:
            stages.append(a_stage(2 * number + 1, number, SAVE, rows=100, run_ms=100))
    if keeps_state:
        batches.append(a_batch(last, 0, 200, state_rows=50))
        stages.append(a_stage(2 * last, last, SAVE, rows=0, run_ms=90))
    return {
        "seconds": seconds,
        "cpu_s": cpu_s,
        "checkpoint_bytes": 4096,
        "batches": batches,
        "stages": stages,
    }
