"""What is believed of a positive quantity, one row per candidate: a lognormal, held in logarithms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtri

from tidewise.core import Estimate, InvalidValueError
from tidewise.core.checks import require
from tidewise.qos.candidates import Floats

LEAST_SD = 1e-12
"""A spread below this is none."""
_LARGEST_LOG = 100.0
"""Beyond e^100 everything is 'never'; further out, squares of it would overflow."""


@dataclass(frozen=True, slots=True)
class Belief:
    """Mean and standard deviation of the logarithm of each row's quantity."""

    log_mean: Floats
    log_sd: Floats
    never: Floats | None = None
    """How likely each row's quantity has no end at all; None where that cannot be. Median, mean and quantiles take
    this for a long time; no limit, however large, is kept by it."""

    def __post_init__(self) -> None:
        require(self.log_mean.ndim == 1, "a belief has one row per candidate")
        require(self.log_mean.shape == self.log_sd.shape, "a belief needs as many spreads as means")
        if not (np.isfinite(self.log_mean).all() and np.isfinite(self.log_sd).all()):
            raise InvalidValueError("a belief must be finite: something that never happens is a very large number")
        require(bool((self.log_sd >= 0.0).all()), "the spreads of a belief must not be negative")
        if self.never is not None:
            require(self.never.shape == self.log_mean.shape, "a belief needs as many chances of 'never' as means")
            likely = bool(((self.never >= 0.0) & (self.never <= 1.0)).all())
            require(likely, "the chances of 'never' must lie between 0 and 1")

    @classmethod
    def of(cls, median: Floats, log_sd: Floats | float) -> Belief:
        """From medians, which are cut to what can be reckoned with."""
        log_mean = np.log(np.clip(median, np.exp(-_LARGEST_LOG), np.exp(_LARGEST_LOG)))
        return cls(log_mean, np.broadcast_to(np.asarray(log_sd, dtype=np.float64), log_mean.shape).copy())

    def __len__(self) -> int:
        return len(self.log_mean)

    @property
    def median(self) -> Floats:
        return _exp(self.log_mean)

    @property
    def mean(self) -> Floats:
        return _exp(self.log_mean + 0.5 * self.log_sd**2)

    def quantile(self, level: float) -> Floats:
        """The value that is not exceeded with this probability."""
        require(0.0 < level < 1.0, f"the level of a quantile must lie between 0 and 1, not {level:g}")
        return _exp(self.log_mean + float(ndtri(level)) * self.log_sd)

    def probability_at_most(self, limit: float | Floats) -> Floats:
        """How likely each row's quantity is not to exceed the limit (one for all, or one per row)."""
        return np.asarray(np.exp(self.log_probability_at_most(limit)), dtype=np.float64)

    def log_probability_at_most(self, limit: float | Floats) -> Floats:
        """The logarithm of that, which tells the hopeless apart; minus infinity for what cannot be."""
        limits = np.broadcast_to(np.asarray(limit, dtype=np.float64), self.log_mean.shape)
        require(not bool(np.isnan(limits).any()), "a limit must be a number")
        positive = limits > 0.0
        over = np.log(np.where(positive, limits, 1.0)) - self.log_mean
        certain = self.log_sd < LEAST_SD
        doubtful = log_ndtr(over / np.where(certain, 1.0, self.log_sd))
        chance = np.where(certain, np.where(over >= 0.0, 0.0, -np.inf), doubtful)
        if self.never is not None:
            with np.errstate(divide="ignore"):  # what never ends for certain has no chance: minus infinity
                chance = np.minimum(chance, np.log1p(-self.never))
        return np.where(positive, chance, -np.inf)

    def estimate(self, row: int) -> Estimate:
        """One row as a normal estimate of the same mean and standard deviation."""
        variance = min(float(self.log_sd[row]) ** 2, _LARGEST_LOG)
        mean = float(_exp(self.log_mean[row : row + 1] + 0.5 * variance)[0])
        return Estimate(mean=mean, spread=mean * float(np.sqrt(np.expm1(variance))))

    def at(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice) -> Belief:
        """Only these rows."""
        return Belief(self.log_mean[rows], self.log_sd[rows], None if self.never is None else self.never[rows])


def _exp(logarithm: Floats) -> Floats:
    grown: Floats = np.exp(np.clip(logarithm, -_LARGEST_LOG, _LARGEST_LOG))
    return grown
