"""ARIMA: differences of the load from those before (AR) and from the errors just made (MA), its order by AIC."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidewise.forecast.model import STEPS, Model, log_rates
from tidewise.forecast.regression import before, solved
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
        for step in range(steps):
            value = 0.0
            for lag, weight in enumerate(ar, start=1):
                value += weight * past[-lag]
            # Errors to come are expected to be nothing.
            for lag, weight in enumerate(ma[step:], start=1):
                value += weight * errors[-lag]
            past.append(value)
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
        fitting = _Fitting.of(series, d, [order for order in orders if order[1] == d], counted=counted)
        for p, _, q in (order for order in orders if order[1] == d):
            if counted >= 4 * (p + q + 1):
                first.append((fitting, *fitting.judged(*fitting.first_estimate(p, q))))
    first.sort(key=lambda tried: tried[1].aic)
    refined = [fitting.refined(model, errors) for fitting, model, errors in first[:_REFINED]]
    return min(refined, key=lambda model: model.aic, default=None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fitting:
    """One series of differences, from which all its orders are estimated."""

    differences: int
    mean: float
    changes: Rates
    """Around their mean."""
    before: Rates
    """The changes 1, 2, ... samples before each, a row for each lag."""
    errors_before: Rates
    """The same of the errors of a long autoregression."""
    skipped: int
    """Lags of that: so many of the first errors are unknown."""
    counted: int
    """By so many of the latest errors an order is judged."""

    @classmethod
    def of(cls, series: Rates, d: int, orders: Sequence[tuple[int, int, int]], *, counted: int) -> _Fitting:
        changes = np.diff(series, d)
        mean = float(changes.mean()) if d == 0 else 0.0
        changes = changes - mean
        lags = min(_LONG_AR, len(changes) // 4)
        rows = before(changes, min(len(changes), max(lags, *(p for p, _, _ in orders))))
        long = np.zeros(len(changes))
        if lags >= 1:
            learnt, targets = rows[:lags, lags:], changes[lags:]
            long[lags:] = targets - _least_squares(learnt, targets) @ learnt
        return cls(
            differences=d,
            mean=mean,
            changes=changes,
            before=rows,
            errors_before=before(long, min(len(long), max(q for _, _, q in orders))),
            skipped=lags,
            counted=counted,
        )

    def first_estimate(self, p: int, q: int) -> tuple[Rates, Rates]:
        skipped = self.skipped + max(p, q)
        if p + q == 0 or len(self.changes) - skipped <= p + q:
            return np.zeros(p), np.zeros(q)
        rows = np.concatenate([self.before[:p, skipped:], self.errors_before[:q, skipped:]])
        weights = _least_squares(rows, self.changes[skipped:])
        return weights[:p], _invertible(weights[p:])

    def judged(self, ar: Rates, ma: Rates) -> tuple[Arima, Rates]:
        """The model with these weights, and all its errors."""
        errors = _errors(self.changes, ar, ma)
        latest = errors[-self.counted :]
        variance = float(latest @ latest) / self.counted
        weights = len(ar) + len(ma) + 1 + (self.differences == 0)
        aic = self.counted * math.log(variance + 1e-18) + 2.0 * weights
        return Arima(differences=self.differences, mean=self.mean, ar=ar, ma=ma, variance=variance, aic=aic), errors

    def refined(self, model: Arima, errors: Rates) -> Arima:
        """The same order after some Gauss-Newton steps, none of which may make it worse."""
        p, q = len(model.ar), len(model.ma)
        for _ in range(_ROUNDS if p + q else 0):
            step = _least_squares(self._slopes(model, errors), errors[-self.counted :])
            better = None
            for share in (1.0, 0.3, 0.1):
                tried = self.judged(model.ar + share * step[:p], _invertible(model.ma + share * step[p:]))
                if tried[0].aic < model.aic:
                    better = tried
                    break
            if better is None:
                break
            gained = model.aic - better[0].aic
            model, errors = better
            if gained < 0.01:
                break
        return model

    def _slopes(self, model: Arima, errors: Rates) -> Rates:
        """How the errors change with each weight: the same recursion run over the lagged series and errors."""
        p, q = len(model.ar), len(model.ma)
        if q == 0:
            return self.before[:p, -self.counted :]
        by_ar, by_ma = _filtered(np.ones(1), np.concatenate([[1.0], model.ma]), np.stack([self.changes, errors]))
        return np.concatenate([before(by_ar, p), before(by_ma, q)])[:, -self.counted :]


def _errors(changes: Rates, ar: Rates, ma: Rates) -> Rates:
    by_changes = np.concatenate([[1.0], -ar])
    if not len(ma):
        return np.convolve(changes, by_changes)[: len(changes)]
    return _filtered(by_changes, np.concatenate([[1.0], ma]), changes)


def _filtered(moving: Rates, recursive: Rates, series: Rates) -> Rates:
    # It takes longer to load than most commands take altogether.
    from scipy.signal import lfilter  # noqa: PLC0415

    return np.asarray(lfilter(moving, recursive, series))


def _least_squares(rows: Rates, targets: Rates) -> Rates:
    """The weights of the rows."""
    gram = rows @ rows.T
    gram.flat[:: len(gram) + 1] += _RIDGE * float(gram.trace()) / max(len(gram), 1) + 1e-12
    return solved(gram, rows @ targets)


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
