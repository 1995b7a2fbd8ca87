"""Exponential smoothing: damped Holt, and the same on a load whose season was taken out (Holt-Winters)."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

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


def _responses() -> tuple[Rates, Rates]:
    """What a single sample of 1 makes of level and trend, 0, 1, ... samples later: a column per smoothing."""
    alpha, beta, phi = _GRID
    levels, trends = np.empty((_FITTED_ON, alpha.size)), np.empty((_FITTED_ON, alpha.size))
    level, trend = alpha, beta
    for place in range(_FITTED_ON):
        levels[place], trends[place] = level, trend
        damped = phi * trend
        expected = level + damped
        level, trend = (1.0 - alpha) * expected, damped - beta * expected
    return levels, trends


_BY_LEVEL, _BY_TREND = _responses()


def _damped_holt(rates: Rates, _season: int | None = None) -> Rates:
    recent = np.sqrt(rates[-_FITTED_ON:])  # on roots a spike weighs less, and counts are equally noisy at all levels
    _, _, phi = _GRID
    count, begin_level = len(recent), float(recent[: min(3, len(recent))].mean())
    # Level and trend are linear in the samples: all smoothings at all places are one product of matrices.
    padded = np.concatenate([np.zeros(count - 1), recent - begin_level])
    past = np.ascontiguousarray(sliding_window_view(padded, count)[:, ::-1])  # this sample, the one before, ...
    levels, trends = begin_level + past @ _BY_LEVEL[:count], past @ _BY_TREND[:count]
    level, trend = levels[-1], trends[-1]
    score = np.zeros(phi.shape)
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
