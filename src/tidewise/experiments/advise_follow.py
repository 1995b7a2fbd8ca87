"""Where advice gets its reports from: the journal of a run, or the event log of a program that nobody controls."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tidewise.core import (
    BadInputError,
    Configuration,
    ControllerStarted,
    ControllerStopped,
    JournalEvent,
    Observation,
    format_duration,
)
from tidewise.engines.spark.event_log import EventLog
from tidewise.engines.spark.event_log_job import LoggedJob, judge_interval_s
from tidewise.engines.spark.latency import LatencyChoice
from tidewise.experiments.advise import Advice, Adviser
from tidewise.experiments.advise_terms import Terms
from tidewise.experiments.explain_run import RecordedRun, find_recorded
from tidewise.experiments.record import PARTIAL_SUFFIX
from tidewise.experiments.signals import asked_to_stop

_POLL_S = 1.0
_SILENT_AFTER_S = 120.0
"""Nothing new for so long is worth a sentence."""
_LEFT_BEHIND_S = 600.0
"""A log that is in progress and older than this is not: its driver was killed."""
_ROUGHLY = 0.1
"""Of what a log tells roughly, what makes no difference."""
_SETTLED_S = 1.0
"""Events of the same moment are written one after the other: a window is reported so long after its end."""


@dataclass(slots=True, kw_only=True)
class Watch:
    """How long to look on, and whom to tell."""

    advise: Callable[[Advice], None]
    """Told each new advice."""
    tell: Callable[[str], None]
    """Told what a person ought to know besides, in sentences."""
    once: bool = False
    """Whether only what is there already is read."""
    duration_s: float | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _ends_s: float = 0.0
    _news_s: float = 0.0
    _said_silent: bool = False

    @contextmanager
    def on(self) -> Iterator[None]:
        """Ctrl-C ends the watching in order."""
        now_s = time.monotonic()
        self._ends_s = float("inf") if self.duration_s is None else now_s + self.duration_s
        self._news_s = now_s
        with asked_to_stop(self._stopping.set):
            yield

    @property
    def is_over(self) -> bool:
        return self._stopping.is_set() or time.monotonic() >= self._ends_s

    def wait(self, *, is_new: bool, what: str) -> bool:
        """Until it is worth looking again; whether to go on. `what` is watched, `is_new`: something came."""
        now_s = time.monotonic()
        if is_new:
            self._news_s, self._said_silent = now_s, False
        elif now_s - self._news_s >= _SILENT_AFTER_S and not self._said_silent:
            self._said_silent = True
            self.tell(f"Nothing has been written to {what} for {format_duration(_SILENT_AFTER_S)}; Ctrl-C ends this.")
        if self.once or self.is_over:
            return False
        self._stopping.wait(timeout=min(_POLL_S, max(0.0, self._ends_s - now_s)))
        return not self.is_over


def follow_run(run: RecordedRun, terms: Terms, watch: Watch) -> Adviser:
    """Replay the reports of a run through a fresh policy, and go on while it is on; nothing of it is touched."""
    adviser = Adviser(terms, name=run.name)
    reader = JournalReader(run)
    with watch.on():
        while True:
            is_new = False
            for event in reader.read():
                is_new = True
                for advice in adviser.follow((event,)):
                    watch.advise(advice)
                if watch.is_over:
                    break
            if reader.is_over or not watch.wait(is_new=is_new, what=str(run.folder)):
                return adviser


class JournalReader:
    """Reads on where it was; in between the journal is closed, so that its writer can end as if nobody looked."""

    def __init__(self, run: RecordedRun) -> None:
        self.run = run
        """As it was when it was last looked at."""
        self._line = 0
        self._has_ended = run.record is not None
        self.is_over = self._has_ended
        """Whether nothing more will come."""

    def look(self) -> RecordedRun:
        """The run as it is now: one that has ended meanwhile has its name."""
        folder = self.run.folder
        if not folder.exists() and folder.name.endswith(PARTIAL_SUFFIX):
            self.run = replace(find_recorded(folder.with_name(self.run.name)), job=self.run.job)
            self.is_over = self._has_ended = True
        return self.run

    def read(self) -> Iterator[JournalEvent]:
        with self.look().open_journal() as journal:
            for line, event in journal.read_after(self._line):
                self._line = line
                if isinstance(event, ControllerStarted | ControllerStopped):
                    self.is_over = self._has_ended or isinstance(event, ControllerStopped)
                yield event


def follow_log(
    path: Path,
    terms_for: Callable[[Configuration], Terms],
    watch: Watch,
    *,
    interval_s: float | None = None,
    report_every_s: float = 10.0,
    latency: LatencyChoice = LatencyChoice.AUTO,
) -> Adviser:
    """Read an event log to its end, and go on while it grows.

    `terms_for` is given what runs. `interval_s`: that of the trigger; None: judged by when batches began. BadInputError
    where the log has no batches of a streaming query.
    """
    with watch.on():
        known_s = _interval_s(path, watch) if interval_s is None else interval_s
        source = _LogSource(EventLog(path), terms_for, watch)
        source.job = LoggedJob(
            window_s=report_every_s, commit_interval_s=known_s, latency=latency, shape=source.in_words_of_the_space
        )
        while True:
            is_new = source.read_on()
            if source.is_over or not watch.wait(is_new=is_new, what=str(source.log.path)):
                return source.end()


def _interval_s(path: Path, watch: Watch) -> float:
    said = False
    while True:
        log = EventLog(path)
        found_s = judge_interval_s(log)
        if found_s is not None:
            return found_s
        if not log.is_in_progress or not watch.wait(is_new=False, what=str(log.path)):
            raise BadInputError(f"{log.path} has fewer than four batches of a streaming query, too few to advise on")
        if not said:
            said = True
            watch.tell("Waiting for the first batches of the program.")


def _about(seen: Configuration, told: Configuration) -> bool:
    """Whether two configurations are the same but for what a log tells roughly: memory and the trigger's interval."""
    return (
        (seen.cores_per_executor, seen.slots_per_executor) == (told.cores_per_executor, told.slots_per_executor)
        and math.isclose(seen.memory_mib_per_executor, told.memory_mib_per_executor, rel_tol=_ROUGHLY)
        and math.isclose(seen.commit_interval_s, told.commit_interval_s, rel_tol=_ROUGHLY)
    )


class _LogSource:
    """Turns a log into reports, and those into advice."""

    job: LoggedJob

    def __init__(self, log: EventLog, terms_for: Callable[[Configuration], Terms], watch: Watch) -> None:
        self.log = log
        self._terms_for = terms_for
        self._watch = watch
        self._terms: Terms | None = None
        self._adviser: Adviser | None = None
        self._told: Configuration | None = None
        """The executor that was last told to be reckoned with instead of those that run."""

    def in_words_of_the_space(self, seen: Configuration) -> Configuration:
        if self._terms is None:
            self._terms = self._terms_for(seen)
        told = self._terms.seen_as(seen)
        if not _about(seen, told) and told.with_executors(1) != self._told:
            self._told = told.with_executors(1)
            self._watch.tell(
                f"Careful: what runs ({seen}) is not what the job file allows; advice is reckoned as for {told}."
            )
        return told

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.job.ended is not None or not self.log.is_in_progress

    def read_on(self) -> bool:
        """Take in what was written since the last time; whether anything was."""
        is_new = False
        for event in self.log.events(LoggedJob.EVENTS):
            is_new = True
            self.job.take(event)
            self._report(self.job.latest_s - _SETTLED_S)
            if self._watch.is_over:
                return True
        if not self.is_over and not self._watch.once:
            # Silence is news too: output may be due. Of a log that was left behind, it is none.
            silent_s = self.job.now_s(time.time()) - self.job.latest_s
            if 2.0 * _SETTLED_S < silent_s < _LEFT_BEHIND_S:
                self._report(self.job.latest_s + silent_s - 2.0 * _SETTLED_S)
        return is_new

    def _report(self, until_s: float) -> None:
        for observation in self.job.observations(until_s):
            adviser = self._adviser or self._begin(observation)
            for advice in adviser.report(observation, observation.time_s):
                self._watch.advise(advice)

    def _begin(self, first: Observation) -> Adviser:
        runs = first.configuration
        # What runs is told in the words of the space, so that there are terms.
        terms = self._terms or self._terms_for(runs)
        self._adviser = Adviser(terms, name=self.job.name or "log")
        self._adviser.begin(runs, 0.0)
        if runs.executors not in terms.space.executors:
            self._watch.tell(
                f"Careful: {runs.executors} executors run, which are not among those that the job may have."
            )
        return self._adviser

    def end(self) -> Adviser:
        """What came of it; BadInputError where nothing did."""
        if self.is_over:
            self._report(self.job.latest_s)
        for sentence in self.job.problems:
            self._watch.tell(f"Careful: {sentence}.")
        if self.log.unreadable_lines:
            self._watch.tell(f"Careful: {self.log.unreadable_lines} lines of the log could not be read.")
        if self._adviser is None or self._adviser.book.bill.windows == 0:
            raise BadInputError(
                f"{self.log.path} shows no report's time of a streaming query; it has {self.job.batches} batches"
            )
        return self._adviser
