"""Bursts that nobody announced: what a forecast cannot know and a job has to survive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tidewise.core.checks import require, require_finite
from tidewise.workload.load import Rates, generator, require_period, require_rate, seconds_of

_DECAYS = 8.0
"""After as many decay times a burst is over: e^-8 of it is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """A steady rate with bursts at random times; where two overlap, the higher one counts."""

    name: ClassVar[str] = "bursts"
    base_per_s: float
    """The rate between bursts."""
    mean_gap_s: float = 900.0
    """Mean time from the beginning of one burst to that of the next; the gaps are exponential."""
    lowest_factor: float = 1.4
    """How high a burst is at least, as a factor on the base."""
    highest_factor: float = 4.0
    """How high it is at most; heights between the two are equally likely."""
    ramp_s: float = 20.0
    """From the base to the height, in a straight line."""
    hold_s: float = 60.0
    """How long the height lasts."""
    decay_s: float = 60.0
    """Time in which what is left of a burst falls to 1/e."""

    def __post_init__(self) -> None:
        require_rate("base_per_s", self.base_per_s)
        require_period("mean_gap", self.mean_gap_s)
        require_finite("lowest_factor", self.lowest_factor, least=1.0)
        require_finite("highest_factor", self.highest_factor, least=self.lowest_factor)
        require(self.highest_factor <= 1000.0, f"highest_factor must be at most 1000, not {self.highest_factor:g}")
        for name in ("ramp", "hold", "decay"):
            require_finite(name, getattr(self, f"{name}_s"), least=0.0)

    def rates_per_s(self, duration_s: int, seed: int) -> Rates:
        seconds = seconds_of(duration_s, seed)
        random = generator(seed, "bursts")
        extra = np.zeros_like(seconds)
        begins_s = random.exponential(self.mean_gap_s)
        while begins_s < duration_s:
            height = random.uniform(self.lowest_factor, self.highest_factor) - 1.0
            ends_s = min(begins_s + self.ramp_s + self.hold_s + _DECAYS * self.decay_s, float(duration_s))
            part = slice(int(begins_s), int(np.ceil(ends_s)))
            extra[part] = np.maximum(extra[part], height * self._envelope(seconds[part] - begins_s))
            begins_s += random.exponential(self.mean_gap_s)
        return self.base_per_s * (1.0 + extra)

    def _envelope(self, since_s: Rates) -> Rates:
        """0 before the burst, 1 at its height, then down."""
        rising = np.clip(since_s / self.ramp_s, 0.0, 1.0) if self.ramp_s >= 1.0 else (since_s >= 0.0) * 1.0
        over_s = np.maximum(since_s - self.ramp_s - self.hold_s, 0.0)
        falling = np.exp(-over_s / self.decay_s) if self.decay_s >= 1.0 else (over_s == 0.0) * 1.0
        return np.asarray(rising * falling)
