"""What micro-batches leave for records: long ones waste less, and make seconds bad."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidewise.core import Configuration
from tidewise.engines.simulator import SimulatorProfile
from tidewise.engines.simulator.physics import capacity_per_s
from tidewise.experiments.fixed_run import run_fixed
from tidewise.experiments.measures import good_share

_AMPLE_MIB = 2**20
"""Memory that is never felt."""
_MEASURED_S = 36000
"""How long each utilisation is looked at."""
_LENGTHS = (0.34, 0.37, 0.4, 0.42, 0.44, 0.46, 0.48, 0.5, 0.53, 0.57, 0.62)
"""Of a batch in parts of the limit, for which bad seconds are measured: up to a half, noise alone makes them bad."""
_TO_THE_GOOD = 0.9
"""Of the bad seconds that were measured, so many are believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """A line below what batches can do: the share of time for records, and what a bad second adds to it."""

    free_share: float
    """Where no second is bad."""
    bought_s: float
    """Of processing at full speed, for each bad second."""


ALL_FREE = Trade(free_share=1.0, bought_s=0.0)


def trades_of(
    profile: SimulatorProfile,
    *,
    limit_s: float,
    on_p95: bool,
    seed: int,
    intervals_s: Sequence[float],
    bad_share: float,
) -> tuple[Trade, ...]:
    """One line or two, both of which hold.

    `bad_share`: about how many of the seconds may be bad; of all lines, the one that says most there is taken, and the
    one that says most for a job that has a backlog. Without noise, records are in time only if two batches together
    are within the limit, and a second more, because batches may keep step with the seconds. With noise, what share of
    the seconds is bad at which utilisation is measured, in the simulator at even load: in the mean nobody does better.
    """
    batch = profile.batch
    if batch is None or batch.fixed_s <= 0.0:
        return (ALL_FREE,)
    if math.hypot(batch.noise_share, profile.capacity.noise_share) <= 0.0:
        wasted = min(1.0, 2.0 * batch.fixed_s / (limit_s + 1.0))
        return (Trade(free_share=1.0 - wasted, bought_s=wasted),)
    used = np.array([1.0 - batch.fixed_s / (length * limit_s) for length in _LENGTHS])
    used = used[used > 0.0]
    measured = [
        [_bad_share(profile, float(one), interval_s, limit_s, seed, on_p95=on_p95) for one in used]
        for interval_s in intervals_s
    ]
    bad = _TO_THE_GOOD * np.minimum.accumulate(np.min(measured, axis=0)[::-1])[::-1]
    lines = _lines_below(used.tolist(), bad.tolist())
    usual = min(lines, key=lambda line: line.free_share + line.bought_s * bad_share)
    return (lines[0],) if usual == lines[0] else (lines[0], usual)


def _lines_below(used: list[float], bad: list[float]) -> tuple[Trade, ...]:
    """Lines that no measured point is below: one to where all is bad, and one through each point."""
    steepest = max([0.0, *((one - share) / (1.0 - share) for one, share in zip(used, bad, strict=True) if share < 1.0)])
    found = [Trade(free_share=steepest, bought_s=1.0 - steepest)]
    for at in range(1, len(used) - 1):
        slope = (bad[at + 1] - bad[at - 1]) / (used[at + 1] - used[at - 1])
        if slope <= 0.0:
            continue
        reached = [one - share / slope for one, share in zip(used, bad, strict=True)]
        free_share = max(reached)
        if 0.0 < free_share < 1.0 and slope * (1.0 - free_share) <= 1.0:
            found.append(Trade(free_share=free_share, bought_s=1.0 / slope))
    return tuple(found)


def _bad_share(
    profile: SimulatorProfile, used: float, interval_s: float, limit_s: float, seed: int, *, on_p95: bool
) -> float:
    """Of the seconds, at even load and this utilisation."""
    one = Configuration(executors=1, memory_mib_per_executor=_AMPLE_MIB, commit_interval_s=interval_s)
    rates = np.full(_MEASURED_S, used * capacity_per_s(profile.capacity, one, 1))
    series, _ = run_fixed(profile=profile, rates_per_s=rates, seed=seed, faults=(), configuration=one)
    return 1.0 - good_share(series, series.latency_p95_s if on_p95 else series.latency_p50_s, limit_s)
