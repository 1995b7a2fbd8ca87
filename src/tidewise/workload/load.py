"""What a load is: the events per second offered to a job, for each second of a run."""

from __future__ import annotations

import zlib
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tidewise.core.checks import require, require_finite

Rates = NDArray[np.float64]
"""One value per second of a run."""

MOST_PER_S = 1e12
"""No shape may be asked for more: far beyond any job, and sums and noise stay finite."""


class Load(Protocol):
    """The offered load of a run.

    Guarantees: one value per second, finite, not negative; the same object, duration and seed give the same rates;
    a longer run begins with the rates of the shorter one.
    """

    @property
    def name(self) -> str:
        """How the load is called in plans and reports."""

    def rates_per_s(self, duration_s: int, seed: int) -> Rates:
        """The events offered in each second; InvalidValueError for a duration below 1 or a seed below 0."""


def seconds_of(duration_s: int, seed: int) -> Rates:
    """The start of each second of a run, 0 first; refuses the durations and seeds that no load takes."""
    require(duration_s >= 1, f"duration_s must be at least 1, not {duration_s}")
    require(seed >= 0, f"seed must not be negative, not {seed}")
    return np.arange(duration_s, dtype=np.float64)


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Random numbers of their own for each purpose, so that one part of a load does not disturb another."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode())])


def require_rate(name: str, value: float) -> None:
    """Refuse what cannot be a rate in events per second."""
    require_finite(name, value, least=0.0)
    require(value <= MOST_PER_S, f"{name} must be at most {MOST_PER_S:g}, not {value:g}")


def require_period(name: str, value: float) -> None:
    """Refuse periods shorter than the one second that a load can show."""
    require_finite(name, value, least=1.0)
