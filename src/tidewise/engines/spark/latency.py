"""Latency of batches: each a stretch over which its records' latencies lie evenly, and what many of them make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidewise.core import LatencyMethod
from tidewise.engines.spark.progress import BatchProgress

_HALVINGS = 60


class LatencyChoice(StrEnum):
    """How the latency of a query is to be obtained."""

    AUTO = "auto"
    """From event times where the batch has them, else from wait, batch and backlog."""
    EVENT_TIME = "event-time"
    """From event times only; a batch without them has no latency."""
    BACKLOG = "backlog"
    """From wait, batch and backlog, also where there are event times: they may lie long before the arrivals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyStretch:
    """The latencies of one batch: evenly between two values, with the rows that have them."""

    least_s: float
    most_s: float
    rows: int
    method: LatencyMethod


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """The latency of a window."""

    p50_s: float
    p95_s: float
    p99_s: float
    method: LatencyMethod


def batch_latency(
    progress: BatchProgress, *, choice: LatencyChoice, wait_s: float, interval_s: float
) -> LatencyStretch | None:
    """The latencies of a batch; None where it has no rows, or not what the choice asks for.

    `wait_s` is the longest that a record can have waited for the trigger. By event time, the oldest record is taken to
    be as far below the average as the newest is above it: one record that came late must not pass for all.
    """
    if progress.rows == 0:
        return None
    newest_s, average_s = progress.event_time.max_unix_s, progress.event_time.avg_unix_s
    if choice is not LatencyChoice.BACKLOG and newest_s is not None and average_s is not None:
        oldest_s = min(2.0 * average_s - newest_s, newest_s)
        return LatencyStretch(
            least_s=max(0.0, progress.committed_unix_s - newest_s),
            most_s=max(0.0, progress.committed_unix_s - oldest_s),
            rows=progress.rows,
            method=LatencyMethod.EVENT_TIME,
        )
    if choice is LatencyChoice.EVENT_TIME:
        return None
    behind_s = progress.duration_s
    if progress.end is not None and progress.latest is not None:
        # What a limit on the rows of a batch has left over goes on at a batch per cycle.
        cycle_s = max(progress.duration_s, interval_s)
        behind_s += max(0.0, progress.latest - progress.end) * cycle_s / progress.rows
    return LatencyStretch(
        least_s=behind_s, most_s=behind_s + wait_s, rows=progress.rows, method=LatencyMethod.WAIT_BATCH_BACKLOG
    )


def percentiles(batches: Sequence[LatencyStretch]) -> Percentiles | None:
    """Of all records of these batches; None without any."""
    if not batches:
        return None
    p50_s, p95_s, p99_s = (_quantile(batches, share) for share in (0.5, 0.95, 0.99))
    return Percentiles(p50_s=p50_s, p95_s=p95_s, p99_s=p99_s, method=batches[-1].method)


def _quantile(batches: Sequence[LatencyStretch], share: float) -> float:
    """The smallest latency that at least this share of the rows does not exceed, by halving."""
    low_s, high_s = min(batch.least_s for batch in batches), max(batch.most_s for batch in batches)
    wanted = share * sum(batch.rows for batch in batches)
    for _ in range(_HALVINGS):
        middle_s = (low_s + high_s) / 2
        if sum(_rows_within(batch, middle_s) for batch in batches) >= wanted:
            high_s = middle_s
        else:
            low_s = middle_s
    return high_s


def _rows_within(batch: LatencyStretch, latency_s: float) -> float:
    if latency_s >= batch.most_s:
        return batch.rows
    if latency_s <= batch.least_s:
        return 0.0
    return batch.rows * (latency_s - batch.least_s) / (batch.most_s - batch.least_s)
