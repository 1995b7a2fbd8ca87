"""Exponential smoothing: damped Holt, and the same on a load whose season was taken out (Holt-Winters)."""

from __future__ import annotations

import itertools

import numpy as np

from tidewise.forecast.model import STEPS, Model
from tidewise.forecast.seasonal_naive import season_factors
from tidewise.forecast.series import Rates

_FITTED_ON = 150
"""The smoothing is chosen by its errors on as many latest samples."""
_SETTLING = 10
_GRID = np.array(
    [
        (alpha, alpha * share, phi)
        for alpha, share, phi in itertools.product((0.1, 0.3, 0.6, 0.95), (0.0, 0.1, 0.3, 0.6), (0.8, 0.9, 0.97))
        if share > 0.0 or phi == 0.9
    ]
).T
"""Smoothing of the level, of the trend, and damping; without a trend the damping says nothing."""
_JUDGED_AT = (1, 5, 10)


def _reach(phi: Rates, steps: int) -> Rates:
    """How many full trends lie between now and so many steps ahead."""
    return phi * (1.0 - phi**steps) / (1.0 - phi)


def _damped_holt(rates: Rates, _season: int | None = None) -> Rates:
    recent = np.sqrt(rates[-_FITTED_ON:])  # on roots a spike weighs less, and counts are equally noisy at all levels
    alpha, beta, phi = _GRID
    level, trend = np.full(alpha.shape, recent[: min(3, len(recent))].mean()), np.zeros(alpha.shape)
    levels, trends = np.empty((len(recent), alpha.size)), np.empty((len(recent), alpha.size))
    for place, rate in enumerate(recent.tolist()):
        damped = phi * trend
        expected = level + damped
        error = rate - expected
        level = expected + alpha * error
        trend = damped + beta * error
        levels[place], trends[place] = level, trend
    score = np.zeros(alpha.shape)
    for steps in _JUDGED_AT:
        begin = min(_SETTLING, len(recent) - steps - 1)
        if begin >= 0:
            made = levels[begin:-steps] + _reach(phi, steps) * trends[begin:-steps]
            score += np.abs(made - recent[begin + steps :, None]).mean(axis=0)
    best = int(np.argmin(score))
    damping = float(phi[best])
    reach = damping * (1.0 - damping ** np.arange(1, STEPS + 1)) / (1.0 - damping)
    return np.asarray(np.maximum(level[best] + reach * trend[best], 0.0) ** 2)


def _holt_winters(rates: Rates, season: int | None) -> Rates:
    if season is None:
        return _damped_holt(rates)
    factors, to_come = season_factors(rates, season)
    return _damped_holt(rates[-len(factors) :] / factors) * to_come


HOLT = Model(name="holt", predict=_damped_holt, needs=3)
HOLT_WINTERS = Model(name="holt-winters", predict=_holt_winters, needs=3, seasonal=True)
