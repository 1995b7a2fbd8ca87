"""How long a job that was down takes until it has worked off what has piled up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from tidewise.core import MEDIAN, Forecast
from tidewise.qos.candidates import Floats

NEVER_S = 10_000.0
"""A recovery that takes longer than this is as good as none, and is said to take this long."""
COLD_S = 30.0
"""How slowly a job that has come up anew gets to its full speed: the time in which what is missing falls by 63 %."""

_KNOTS_S = np.array(
    [0, 4, 8, 14, 20, 30, 45, 60, 90, 120, 180, 270, 420, 600, 1000, 2000, 4000, NEVER_S], dtype=np.float64
)
_NEWTON_STEPS = 5
_FULLEST = 0.95
"""The share of its capacity up to which the length of a job's usual batches is reckoned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """What one failure does to a job."""

    down_s: float
    """From the failure until the job works again."""
    piling_share: float
    """The share of that time in which records pile up: a failure that is noticed late lets the job work until then."""
    cold_share: float
    """The share of its capacity that the job lacks when it comes up; it warms up within `COLD_S` or so."""
    slack_s: float
    """Seconds of full capacity that may still be piled up when the job counts as well again."""

    def is_no_worse_than(self, other: Outage) -> bool:
        return (
            self.down_s <= other.down_s
            and self.piling_share <= other.piling_share
            and self.cold_share <= other.cold_share
            and self.slack_s >= other.slack_s
        )


class Arrivals:
    """Records that will have arrived by any time from now on: a path, and what it ends with from there on."""

    def __init__(self, rates_per_s: Floats, step_s: float) -> None:
        self._ends_s = step_s * np.arange(len(rates_per_s) + 1)
        self._sums = np.concatenate(([0.0], np.cumsum(rates_per_s) * step_s))
        self._last_per_s = float(rates_per_s[-1])
        self.rate_per_s = float(rates_per_s[0])
        """The rate now."""

    @classmethod
    def of(cls, forecast: Forecast, z: float) -> Arrivals:
        """The path that lies so many standard deviations from the median, between the paths that were forecast."""
        levels = np.asarray(ndtri(forecast.levels), dtype=np.float64)
        place = float(np.clip(z, levels[0], levels[-1]))
        above = int(np.clip(np.searchsorted(levels, place), 1, max(1, len(levels) - 1)))
        if len(levels) == 1:
            return cls(np.asarray(forecast.path(MEDIAN)), forecast.step_s)
        share = (place - levels[above - 1]) / (levels[above] - levels[above - 1])
        low, high = (np.asarray(forecast.paths_per_s[index]) for index in (above - 1, above))
        return cls((1.0 - share) * low + share * high, forecast.step_s)

    def until(self, times_s: Floats) -> Floats:
        """How many will have arrived by then."""
        beyond = np.maximum(0.0, times_s - self._ends_s[-1]) * self._last_per_s
        return np.asarray(np.interp(times_s, self._ends_s, self._sums) + beyond, dtype=np.float64)


def steady(rate_per_s: float) -> Forecast:
    """A load that stays as it is."""
    return Forecast(made_at_s=0.0, step_s=60.0, levels=(MEDIAN,), paths_per_s=((rate_per_s,),), model="as it is")


def replayed_s(usual: Floats, interval_s: Floats, phase: Floats | float, *, overhead_s: float) -> Floats:
    """What a failure leaves to do beside what arrives while the job is down, in seconds of full capacity.

    `usual`: rate over capacity before it. `phase`: how much of the commit interval had passed, 0 to 1. `overhead_s`:
    what each micro-batch costs; 0 for records that flow.
    """
    if overhead_s == 0.0:
        return np.asarray(usual * (phase * interval_s), dtype=np.float64)
    # The batch that was lost and what had come in since it began. A longer interval leaves more of that, but the
    # latency before the failure, by which a recovery is judged, was longer by as much: the interval cancels out.
    batch_s = overhead_s / (1.0 - np.minimum(usual, _FULLEST))
    return np.asarray(usual * batch_s * (1.0 + phase) + overhead_s, dtype=np.float64)


def recovery_s(
    outage: Outage,
    arrivals: Arrivals,
    *,
    capacity_per_s: Floats,
    interval_s: Floats,
    phase: Floats | float,
    overhead_s: float,
) -> Floats:
    """From the failure until the job has caught up, row by row; `NEVER_S` where it does not.

    With the backlog at restart, T0 = backlog / capacity, and T(i+1) = what arrives during T(i) / capacity, this is the
    downtime plus the sum of all T(i): the first time at which as much was worked off as had piled up and arrived.
    """
    load = 1.0 / capacity_per_s
    down = float(arrivals.until(np.array([outage.down_s]))[0])
    work_s = replayed_s(load * arrivals.rate_per_s, interval_s, phase, overhead_s=overhead_s)
    work_s += load * (outage.piling_share * down) - outage.slack_s
    return np.minimum(NEVER_S, outage.down_s + _worked_off_s(outage, arrivals, down, load, work_s))


def steady_recovery_s(
    *, down_s: Floats, piling_share: Floats, cold_share: Floats, slack_s: Floats, usual: Floats, replayed_s: Floats
) -> Floats:
    """The same where the rate stays what it is, for many outages at once; fits ask for it thousands of times."""
    work_s = replayed_s + usual * piling_share * down_s - slack_s
    cold_s = cold_share * COLD_S
    spare = np.maximum(1.0 - usual, 1e-6)
    # What is left to do is convex in time: Newton's steps from too late a time never pass the right one.
    taken_s = np.maximum(0.0, work_s + cold_s) / spare
    for _ in range(_NEWTON_STEPS):
        faded = np.exp(-taken_s / COLD_S)
        ahead = spare * taken_s - cold_s * (1.0 - faded) - work_s
        taken_s = np.maximum(0.0, taken_s - ahead / np.maximum(spare - cold_share * faded, 1e-3 * spare))
    return np.minimum(NEVER_S, down_s + np.where(work_s > 0.0, taken_s, 0.0))


def _worked_off_s(outage: Outage, arrivals: Arrivals, down: float, load: Floats, work_s: Floats) -> Floats:
    """When what is to be done and what arrives meanwhile is done; all in seconds of full capacity."""
    done_s = _KNOTS_S - outage.cold_share * COLD_S * -np.expm1(-_KNOTS_S / COLD_S)
    arrived = arrivals.until(outage.down_s + _KNOTS_S) - down
    taken_s = np.full(len(work_s), NEVER_S)
    behind = work_s > 0.0
    taken_s[~behind] = 0.0
    # Knot by knot, with the rows that are not done yet: a matrix of all knots would cost several times as much.
    rows = np.flatnonzero(behind)
    load, work_s = load[rows], work_s[rows]
    before = -work_s
    for knot in range(1, len(_KNOTS_S)):
        ahead = done_s[knot] - arrived[knot] * load - work_s
        caught = ahead >= 0.0
        if caught.any():
            share = before[caught] / (before[caught] - ahead[caught])
            taken_s[rows[caught]] = _KNOTS_S[knot - 1] + share * (_KNOTS_S[knot] - _KNOTS_S[knot - 1])
            left = ~caught
            rows, load, work_s, ahead = rows[left], load[left], work_s[left], ahead[left]
            if not len(rows):
                break
        before = ahead
    return taken_s
