"""Direct regression: every step ahead is a linear function of what was just seen, and of the last season."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tidewise.forecast.model import STEPS, Model, log_rates
from tidewise.forecast.series import Rates

_LAGS = 12
_LONG_LAGS = 30
_TRAINED_ON = 1000
_BLOCKS = ((0, 5), (5, 10), (10, 20), (20, STEPS))
"""The steps of a block share the rows they are learnt from."""
_PENALTY = 10.0
_LONG_PENALTY = 0.1
_ANCHORS = np.array([1, 2, 3, 5, 7, 10, 13, 16, 20, 25, STEPS])
"""With a season every step has features of its own: these are learnt, those between are read off a line."""
_AVERAGED = 5


def _ridge(rates: Rates, _season: int | None = None, *, lags: int = _LAGS, penalty: float = _PENALTY) -> Rates:
    logs = log_rates(rates[-_TRAINED_ON:])
    features = _lag_features(logs, lags)
    growth = np.empty(STEPS)
    for begin, end in _BLOCKS:
        rows = len(features) - end
        start = logs[lags : lags + rows]
        windows = sliding_window_view(logs[lags:], end + 1)[:rows]
        targets = windows[:, begin + 1 : end + 1] - start[:, None]
        growth[begin:end] = _fitted(features[:rows], targets, features[-1], penalty)
    return np.asarray(np.exp(logs[-1] + growth) - np.exp(logs[-1]) + rates[-1])


def _ridge_season(rates: Rates, season: int | None) -> Rates:
    if season is None or len(rates) < season + _AVERAGED + _LAGS + 2 * STEPS:
        return _ridge(rates)
    logs = log_rates(rates[-(_TRAINED_ON + 2 * season) :])
    first = max(season + _AVERAGED, _LAGS)
    places = np.arange(first, len(logs))
    lags = _lag_features(logs, _LAGS)[first - _LAGS :]
    sums = np.concatenate([[0.0], np.cumsum(logs)])
    means = (sums[_AVERAGED:] - sums[:-_AVERAGED]) / _AVERAGED  # of the samples from each place on
    level = means[places - _AVERAGED + 1]
    level_then = means[places - season - _AVERAGED + 1]
    learnt = []
    for steps in _ANCHORS.tolist():
        then = logs[places - season + (steps - 1) % season + 1]
        features = np.column_stack([lags, then - level_then, level - logs[places], then - logs[places - season]])
        rows = len(places) - steps
        targets = logs[places[:rows] + steps] - logs[places[:rows]]
        learnt.append(float(_fitted(features[:rows], targets[:, None], features[-1], _PENALTY)[0]))
    growth = np.interp(np.arange(1, STEPS + 1), _ANCHORS, learnt)
    return np.asarray(np.exp(logs[-1] + growth) - np.exp(logs[-1]) + rates[-1])


def _lag_features(logs: Rates, lags: int) -> Rates:
    """How much lower or higher the samples before were, one row per sample that has them all."""
    windows = sliding_window_view(logs, lags + 1)
    return windows[:, :-1] - windows[:, -1:]


def _fitted(features: Rates, targets: Rates, now: Rates, penalty: float) -> Rates:
    """What ridge regression without an intercept says for these features now."""
    scale = np.sqrt((features**2).mean(axis=0)) + 1e-9
    scaled = features / scale
    gram = scaled.T @ scaled
    gram[np.diag_indices_from(gram)] += penalty
    weights = np.linalg.solve(gram, scaled.T @ targets)
    return np.asarray((now / scale) @ weights)


RIDGE = Model(name="ridge", predict=_ridge, needs=_LAGS + 2 * STEPS)
RIDGE_LONG = Model(
    name="ridge-long", predict=partial(_ridge, lags=_LONG_LAGS, penalty=_LONG_PENALTY), needs=2 * _LONG_LAGS + 2 * STEPS
)
RIDGE_SEASON = Model(name="ridge-season", predict=_ridge_season, needs=_LAGS + 2 * STEPS, seasonal=True)
