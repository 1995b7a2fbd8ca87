"""Forecasts of the load: quantile paths over a horizon."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tidewise.core.checks import require, require_finite, require_text

MEDIAN = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Rates to come, one path per quantile level.

    `paths_per_s[i][k]` is the level `levels[i]` of the mean rate over the k-th step after `made_at_s`.
    """

    made_at_s: float
    step_s: float
    levels: tuple[float, ...]
    """Ascending, between 0 and 1, the median among them."""
    paths_per_s: tuple[tuple[float, ...], ...]
    model: str

    def __post_init__(self) -> None:
        require_finite("made_at_s", self.made_at_s)
        require_finite("step_s", self.step_s, above=0.0)
        require_text("model", self.model)
        require(MEDIAN in self.levels, "a forecast needs its median path (level 0.5)")
        require(all(0.0 < level < 1.0 for level in self.levels), f"levels must lie between 0 and 1, not {self.levels}")
        require(list(self.levels) == sorted(set(self.levels)), f"levels must ascend without repeats, not {self.levels}")
        require(len(self.paths_per_s) == len(self.levels), "a forecast needs one path per level")
        lengths = {len(path) for path in self.paths_per_s}
        require(len(lengths) == 1 and 0 not in lengths, "the paths of a forecast must have one length, at least 1")
        for path in self.paths_per_s:
            require(
                all(math.isfinite(rate) and rate >= 0.0 for rate in path),
                "forecast rates must be finite and not negative",
            )
        for lower, upper in zip(self.paths_per_s, self.paths_per_s[1:], strict=False):
            require(all(a <= b for a, b in zip(lower, upper, strict=True)), "quantile paths must not cross")

    @property
    def horizon_s(self) -> float:
        return self.step_s * len(self.paths_per_s[0])

    def path(self, level: float = MEDIAN) -> tuple[float, ...]:
        """The path of the lowest level that is not below the one asked for, or of the highest there is."""
        for known, path in zip(self.levels, self.paths_per_s, strict=True):
            if known >= level:
                return path
        return self.paths_per_s[-1]

    def peak_per_s(self, *, within_s: float, level: float = MEDIAN) -> float:
        """The highest rate of a path within the next seconds."""
        # The smaller of the two first: `within_s` may be infinite, for the whole horizon.
        steps = max(1, math.ceil(min(len(self.paths_per_s[0]), within_s / self.step_s)))
        return max(self.path(level)[:steps])
