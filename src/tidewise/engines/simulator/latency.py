"""Latency by arrival: how long the records of each second waited for their output, settled when the run is over."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_MOMENTS: Floats = np.linspace(0.01, 0.99, 11)
"""The moments of a second whose arrivals stand for all of it."""


def wait_in_flow(rates: Floats, arrived: Floats, done: Floats) -> Floats:
    """Seconds that records arriving in the middle of each second wait in the queue of a continuous job.

    `arrived` and `done` are queue positions at the ends of the seconds: where the last record of a second stands,
    replayed ones before it included, and up to where the queue has been served. A wait that outlasts the run is NaN.
    """
    seconds = np.arange(len(arrived), dtype=np.float64)
    out_positions = np.concatenate(([0.0], done))
    out_times = np.concatenate(([0.0], seconds + 1.0))
    served = _reached(arrived - rates / 2, out_positions, out_times)
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

    A second whose records were not all output before the run ended has NaN.
    """
    seconds = np.arange(len(rates), dtype=np.float64)[:, np.newaxis]
    before = np.concatenate(([0.0], np.cumsum(rates)[:-1]))[:, np.newaxis]
    wanted = before + _MOMENTS * rates[:, np.newaxis]
    # A trifle less, so that the last record of a batch does not fall into the next one by rounding.
    batch = np.searchsorted(commit_positions, (wanted * (1.0 - 1e-12)).ravel(), side="left").reshape(wanted.shape)
    served = np.append(commit_times, np.nan)[np.minimum(batch, len(commit_times))]
    waits = np.sort(np.maximum(served - (seconds + _MOMENTS), 0.0), axis=1)
    waits[np.isnan(waits).any(axis=1)] = np.nan
    middle, second, longest = waits[:, len(_MOMENTS) // 2], waits[:, -2], waits[:, -1]
    return middle, (second + longest) / 2, second + 0.9 * (longest - second)
