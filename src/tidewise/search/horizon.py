"""The load to come as a plan needs it: a few steps, a few levels in each, and how one becomes another."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from tidewise.core import MEDIAN, Forecast
from tidewise.core.checks import require_finite
from tidewise.qos import Floats

_STEPS_S = (30.0, 30.0, 60.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 420.0)
"""How the next half an hour is cut, finely where something can be done about it soon; beyond it models only guess."""
_TAIL_SHARES = (0.15, 0.2, 0.3, 0.35)
"""How what follows is cut, where habits tell of it."""
_EARLY_S, _EARLY_MORE = 600.0, 2.0
"""Until then so many times as much is expected as later on."""
_LEAST_RATE = 1e-6
_NARROWEST, _SUREST = 1e-3, 0.999


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What a load does for hours: it comes back to its usual level, and is as far from it as it usually is."""

    log_mean: float
    """Of the highest rates of some minutes each, as are the steps of a horizon."""
    log_sd: float
    lasts_s: float
    """After so long, a share of 1/e is left of what it was above or below its usual level."""

    def __post_init__(self) -> None:
        require_finite("log_mean", self.log_mean)
        require_finite("log_sd", self.log_sd, least=0.0)
        require_finite("lasts_s", self.lasts_s, above=0.0)

    def kept(self, after_s: float) -> float:
        """How much of what it is above or below its usual level is left after this time."""
        return math.exp(-after_s / self.lasts_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Horizon:
    """The load to come, in steps: a few levels that it may have at each, and how it gets from one to another."""

    lengths_s: Floats
    log_rates: Floats
    """Steps x levels: logarithms of the rates, the highest of each step."""
    chances: Floats
    """How likely each level is."""
    turns: Floats
    """For each step but the last, levels x levels: how likely each level of the next step is after one of this."""
    middle: int
    """The level of the medians."""

    @classmethod
    def of(cls, forecast: Forecast, *, tail_s: float, ceiling_per_s: float, habits: Habits | None = None) -> Horizon:
        """The quantiles of a forecast as levels, for half an hour, and what follows for `tail_s`.

        What follows is what is expected at the end of the forecast; where the habits of the load are known, it comes
        back to them in a few steps: a peak is taken to end, and a quiet hour, too.

        No level is above the ceiling, or within ten minutes above twice of it, unless the median is: what was never
        seen is prepared for when it comes.

        How the forecast widens tells how much of a level stays: as in a walk whose steps are independent, what is not
        known at the end of a step is what was not known at its beginning, and some more.
        """
        paths = np.maximum(np.asarray(forecast.paths_per_s, dtype=np.float64), _LEAST_RATE)
        starts = np.concatenate(([0.0], np.cumsum(_STEPS_S)[:-1]))
        starts = starts[starts < forecast.horizon_s]
        ends = np.append(starts[1:], min(forecast.horizon_s, sum(_STEPS_S)))
        middle = forecast.levels.index(MEDIAN)
        rates = np.empty((len(starts), len(paths)))
        for step, (begin_s, end_s) in enumerate(zip(starts, ends, strict=True)):
            first = int(begin_s // forecast.step_s)
            last = max(first + 1, int(np.ceil(end_s / forecast.step_s)))
            rates[step] = paths[:, first:last].max(axis=1)
            ceiling = ceiling_per_s if begin_s >= _EARLY_S else _EARLY_MORE * ceiling_per_s
            rates[step] = np.minimum(rates[step], max(ceiling, rates[step, middle]))
        log_rates, levels = np.log(rates), np.asarray(forecast.levels)
        shares = (1.0,) if habits is None else _TAIL_SHARES
        tail_lengths = tail_s * np.asarray(shares)
        tail = log_rates[-1:] if habits is None else _tail(log_rates[-1], levels, middle, tail_lengths, habits)
        log_ceiling = math.log(max(ceiling_per_s, _LEAST_RATE))
        tail = np.minimum(tail, np.maximum(log_ceiling, tail[:, middle : middle + 1]))
        log_rates = np.vstack((log_rates, tail))
        kept = _kept(log_rates)
        if habits is not None:
            kept[-len(shares) :] = _kept_by(habits, log_rates[-len(shares) - 1 :], tail_lengths)
        borders = np.concatenate(([0.0], (levels[1:] + levels[:-1]) / 2.0, [1.0]))
        return cls(
            lengths_s=np.append(ends - starts, tail_lengths),
            log_rates=log_rates,
            chances=np.diff(borders),
            turns=_turns(kept, levels, borders),
            middle=middle,
        )


def _tail(last: Floats, levels: Floats, middle: int, lengths_s: Floats, habits: Habits) -> Floats:
    """Steps x levels: on its way from the last step of the forecast to what is usual."""
    places = ndtri(levels)
    apart = max(last[-1] - last[0], _NARROWEST) / max(places[-1] - places[0], _NARROWEST)
    kept = np.array([habits.kept(after_s) for after_s in _middles_s(lengths_s)])[:, np.newaxis]
    centre = habits.log_mean + kept * (last[middle] - habits.log_mean)
    apart_then = np.sqrt((kept * apart) ** 2 + (1.0 - kept**2) * habits.log_sd**2)
    # What the forecast thinks of one side and not of the other goes as the rest of it does.
    shape = (1.0 - kept) * places + kept * (last - last[middle]) / apart
    return np.asarray(centre + apart_then * shape, dtype=np.float64)


def _middles_s(lengths_s: Floats) -> Floats:
    return np.asarray(np.cumsum(lengths_s) - 0.5 * lengths_s, dtype=np.float64)


def _kept(log_rates: Floats) -> Floats:
    """For each step but the last, how much of a level stays in the next one."""
    variances = np.maximum(log_rates[:, -1] - log_rates[:, 0], _NARROWEST) ** 2
    # What is not known of the very next moment, although the load is known now, is noise: it tells nothing of what
    # comes after it. A forecast that narrows is one whose levels come back to the middle: that, too, is not known yet.
    noise = variances[0]
    drift = np.maximum.accumulate(variances) - noise
    kept = drift[:-1] / np.sqrt((drift[:-1] + noise) * (drift[1:] + noise))
    return np.asarray(np.minimum(kept, _SUREST), dtype=np.float64)


def _kept_by(habits: Habits, log_rates: Floats, lengths_s: Floats) -> Floats:
    """The same for the steps of the tail: what is left of a level, over how far levels are apart by then."""
    apart = np.maximum(log_rates[:, -1] - log_rates[:, 0], _NARROWEST)
    between_s = np.diff(_middles_s(lengths_s), prepend=0.0)
    left = np.array([habits.kept(each_s) for each_s in between_s]) * apart[:-1] / apart[1:]
    return np.asarray(np.minimum(left, _SUREST), dtype=np.float64)


def _turns(kept: Floats, levels: Floats, borders: Floats) -> Floats:
    """Levels x levels for each step but the last."""
    each = kept[:, np.newaxis, np.newaxis]
    places, edges = ndtri(levels), ndtri(borders)
    below = ndtr((edges - each * places[:, np.newaxis]) / np.sqrt(1.0 - each**2))
    return np.asarray(np.diff(below, axis=2), dtype=np.float64)
