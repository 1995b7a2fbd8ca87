"""What one copy of the job has shown: its batches, told to a reporter of its own, and how it got over a failure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from tidewise.core import Censored, Configuration, JobStatus, Measured, Observation, recovery_s
from tidewise.engines.spark.latency import LatencyChoice
from tidewise.engines.spark.progress import BatchProgress
from tidewise.engines.spark.reports import Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One batch of a copy, on the clock of the run."""

    began_s: float
    committed_s: float
    end: float | None
    """Position after the batch; None where positions cannot be counted."""
    newest: float | None
    """Position of the newest record when it began; None where the source does not say."""

    @property
    def duration_s(self) -> float:
        return self.committed_s - self.began_s


class CopyRecord:
    """The books of one copy, over the applications that carry it on: a driver that was killed has a successor.

    Touched under the lock of the fleet only.
    """

    def __init__(
        self, configuration: Configuration, *, latency: LatencyChoice, measure_s: float, launched_s: float
    ) -> None:
        self._reporter = Reporter(window_s=measure_s, latency=latency)
        self._measure_s = measure_s
        # Before any window can begin: the interval has to be known when the first batch is told of.
        self._reporter.configuration(configuration, launched_s - 2 * measure_s)
        self._query_ids: dict[str, str] = {}
        self._commits: dict[str, list[Commit]] = {}
        self.is_up = False
        """Whether it has all of its executors and has worked; then they have no more CPU than their share."""

    def batch(self, query: str, progress: BatchProgress, at_s: float) -> None:
        """A batch that was committed at this time."""
        self._query_ids[query] = progress.query_id
        self._reporter.batch(progress, at_s)
        newest = None if progress.latest is None else max(progress.latest, progress.end or 0.0)
        commit = Commit(began_s=at_s - progress.duration_s, committed_s=at_s, end=progress.end, newest=newest)
        self._commits.setdefault(query, []).append(commit)

    def idle(self, query: str, at_s: float) -> None:
        """A trigger of a query found nothing to do."""
        if query in self._query_ids:
            self._reporter.idle(self._query_ids[query], at_s)

    def last_commit(self) -> Commit | None:
        """Of all queries, the batch that was committed last."""
        return max((commits[-1] for commits in self._commits.values()), key=lambda one: one.committed_s, default=None)

    def works_since_s(self, at_s: float) -> float | None:
        """When the last of the queries committed its first batch after this time; None: one of them has not yet."""
        first = [
            next((one.committed_s for one in commits if one.committed_s > at_s), None)
            for commits in self._commits.values()
        ]
        known = [one for one in first if one is not None]
        return max(known) if known and len(known) == len(first) else None

    def measured(self, from_s: float) -> Observation:
        """The report of the time of measuring that began then and is over, by the code that reports of the job."""
        # The windows before it take up what was told before it.
        self._reporter.status(JobStatus.RUNNING, from_s - self._measure_s)
        return self._reporter.observations(from_s + 1.5 * self._measure_s)[-1]

    def recovery(self, *, broken_s: float, down_until_s: float, now_s: float, limit_s: float) -> Measured:
        """How long it took to get over a failure, as far as it is known now; that of the worst query.

        `down_until_s`: when it worked again, or `now_s` while it does not; `broken_s` where it was never down.
        """
        found = [
            _recovery(commits, broken_s=broken_s, down_until_s=down_until_s, now_s=now_s, limit_s=limit_s)
            for commits in self._commits.values()
        ]
        censored = [one for one in found if isinstance(one, Censored)]
        if censored or not found:
            return max(censored, key=lambda one: one.at_least, default=Censored(at_least=max(0.0, now_s - broken_s)))
        return max(one for one in found if not isinstance(one, Censored))


def _recovery(
    commits: Sequence[Commit], *, broken_s: float, down_until_s: float, now_s: float, limit_s: float
) -> Measured:
    origin_s = math.floor(commits[0].began_s)
    seconds = max(0, math.floor(now_s - origin_s))
    up = [not broken_s < origin_s + second + 1 <= down_until_s for second in range(seconds)]
    end = min(seconds, math.floor(broken_s + limit_s - origin_s))
    waited = waited_s(commits, origin_s=origin_s, seconds=seconds)
    return recovery_s(waited_s=waited, up=up, fault_s=broken_s - origin_s, end=end)


def waited_s(commits: Sequence[Commit], *, origin_s: float, seconds: int) -> list[float]:
    """For each second since `origin_s`, how long the records that arrived in its middle waited for their commit.

    Infinite: they have not been committed. NaN: none arrived. Where the source tells no positions, every batch is taken
    to commit all that had arrived when it began.
    """
    middles_s = [origin_s + second + 0.5 for second in range(seconds)]
    known = [(one.began_s, one.newest, one.end) for one in commits if one.newest is not None and one.end is not None]
    if len(known) < len(commits):
        begins_s = [one.began_s for one in commits]
        return [_wait_s(commits, bisect_left(begins_s, middle_s), middle_s) for middle_s in middles_s]
    times_s, newest = [began_s for began_s, _, _ in known], [position for _, position, _ in known]
    ends = [end for _, _, end in known]
    found = []
    for middle_s in middles_s:
        after = bisect_left(times_s, middle_s)
        if after == len(commits):
            found.append(math.inf)  # newer than the last batch that was committed
        elif after > 0 and newest[after] <= newest[after - 1]:
            found.append(math.nan)
        else:
            position = _between(times_s, newest, after, middle_s)
            found.append(_wait_s(commits, bisect_left(ends, position), middle_s))
    return found


def _between(times_s: Sequence[float], positions: Sequence[float], after: int, at_s: float) -> float:
    """The position at a time that lies before that of number `after`, as if records came evenly."""
    if after == 0:
        return positions[0]
    share = (at_s - times_s[after - 1]) / (times_s[after] - times_s[after - 1])
    return positions[after - 1] + share * (positions[after] - positions[after - 1])


def _wait_s(commits: Sequence[Commit], number: int, arrived_s: float) -> float:
    return max(0.0, commits[number].committed_s - arrived_s) if number < len(commits) else math.inf
