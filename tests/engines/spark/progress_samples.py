"""Progress reports for tests: true ones of Spark 4.3, and batches made to measure."""

from __future__ import annotations

import json
from pathlib import Path

from tidewise.engines.spark.progress import BatchProgress, EventTimes, SourceProgress

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
