"""Fitting the few parameters of a formula: most probable values under a prior, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidewise.host.threads import on_one_thread
from tidewise.qos.candidates import Floats
from tidewise.qos.physics import Usual

Formula = Callable[[Floats], Floats]
"""Logarithms of the parameters -> logarithms of what should be seen.

For several sets of parameters at once, a row each: a row of values for each."""

_FREEDOM = 4.0
"""Student's t: how far off a point may be before it is rather held for wrong."""
_STEP = 1e-4
_ROUNDS = 40
_CLOSE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The most probable logarithms of the parameters, and the covariance around them (Laplace)."""

    logs: Floats
    covariance: Floats

    @classmethod
    def prior(cls, usual: Sequence[Usual]) -> Fit:
        """Before anything was seen."""
        return cls(logs=np.log([each.median for each in usual]), covariance=np.diag([each.log_sd**2 for each in usual]))

    def spent(self, usual: Sequence[Usual]) -> float:
        """How many parameters were really learnt: one whose spread is still the usual one counts nothing."""
        before = np.array([each.log_sd**2 for each in usual])
        return float(np.clip(1.0 - np.diag(self.covariance) / before, 0.0, 1.0).sum())

    def sd_of(self, formula: Formula) -> Floats:
        """Spread that the uncertain parameters give each value of a formula."""
        slope = _slope(formula, self.logs, formula(self.logs))
        variance: Floats = ((slope @ self.covariance) * slope).sum(axis=1)
        return np.sqrt(np.maximum(0.0, variance))


@on_one_thread
def fit(
    formula: Formula, seen: Floats, sd: Floats, usual: Sequence[Usual], *, is_bound: npt.NDArray[np.bool_] | None = None
) -> Fit:
    """Most probable parameters for what was seen with these spreads; a bound only counts while it is not kept.

    Levenberg-Marquardt on a Student-t likelihood: single points that contradict the rest lose their weight.
    """
    prior = Fit.prior(usual)
    precision = 1.0 / np.diag(prior.covariance)
    logs = prior.logs.copy()
    bounds = np.zeros(len(seen), dtype=np.bool_) if is_bound is None else is_bound
    bounded = bool(bounds.any())

    def residuals(expected: Floats) -> Floats:
        off = (seen - expected) / sd
        return np.where(bounds, np.maximum(0.0, off), off) if bounded else off

    def loss(at: Floats, off: Floats) -> float:
        surprise = 0.5 * (_FREEDOM + 1.0) * float(np.log1p(off**2 / _FREEDOM).sum())
        return surprise + 0.5 * float((precision * (at - prior.logs) ** 2).sum())

    expected = formula(logs)
    off = residuals(expected)
    current, damping = loss(logs, off), 1e-2
    for _ in range(_ROUNDS):
        gain, curvature = _pull(_slope(formula, logs, expected), off, sd, bounds)
        gain -= precision * (logs - prior.logs)
        curvature.flat[:: len(logs) + 1] += precision
        moved = False
        while damping < 1e8:
            damped = curvature.copy()
            damped.flat[:: len(logs) + 1] *= 1.0 + damping
            step = np.linalg.solve(damped, gain)
            # Steps are kept within what a logarithm can stand.
            trial = logs + step.clip(-2.0, 2.0)
            trial = trial.clip(prior.logs - 12.0, prior.logs + 12.0)
            trial_expected = formula(trial)
            trial_off = residuals(trial_expected)
            trial_loss = loss(trial, trial_off)
            if trial_loss <= current:
                moved = True
                break
            damping *= 8.0
        if not moved:
            break
        small = current - trial_loss < _CLOSE and float(np.abs(trial - logs).max()) < 1e-3
        logs, expected, off, current, damping = trial, trial_expected, trial_off, trial_loss, max(1e-9, damping / 8.0)
        if small:
            break
    _, curvature = _pull(_slope(formula, logs, expected), off, sd, bounds)
    return Fit(logs=logs, covariance=np.asarray(np.linalg.inv(curvature + np.diag(precision)), dtype=np.float64))


def spread_of(off: Floats, *, usual: float, worth: float = 4.0, spent: float = 0.0) -> float:
    """Spread of residuals around zero, the usual one counting as some of them; far ones count as by Student's t.

    `spent`: how many of the residuals the fitted parameters have used up, and made small.
    """
    if len(off) == 0:
        return usual
    guess = usual
    for _ in range(5):
        weight = (_FREEDOM + 1.0) / (_FREEDOM + (off / guess) ** 2)
        squares = float((weight * off**2).sum())
        guess = math.sqrt((worth * usual**2 + squares) / (worth + max(0.0, len(off) - spent)))
    return guess


def _pull(slope: Floats, off: Floats, sd: Floats, bounds: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    slope = slope / sd[:, np.newaxis]
    weight = (_FREEDOM + 1.0) / (_FREEDOM + off**2)
    weight = np.where(bounds & (off <= 0.0), 0.0, weight)
    return slope.T @ (weight * off), slope.T @ (weight[:, np.newaxis] * slope)


def _slope(formula: Formula, logs: Floats, expected: Floats) -> Floats:
    """How each value of a formula moves with each of the parameters, from what it is at these."""
    moved = formula(logs + _STEP * np.eye(len(logs)))
    return np.asarray((moved - expected).T / _STEP, dtype=np.float64)
