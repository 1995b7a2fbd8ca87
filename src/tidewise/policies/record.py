"""The history of a job as a policy on rates reads it: means over any window of it, in constant time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from tidewise.core import JobStatus, Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """A window of undisturbed operation."""

    executors: int
    input_rate_per_s: float
    backlog_records: float
    """At the end of the window."""
    true_rate_per_s: float | None
    """Processed over busy; None where the job was idle or how busy it was is unknown."""


class Record:
    """The reports of a history, with running sums; reports of a job that did not run are left out of the means."""

    def __init__(self, history: Sequence[Observation], *, changed_at_s: float | None = None) -> None:
        self._history = history
        self._times_s = [report.time_s for report in history]
        self._weight_s, self._arrived = [0.0], [0.0]
        self._busy_s, self._processed = [0.0], [0.0]
        first = history[0]
        self._disturbed_s = [first.time_s - first.window_s]
        self._changed_at_s = changed_at_s
        before = first
        for report in history:
            runs = report.status is JobStatus.RUNNING
            window_s = report.window_s if runs else 0.0
            told_s = window_s if report.busy_share is not None else 0.0
            self._weight_s.append(self._weight_s[-1] + window_s)
            self._arrived.append(self._arrived[-1] + window_s * report.load_per_s)
            self._busy_s.append(self._busy_s[-1] + told_s * (report.busy_share or 0.0))
            self._processed.append(self._processed[-1] + told_s * report.processed_rate_per_s)
            if not runs or report.configuration != before.configuration:
                self._disturbed_s.append(report.time_s)
            before = report

    def settled_for_s(self, at_s: float) -> float:
        """For how long, at this time, nothing had disturbed the job: no change, no failure, no start."""
        index = bisect_right(self._disturbed_s, at_s)
        disturbed_s = self._disturbed_s[max(0, index - 1)]
        if self._changed_at_s is not None and disturbed_s < self._changed_at_s <= at_s:
            disturbed_s = self._changed_at_s
        return at_s - disturbed_s

    def means(self, start_s: float, end_s: float) -> Means | None:
        """The means over the reports that end in this window; None where there is none of a running job."""
        # A report that begins before the window still counts: the window is rarely cut where the reports are.
        first, last = bisect_right(self._times_s, start_s), bisect_right(self._times_s, end_s)
        weight_s = self._weight_s[last] - self._weight_s[first]
        if last <= first or weight_s <= 0.0:
            return None
        busy_s = self._busy_s[last] - self._busy_s[first]
        processed = self._processed[last] - self._processed[first]
        latest = self._history[last - 1]
        return Means(
            executors=latest.configuration.executors,
            input_rate_per_s=max(0.0, self._arrived[last] - self._arrived[first]) / weight_s,
            backlog_records=latest.backlog_records,
            true_rate_per_s=processed / busy_s if busy_s > 0.0 and processed > 0.0 else None,
        )

    def before_current(self, window_s: float) -> Means | None:
        """The last window of this length before the executors that run now came, on another number of executors."""
        current = self._history[-1].configuration.executors
        end = len(self._history)
        while end > 0 and self._history[end - 1].configuration.executors == current:
            end -= 1
        # While executors come one by one, each number lasts for moments only: look for one that lasted.
        while end > 0:
            executors = self._history[end - 1].configuration.executors
            start = end
            while start > 0 and self._history[start - 1].configuration.executors == executors:
                start -= 1
            last = self._last_running(start, end)
            begins_s = self._history[start].time_s - self._history[start].window_s
            if last is not None and last.time_s - begins_s >= window_s:
                return self.means(last.time_s - window_s, last.time_s)
            end = start
        return None

    def _last_running(self, start: int, end: int) -> Observation | None:
        for report in reversed(self._history[start:end]):
            if report.status is JobStatus.RUNNING:
                return report
        return None
