"""A smooth line through a few points: what somebody remembers of a load, without a file of it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.interpolate import PchipInterpolator

from tidewise.core.checks import require, require_finite
from tidewise.core.readers import Seconds
from tidewise.workload.load import Rates, require_rate, seconds_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A smooth line through points, over again after the last one; never above or below the points around it."""

    name: ClassVar[str] = "curve"
    points: tuple[tuple[Seconds, float], ...]
    """Pairs of a time in s and a rate in events/s; the first is at 0, the times ascend, and the rate at the last one
    is where the curve begins anew.

    A plan writes the times as durations: `[["0s", 1000], ["2h", 5000], ["6h", 1000]]`.
    """

    def __post_init__(self) -> None:
        require(len(self.points) > 1, "points must hold at least two pairs of a time and a rate")
        for at_s, rate_per_s in self.points:
            require_finite("the time of a point", at_s, least=0.0)
            require_rate("the rate of a point", rate_per_s)
        times_s = [at_s for at_s, _ in self.points]
        require(times_s[0] == 0.0, f"the first point must be at 0, not {times_s[0]:g}")
        ascending = all(later - earlier >= 1.0 for earlier, later in itertools.pairwise(times_s))
        require(ascending, "points must lie at least 1 s apart, in order of time")

    def rates_per_s(self, duration_s: int, seed: int) -> Rates:
        seconds = seconds_of(duration_s, seed)
        times_s, values_per_s = np.array(self.points, dtype=np.float64).T
        line = PchipInterpolator(times_s, values_per_s)(seconds % times_s[-1])
        # Rounding must not make a negative rate of a point at zero.
        return np.clip(line, values_per_s.min(), values_per_s.max())
