"""Whether a change is to blame: judges the reports after it, and leaves out what it does not answer for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tidewise.control.settings import LoopSettings
from tidewise.core import Configuration, JobStatus, Observation, Promises


@dataclass(frozen=True, slots=True, kw_only=True)
class Probation:
    """The time in which a change that was applied is watched, and what was seen in it."""

    since_s: float
    """When the change ended."""
    grace_s: float
    """How long it is not judged: the longer, the more time the change itself took."""
    backlog_before: float
    """What waited when the change was asked for; above that, the job may be working off what the change delayed."""
    judged_from_s: float
    """A report whose window begins before is not judged; moves on while the job is disturbed or catches up."""
    lowest_backlog: float = math.inf
    """Since the change, or since the last disturbance after it."""
    lowest_at_s: float = -math.inf
    broken_in_a_row: int = 0
    """How many of the latest judged reports broke the promise, without one in between that kept it."""

    @classmethod
    def begin(cls, *, since_s: float, took_s: float, backlog_before: float, settings: LoopSettings) -> Probation:
        grace_s = max(settings.grace_s, settings.grace_factor * took_s)
        return cls(since_s=since_s, grace_s=grace_s, backlog_before=backlog_before, judged_from_s=since_s + grace_s)

    def until_s(self, settings: LoopSettings) -> float:
        """When the change has settled, if nothing happens."""
        return min(self.judged_from_s, self._patience_ends_s(settings)) + settings.probation_s - settings.grace_s

    def _patience_ends_s(self, settings: LoopSettings) -> float:
        return self.since_s + self.grace_s + settings.catch_up_s

    def after(
        self, report: Observation, *, intended: Configuration | None, promises: Promises, settings: LoopSettings
    ) -> Probation:
        """The same with one more report."""
        began_s = report.time_s - report.window_s
        if began_s < self.since_s:
            return self
        # Down, in another change, or short of executors: none of it is what the change has made of the job.
        if report.status is not JobStatus.RUNNING or report.configuration != intended:
            return replace(
                self,
                judged_from_s=max(self.judged_from_s, report.time_s + settings.grace_s),
                lowest_backlog=math.inf,
                lowest_at_s=-math.inf,
                broken_in_a_row=0,
            )
        seen = self
        if report.backlog_records < self.lowest_backlog:
            seen = replace(self, lowest_backlog=report.backlog_records, lowest_at_s=report.time_s)
        if self._catches_up(report, settings):
            return replace(seen, judged_from_s=max(self.judged_from_s, report.time_s), broken_in_a_row=0)
        if began_s < self.judged_from_s or report.time_s > self.until_s(settings):
            return seen
        broken = promises.broken_by(report)
        return replace(seen, broken_in_a_row=self.broken_in_a_row + 1 if broken else 0)

    def _catches_up(self, report: Observation, settings: LoopSettings) -> bool:
        """Whether the backlog goes down, fast enough to be gone in time."""
        backlog, seen_before = report.backlog_records, math.isfinite(self.lowest_backlog)
        if not seen_before or backlog <= self.backlog_before or report.time_s > self._patience_ends_s(settings):
            return False
        pace_per_s = (self.lowest_backlog - backlog) / (report.time_s - self.lowest_at_s)
        return pace_per_s * settings.catch_up_s >= backlog
