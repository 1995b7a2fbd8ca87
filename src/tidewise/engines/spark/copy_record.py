"""What one copy of the job has shown: its batches, told to a reporter of its own, and how it got over a failure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidewise.core import Censored, Configuration, JobStatus, Measured, Observation, recovery_s
from tidewise.engines.spark.latency import LatencyChoice
from tidewise.engines.spark.progress import BatchProgress
from tidewise.engines.spark.reports import Reporter

_NO_SHORTER = 0.9
"""Batches that take no less than this share of the one before have stopped getting shorter."""


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

    @property
    def behind(self) -> float:
        """Records that had come when it began and that it left over; none where that is not told."""
        return 0.0 if self.end is None or self.newest is None else max(0.0, self.newest - self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """What a copy did while it was measured."""

    observation: Observation
    detail: str = ""
    """Why no latency is told, where none is."""


class CopyRecord:
    """The books of one copy, over the applications that carry it on: a driver that was killed has a successor.

    Touched under the lock of the fleet only.
    """

    def __init__(
        self, configuration: Configuration, *, latency: LatencyChoice, measure_s: float, launched_s: float
    ) -> None:
        self._reporter = Reporter(window_s=measure_s, latency=latency)
        self._measure_s = measure_s
        self._interval_s = configuration.commit_interval_s
        # Before any window can begin: the interval has to be known when the first batch is told of.
        self._reporter.configuration(configuration, launched_s - 2 * measure_s)
        self._query_ids: dict[str, str] = {}
        self._commits: dict[str, list[Commit]] = {}
        self._idle_s: dict[str, float] = {}
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
            self._idle_s[query] = at_s

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

    def has_caught_up(self) -> bool:
        """Whether every query is done with what came while the copy was started, or does not get any closer to it."""
        return all(
            self._idle_s.get(query, -math.inf) > commits[-1].committed_s or self._is_level(commits)
            for query, commits in self._commits.items()
        )

    def _is_level(self, commits: Sequence[Commit]) -> bool:
        before, last = commits[-2] if len(commits) > 1 else None, commits[-1]
        level = before is not None and last.duration_s >= _NO_SHORTER * before.duration_s
        rests = last.behind == 0.0 or (before is not None and last.behind >= before.behind)
        return rests and (level or last.duration_s <= self._interval_s)

    def measured(self, from_s: float) -> CopyReport:
        """The report of the time of measuring that began then and is over, by the code that reports of the job."""
        until_s = from_s + self._measure_s
        silent = {
            query
            for query, commits in self._commits.items()
            if not any(from_s < one.committed_s <= until_s for one in commits)
        }
        idle = {query for query in silent if self._idle_s.get(query, -math.inf) > from_s}
        for query in idle:
            # Its latency would be that of the time before, and that may be the start's.
            self._reporter.ended(self._query_ids[query])
        # The windows before it take up what was told before it.
        self._reporter.status(JobStatus.RUNNING, from_s - self._measure_s)
        report = self._reporter.observations(from_s + 1.5 * self._measure_s)[-1]
        late = sorted(silent - idle)
        if silent != self._commits.keys() and not late:
            return CopyReport(observation=report)
        what = f"batch of {', '.join(late)} was committed" if late else "record came"
        return CopyReport(
            observation=replace(
                report, latency_p50_s=None, latency_p95_s=None, latency_p99_s=None, latency_method=None
            ),
            detail=f"no {what} while it was measured, so it has no latency",
        )

    def recovery(
        self, *, from_s: float, broken_s: float, down_until_s: float, now_s: float, limit_s: float
    ) -> Measured:
        """How long it took to get over a failure, as far as it is known now; that of the worst query.

        `from_s`: what was before is not what it is to get back to. `down_until_s`: when it worked again, or `now_s`
        while it does not; `broken_s` where it was never down.
        """
        found = [
            _recovery(
                commits, from_s=from_s, broken_s=broken_s, down_until_s=down_until_s, now_s=now_s, limit_s=limit_s
            )
            for commits in self._commits.values()
        ]
        censored = [one for one in found if isinstance(one, Censored)]
        if censored or not found:
            return max(censored, key=lambda one: one.at_least, default=Censored(at_least=max(0.0, now_s - broken_s)))
        return max(one for one in found if not isinstance(one, Censored))


def _recovery(
    commits: Sequence[Commit], *, from_s: float, broken_s: float, down_until_s: float, now_s: float, limit_s: float
) -> Measured:
    origin_s = math.floor(min(broken_s, max(from_s, commits[0].began_s)))
    seconds = max(0, math.floor(now_s - origin_s))
    up = [not broken_s < origin_s + second + 1 <= down_until_s for second in range(seconds)]
    end = min(seconds, math.floor(broken_s + limit_s - origin_s))
    waited = waited_s(commits, origin_s=origin_s, seconds=seconds)
    return recovery_s(waited_s=waited, up=up, fault_s=broken_s - origin_s, end=end)


def waited_s(commits: Sequence[Commit], *, origin_s: float, seconds: int) -> list[float]:
    """For each second since `origin_s`, how long the records that arrived in its middle waited for their commit.

    Infinite: they have not been committed. NaN: none arrived. Where the source tells no positions, every batch is taken
    to commit all that had arrived when it began. A batch may say how far it leads and not what was newest, as one that
    is replayed does: between two that say it, records are taken to have come evenly.
    """
    middles_s = [origin_s + second + 0.5 for second in range(seconds)]
    arrivals = [(one.began_s, one.newest) for one in commits if one.newest is not None]
    ends = [one.end for one in commits if one.end is not None]
    if len(ends) < len(commits) or not arrivals:
        begins_s = [one.began_s for one in commits]
        return [_wait_s(commits, bisect_left(begins_s, middle_s), middle_s) for middle_s in middles_s]
    times_s, newest = [began_s for began_s, _ in arrivals], [position for _, position in arrivals]
    found = []
    for middle_s in middles_s:
        after = bisect_left(times_s, middle_s)
        if after == len(times_s):
            found.append(math.inf)  # newer than all that is known to have come
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
