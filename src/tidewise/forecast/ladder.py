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


def _ladder(rates: Rates, _season: int | None = None) -> Rates:
    logs = log_rates(rates[-_FITTED_ON:])
    sums = np.concatenate([[0.0], np.cumsum(logs)])
    to_come = sliding_window_view(np.concatenate([logs, np.full(STEPS, np.nan)]), STEPS)
    paths, errors = [], []
    for stride in _STRIDES:
        lags = max(1, min(_MOST_LAGS, _LOOKS_BACK // stride))
        rows = len(logs) + 1 - (lags + 2) * stride
        if rows < _PER_WEIGHT * lags * stride:
            continue
        said = _rung(sums, stride, lags, rows)
        paths.append(said[-1])
        errors.append(_mean_errors(said, to_come[-len(said) :]) * _optimism(lags, rows / stride))
    relative = np.array(errors)
    relative = (relative + 1e-9) / (relative.min(axis=0) + 1e-9)
    weights = relative**-_POWER
    merged = (weights * np.array(paths)).sum(axis=0) / weights.sum(axis=0)
    growth = np.clip(merged - logs[-1], -20.0, 20.0)
    return np.asarray(np.exp(logs[-1] + growth) - np.exp(logs[-1]) + rates[-1])


def _rung(sums: Rates, stride: int, lags: int, rows: int) -> Rates:
    """What the model of this stride says at the latest origins, a row each; the last is now."""
    means = (sums[stride:] - sums[:-stride]) / stride
    changes = means[stride:] - means[:-stride]
    # Windows overlap: every sample is the end of a mean, and all of them are learnt from.
    learnt = np.column_stack([changes[(lags - lag) * stride :][:rows] for lag in range(1, lags + 1)])
    gram = learnt.T @ learnt
    gram += (_PENALTY * stride * float(gram[0, 0]) / rows + 1e-12) * np.eye(lags)
    weights = np.asarray(np.linalg.solve(gram, learnt.T @ changes[lags * stride :]), dtype=np.float64)
    origins = min(_JUDGED_AT, len(changes) - (lags - 1) * stride)
    end = len(changes)
    seen = np.column_stack([changes[end - lag * stride - origins : end - lag * stride] for lag in range(lags)])
    to_come = _iterated(weights, stride)
    return np.asarray(means[-origins:, None] + seen @ (_smoothing(stride, len(to_come)) @ to_come).T)


def _iterated(weights: Rates, stride: int) -> Rates:
    """The means to come, above the last, as functions of the latest changes: a row for each, the last two first."""
    lags = len(weights)
    ahead = -(-STEPS // stride) + 1
    changes = np.zeros((lags + ahead, lags))
    changes[:lags] = np.eye(lags)[::-1]  # the oldest first
    for place in range(lags, lags + ahead):
        changes[place] = weights @ changes[place - lags : place][::-1]
    levels = np.cumsum(changes[lags:], axis=0)
    return np.concatenate([-np.eye(lags)[:1], np.zeros((1, lags)), levels])


@lru_cache(maxsize=64)
def _smoothing(stride: int, count: int) -> Rates:
    """From consecutive means of a stride, two of them past, to the samples to come: a spline that keeps the means."""
    edges = stride * (np.arange(count + 1) - 2.0)
    sums = stride * np.concatenate([np.zeros((1, count)), np.cumsum(np.eye(count), axis=0)])
    return np.asarray(np.diff(CubicSpline(edges, sums)(np.arange(STEPS + 1.0)), axis=0))


def _mean_errors(said: Rates, came: Rates) -> Rates:
    """Mean absolute errors per step; a step that has not come yet at any origin is as good as the last that has."""
    errors = np.abs(said - came)
    known = ~np.isnan(errors)
    counts = known.sum(axis=0)
    judged = int(np.count_nonzero(counts))
    mean = np.where(known, errors, 0.0).sum(axis=0) / np.maximum(counts, 1)
    mean[judged:] = mean[judged - 1]
    return np.asarray(mean)


def _optimism(lags: int, independent: float) -> float:
    """By how much errors on what was learnt from are too small (Akaike's final prediction error)."""
    return (independent + lags) / max(independent - lags, 1.0)


LADDER = Model(name="ladder", predict=_ladder, needs=(_PER_WEIGHT + 1) * _MOST_LAGS + 1)
