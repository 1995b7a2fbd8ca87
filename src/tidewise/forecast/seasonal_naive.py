"""Last season again at today's level; and what a season makes of every sample, as a factor."""

from __future__ import annotations

import numpy as np

from tidewise.forecast.model import STEPS, Model, log_rates
from tidewise.forecast.series import Rates

_SEASONS = 4
"""At most as many past seasons are averaged, each counting less than the one after it."""
_FORGETTING = 0.6
_LEVEL_SAMPLES = 10
"""The level now and then is compared over as many samples."""


def _seasons_back(rates: Rates, season: int) -> list[int]:
    """How far back the seasons lie that are all there, and the samples before them for the level."""
    return [back for back in range(season, (_SEASONS + 1) * season, season) if back + _LEVEL_SAMPLES <= len(rates)]


def _seasonal_naive(rates: Rates, season: int | None) -> Rates:
    if season is None:
        return np.full(STEPS, rates[-1])
    # A season shorter than the horizon goes round.
    ahead = np.arange(STEPS) % season
    now = max(float(rates[-_LEVEL_SAMPLES:].mean()), 1e-12)
    total, weights = np.zeros(STEPS), 0.0
    for number, back in enumerate(_seasons_back(rates, season)):
        start = len(rates) - back
        then = float(rates[start - _LEVEL_SAMPLES : start].mean())
        if then <= 0.0:
            continue
        weight = _FORGETTING**number
        total += weight * rates[start + ahead] * (now / then)
        weights += weight
    return total / weights if weights else np.full(STEPS, rates[-1])


def season_factors(rates: Rates, season: int) -> tuple[Rates, Rates]:
    """What the season makes of the latest samples and of those to come, as factors around 1.

    Every place of the season is the mean over past seasons of the distance to their own mean, each season counting
    less than the one after it, as the recursion of Holt and Winters forgets.
    """
    whole = min(_SEASONS, len(rates) // season)
    logs = log_rates(rates[-whole * season :]).reshape(whole, season)
    weights = _FORGETTING ** np.arange(whole - 1, -1, -1)
    profile = weights @ (logs - logs.mean(axis=1, keepdims=True)) / weights.sum()
    factors = np.exp(profile)
    return np.tile(factors, whole), factors[np.arange(STEPS) % season]


SEASONAL_NAIVE = Model(name="seasonal-naive", predict=_seasonal_naive, needs=3, seasonal=True)
