"""The plain shapes, which have no chance in them: for tests of one effect at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from tidewise.core.checks import require, require_finite, require_share
from tidewise.core.readers import Seconds
from tidewise.workload.load import Rates, require_period, require_rate, seconds_of


def _sine(seconds: Rates, *, mean_per_s: float, amplitude_share: float, period_s: float, phase_share: float) -> Rates:
    wave = np.sin(2 * np.pi * (seconds / period_s + phase_share))
    # The sine of a float may pass 1 by a rounding error, which must not become a negative rate.
    return np.maximum(mean_per_s * (1.0 + amplitude_share * wave), 0.0)


def _progress(seconds: Rates, *, from_s: float, over_s: float) -> Rates:
    """0 before `from_s`, 1 once `over_s` more seconds have passed, a straight line between."""
    if over_s < 1.0:
        return (seconds >= from_s).astype(np.float64)
    return np.clip(seconds - from_s, 0.0, over_s) / over_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """The same rate all the time."""

    name: ClassVar[str] = "constant"
    rate_per_s: float
    """Events/s."""

    def __post_init__(self) -> None:
        require_rate("rate_per_s", self.rate_per_s)

    def rates_per_s(self, duration_s: int, seed: int) -> Rates:
        return np.full_like(seconds_of(duration_s, seed), self.rate_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Levels that each hold until the next begins."""

    name: ClassVar[str] = "steps"
    levels: tuple[tuple[Seconds, float], ...]
    """Pairs of a beginning in s and a rate in events/s; the first begins at 0, the beginnings ascend.

    A plan writes the beginnings as durations: `[["0s", 1000], ["10min", 2000]]`.
    """

    def __post_init__(self) -> None:
        require(len(self.levels) > 0, "levels must hold at least one pair of beginning and rate")
        for begins_s, rate_per_s in self.levels:
            require_finite("the beginning of a level", begins_s, least=0.0)
            require_rate("the rate of a level", rate_per_s)
        beginnings = [begins_s for begins_s, _ in self.levels]
        require(beginnings[0] == 0.0, f"the first level must begin at 0, not {beginnings[0]:g}")
        require(beginnings == sorted(set(beginnings)), "the beginnings of the levels must ascend without repeats")

    def rates_per_s(self, duration_s: int, seed: int) -> Rates:
        beginnings, rates = np.array(self.levels, dtype=np.float64).T
        # float64, said again because the stubs forget the dtype of an indexed row.
        return np.asarray(
            rates[np.searchsorted(beginnings, seconds_of(duration_s, seed), side="right") - 1], dtype=np.float64
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sine:
    """One smooth season."""

    name: ClassVar[str] = "sine"
    mean_per_s: float
    """Mean rate over a period."""
    amplitude_share: float = 0.5
    """How far the rate swings to each side, as a share of the mean."""
    period_s: float = 3600.0
    """From one peak to the next."""
    phase_share: float = 0.0
    """Where in the period the run begins: 0 at the mean going up, 0.25 at the peak."""

    def __post_init__(self) -> None:
        require_rate("mean_per_s", self.mean_per_s)
        require_share("amplitude_share", self.amplitude_share)
        require_period("period", self.period_s)
        require_share("phase_share", self.phase_share)

    def rates_per_s(self, duration_s: int, seed: int) -> Rates:
        return _sine(
            seconds_of(duration_s, seed),
            mean_per_s=self.mean_per_s,
            amplitude_share=self.amplitude_share,
            period_s=self.period_s,
            phase_share=self.phase_share,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """Two levels by turns, the low one first: the hardest of regular loads."""

    name: ClassVar[str] = "square"
    low_per_s: float
    """The lower rate."""
    high_per_s: float
    """The higher rate."""
    period_s: float = 1200.0
    """How long both levels last together."""
    high_share: float = 0.5
    """The share of each period that is high, at its end."""

    def __post_init__(self) -> None:
        require_rate("low_per_s", self.low_per_s)
        require_rate("high_per_s", self.high_per_s)
        require(self.low_per_s <= self.high_per_s, "low_per_s must not be above high_per_s")
        require_period("period", self.period_s)
        require_share("high_share", self.high_share)

    def rates_per_s(self, duration_s: int, seed: int) -> Rates:
        within = (seconds_of(duration_s, seed) / self.period_s) % 1.0
        return np.where(within < 1.0 - self.high_share, self.low_per_s, self.high_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A trend from one rate to another, which may lie lower; afterwards the rate stays."""

    name: ClassVar[str] = "growth"
    start_per_s: float
    """The rate at the start of the run."""
    end_per_s: float
    """The rate at the end of the trend."""
    over_s: float = 3600.0
    """How long the trend lasts."""
    kind: Literal["linear", "exponential"] = "linear"
    """linear: as much more in each second; exponential: by the same factor in each second."""

    def __post_init__(self) -> None:
        require_rate("start_per_s", self.start_per_s)
        require_rate("end_per_s", self.end_per_s)
        require_period("over", self.over_s)
        require(self.kind in {"linear", "exponential"}, f'kind must be "linear" or "exponential", not {self.kind!r}')
        require(
            self.kind == "linear" or min(self.start_per_s, self.end_per_s) >= 1e-6,
            "exponential growth cannot begin or end at 0: give rates of at least 1e-06, or use linear growth",
        )

    def rates_per_s(self, duration_s: int, seed: int) -> Rates:
        progress = _progress(seconds_of(duration_s, seed), from_s=0.0, over_s=self.over_s)
        if self.kind == "linear":
            return np.asarray(self.start_per_s + (self.end_per_s - self.start_per_s) * progress)
        return np.asarray(self.start_per_s * (self.end_per_s / self.start_per_s) ** progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegimeChange:
    """A sine whose mean and season change for good: what was learned before no longer holds."""

    name: ClassVar[str] = "regime-change"
    at_s: float
    """When the change begins."""
    over_s: float = 0.0
    """How long it takes; below 1 s: at once."""
    mean_before_per_s: float
    """Mean rate before the change."""
    mean_after_per_s: float
    """Mean rate after it."""
    amplitude_share_before: float = 0.4
    """How far the rate swings to each side before the change, as a share of its mean."""
    amplitude_share_after: float = 0.4
    """The same after it."""
    period_before_s: float = 3600.0
    """From one peak to the next before the change."""
    period_after_s: float = 3600.0
    """The same after it."""

    def __post_init__(self) -> None:
        require_finite("at", self.at_s, least=0.0)
        require_finite("over", self.over_s, least=0.0)
        require_rate("mean_before_per_s", self.mean_before_per_s)
        require_rate("mean_after_per_s", self.mean_after_per_s)
        require_share("amplitude_share_before", self.amplitude_share_before)
        require_share("amplitude_share_after", self.amplitude_share_after)
        require_period("period_before", self.period_before_s)
        require_period("period_after", self.period_after_s)

    def rates_per_s(self, duration_s: int, seed: int) -> Rates:
        seconds = seconds_of(duration_s, seed)
        after = _progress(seconds, from_s=self.at_s, over_s=self.over_s)
        old = _sine(
            seconds,
            mean_per_s=self.mean_before_per_s,
            amplitude_share=self.amplitude_share_before,
            period_s=self.period_before_s,
            phase_share=0.0,
        )
        new = _sine(
            seconds,
            mean_per_s=self.mean_after_per_s,
            amplitude_share=self.amplitude_share_after,
            period_s=self.period_after_s,
            phase_share=0.0,
        )
        return np.asarray((1.0 - after) * old + after * new)
