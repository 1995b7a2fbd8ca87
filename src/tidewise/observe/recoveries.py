"""How long a job took to get over each failure, measured from its reports while it runs."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from tidewise.core import Censored, Configuration, JobStatus, Measured, Observation, recovery_s
from tidewise.core.checks import require_finite
from tidewise.core.recovery import BEFORE_S, CALM_S, FACTOR, FELT_WITHIN_S

FOUND = "found"
"""The kind of a failure that nobody told of."""

_STALL_SHARE = 0.5
"""A job that gets less than this share of what arrives done, over more than two commit intervals, has stalled."""
_COMMIT_INTERVALS = 2.0
_DIP_SHARE, _MORE_UNDONE, _NO_MORE, _FEWEST_BEFORE = 0.25, 1.5, 1.2, 3
"""One that leaves more than this share undone in a window, and so many times as much as in any of the minutes before,
though hardly more arrives than then, has stood still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """One failure and what became of it."""

    kind: str
    """What was told of it; `FOUND` where only the reports showed it."""
    at_s: float
    """When it came; of one that was found, the middle of the window in which it first showed."""
    took_s: Measured
    """0: it was not felt. Censored: the job had not recovered when the limit, or something else, came."""
    configuration: Configuration
    """What ran when it came."""
    rate_per_s: float
    """What arrived before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    kind: str
    at_s: float
    configuration: Configuration
    rate_per_s: float
    missed: bool
    """Whether the job was up again before a report could tell that it was down."""


class RecoveryWatch:
    """Follows the reports of a job and measures every recovery by the one definition (`core.recovery`).

    Failures are told (`failed`), or found: the job is down though nobody asked for it; or what it gets done stays far
    behind what arrives over more than two commit intervals while its backlog grows; or it fell behind in one window,
    though no more arrived than before, and then output came twice as late. What goes on from one report to the next is
    one failure. A recovery is over after `CALM_S` seconds at up to twice the latency from before. It is censored at
    `limit_s`, at the next failure, and by a change that stops the job.

    Reports tell when output came; the definition asks how long what ARRIVED in a second waited. Output that came at t
    after a wait of w arrived at t - w; between two such points the waits lie on a line. So a recovery is known to about
    the length of a report's window.
    """

    def __init__(self, *, limit_s: float = 360.0) -> None:
        require_finite("limit_s", limit_s, above=0.0)
        self._limit_s = limit_s
        self._kept_s = 2.0 * BEFORE_S + limit_s + FELT_WITHIN_S + CALM_S
        self._reports: deque[Observation] = deque()
        self._open: _Failure | None = None
        self._in_trouble = False

    @property
    def is_on(self) -> bool:
        """Whether a failure has not been got over yet."""
        return self._open is not None

    @property
    def missed_at_s(self) -> float | None:
        """When the job failed that is not well yet, though no report saw it down; None: none did, or one has."""
        return self._open.at_s if self._open is not None and self._open.missed else None

    def failed(self, kind: str, at_s: float) -> tuple[Recovered, ...]:
        """A failure that is known of; the recovery that it cuts short, where one was on."""
        if self._open is not None and self._open.kind == FOUND and self._reports and at_s <= self._reports[-1].time_s:
            # It had shown before it was told.
            self._open = replace(self._open, kind=kind, at_s=min(at_s, self._open.at_s))
            return ()
        cut = self._give_up(at_s)
        self._begin(kind, at_s)
        return cut

    def learn(self, observation: Observation) -> tuple[Recovered, ...]:
        """Take one report in; the recoveries that ended with it."""
        ended: tuple[Recovered, ...] = ()
        began_s = observation.time_s - observation.window_s
        if observation.status is JobStatus.CHANGING:
            ended = self._give_up(began_s)
        shown = observation.status is JobStatus.DOWN or self._has_stalled(observation)
        first = observation if shown else self._stood_still(observation)
        if first is not None and not self._in_trouble and self._open is None:
            self._begin(FOUND, first.time_s - first.window_s / 2.0, missed=not shown)
        self._in_trouble = first is not None
        self._reports.append(observation)
        while self._reports[0].time_s < observation.time_s - self._kept_s:
            self._reports.popleft()
        return ended + self._look(observation.time_s)

    def _stood_still(self, observation: Observation) -> Observation | None:
        """The report in which the job fell behind before output came twice as late: it was down between two reports."""
        wait_s, earlier = observation.latency_p50_s, list(self._reports)
        for dip in (observation, *earlier[-1:]):
            before = [report for report in earlier if dip.time_s - BEFORE_S < report.time_s < dip.time_s]
            waits = [report.latency_p50_s for report in before if report.latency_p50_s is not None]
            if wait_s is None or len(waits) < _FEWEST_BEFORE or wait_s <= FACTOR * median(waits):
                continue
            if any(one.status is not JobStatus.RUNNING for one in (before[-1], dip, observation)):
                continue  # another failure has disturbed it
            ran = dip.configuration
            if before[-1].configuration != ran or not _is_only_helped(ran, observation.configuration):
                continue  # a change has
            if waits[-1] > FACTOR * median(waits):
                continue  # it has been getting slower, or fuller, since before
            undone = max(_DIP_SHARE, _MORE_UNDONE * max(map(_undone, before)))
            usual_per_s = sum(report.load_per_s for report in before) / len(before)
            if _undone(dip) > undone and dip.load_per_s <= _NO_MORE * usual_per_s:
                return dip
        return None

    def _has_stalled(self, observation: Observation) -> bool:
        needed_s = _COMMIT_INTERVALS * observation.configuration.commit_interval_s + observation.window_s
        arrived = done = span_s = 0.0
        oldest = observation
        for report in (observation, *reversed(self._reports)):
            if report.status is not JobStatus.RUNNING or report.configuration != observation.configuration:
                return False
            arrived += report.input_rate_per_s * report.window_s
            done += report.processed_rate_per_s * report.window_s
            span_s += report.window_s
            oldest = report
            if span_s >= needed_s:
                break
        grew = observation.backlog_records > oldest.backlog_records
        return span_s >= needed_s and arrived > 0.0 and done < _STALL_SHARE * arrived and grew

    def _begin(self, kind: str, at_s: float, *, missed: bool = False) -> None:
        before = [report for report in self._reports if report.status is JobStatus.RUNNING and report.time_s <= at_s]
        if not before:
            return  # nothing is known of the job as it was
        latest = [report for report in before if report.time_s > before[-1].time_s - BEFORE_S]
        lasted_s = sum(report.window_s for report in latest)
        rate_per_s = sum(report.load_per_s * report.window_s for report in latest) / lasted_s
        self._open = _Failure(
            kind=kind, at_s=at_s, configuration=latest[-1].configuration, rate_per_s=rate_per_s, missed=missed
        )

    def _look(self, now_s: float) -> tuple[Recovered, ...]:
        if self._open is None:
            return ()
        took_s = self._measured(self._open, until_s=now_s)
        if not isinstance(took_s, Censored):
            return (self._end(took_s),)
        return self._give_up(now_s) if now_s - self._open.at_s >= self._limit_s else ()

    def _give_up(self, at_s: float) -> tuple[Recovered, ...]:
        """End what is on without having seen its end."""
        if self._open is None:
            return ()
        took_s = self._measured(self._open, until_s=at_s)
        if isinstance(took_s, Censored):
            took_s = Censored(at_least=min(took_s.at_least, self._limit_s))
        return (self._end(took_s),)

    def _end(self, took_s: Measured) -> Recovered:
        failure, self._open = self._open, None
        if failure is None:
            raise LookupError("no failure is being followed")
        return Recovered(
            kind=failure.kind,
            at_s=failure.at_s,
            took_s=took_s,
            configuration=failure.configuration,
            rate_per_s=failure.rate_per_s,
        )

    def _measured(self, failure: _Failure, *, until_s: float) -> Measured:
        reports = [report for report in self._reports if report.time_s <= until_s]
        if not reports or reports[-1].time_s <= failure.at_s:
            return Censored(at_least=0.0)
        begin_s = reports[0].time_s - reports[0].window_s
        seconds = max(1, round(reports[-1].time_s - begin_s))
        up = [True] * seconds
        for report in reports:
            if report.status is not JobStatus.RUNNING:
                for second in _seconds_of(report, begin_s, seconds):
                    up[second] = False
        waited_s = _waits(reports, begin_s, seconds)
        return recovery_s(waited_s=waited_s, up=up, fault_s=max(0.0, failure.at_s - begin_s))


def _is_only_helped(before: Configuration, after: Configuration) -> bool:
    """Whether nothing was changed but that executors joined: that does not make a job late that was not."""
    return after.executors >= before.executors and after.with_executors(before.executors) == before


def _undone(report: Observation) -> float:
    """The share of what arrived that was not got done."""
    return 1.0 - report.processed_rate_per_s / report.load_per_s if report.load_per_s > 0.0 else 0.0


def _waits(reports: Sequence[Observation], begin_s: float, seconds: int) -> list[float]:
    """How long the records of each second waited; infinite where their output has not come yet."""
    arrivals: list[float] = []
    waits: list[float] = []
    for report in reports:
        wait_s = report.latency_p50_s
        if wait_s is None or report.status is not JobStatus.RUNNING:
            continue
        arrived_s = report.time_s - report.window_s / 2.0 - begin_s - wait_s
        while arrivals and arrivals[-1] >= arrived_s:
            # Output in order: what came out later arrived later, so the report that says otherwise is corrected.
            arrivals.pop()
            waits.pop()
        arrivals.append(arrived_s)
        waits.append(wait_s)
    known = [_wait_at(second + 0.5, arrivals, waits) for second in range(seconds)]
    for report in reports:
        if report.is_idle:
            for second in _seconds_of(report, begin_s, seconds):
                known[second] = math.nan  # nobody waits where nothing arrives
    return known


def _seconds_of(report: Observation, begin_s: float, seconds: int) -> range:
    """The seconds of a report's window, counted from `begin_s`."""
    end_s = report.time_s - begin_s
    return range(max(0, math.ceil(end_s - report.window_s)), min(seconds, math.ceil(end_s)))


def _wait_at(second: float, arrivals: Sequence[float], waits: Sequence[float]) -> float:
    index = bisect_left(arrivals, second)
    if index == len(arrivals):
        return math.inf
    if index == 0:
        return waits[0]
    before_s, after_s = arrivals[index - 1], arrivals[index]
    share = (second - before_s) / (after_s - before_s)
    return waits[index - 1] + share * (waits[index] - waits[index - 1])
