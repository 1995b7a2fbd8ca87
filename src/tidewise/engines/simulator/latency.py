"""Latency by arrival: how long the records of each second waited for their output, settled when the run is over."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PERCENTILES = (0.50, 0.95, 0.99)


def wait_in_flow(arrived: Floats, done: Floats) -> Floats:
    """Seconds that records arriving in the middle of each second wait in the queue of a continuous job.

    Both arguments are queue positions at the ends of the seconds: everything put into the queue so far (replayed
    records included) and everything taken out. A wait that outlasts the run is NaN.
    """
    seconds = np.arange(len(arrived), dtype=np.float64)
    before = np.concatenate(([0.0], arrived[:-1]))
    middle = (before + arrived) / 2
    out_positions = np.concatenate(([0.0], done))
    out_times = np.concatenate(([0.0], seconds + 1.0))
    served = _reached(middle, out_positions, out_times)
    wait: Floats = np.maximum(served - (seconds + 0.5), 0.0)
    return wait


def _reached(wanted: Floats, positions: Floats, times: Floats) -> Floats:
    """When each wanted position is reached on a curve that may stand still."""
    at = np.searchsorted(positions, wanted, side="left")
    beyond = at >= len(positions)
    upper = np.clip(at, 1, len(positions) - 1)
    lower = upper - 1
    span = positions[upper] - positions[lower]
    part = np.divide(wanted - positions[lower], span, out=np.ones_like(wanted), where=span > 0)
    reached: Floats = times[lower] + part * (times[upper] - times[lower])
    reached[beyond] = np.nan
    return reached


def latency_in_batches(rates: Floats, commit_positions: Floats, commit_times: Floats) -> tuple[Floats, Floats, Floats]:
    """p50, p95 and p99 of the records that arrive in each second, when output comes with the commit of a batch.

    Within a second the earliest records wait longest, so the p95 is the wait of those that come when 5 % of the
    second is over. A wait that outlasts the run is NaN.
    """
    seconds = np.arange(len(rates), dtype=np.float64)
    before = np.concatenate(([0.0], np.cumsum(rates)[:-1]))
    results = []
    for percentile in PERCENTILES:
        into = 1.0 - percentile
        wanted = before + into * rates
        batch = np.searchsorted(commit_positions, wanted * (1.0 - 1e-12), side="left")
        known = batch < len(commit_times)
        served = np.full(len(rates), np.nan)
        served[known] = commit_times[batch[known]]
        results.append(np.maximum(served - (seconds + into), 0.0))
    return results[0], results[1], results[2]
