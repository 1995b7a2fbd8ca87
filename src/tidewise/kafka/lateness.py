"""How late records were: a histogram that stays small however many there are, and can be added to another."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]

_LEAST_S = 0.001
_GROWTH = 1.05
_BINS = 400
# The first bin holds what is below a millisecond, the last what is above 80 hours.
_EDGES_S = _LEAST_S * _GROWTH ** np.arange(_BINS - 1)


@dataclass(slots=True)
class Lateness:
    """Counts of delays in bins that are 5 % wide; quantiles are never below the true ones, and 5 % above at most."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_BINS, dtype=np.int64))
    worst_s: float = 0.0

    def add(self, delays_s: Seconds) -> None:
        """Count these delays; what came before it was due was not late."""
        if len(delays_s) == 0:
            return
        self.counts += np.bincount(np.searchsorted(_EDGES_S, delays_s), minlength=_BINS)
        self.worst_s = max(self.worst_s, float(delays_s.max()))

    def merge(self, other: Lateness) -> None:
        """Count what the other has counted."""
        self.counts += other.counts
        self.worst_s = max(self.worst_s, other.worst_s)

    @property
    def total(self) -> int:
        """How many delays were counted."""
        return int(self.counts.sum())

    def quantile_s(self, share: float) -> float | None:
        """The delay that this share of the records did not pass; None where there are no records."""
        if self.total == 0:
            return None
        last = int(np.searchsorted(np.cumsum(self.counts), max(1, math.ceil(share * self.total))))
        return min(self.worst_s, float(_EDGES_S[min(last, _BINS - 2)]))
