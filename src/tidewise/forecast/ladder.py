"""A ladder of ARIMA models, each on means of its own stride: the short ones see turns, the long ones see through noise.

Demeter forecasts with 20 non-seasonal ARIMA models at different sampling strides, merged and smoothed. Here every rung
is an ARIMA(p, 1, 0): a linear function of the latest samples, so that all it would have said in the past is one product
of matrices and the rungs can be merged by the errors that each has made at each step.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.interpolate import CubicSpline

from tidewise.forecast.model import STEPS, Model, log_rates
from tidewise.forecast.regression import solved
from tidewise.forecast.series import Rates

_STRIDES = range(1, 21)
_FITTED_ON = 1000
_MOST_LAGS = 6
_LOOKS_BACK = 36
"""A rung looks back over as many samples, with fewer lags the longer its stride."""
_PER_WEIGHT = 4
"""As many means without overlap are needed for every weight that is learnt."""
_PENALTY = 1.0
"""In samples that say that changes do not repeat."""
_JUDGED_AT = 300
"""A rung is judged by what it says at as many latest origins."""
_POWER = 12.0
"""Rungs weigh as their errors to this negative power: far ahead all are alike, near by the best are much better."""

_AHEAD = np.arange(1, STEPS + 1)
_HAS_COME = 1.0 - np.tri(STEPS)[:, ::-1]
"""Whether a step (row) of the latest origins (columns, the last is now) has come by now."""


def _ladder(rates: Rates, _season: int | None = None) -> Rates:
    logs = log_rates(rates[-_FITTED_ON:])
    sums = np.concatenate([[0.0], np.cumsum(logs)])
    # What came after each origin, a row per step; zeros where it has not come yet.
    came = np.ascontiguousarray(sliding_window_view(np.concatenate([logs, np.zeros(STEPS)]), STEPS)[-_JUDGED_AT:].T)
    paths, errors = [], []
    for stride in _STRIDES:
        lags = max(1, min(_MOST_LAGS, _LOOKS_BACK // stride))
        rows = len(logs) + 1 - (lags + 2) * stride
        if rows < _PER_WEIGHT * lags * stride:
            continue
        said = _rung(sums, stride, lags, rows)
        paths.append(said[:, -1].copy())
        errors.append(_mean_errors(said, came[:, -said.shape[1] :]) * _optimism(lags, rows / stride))
    relative = np.array(errors)
    relative = (relative + 1e-9) / (relative.min(axis=0) + 1e-9)
    weights = relative**-_POWER
    merged = (weights * np.array(paths)).sum(axis=0) / weights.sum(axis=0)
    growth = np.clip(merged - logs[-1], -20.0, 20.0)
    return np.asarray(np.exp(logs[-1] + growth) - np.exp(logs[-1]) + rates[-1])


def _rung(sums: Rates, stride: int, lags: int, rows: int) -> Rates:
    """What the model of this stride says at the latest origins, a row per step; the last column is now."""
    means = (sums[stride:] - sums[:-stride]) / stride
    changes = means[stride:] - means[:-stride]
    # Windows overlap: every sample is the end of a mean, and all of them are learnt from. The oldest changes are first.
    products = _strided(changes, stride, lags + 1, rows)
    products = products @ products.T
    gram = products[:-1, :-1].copy()
    gram.flat[:: lags + 1] += _PENALTY * stride * float(gram[-1, -1]) / rows + 1e-12
    weights = solved(gram, products[:-1, -1])
    origins = min(_JUDGED_AT, len(changes) - (lags - 1) * stride)
    latest = np.empty((1 + lags, origins))
    latest[0] = means[-origins:]
    latest[1:] = _strided(changes[len(changes) - (lags - 1) * stride - origins :], stride, lags, origins)
    return _by_latest(weights, stride) @ latest


def _strided(values: Rates, stride: int, rows: int, columns: int) -> Rates:
    """Rows that begin a stride after each other, of the first values on."""
    begins = np.ndarray((rows, columns), values.dtype, values, strides=(stride * values.itemsize, values.itemsize))
    return begins.copy()  # rows that overlap in memory would be multiplied one number at a time


def _by_latest(weights: Rates, stride: int) -> Rates:
    """The samples to come as functions of the last mean and of the latest changes: a row per step."""
    lags = len(weights)
    ahead = -(-STEPS // stride) + 1
    changes = np.zeros((lags + ahead, lags))
    changes.flat[: lags * lags : lags + 1] = 1.0
    for place in range(lags, lags + ahead):
        np.dot(weights, changes[place - lags : place], out=changes[place])
    before_last, smoothing = _smoothing(stride, ahead)
    found = np.ones((STEPS, 1 + lags))
    found[:, 1:] = smoothing @ changes[lags:]
    found[:, -1] -= before_last
    return found


@lru_cache(maxsize=64)
def _smoothing(stride: int, ahead: int) -> tuple[Rates, Rates]:
    """From consecutive means of a stride to the samples to come, above the last mean: a spline that keeps the means.

    What the mean before the last counts, and what each of the changes between the means to come does.
    """
    count = ahead + 2
    edges = stride * (np.arange(count + 1) - 2.0)
    sums = stride * np.concatenate([np.zeros((1, count)), np.cumsum(np.eye(count), axis=0)])
    by_mean = np.diff(CubicSpline(edges, sums)(np.arange(STEPS + 1.0)), axis=0)
    return by_mean[:, 0], by_mean[:, 2:] @ np.tri(ahead)


def _mean_errors(said: Rates, came: Rates) -> Rates:
    """Mean absolute errors per step; a step that has not come yet at any origin is as good as the last that has."""
    errors = np.abs(np.subtract(said, came, out=said), out=said)
    # The last origin has seen nothing come, the one before it one step, and so on.
    errors[:, -STEPS:] *= _HAS_COME[:, -errors.shape[1] :]
    counts = errors.shape[1] - _AHEAD
    judged = int(np.count_nonzero(counts > 0))
    mean = errors.sum(axis=1) / np.maximum(counts, 1)
    mean[judged:] = mean[judged - 1]
    return np.asarray(mean)


def _optimism(lags: int, independent: float) -> float:
    """By how much errors on what was learnt from are too small (Akaike's final prediction error)."""
    return (independent + lags) / max(independent - lags, 1.0)


LADDER = Model(name="ladder", predict=_ladder, needs=(_PER_WEIGHT + 1) * _MOST_LAGS + 1)
