"""What a model is: a pure function from samples to the samples to come. And the bounds that all of them keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tidewise.forecast.series import Rates

STEPS = 30
"""How many samples ahead every model looks."""

_GROWTH_PER_SAMPLE = 0.08
_GROWTH_LIMIT = 2.0
_REFERENCE = 5
_SEEN_AT = np.array([1, 2, 5, 10, 20, 30])
_SEEN_SHARE = 0.98


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One way to go on from what was seen."""

    name: str
    predict: Callable[[Rates, int | None], Rates]
    """The next `STEPS` samples from those before, oldest first without holes, and the season in samples."""
    needs: int
    """With fewer samples the last one goes on."""
    seasonal: bool = False
    """Without a season it has nothing of its own to say, and an ensemble leaves it out."""

    def path(self, rates: Rates, season: int | None, bounds: tuple[Rates, Rates] | None = None) -> Rates | None:
        """The next `STEPS` samples within bounds, by default those of `growth_bounds`; None where there are too few."""
        if len(rates) < self.needs:
            return None
        path = self.predict(rates, season)
        return np.clip(np.where(np.isfinite(path), path, rates[-1]), *(bounds or growth_bounds(rates)))


def last_value(rates: Rates, _season: int | None = None) -> Rates:
    """The last sample goes on."""
    return np.full(STEPS, rates[-1])


def log_rates(rates: Rates) -> Rates:
    """Logarithms with a floor far below the usual level, so that a zero is low and not minus infinity."""
    floor = 0.01 * float(rates.mean()) + 1e-9
    return np.log(rates + floor)


def growth_bounds(rates: Rates) -> tuple[Rates, Rates]:
    """The least and the most a path may say: it leaves the latest samples no faster than loads do.

    Models extrapolate wildly at times. Allowed are 8 % a sample and a factor of two in all, and whatever this load
    itself did in 49 of 50 cases.
    """
    ahead = np.arange(1, STEPS + 1)
    usual = np.minimum(ahead * np.log1p(_GROWTH_PER_SAMPLE), np.log(_GROWTH_LIMIT))
    logs = log_rates(rates[-1500:])
    apart = _SEEN_AT[len(logs) // 4 >= _SEEN_AT]
    if len(apart):
        seen = []
        for steps in apart.tolist():
            moves = np.abs(logs[steps:] - logs[:-steps])
            rank = int(_SEEN_SHARE * (len(moves) - 1))
            seen.append(float(np.partition(moves, rank)[rank]))
        usual = np.maximum(usual, np.interp(ahead, apart, seen))
    factor = np.exp(np.minimum(usual, np.log(10.0)))
    recent = rates[-_REFERENCE:]
    return recent.min() / factor, recent.max() * factor
