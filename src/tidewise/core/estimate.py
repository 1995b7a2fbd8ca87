"""Numbers that are not certain: estimates with a spread, and measurements that a time limit cut off."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tidewise.core.checks import require_finite


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A normally distributed belief about a quantity."""

    mean: float
    spread: float
    """Standard deviation; 0 for what is known exactly."""

    def __post_init__(self) -> None:
        require_finite("mean", self.mean)
        require_finite("spread", self.spread, least=0.0)

    def probability_at_most(self, limit: float) -> float:
        """How likely the quantity is not to exceed the limit."""
        if self.spread == 0.0:
            return 1.0 if self.mean <= limit else 0.0
        return 0.5 * math.erfc((self.mean - limit) / (self.spread * math.sqrt(2.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Censored:
    """A measurement that was cut off: the true value is at least this, and not known."""

    at_least: float

    def __post_init__(self) -> None:
        require_finite("at_least", self.at_least, least=0.0)


Measured = float | Censored
"""A measured number, or the lower bound that is all that is known of it."""


def at_least_s(measured: Measured) -> float:
    """The number itself, or the lower bound that is all that is known."""
    return measured.at_least if isinstance(measured, Censored) else measured
