"""Direct regression: every step ahead is a linear function of what was just seen, and of the last season."""

from __future__ import annotations

from functools import partial

import numpy as np

from tidewise.forecast.model import STEPS, Model, log_rates
from tidewise.forecast.regression import solved
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
_OWN = np.array([[*range(_LAGS + 1), _LAGS + 1 + own, _LAGS + 1 + len(_ANCHORS) + own] for own in range(len(_ANCHORS))])
"""The features of each anchor: the lags and the level, and two of what came a season ago."""


def _ridge(rates: Rates, _season: int | None = None, *, lags: int = _LAGS, penalty: float = _PENALTY) -> Rates:
    logs = log_rates(rates[-_TRAINED_ON:])
    features = _lag_features(logs, lags)
    start = logs[lags:]
    growth = np.empty(STEPS)
    # What the rows of the furthest steps share is multiplied once; nearer steps have a few more rows each.
    products, multiplied = np.zeros((lags, lags)), 0
    for begin, end in reversed(_BLOCKS):
        rows = features.shape[1] - end
        more = features[:, multiplied:rows]
        products, multiplied = products + more @ more.T, rows
        targets = np.stack([start[step : step + rows] for step in range(begin + 1, end + 1)]) - start[:rows]
        crossed = features[:, :rows] @ targets.T
        growth[begin:end] = _fitted(products, crossed, features[:, -1], rows=rows, penalty=penalty)
    return np.asarray(np.exp(logs[-1] + growth) - np.exp(logs[-1]) + rates[-1])


def _ridge_season(rates: Rates, season: int | None) -> Rates:
    if season is None or len(rates) < season + _AVERAGED + _LAGS + 2 * STEPS:
        return _ridge(rates)
    logs = log_rates(rates[-(_TRAINED_ON + 2 * season) :])
    first = max(season + _AVERAGED, _LAGS)
    learnt = _fitted_at_anchors(_season_features(logs, season, first), logs[first:])
    growth = np.interp(np.arange(1, STEPS + 1), _ANCHORS, learnt)
    return np.asarray(np.exp(logs[-1] + growth) - np.exp(logs[-1]) + rates[-1])


def _season_features(logs: Rates, season: int, first: int) -> Rates:
    """A column per sample from the first on; the rows that all anchors share, then those of each (`_OWN`)."""
    count = len(logs) - first
    here, season_ago = logs[first:], logs[first - season : len(logs) - season]
    sums = np.concatenate([[0.0], np.cumsum(logs)])
    means = (sums[_AVERAGED:] - sums[:-_AVERAGED]) / _AVERAGED  # of the samples from each place on
    level = means[first - _AVERAGED + 1 :]
    level_then = means[first - season - _AVERAGED + 1 :][:count]
    places = first - season + 1 + (_ANCHORS - 1) % season
    then = np.stack([logs[place : place + count] for place in places.tolist()])
    lags = _lag_features(logs, _LAGS)[:, first - _LAGS :]
    return np.concatenate([lags, (level - here)[np.newaxis], then - level_then, then - season_ago])


def _fitted_at_anchors(features: Rates, here: Rates) -> Rates:
    """How much higher the samples are expected that many steps ahead; as `_fitted`, for all anchors at once."""
    count, anchors = len(here), _ANCHORS[:, np.newaxis]
    targets = np.zeros((len(_ANCHORS), count))
    for row, steps in zip(targets, _ANCHORS.tolist(), strict=True):
        np.subtract(here[steps:], here[:-steps], out=row[:-steps])
    crossed = (features @ targets.T)[_OWN, np.arange(len(_ANCHORS))[:, np.newaxis]]
    # The columns that all anchors learn from are multiplied once; the nearer ones have a few more.
    shared, latest = features[:, :-STEPS], features[:, -STEPS:][_OWN]
    more = latest * (np.arange(STEPS) < STEPS - anchors)[:, np.newaxis]
    products = (shared @ shared.T)[_OWN[:, :, np.newaxis], _OWN[:, np.newaxis]] + more @ more.transpose(0, 2, 1)
    scale = np.sqrt(np.diagonal(products, axis1=1, axis2=2) / (count - anchors)) + 1e-9
    gram = products / (scale[:, :, np.newaxis] * scale[:, np.newaxis]) + _PENALTY * np.eye(_OWN.shape[1])
    weights = np.linalg.solve(gram, (crossed / scale)[:, :, np.newaxis])[:, :, 0]
    return np.asarray((latest[:, :, -1] / scale * weights).sum(axis=1))


def _lag_features(logs: Rates, lags: int) -> Rates:
    """How much lower or higher the samples before were: a row per lag, a column per sample that has them all."""
    count = len(logs) - lags
    return np.stack([logs[lag : lag + count] for lag in range(lags)]) - logs[lags:]


def _fitted(products: Rates, crossed: Rates, now: Rates, *, rows: int, penalty: float) -> Rates:
    """What ridge regression without an intercept says for these features now, each by its own scale.

    `products`: of the features with each other, summed over so many rows; `crossed`: of the features and targets.
    """
    scale = np.sqrt(products.diagonal() / rows) + 1e-9
    gram = products / (scale[:, np.newaxis] * scale)
    gram.flat[:: len(gram) + 1] += penalty
    return np.asarray((now / scale) @ solved(gram, (crossed.T / scale).T))


RIDGE = Model(name="ridge", predict=_ridge, needs=_LAGS + 2 * STEPS)
RIDGE_LONG = Model(
    name="ridge-long", predict=partial(_ridge, lags=_LONG_LAGS, penalty=_LONG_PENALTY), needs=2 * _LONG_LAGS + 2 * STEPS
)
RIDGE_SEASON = Model(name="ridge-season", predict=_ridge_season, needs=_LAGS + 2 * STEPS, seasonal=True)
