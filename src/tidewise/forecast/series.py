"""A load as a regular series: mean rates of equal samples, whatever the reports were like."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tidewise.core import Observation

Rates = NDArray[np.float64]

_KNOWN_SHARE = 0.5
"""A sample counts if reports speak for at least this share of it."""
_SET_BACK_AFTER = 10
"""As many reports from the past, in order among themselves, mean that the clock was set back."""
_FREAK = 20.0
"""A lone sample that is as many times its larger neighbour is a counter that began anew, not a load."""
_CARRIED = 3
"""As many samples are taken over into a new series: an old level is better than none."""


class RateSeries:
    """The latest samples of a load in bounded memory; a sample of which too little is known is NaN.

    The samples lie on one grid from the first report on and are numbered from 0, so that what is computed from them
    can be remembered by number. A gap longer than the memory begins a new series with the last level. A clock that is
    set back goes on where it was: the series knows spans of time, not dates, so that daylight saving is nothing to it.
    """

    def __init__(self, *, sample_s: float, keep: int) -> None:
        """Keep at least this many samples."""
        self.sample_s = sample_s
        self._keep = keep
        self._rates = np.full(2 * keep, np.nan)
        self._first = 0
        """Number of the oldest sample that is kept."""
        self._held = 0
        self._begin_s = 0.0
        """Where sample 0 begins."""
        self._end_s: float | None = None
        self._shift_s = 0.0
        """Added to the time of reports since the clock was set back."""
        self._records = 0.0
        self._covered_s = 0.0
        self._late = 0
        self._late_s = -math.inf
        self.epoch = 0
        """Changes when the samples are numbered anew."""

    @property
    def count(self) -> int:
        """How many samples are complete, those included that were forgotten."""
        return self._first + self._held

    @property
    def now_s(self) -> float:
        """End of the last report, on the clock of the reports."""
        return (self._end_s or 0.0) - self._shift_s

    @property
    def clock_s(self) -> float:
        """End of the last report, on a clock that is never set back."""
        return self._end_s or 0.0

    @property
    def since_sample_s(self) -> float:
        """Seconds since the last complete sample ended."""
        return max(0.0, (self._end_s or 0.0) - self._edge_s(self.count))

    def add(self, observation: Observation) -> bool:
        """Take one report in; False where it does not end after all that are here."""
        end_s = observation.time_s + self._shift_s
        start_s = end_s - observation.window_s
        if self._end_s is None:
            self._begin_s = self._end_s = start_s
        if end_s <= self._end_s:
            if not self._clock_was_set_back(observation):
                return False
            end_s, start_s = observation.time_s + self._shift_s, self._end_s
        self._late, self._late_s = 0, -math.inf
        if end_s - self._edge_s(self.count) > self._keep * self.sample_s:
            self._begin_anew(max(start_s, end_s - self._keep * self.sample_s))
        self._fill(max(start_s, self._end_s), end_s, observation.load_per_s)
        self._end_s = end_s
        return True

    def replace(self, rates: Rates, *, end_s: float) -> None:
        """Take whole samples, the last of which ends then, in the place of all that is here."""
        rates = rates[-len(self._rates) :]
        self._rates[: len(rates)] = rates
        self._first, self._held = 0, len(rates)
        self._begin_s, self._end_s = end_s - len(rates) * self.sample_s, end_s
        self._shift_s = self._records = self._covered_s = 0.0
        self._late, self._late_s = 0, -math.inf
        self.epoch += 1

    def history(self, *, until: int, at_most: int) -> Rates:
        """The samples before this number, oldest first."""
        stop = until - self._first
        return self._rates[max(0, stop - at_most) : max(0, stop)]

    def to_plain(self) -> dict[str, object]:
        """All of it as numbers and lists."""
        held = self._rates[: self._held].tolist()
        return {
            "rates": [None if math.isnan(rate) else rate for rate in held],
            "first": self._first,
            "begin_s": self._begin_s,
            "end_s": self._end_s,
            "shift_s": self._shift_s,
            "records": self._records,
            "covered_s": self._covered_s,
        }

    def from_plain(self, plain: Mapping[str, object]) -> None:
        """Go on where `to_plain` stood; KeyError, TypeError or ValueError where it is something else."""
        rates = [math.nan if rate is None else float(rate) for rate in plain["rates"]]  # type: ignore[attr-defined]  # checked by trying
        end_s = plain["end_s"]
        numbers = {name: float(plain[name]) for name in ("begin_s", "shift_s", "records", "covered_s")}  # type: ignore[arg-type]  # checked by trying
        first = int(plain["first"])  # type: ignore[call-overload]  # checked by trying
        if len(rates) > len(self._rates):  # it was saved by one with more memory
            first += len(rates) - self._keep
            rates = rates[-self._keep :]
        self._rates[: len(rates)] = rates
        self._held, self._first = len(rates), first
        self._end_s = None if end_s is None else float(end_s)  # type: ignore[arg-type]  # checked by trying
        self._begin_s, self._shift_s = numbers["begin_s"], numbers["shift_s"]
        self._records, self._covered_s = numbers["records"], numbers["covered_s"]
        self.epoch += 1

    def _edge_s(self, number: int) -> float:
        return self._begin_s + number * self.sample_s

    def _fill(self, start_s: float, end_s: float, rate_per_s: float) -> None:
        edge_s = self._edge_s(self.count + 1)
        while end_s >= edge_s - 1e-9:
            new_s = max(0.0, edge_s - start_s)
            self._append(self._records + new_s * rate_per_s, self._covered_s + new_s)
            self._records = self._covered_s = 0.0
            start_s, edge_s = max(start_s, edge_s), self._edge_s(self.count + 1)
        if end_s > start_s:
            self._records += (end_s - start_s) * rate_per_s
            self._covered_s += end_s - start_s

    def _append(self, records: float, covered_s: float) -> None:
        if self._held == len(self._rates):
            self._rates[: self._keep] = self._rates[self._keep :]
            self._first += self._keep
            self._held = self._keep
        known = covered_s >= _KNOWN_SHARE * self.sample_s
        self._rates[self._held] = records / covered_s if known else math.nan
        self._held += 1

    def _clock_was_set_back(self, observation: Observation) -> bool:
        self._late = self._late + 1 if observation.time_s > self._late_s else 0
        self._late_s = observation.time_s
        if self._late < _SET_BACK_AFTER or self._end_s is None:
            return False
        self._shift_s = self._end_s + observation.window_s - observation.time_s
        return True

    def _begin_anew(self, begin_s: float) -> None:
        held = self._rates[: self._held]
        carried = held[~np.isnan(held)][-_CARRIED:]
        self._rates[: len(carried)] = carried
        self._first, self._held = 0, len(carried)
        self._records = self._covered_s = 0.0
        self._begin_s, self._end_s = begin_s - len(carried) * self.sample_s, begin_s
        self.epoch += 1


def filled(rates: Rates) -> Rates:
    """The samples without holes: gaps in a straight line, and lone zeros and freaks of a counter as gaps.

    Empty where nothing is known. The last sample is never called a freak: the next may be like it.
    """
    inner, around = rates[1:-1], np.stack([rates[:-2], rates[2:]])
    if len(inner):
        # With a NaN beside it nothing is known of a sample's neighbours: comparisons are false then.
        lone_zero = (inner == 0.0) & (around.min(axis=0) > 0.0)
        freak = inner > _FREAK * np.maximum(around.max(axis=0), 1e-12)
        freak &= around.min(axis=0) > 0.0
        if lone_zero.any() or freak.any():
            rates = rates.copy()
            rates[1:-1][lone_zero | freak] = np.nan
    known = ~np.isnan(rates)
    if known.all():
        return rates
    if not known.any():
        return rates[:0]
    where = np.flatnonzero(known)
    return np.interp(np.arange(where[0], len(rates)), where, rates[known])
