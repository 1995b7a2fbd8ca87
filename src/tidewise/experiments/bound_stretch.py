"""A stretch of time for every choice and every backlog at once: how the backlog moves, and how many seconds are bad.

Backlogs are levels: whoever is between two is taken for the lower, which is to the good.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidewise.experiments.bound_course import Course, Work
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
    rounding: float = 0.0
    """From which share of the way to the next level on a backlog is taken for that; 0: it never is."""

    def __post_init__(self) -> None:
        records = self.finest / self.share * np.expm1(self.share * np.arange(self.count))
        object.__setattr__(self, "records", records)

    @classmethod
    def up_to(cls, most: float, *, finest: float, share: float, rounding: float = 0.0) -> Levels:
        count = 2 + math.ceil(math.log1p(most * share / finest) / share)
        return cls(finest=finest, share=share, count=count, rounding=rounding)

    def at(self, backlog: FloatArray) -> IntArray:
        """The highest level that is not above each backlog; those beyond the last are taken for it."""
        number = np.log1p(np.maximum(backlog, 0.0) * (self.share / self.finest)) / self.share
        return np.minimum(np.floor(number + self.rounding + _SLACK), self.count - 1).astype(np.int64)

    def about(self, growth: FloatArray) -> IntArray:
        """For each growth a row with where it leads from every level, now and then one too low: this is quicker."""
        grown = self.records.astype(np.float32) + growth.astype(np.float32)[:, np.newaxis]
        number = np.log1p(np.maximum(grown, 0.0) * np.float32(self.share / self.finest)) * np.float32(1.0 / self.share)
        levels: IntArray = np.clip(number + np.float32(self.rounding - 1e-3), 0, self.count - 1).astype(np.int64)
        return levels


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Free:
    """What a stretch comes to where no second of it may be bad, by one of the lines below what batches can do."""

    growth: FloatArray
    """Of the backlog."""
    saved: FloatArray
    """Records that each bad second saves: its batches may be long."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stretch:
    """Some seconds with one configuration, for each of the choices."""

    down_s: float
    """Bad because the job is down, for whoever passes through."""
    free: tuple[Free, ...]
    """All of them hold."""
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

    def bought_s(self, choice: int, records: float) -> float:
        """The bad seconds that so many records less take."""
        return max((records / float(free.saved[choice]) if free.saved[choice] > 0 else 0.0) for free in self.free)

    def after(self, choice: int, backlog: float, bad_s: float) -> float:
        """The backlog at the end, if so many seconds are bad."""
        grown = max(float(free.growth[choice] - free.saved[choice] * (bad_s + self.spare_s)) for free in self.free)
        return float(max(backlog + grown, backlog + self.steepest[choice], self.least[choice]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Landing:
    """From a gap until the next request may come, for each of the choices."""

    steps: int
    """Since the request."""
    growth: FloatArray
    """Of the backlog since the preparation."""
    down_s: float
    bad_s: IntArray
    """Besides those in which the job is down, for a job that had no backlog before the gap."""
    renewed: bool
    """Whether the new processes have missed a failure."""


def stretch(course: Course, work: Work, *, first: int, length: int, levels: Levels) -> Stretch:
    """The seconds from `first` on."""
    span = slice(first, first + length)
    down = course.down[span]
    # With a row before the first second, so that there may be no second at all.
    course_of = course.arrived[first : first + length + 1, np.newaxis] - course.arrived[first]
    course_of = course_of - (work.done[first : first + length + 1] - work.done[first])
    lowest = np.minimum.accumulate(course_of, axis=0)
    some = course.judged.within(first, length)
    seen = course.judged.seen_in[some] - first
    limit = work.room[some]
    over = (course_of - lowest)[seen] > limit + _SLACK * np.abs(limit)
    room = np.where(over, -1.0, limit - course_of[seen])
    bad_from = np.searchsorted(levels.records, room * (1.0 + _SLACK), side="right").astype(np.int32)
    offered = work.done[first + length] - work.done[first]
    arrived = course.arrived[first + length] - course.arrived[first]
    up_s = int((~down).sum())
    return Stretch(
        down_s=float(down.sum()),
        free=tuple(
            Free(growth=arrived - trade.free_share * offered, saved=trade.bought_s * offered / max(1, up_s))
            for trade in course.trades
        ),
        steepest=course_of[-1],
        least=course_of[-1] - lowest[-1],
        spare_s=max(0, up_s - seen.size),
        bad_from=np.ascontiguousarray(bad_from.T),
        room=np.ascontiguousarray(room.T),
    )


def landing(course: Course, *, step: int, before_s: int, gap_s: float) -> Landing:
    """After a request in this step; a failure that the gap meets passes within it, unless it came first."""
    first = step * course.step_s
    begins_s = course.up_from(first + before_s)
    up_s = begins_s + gap_s
    steps = max(1, math.ceil((up_s - first) / course.step_s))
    until = first + steps * course.step_s
    gap = range(round(begins_s), round(up_s))
    down = course.down[first + before_s : until].copy()
    down[gap.start - first - before_s : gap.stop - first - before_s] = True
    down[max(0, course.seconds - first - before_s) :] = False
    missed = any(span.start <= up_s < span.stop for span in course.renewed)
    work = course.fresh if missed else course.usual
    # The second in which the job comes up is taken as a whole, which is to the good.
    begun = int(up_s)
    growth = (course.arrived[until] - course.arrived[first + before_s]) - (work.done[until] - work.done[begun])
    judged = course.judged
    some = judged.within(gap.stop, max(0, until - gap.stop))
    of_gap = (judged.arrived_in[some] >= gap.start) & (judged.arrived_in[some] < gap.stop)
    seen = judged.seen_in[some]
    waiting = (course.arrived[seen] - course.arrived[first + before_s])[:, np.newaxis]
    waiting = waiting - np.maximum(0.0, work.done[seen] - work.done[begun])
    limit = work.room[some]
    bad = (waiting > limit + _SLACK * np.abs(limit)) & ~of_gap[:, np.newaxis]
    # Those of the gap that are judged later are counted there.
    return Landing(
        steps=steps,
        growth=growth,
        down_s=float(max(0, int(down.sum()) - judged.later(gap, until))),
        bad_s=bad.sum(axis=0),
        renewed=missed,
    )
