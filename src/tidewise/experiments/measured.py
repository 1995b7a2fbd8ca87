"""A real run second by second, made of the reports of its engine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from tidewise.core import JobStatus, Observation
from tidewise.experiments.series import FloatArray, Series

_SHORTEST_SHARE = 0.5


def measured_series(
    observations: Sequence[Observation], *, seconds: int, since_s: float, forecast_per_s: FloatArray
) -> Series:
    """The series of `seconds` seconds from `since_s` on; the observations are in order, and there is at least one.

    A second shows the report whose window it lies in. One that nobody reported, because no controller was there, shows
    the first report after it, or else the last. Latency is told by the time of output, and put here where the records
    had arrived: a job works them off in their order, so those of a second have the latency of the first report whose
    median record arrived in it or later. Seconds whose records were not output before the last report have none.
    A report over much less than the usual window is left out: all that was late may be crammed into it.
    """
    usual_s = float(np.median([observation.window_s for observation in observations]))
    observations = [one for one in observations if one.window_s >= _SHORTEST_SHARE * usual_s]
    ends = np.array([observation.time_s for observation in observations]) - since_s
    chosen = np.minimum(np.searchsorted(ends, np.arange(seconds) + 0.5), len(observations) - 1)
    rows = [observations[index] for index in chosen]
    latencies = _by_arrival(observations, seconds=seconds, since_s=since_s)
    return Series(
        second=np.arange(seconds),
        input_rate_per_s=_column(row.input_rate_per_s for row in rows),
        processed_rate_per_s=_column(row.processed_rate_per_s for row in rows),
        backlog_records=_column(row.backlog_records for row in rows),
        latency_p50_s=latencies[0],
        latency_p95_s=latencies[1],
        latency_p99_s=latencies[2],
        up=np.array([row.status is JobStatus.RUNNING for row in rows], dtype=np.bool_),
        busy_share=_column(row.busy_share for row in rows),
        cpu_share=_column(row.cpu_share for row in rows),
        memory_share=_column(row.memory_share for row in rows),
        state_mib=_column(row.state_mib for row in rows),
        executors=np.array([row.configuration.executors for row in rows], dtype=np.int64),
        cores=_column(row.configuration.total_cores for row in rows),
        memory_mib=_column(row.configuration.total_memory_mib for row in rows),
        forecast_per_s=forecast_per_s,
    )


def _by_arrival(observations: Sequence[Observation], *, seconds: int, since_s: float) -> FloatArray:
    """Three rows: the 50th, 95th and 99th percentile of each second's records."""
    found = np.full((3, seconds), np.nan)
    begin = 0
    for observation in observations:
        known = (observation.latency_p50_s, observation.latency_p95_s, observation.latency_p99_s)
        if known[0] is None or known[1] is None or known[2] is None:
            continue
        end = min(seconds, math.ceil(observation.time_s - known[0] - since_s))
        if end > begin:
            found[:, begin:end] = np.array(known, dtype=np.float64)[:, None]
            begin = end
    return found


def _column(values: Iterable[float | None]) -> FloatArray:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
