"""What no formula says is learnt by a Gaussian process: exact, small, with an honest spread."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize

from tidewise.core import BadInputError
from tidewise.core import saved as saved_state
from tidewise.host.threads import on_one_thread

Floats = npt.NDArray[np.float64]

FORMAT = 1
"""The version of what a process saves."""

_BLOCK = 1 << 17
"""So many covariances are made at a time: they stay in the processor's cache."""
_SQRT_5 = math.sqrt(5.0)
_JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)

_LENGTH_MEDIAN, _LENGTH_SPREAD = 1.0, 1.0
_AMPLITUDE_MEDIAN, _AMPLITUDE_SPREAD = 1.0, 0.7
_NOISE_MEDIAN, _NOISE_SPREAD = 0.1, 1.0
LENGTH_BOUNDS = (math.log(0.03), math.log(30.0))
AMPLITUDE_BOUNDS = (math.log(0.25), math.log(20.0))
NOISE_BOUNDS = (math.log(1e-3), math.log(3.0))
_STEPS = 60
_WARM_STEPS = 6
_LEAST_GAIN, _LEAST_GAIN_OF_MANY = 1e-5, 1e-4
"""A search ends with a step that gains no more than this share; with many points, each step takes its time."""
_FIRST_LOOK = 100
"""So many points tell where to begin when there are more than twice as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scaling:
    """How values are brought to about zero mean and unit spread."""

    mean: float
    sd: float


class GaussianProcess:
    """Exact, Matern-5/2 with a length per dimension, lengths, amplitude and noise at their most probable values.

    Inputs are expected in about 0..1 per dimension. Far from all points the mean goes back to that of the data (or to
    the one given) and the spread to that of the data. Immutable: more points make another process.
    """

    __slots__ = (
        "_chol",
        "_log_lengths",
        "_noise_sd",
        "_scaling",
        "_weights",
        "amplitude",
        "evidence",
        "noise",
        "x",
        "y",
    )

    def __init__(
        self,
        x: Floats,
        y: Floats,
        *,
        noise_sd: Floats,
        mean: float,
        sd: float,
        hyperparameters: Floats,
    ) -> None:
        """Not for callers: `fit` or `from_plain`."""
        self.x = x
        self.y = y
        self._noise_sd = noise_sd
        self._scaling = _Scaling(mean=mean, sd=sd)
        self._log_lengths = hyperparameters[:-2]
        self.amplitude = float(np.exp(hyperparameters[-2]))
        self.noise = float(np.exp(hyperparameters[-1]))
        """Spread of a measurement, in units of the spread of y; noise that is known comes on top."""
        covariance = self._covariance(x, x)
        covariance[np.diag_indices_from(covariance)] += self.noise**2 + (noise_sd / sd) ** 2
        self._chol = lower_root(covariance)
        centred = (y - mean) / sd
        self._weights: Floats = np.asarray(cho_solve((self._chol, True), centred, check_finite=False))
        self.evidence = float(
            -0.5 * centred @ self._weights - np.log(np.diag(self._chol)).sum() - 0.5 * len(y) * math.log(2.0 * math.pi)
        )
        """Log probability of the (scaled) data under the hyperparameters; falls when they no longer fit."""

    @classmethod
    @on_one_thread
    def fit(
        cls,
        x: Floats,
        y: Floats,
        *,
        noise_sd: Floats | None = None,
        mean: float | None = None,
        usual_sd: float = 1.0,
        starts: int = 2,
        seed: int = 0,
        warm: GaussianProcess | None = None,
    ) -> GaussianProcess:
        """The process with the most probable hyperparameters.

        `noise_sd`: spread of each measurement that is known beforehand; more noise is learnt where there is more.
        `mean`: what y is far from every point, the average of y if not given. `usual_sd`: how much y varies before
        anything is seen, worth one point: two points that happen to agree do not make the process certain. `warm`: an
        earlier fit, from which a few steps suffice; without one the search begins at the prior and `starts` - 1
        random places.
        """
        x, y, known = _checked(x, y, noise_sd)
        middle = float(y.mean()) if mean is None else mean
        sd = math.sqrt((usual_sd**2 + float(((y - middle) ** 2).sum())) / (len(y) + 1))
        dims = x.shape[1]
        prior = prior_mean(dims)
        objective = _Objective(x, (y - middle) / sd, (known / sd) ** 2)
        bounds = [LENGTH_BOUNDS] * dims + [AMPLITUDE_BOUNDS, NOISE_BOUNDS]
        steps, least_gain = _STEPS, _LEAST_GAIN
        if warm is not None and len(warm.lengths) == dims:
            tries, steps = [warm.hyperparameters], _WARM_STEPS
        elif len(y) > 2 * _FIRST_LOOK:
            # A part of the points tells in a tenth of the time where to begin. The rest of the way takes all steps:
            # cut short, what the part took for noise stays noise, and the process is sure of what it smoothed away.
            part = np.random.default_rng(seed).choice(len(y), _FIRST_LOOK, replace=False)
            look = cls.fit(
                x[part], y[part], noise_sd=known[part], mean=middle, usual_sd=usual_sd, starts=starts, seed=seed
            )
            tries, least_gain = [look.hyperparameters], _LEAST_GAIN_OF_MANY
        else:
            rng = np.random.default_rng(seed)
            spread = 0.5 * prior_spread(dims)
            tries = [prior, *(prior + spread * rng.standard_normal(dims + 2) for _ in range(starts - 1))]
        lower, upper = (np.array(side) for side in zip(*bounds, strict=True))
        best, lowest = prior, math.inf
        for begin in tries:
            found = minimize(
                objective, np.clip(begin, lower, upper), jac=True, method="L-BFGS-B", bounds=bounds,
                options={"maxiter": steps, "maxfun": 2 * steps, "ftol": least_gain, "gtol": 1e-4},
            )  # fmt: skip
            if float(found.fun) < lowest:
                best, lowest = np.asarray(found.x, dtype=np.float64), float(found.fun)
        return cls(x, y, noise_sd=known, mean=middle, sd=sd, hyperparameters=best)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def lengths(self) -> Floats:
        """How far one has to go along each dimension for the function to become another."""
        return np.asarray(np.exp(self._log_lengths))

    @property
    def noise_sd(self) -> float:
        """Spread of a measurement beside noise that is known, in units of y."""
        return self.noise * self._scaling.sd

    @property
    def hyperparameters(self) -> Floats:
        """Logs of the lengths, of the amplitude and of the noise."""
        return np.concatenate([self._log_lengths, [math.log(self.amplitude), math.log(self.noise)]])

    def predict(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the function (noise apart) at each row."""
        x = self._rows(x)
        return self._predicted(x, x[:0], single=False)

    def glance(self, x: Floats, anchors: Floats) -> tuple[Floats, Floats]:
        """As `predict`, as if the function were known at the anchors to be what is expected there.

        In single precision, in half the time: good enough to pick what is worth a closer look.
        """
        return self._predicted(self._rows(x), self._rows(anchors), single=True)

    def beside(self, x: Floats, anchors: Floats) -> tuple[Floats, Floats, Floats]:
        """Mean and variance at each row, and its covariance with each of the anchors."""
        x, anchors = self._rows(x), self._rows(anchors)
        cross = self._covariance(self.x, np.vstack([x, anchors]))
        mean = self._weights @ cross[:, : len(x)]
        solved = solve_triangular(self._chol, cross, lower=True, check_finite=False, overwrite_b=True)
        at_x, at_anchors = solved[:, : len(x)], solved[:, len(x) :]
        variance = self.amplitude**2 - np.einsum("ij,ij->j", at_x, at_x)
        sd = self._scaling.sd
        shared = sd**2 * (self._covariance(x, anchors) - at_x.T @ at_anchors)
        return self._scaling.mean + sd * mean, sd**2 * np.maximum(variance, 1e-12), shared

    def joint(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean vector and covariance matrix of the function at all rows together."""
        x = self._rows(x)
        cross = self._covariance(self.x, x)
        solved = solve_triangular(self._chol, cross, lower=True, check_finite=False)
        sd = self._scaling.sd
        mean = self._scaling.mean + sd * (self._weights @ cross)
        return mean, sd**2 * (self._covariance(x, x) - solved.T @ solved)

    def sample(self, x: Floats, count: int, rng: np.random.Generator) -> Floats:
        """Functions that may be true, at all rows together: one row per sample."""
        mean, covariance = self.joint(x)
        root = lower_root(covariance)
        return np.asarray(mean + rng.standard_normal((count, len(mean))) @ root.T)

    def leave_one_out(self) -> tuple[Floats, Floats]:
        """What would have been expected of each measurement, and how far off, had it not been made."""
        inverse = _inverse(self._chol)
        precision = np.diag(inverse)
        sd = self._scaling.sd
        return self.y - sd * self._weights / precision, sd / np.sqrt(precision)

    def with_data(self, x: Floats, y: Floats, *, noise_sd: Floats | None = None) -> GaussianProcess:
        """The same hyperparameters, other data in place of these."""
        x, y, known = _checked(x, y, noise_sd)
        return GaussianProcess(
            self._rows(x),
            y,
            noise_sd=known,
            mean=self._scaling.mean,
            sd=self._scaling.sd,
            hyperparameters=self.hyperparameters,
        )

    def part(self, points: npt.NDArray[np.int64]) -> GaussianProcess:
        """The same hyperparameters, only these of the points."""
        return self.with_data(self.x[points], self.y[points], noise_sd=self._noise_sd[points])

    def to_plain(self) -> dict[str, object]:
        """All there is to it, as a JSON file can hold it."""
        return {
            "format": FORMAT,
            "x": self.x.tolist(),
            "y": self.y.tolist(),
            "noise_sd": self._noise_sd.tolist(),
            "mean": self._scaling.mean,
            "sd": self._scaling.sd,
            "hyperparameters": self.hyperparameters.tolist(),
        }

    @classmethod
    def from_plain(cls, saved: Mapping[str, object]) -> GaussianProcess:
        """What `to_plain` gave; BadInputError for another version's or a damaged one."""
        saved_state.check_format(
            saved, version=FORMAT, what="the saved Gaussian process has", instead="let it learn anew"
        )
        try:
            x, y, noise_sd, scaling, hyperparameters = (
                np.asarray(value, dtype=np.float64)
                for value in (
                    saved["x"], saved["y"], saved["noise_sd"], [saved["mean"], saved["sd"]], saved["hyperparameters"],
                )
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as wrong:
            raise BadInputError(f"the saved Gaussian process is damaged ({wrong!r}): let it learn anew") from wrong
        x, y, noise_sd = _checked(x, y, noise_sd)
        fits = hyperparameters.shape == (x.shape[1] + 2,) and np.isfinite(hyperparameters).all()
        if not (fits and np.isfinite(scaling).all() and scaling[1] > 0.0):
            raise BadInputError(
                "the saved Gaussian process is damaged (its parameters are not its own): let it learn anew"
            )
        mean, sd = scaling.tolist()
        return cls(x, y, noise_sd=noise_sd, mean=mean, sd=sd, hyperparameters=hyperparameters)

    def _rows(self, x: Floats) -> Floats:
        if x.ndim != 2 or x.shape[1] != self.x.shape[1]:
            raise BadInputError(
                f"the Gaussian process learnt from rows of {self.x.shape[1]} numbers and is asked about an array of "
                f"shape {x.shape}: give it rows of as many"
            )
        return x

    def _predicted(self, x: Floats, anchors: Floats, *, single: bool) -> tuple[Floats, Floats]:
        mean, variance = np.empty(len(x)), np.empty(len(x))
        at_anchors = solve_triangular(self._chol, self._covariance(self.x, anchors), lower=True, check_finite=False)
        root = lower_root(self._covariance(anchors, anchors) - at_anchors.T @ at_anchors)
        arrays = (self.x, x, self._weights, self._chol, anchors, at_anchors, root)
        # Typed as double either way: numpy and LAPACK take both.
        taken = tuple(cast("Floats", array.astype(np.float32)) for array in arrays) if single else arrays
        learnt, asked, weights, chol, anchors, at_anchors, root = taken
        rows = max(1, _BLOCK // len(self))
        for begin in range(0, len(x), rows):
            block = slice(begin, begin + rows)
            cross = self._covariance(learnt, asked[block])
            mean[block] = weights @ cross
            solved = solve_triangular(chol, cross, lower=True, check_finite=False, overwrite_b=True)
            variance[block] = self.amplitude**2 - np.einsum("ij,ij->j", solved, solved)
            if len(anchors):
                shared = self._covariance(anchors, asked[block]) - at_anchors.T @ solved
                pull = solve_triangular(root, shared, lower=True, check_finite=False, overwrite_b=True)
                variance[block] -= np.einsum("ij,ij->j", pull, pull)
        sd = self._scaling.sd
        return self._scaling.mean + sd * mean, sd * np.sqrt(np.maximum(variance, 1e-12))

    def _covariance(self, left: Floats, right: Floats) -> Floats:
        lengths = self.lengths.astype(left.dtype)
        reach = _distances(left / lengths, right / lengths)
        scaled = np.exp(-reach)
        scaled *= self.amplitude**2
        reach *= 1.0 + reach / 3.0
        reach += 1.0
        reach *= scaled
        return reach


class _Objective:
    """Minus the log posterior of the hyperparameters, with its gradient."""

    def __init__(self, x: Floats, y: Floats, known_variance: Floats) -> None:
        self._x = x
        self._squares = x**2
        self._y = y
        self._known_variance = known_variance
        self._mean = prior_mean(x.shape[1])
        self._spread = prior_spread(x.shape[1])

    def __call__(self, hyperparameters: Floats) -> tuple[float, Floats]:
        lengths = np.exp(hyperparameters[:-2])
        amplitude, noise = np.exp(2.0 * hyperparameters[-2:])
        reach = _distances(self._x / lengths, self._x / lengths)
        decay = np.negative(reach)
        np.exp(decay, out=decay)
        decay *= amplitude
        slope = reach + 1.0
        slope *= decay  # times 5/3 the squared step over the squared length: the derivative by a log length
        covariance = reach
        covariance *= reach
        covariance *= decay
        covariance /= 3.0
        covariance += slope
        signal = covariance.copy()
        covariance[np.diag_indices_from(covariance)] += noise + self._known_variance
        chol = lower_root(covariance)
        weights = cho_solve((chol, True), self._y, check_finite=False)
        pull = _inverse(chol)
        pull -= np.outer(weights, weights)
        off = (hyperparameters - self._mean) / self._spread
        value = 0.5 * self._y @ weights + np.log(np.diag(chol)).sum() + 0.5 * off @ off
        gradient = off / self._spread
        by_amplitude = float(np.einsum("ij,ij->", pull, signal))
        gradient[-2] += by_amplitude
        gradient[-1] += noise * float(np.trace(pull))
        pull *= slope
        # The sum of pull times squared differences, without making the differences.
        by_square = 2.0 * (pull.sum(axis=1) @ self._squares - np.einsum("ij,ij->j", self._x, pull @ self._x))
        gradient[:-2] += 0.5 * 5.0 / 3.0 * by_square / lengths**2
        return float(value), gradient


def prior_mean(dims: int) -> Floats:
    """Where the logarithms of lengths, amplitude and noise are expected."""
    return np.log([_LENGTH_MEDIAN] * dims + [_AMPLITUDE_MEDIAN, _NOISE_MEDIAN])


def prior_spread(dims: int) -> Floats:
    """How far from there they may be."""
    return np.array([_LENGTH_SPREAD] * dims + [_AMPLITUDE_SPREAD, _NOISE_SPREAD])


def _distances(left: Floats, right: Floats) -> Floats:
    """Square root of 5 times the distance of each pair of rows."""
    squared = left @ (-2.0 * right.T)
    squared += np.einsum("ij,ij->i", left, left)[:, None]
    squared += np.einsum("ij,ij->i", right, right)
    np.maximum(squared, 0.0, out=squared)
    np.sqrt(squared, out=squared)
    squared *= _SQRT_5
    return squared


def lower_root(matrix: Floats) -> Floats:
    """The lower factor; what rounding made not quite positive is lifted by as little as helps."""
    if len(matrix) == 0:
        return matrix
    size = float(np.mean(np.diag(matrix)))
    for jitter in _JITTERS:
        lifted = matrix
        if jitter:
            lifted = matrix.copy()
            lifted[np.diag_indices_from(lifted)] += jitter * size + 1e-300
        factor, wrong = dpotrf(lifted, lower=1, clean=1)
        if wrong == 0:
            return np.asarray(factor)
    raise BadInputError("the points of a Gaussian process cannot be told apart: check their scale")


def _inverse(chol: Floats) -> Floats:
    lower, _ = dpotri(chol, lower=1)
    inverse: Floats = lower + lower.T  # above the diagonal the root is zero, and LAPACK leaves it so
    inverse[np.diag_indices_from(inverse)] *= 0.5
    return inverse


def _checked(x: Floats, y: Floats, noise_sd: Floats | None) -> tuple[Floats, Floats, Floats]:
    x, y = np.array(x, dtype=np.float64), np.array(y, dtype=np.float64)
    known = np.zeros(len(y)) if noise_sd is None else np.array(noise_sd, dtype=np.float64)
    if x.ndim != 2 or y.ndim != 1 or len(x) != len(y) or known.shape != y.shape:
        raise BadInputError(
            f"a Gaussian process needs one row of x and one number of y and of noise per point, "
            f"not shapes {x.shape}, {y.shape} and {known.shape}"
        )
    if len(y) == 0:
        raise BadInputError("a Gaussian process needs at least one point: give it one, or ask the prior")
    if not (np.isfinite(x).all() and np.isfinite(y).all() and np.isfinite(known).all() and (known >= 0.0).all()):
        raise BadInputError(
            "a Gaussian process learns from finite numbers and noise of 0 or more: leave out NaN and infinity"
        )
    return x, y, known
