"""ARIMA: differences of the load from those before (AR) and from the errors just made (MA), its order by AIC."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.signal import lfilter

from tidewise.forecast.model import STEPS, Model, log_rates
from tidewise.forecast.series import Rates

_FITTED_ON = 1000
"""As many latest samples are looked at: loads change their ways, and time is bounded."""
_ORDERS = ((1, 0, 0), (2, 0, 1), (3, 0, 2), (0, 1, 1), (2, 1, 0), (1, 1, 1), (2, 1, 2), (3, 1, 2))
"""The orders (p, d, q) to choose from: a level it returns to, and one that wanders.

Two differences run away with every trend: half an hour ahead they are the worst of all.
"""
_REFINED = 2
"""As many of the orders, the likeliest by a first estimate, are estimated well."""
_ROUNDS = 6
_LONG_AR = 15
"""Order of the autoregression whose errors stand for the unknown ones in the first estimate."""
_SETTLING = 8
"""The first errors of a recursion that starts with zeros are not counted."""
_RIDGE = 1e-6
_INVERTIBLE = 0.98
"""Roots of the MA part lie at least so far inside the circle: beyond it, an old error would count more than a new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arima:
    """An ARIMA model that was fitted to a series; signs as in w(t) = mean + sum ar w(t-i) + e(t) + sum ma e(t-j)."""

    differences: int
    mean: float
    """Of the differenced series; 0 where differences were taken: a trend must not go on for ever."""
    ar: Rates
    ma: Rates
    variance: float
    """Of the errors one step ahead."""
    aic: float

    @property
    def order(self) -> tuple[int, int, int]:
        """The order (p, d, q)."""
        return len(self.ar), self.differences, len(self.ma)

    def errors(self, series: Rates) -> Rates:
        """What each sample, the first few left out, differed from what was expected a step before."""
        return _errors(np.diff(series, self.differences) - self.mean, self.ar, self.ma)

    def ahead(self, series: Rates, steps: int) -> Rates:
        """The next samples."""
        levels = [series]
        for _ in range(self.differences):
            levels.append(np.diff(levels[-1]))
        past = (levels[-1] - self.mean)[-max(len(self.ar), 1) :].tolist()
        errors = self.errors(series)[-max(len(self.ma), 1) :].tolist()
        ar, ma = self.ar.tolist(), self.ma.tolist()
        path = []
        for _ in range(steps):
            value = sum(weight * past[-1 - lag] for lag, weight in enumerate(ar))
            value += sum(weight * errors[-1 - lag] for lag, weight in enumerate(ma))
            past.append(value)
            errors.append(0.0)
            path.append(value + self.mean)
        made = np.array(path)
        for level in reversed(levels[:-1]):
            made = level[-1] + np.cumsum(made)
        return made


def fit_arima(series: Rates, orders: tuple[tuple[int, int, int], ...] = _ORDERS) -> Arima | None:
    """The likeliest of these orders, fitted by conditional least squares; None where the series is too short for all.

    Every order has a first estimate (Hannan and Rissanen: the errors of a long autoregression stand for the unknown
    ones). The best of them are refined by Gauss-Newton steps on the sum of squared errors one step ahead.
    """
    counted = len(series) - _SETTLING - max(d for _, d, _ in orders)
    first = []
    for d in sorted({d for _, d, _ in orders}):
        changes = np.diff(series, d)
        mean = float(changes.mean()) if d == 0 else 0.0
        changes = changes - mean
        long = _long_errors(changes)
        for p, _, q in (order for order in orders if order[1] == d):
            if counted >= 4 * (p + q + 1):
                ar, ma = _first_estimate(changes, long, p, q)
                first.append(_judged(changes, d, mean, ar, ma, counted=counted))
    first.sort(key=lambda model: model.aic)
    refined = [_refined(np.diff(series, model.differences) - model.mean, model, counted) for model in first[:_REFINED]]
    return min(refined, key=lambda model: model.aic, default=None)


def _errors(changes: Rates, ar: Rates, ma: Rates) -> Rates:
    return np.asarray(lfilter(np.concatenate([[1.0], -ar]), np.concatenate([[1.0], ma]), changes))


def _long_errors(changes: Rates) -> Rates:
    """Errors of a long autoregression, 0 for the first samples, which have too few before them."""
    lags = min(_LONG_AR, len(changes) // 4)
    if lags < 1:
        return np.zeros(len(changes))
    rows = _lagged(changes, lags)
    return np.concatenate([np.zeros(lags), changes[lags:] - rows @ _least_squares(rows, changes[lags:])])


def _first_estimate(changes: Rates, long: Rates, p: int, q: int) -> tuple[Rates, Rates]:
    skipped = min(_LONG_AR, len(changes) // 4) + max(p, q)
    if p + q == 0 or len(changes) - skipped <= p + q:
        return np.zeros(p), np.zeros(q)
    rows = np.column_stack([_lagged(changes, p)[skipped - p :], _lagged(long, q)[skipped - q :]])
    weights = _least_squares(rows, changes[skipped:])
    return weights[:p], _invertible(weights[p:])


def _judged(changes: Rates, d: int, mean: float, ar: Rates, ma: Rates, *, counted: int) -> Arima:
    errors = _errors(changes, ar, ma)[-counted:]
    variance = float(errors @ errors) / counted
    aic = counted * float(np.log(variance + 1e-18)) + 2.0 * (len(ar) + len(ma) + 1 + (d == 0))
    return Arima(differences=d, mean=mean, ar=ar, ma=ma, variance=variance, aic=aic)


def _refined(changes: Rates, model: Arima, counted: int) -> Arima:
    """The same order after some Gauss-Newton steps, none of which may make it worse."""
    p, q = len(model.ar), len(model.ma)
    for _ in range(_ROUNDS if p + q else 0):
        ma = np.concatenate([[1.0], model.ma])
        errors = _errors(changes, model.ar, model.ma)
        # How the errors change with each coefficient: the same recursion run over the lagged series and errors.
        by_ar = lfilter([1.0], ma, changes)
        by_ma = lfilter([1.0], ma, errors)
        rows = np.column_stack([_delayed(by_ar, p), _delayed(by_ma, q)])[-counted:]
        step = _least_squares(rows, errors[-counted:])
        better = None
        for share in (1.0, 0.3, 0.1):
            ar, moved = model.ar + share * step[:p], _invertible(model.ma + share * step[p:])
            tried = _judged(changes, model.differences, model.mean, ar, moved, counted=counted)
            if tried.aic < model.aic:
                better = tried
                break
        if better is None:
            break
        gained, model = model.aic - better.aic, better
        if gained < 0.01:
            break
    return model


def _lagged(values: Rates, lags: int) -> Rates:
    """The values 1, 2, ... samples before, a row for each value that has them all."""
    return sliding_window_view(values, lags + 1)[:, -2::-1] if lags else np.empty((len(values), 0))


def _delayed(values: Rates, lags: int) -> Rates:
    """The same for every value, with zeros before the first."""
    delayed = np.zeros((len(values), lags))
    for lag in range(1, lags + 1):
        delayed[lag:, lag - 1] = values[:-lag]
    return delayed


def _least_squares(rows: Rates, targets: Rates) -> Rates:
    gram = rows.T @ rows
    scale = float(np.trace(gram)) / max(len(gram), 1)
    gram += (_RIDGE * scale + 1e-12) * np.eye(len(gram))
    return np.asarray(np.linalg.solve(gram, rows.T @ targets))


def _invertible(ma: Rates) -> Rates:
    """The same MA part with its roots mirrored or drawn into the circle."""
    if _roots_within(ma.tolist(), _INVERTIBLE):
        return ma
    roots = np.roots(np.concatenate([[1.0], ma]))
    sizes = np.abs(roots)
    roots = np.where(sizes > 1.0, roots / np.maximum(sizes, 1e-12) ** 2, roots)
    roots *= np.minimum(1.0, _INVERTIBLE / np.maximum(np.abs(roots), 1e-12))
    mirrored = np.real(np.poly(roots))[1:]
    return np.asarray(np.concatenate([mirrored, np.zeros(len(ma) - len(mirrored))]))


def _roots_within(weights: list[float], radius: float) -> bool:
    """Whether 1, then these weights, has all its roots inside this radius: Schur and Cohn's recursion."""
    left = [weight / radius**power for power, weight in enumerate(weights, start=1)]
    while left:
        last = left.pop()
        if abs(last) >= 1.0:
            return False
        left = [(here - last * there) / (1.0 - last * last) for here, there in zip(left, reversed(left), strict=True)]
    return True


def _arima(rates: Rates, _season: int | None = None) -> Rates:
    logs = log_rates(rates[-_FITTED_ON:])
    fitted = fit_arima(logs)
    if fitted is None:
        return np.full(STEPS, rates[-1])
    growth = np.clip(fitted.ahead(logs, STEPS) - logs[-1], -20.0, 20.0)
    return np.asarray(np.exp(logs[-1] + growth) - np.exp(logs[-1]) + rates[-1])


ARIMA = Model(name="arima", predict=_arima, needs=3)
