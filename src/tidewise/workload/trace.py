"""Recorded loads: the rates of a real job, brought to the seconds, the size and the speed of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tidewise.core import BadInputError, format_duration
from tidewise.core.checks import require, require_finite, require_text
from tidewise.workload.load import MOST_PER_S, Rates, seconds_of

Between = Literal["linear", "hold"]
"""What the rate is between two rows: a straight line, or that of the earlier row."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Rates at ascending times, from which a run takes one value per second.

    Where rows lie at least a second of the run apart, a second has the rate at its beginning; where they lie closer
    (a fine trace, or a compressed one), it has the mean over its length, so that no row is lost. The last row holds
    for one median step, which makes a trace of n rows n steps long.
    """

    name: str
    times_s: Rates
    """Strictly ascending, in the trace's own time; the first is where the trace begins."""
    values_per_s: Rates
    """The rate at each of these times."""
    between: Between = "linear"
    compress: float = 1.0
    """How many seconds of the trace pass in one of the run: 48 puts a day into half an hour."""
    start_s: float = 0.0
    """How much of the trace is left out at its beginning, in the trace's own time."""
    repeat: bool = False
    """Whether the trace begins anew where the run is longer; otherwise such a run is refused."""

    def __post_init__(self) -> None:
        require_text("name", self.name)
        require(len(self.times_s) >= 2, "a trace needs at least two rows")
        require(len(self.times_s) == len(self.values_per_s), "a trace needs one rate for each time")
        require(bool(np.isfinite(self.times_s).all()), "the times of a trace must be finite")
        require(
            bool((np.diff(self.times_s) > 0.5e-6).all()), "the times of a trace must ascend by at least a microsecond"
        )
        require(
            bool(np.isfinite(self.values_per_s).all() and (self.values_per_s >= 0.0).all()),
            "the rates of a trace must be finite and not negative",
        )
        require(bool((self.values_per_s <= MOST_PER_S).all()), f"the rates of a trace must be at most {MOST_PER_S:g}")
        require(self.between in {"linear", "hold"}, f'between must be "linear" or "hold", not {self.between!r}')
        require_finite("compress", self.compress, above=0.0)
        require(1e-6 <= self.compress <= 1e9, f"compress must lie between 1e-06 and 1e+09, not {self.compress:g}")
        require_finite("start", self.start_s, least=0.0)
        require(
            self.start_s < self.own_length_s,
            f"start is {self.start_s:g} s, but the trace is only {self.own_length_s:g} s long",
        )
        require(
            self.own_length_s >= self.compress,
            f"the trace is {self.own_length_s:g} s long, which compress = {self.compress:g} makes less than a second",
        )

    @property
    def step_s(self) -> float:
        """The median time between two rows, in the trace's own time."""
        return float(np.median(np.diff(self.times_s)))

    @property
    def own_length_s(self) -> float:
        """How long the trace is in its own time."""
        return float(self.times_s[-1] - self.times_s[0]) + self.step_s

    @property
    def run_length_s(self) -> int:
        """The longest run it can feed without beginning anew."""
        return int((self.own_length_s - self.start_s) / self.compress + 1e-9)

    @property
    def mean_per_s(self) -> float:
        """Mean rate over the whole trace."""
        return float(self._sums()[-1] / self.own_length_s)

    @property
    def peak_per_s(self) -> float:
        """The highest rate of any row."""
        return float(self.values_per_s.max())

    def rates_per_s(self, duration_s: int, seed: int) -> Rates:
        """The rates of the run, the same for every seed; BadInputError where the trace is too short for it."""
        seconds = seconds_of(duration_s, seed)
        if not self.repeat and duration_s > self.run_length_s:
            raise BadInputError(
                f"{self.name} lasts {self.run_length_s} s ({format_duration(self.run_length_s)}) at this start and "
                f"compression, but the run {duration_s} s: shorten the run or set repeat = true"
            )
        own_s = self.start_s + seconds * self.compress
        if self.step_s >= self.compress:
            return self._rate_at(own_s % self.own_length_s if self.repeat else own_s)
        edges_s = self.start_s + np.arange(duration_s + 1, dtype=np.float64) * self.compress
        # A difference of sums may fall below 0 by a rounding error.
        return np.clip(np.diff(self._sum_until(edges_s)) / self.compress, 0.0, self.peak_per_s)

    def _rate_at(self, own_s: Rates) -> Rates:
        """Rates at times since the beginning of the trace."""
        since_s = self.times_s - self.times_s[0]
        if self.between == "linear":
            return np.asarray(np.interp(own_s, since_s, self.values_per_s))
        rows = np.searchsorted(since_s, own_s, side="right") - 1
        return np.asarray(self.values_per_s[rows], dtype=np.float64)

    def _sums(self) -> Rates:
        """Events from the beginning of the trace to each row, and to its end."""
        later = (
            self.values_per_s[:-1] if self.between == "hold" else (self.values_per_s[1:] + self.values_per_s[:-1]) / 2
        )
        parts = np.append(later * np.diff(self.times_s), self.values_per_s[-1] * self.step_s)
        return np.concatenate([[0.0], np.cumsum(parts)])

    def _sum_until(self, own_s: Rates) -> Rates:
        """Events from the beginning of the trace to each of these times, rounds of a repeated trace included."""
        sums = self._sums()
        rounds, within_s = np.divmod(own_s, self.own_length_s) if self.repeat else (np.zeros_like(own_s), own_s)
        since_s = self.times_s - self.times_s[0]
        rows = np.searchsorted(since_s, within_s, side="right") - 1
        beyond_s = within_s - since_s[rows]
        rate = self.values_per_s[rows]
        if self.between == "linear":
            rate = (rate + self._rate_at(within_s)) / 2
        return np.asarray(rounds * sums[-1] + sums[rows] + rate * beyond_s)
