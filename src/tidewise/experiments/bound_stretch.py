"""A stretch of time for every choice and every backlog at once: how the backlog moves, and how many seconds are bad.

Backlogs are levels: whoever is between two is taken for the lower, which is to the good.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidewise.experiments.bound_course import Course
from tidewise.experiments.series import FloatArray, IntArray

_SLACK = 1e-9
"""Rounding never makes a second bad, nor a backlog larger."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Levels:
    """The backlogs that are told apart: evenly near none, where a job stays, and by a share where there is much."""

    finest: float
    """Records between none and the first level."""
    share: float
    """Between two levels far up."""
    records: FloatArray = field(init=False)
    count: int

    def __post_init__(self) -> None:
        records = self.finest / self.share * np.expm1(self.share * np.arange(self.count))
        object.__setattr__(self, "records", records)

    @classmethod
    def up_to(cls, most: float, *, finest: float, share: float) -> Levels:
        return cls(finest=finest, share=share, count=2 + math.ceil(math.log1p(most * share / finest) / share))

    def at(self, backlog: FloatArray) -> IntArray:
        """The highest level that is not above each backlog; those beyond the last are taken for it."""
        number = np.log1p(np.maximum(backlog, 0.0) * (self.share / self.finest)) / self.share
        return np.minimum(np.floor(number + _SLACK), self.count - 1).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stretch:
    """Some seconds with one configuration, for each of the choices."""

    down_s: float
    """Bad because the job is down, for whoever passes through."""
    growth: FloatArray
    """Of the backlog where no second may be bad."""
    saved: FloatArray
    """Records that each bad second saves: its batches may be long."""
    steepest: FloatArray
    """The growth if all the time went into records."""
    least: FloatArray
    """The backlog that comes of none."""
    spare_s: int
    """Seconds in which batches may be long at no price: those after a downtime."""
    bad_from: npt.NDArray[np.int32]
    """From which level on each of the seconds is bad, a row per choice."""
    room: FloatArray
    """Above which backlog, a row per choice."""

    def bad_s(self, levels: int) -> IntArray:
        """Bad seconds for every backlog, a row per choice, downtime left out."""
        count = self.bad_from.shape[0]
        flat = self.bad_from + (np.arange(count, dtype=np.int32) * (levels + 1))[:, np.newaxis]
        begin = np.bincount(flat.ravel(), minlength=count * (levels + 1)).reshape(count, levels + 1)
        return np.asarray(begin[:, :levels].cumsum(axis=1))

    def bad_at(self, choice: int, backlog: float) -> int:
        """For one choice and any backlog."""
        return int((self.room[choice] < backlog).sum())

    def after(self, choice: int, backlog: float, bad_s: float) -> float:
        """The backlog at the end, if so many seconds are bad."""
        grown = self.growth[choice] - self.saved[choice] * (bad_s + self.spare_s)
        return float(max(backlog + grown, backlog + self.steepest[choice], self.least[choice]))


def stretch(course: Course, capacity: FloatArray, *, first: int, length: int, gap_s: float, levels: Levels) -> Stretch:
    """The seconds from `first` on; during the gap, with which they begin, the job is down."""
    seconds = np.arange(length)
    span = slice(first, first + length)
    arrivals, offered = course.arrivals[span], capacity[span]
    threshold, down = course.threshold[span], course.down[span]
    gap = round(gap_s)
    twice_s = 0
    if gap_s > 0.0:
        offered = offered * np.clip(seconds + 1 - gap_s, 0.0, 1.0)[:, np.newaxis]
        down = down | (seconds < gap)
        judged = seconds + 1 - course.late_s
        threshold = np.where(down | ((judged >= 0) & (judged < gap)), np.inf, threshold)
        # Those of the gap that are judged after this stretch, and counted there.
        twice_s = min(gap, max(0, gap + course.late_s - 1 - length))
    down_s = float((down & (first + seconds < course.seconds)).sum())
    # With a row before the first second, so that there may be no second at all.
    net = np.concatenate((np.zeros((1, offered.shape[1])), arrivals[:, np.newaxis] - offered))
    course_of = np.cumsum(net, axis=0)
    lowest = np.minimum.accumulate(course_of, axis=0)
    limit = threshold[:, np.newaxis]
    over = (course_of - lowest)[1:] > limit * (1.0 + _SLACK)
    room = np.where(over, -1.0, limit - course_of[1:])
    bad_from = np.searchsorted(levels.records, room * (1.0 + _SLACK), side="right").astype(np.int32)
    work = offered.sum(axis=0)
    up_s = max(1, int((~down).sum()))
    return Stretch(
        down_s=max(0.0, down_s - twice_s),
        growth=arrivals.sum() - (1.0 - course.overhead_share) * work,
        saved=course.overhead_share * work / up_s,
        steepest=course_of[-1],
        least=course_of[-1] - lowest[-1],
        spare_s=int((np.isinf(threshold) & ~down).sum()),
        bad_from=np.ascontiguousarray(bad_from.T),
        room=np.ascontiguousarray(room.T),
    )
