"""What rows are read from: the journal of a run, or the event log of a program that nobody controls."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from tidewise.core import BadInputError, Configuration, PermanentError, Reported, TemporaryError
from tidewise.core.telemetry import Envelope
from tidewise.engines.spark.event_log import Event, EventLog
from tidewise.engines.spark.event_log_job import LoggedJob, judge_interval_s
from tidewise.engines.spark.latency import LatencyChoice
from tidewise.experiments.advise_follow import JournalReader
from tidewise.experiments.advise_terms import Terms
from tidewise.experiments.explain_run import RecordedRun
from tidewise.experiments.telemetry_rows import RunFacts, RunTeller, driver_of_jobs, facts_of_run, run_id
from tidewise.host.private_files import write_private

SETTLED_S = 1.0
"""Events of the same moment are written one after the other: a window of a log is reported so long after its end."""
REPORT_EVERY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """How far the rows of a run have been told to one place."""

    run: str
    line: int = 0
    interval_s: float | None = None
    """That of a program's trigger, where it had to be judged: judged again, it could be another."""


class Source(Protocol):
    """Something that tells rows, in the same order and with the same numbers however often it is read."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def run(self) -> str | None:
        """Whose rows they are; None while that is not known yet."""

    @property
    def interval_s(self) -> float | None:
        """What was judged of the program, and has to stay; see `Told`."""

    @property
    def is_over(self) -> bool:
        """Whether all has been read, and nothing more will come."""

    @property
    def has_more(self) -> bool:
        """Whether there was more than was asked for the last time."""

    @property
    def waits_for(self) -> str | None:
        """Why nothing can be read yet, in a sentence; None where it can."""

    def memory(self, target: str) -> Path:
        """The file in which it is remembered how far it was told to this place."""

    def recall(self, told: Told) -> None:
        """What is remembered, before the first read."""

    def read(self, most: int) -> list[Envelope]:
        """The rows that have come since the last time, of about so many events at most.

        TemporaryError: it may be possible later. PermanentError: it cannot be read any more.
        """


def memory_name(target: str, run: str = "") -> str:
    """A file of its own for each place, so that those who tell to different places do not know of each other."""
    return f"told-{hashlib.sha256(json.dumps([target, run]).encode()).hexdigest()[:12]}.json"


def memory_in(folder: Path, target: str, run: str | None) -> Path:
    """The same for runs that have no folder of their own; PermanentError where this one cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PermanentError(f"the folder {folder} cannot be made: {error.strerror}") from error
    return folder / memory_name(target, run or "")


def read_memory(path: Path) -> Told | None:
    """What is remembered there; None where nothing is. BadInputError where it is not what was written."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        interval_s = content["interval_s"]
        return Told(
            run=str(content["run"]),
            line=int(content["line"]),
            interval_s=None if interval_s is None else float(interval_s),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{path} cannot be read: {error}; remove it to tell all rows again") from error


def write_memory(path: Path, told: Told, target: str) -> None:
    """Remember, whole or not at all; FileNotFoundError where the folder has another name meanwhile."""
    content = {"target": target, "run": told.run, "line": told.line, "interval_s": told.interval_s}
    try:
        write_private(path, json.dumps(content) + "\n")
    except FileNotFoundError:
        raise
    except FileExistsError as error:
        raise TemporaryError(f"somebody else is telling the same to {target}: they write {path} too") from error
    except OSError as error:
        raise PermanentError(f"how far it was told cannot be written to {path}: {error.strerror}") from error


class RunSource:
    """The journal of a run, also of one that is on."""

    interval_s: float | None = None

    def __init__(self, run: RecordedRun) -> None:
        self._reader = JournalReader(run)
        self._teller: RunTeller | None = None
        self.is_over = False
        self.has_more = False

    @property
    def name(self) -> str:
        return str(self._reader.run.folder.with_name(self._reader.run.name))

    @property
    def run(self) -> str | None:
        teller = self._begun()
        return None if teller is None else teller.facts.run

    @property
    def waits_for(self) -> str | None:
        if self._begun() is not None:
            return None
        return f"{self.name} does not say yet when it began or what was promised: it can be told when it is over"

    def memory(self, target: str) -> Path:
        return self._reader.look().folder / memory_name(target)

    def recall(self, told: Told) -> None:
        """A journal says all there is to know."""

    def read(self, most: int) -> list[Envelope]:
        teller = self._begun()
        if teller is None:
            return []
        try:
            events = list(islice(self._reader.read(), most))
        except BadInputError:
            if self._reader.run.folder.exists():
                raise
            return []  # it got its name in this very moment
        rows = [row for event in events for row in teller.take(event)]
        self.has_more = len(events) == most
        if self._reader.is_over and not self.has_more:
            if self._reader.run.record is not None:
                rows += teller.end()
            self.is_over = True
        return rows

    def _begun(self) -> RunTeller | None:
        if self._teller is None:
            try:
                facts = facts_of_run(self._reader.look())
            except BadInputError:
                if self._reader.run.folder.exists():
                    raise
                return None  # it got its name in this very moment
            self._teller = None if facts is None else RunTeller(facts)
        return self._teller


class LogSource:
    """The event log of a program that runs without Tidewise.

    Only what is written in the log is told, never that it is silent: read again, it tells the same.
    """

    def __init__(self, path: Path, *, memory: Path, terms: Terms | None, job: str | None) -> None:
        """`memory`: the folder for what is remembered. `terms` and `job`: those of its job file, if there is one."""
        self._log = EventLog(path)
        self._memory = memory
        self._terms = terms
        self._job_name = job
        self._job: LoggedJob | None = None
        self._events: Iterator[Event] | None = None
        self._teller: RunTeller | None = None
        self._runs: str | None = None
        self.interval_s: float | None = None
        self.is_over = False
        self.has_more = False

    @property
    def name(self) -> str:
        return str(self._log.path)

    @property
    def run(self) -> str | None:
        self._begun()
        return self._runs

    @property
    def waits_for(self) -> str | None:
        if self._begun() is not None:
            return None
        return f"{self.name} has fewer than four batches of a streaming query yet"

    def memory(self, target: str) -> Path:
        # By the run: a log has another name when its program has ended.
        return memory_in(self._memory, target, self.run)

    def recall(self, told: Told) -> None:
        if told.interval_s is not None and told.interval_s != self.interval_s:
            self.interval_s = told.interval_s
            self._job = self._logged(told.interval_s)

    def read(self, most: int) -> list[Envelope]:
        job = self._begun()
        if job is None:
            return []
        rows: list[Envelope] = []
        # One iterator over several calls: a compressed file is read from its beginning for each.
        self._events = self._events or self._log.events(LoggedJob.EVENTS)
        taken = 0
        for event in islice(self._events, most):
            taken += 1
            job.take(event)
            rows += self._reports(job, until_s=job.latest_s - SETTLED_S)
        self.has_more = taken == most
        if not self.has_more:
            self._events = None
            if job.ended is not None or not self._log.is_in_progress:
                rows += self._reports(job, until_s=job.latest_s)
                self.is_over = True
        return rows

    def _reports(self, job: LoggedJob, *, until_s: float) -> list[Envelope]:
        rows: list[Envelope] = []
        for seen in job.observations(until_s):
            teller = self._teller = self._teller or RunTeller(self._facts(job))
            rows += teller.take(Reported(at_s=seen.time_s, observation=seen))
        return rows

    def _facts(self, job: LoggedJob) -> RunFacts:
        terms = self._terms
        if self._runs is None or job.began_unix_s is None:
            raise LookupError("a report came before its program began")
        return RunFacts(
            job=self._job_name or job.name or self._log.path.name,
            run=self._runs,
            began_unix_s=job.began_unix_s,
            promises=None if terms is None else terms.promises,
            prices=None if terms is None else terms.prices,
            driver=driver_of_jobs(),
        )

    def _begun(self) -> LoggedJob | None:
        if self._job is None:
            self.interval_s = judge_interval_s(EventLog(self._log.path))
            if self.interval_s is not None:
                self._job = self._logged(self.interval_s)
                self._runs = self._identity()
            elif not self._log.is_in_progress:
                raise BadInputError(f"{self.name} has fewer than four batches of a streaming query, too few to tell")
        return self._job

    def _logged(self, interval_s: float) -> LoggedJob:
        terms = self._terms

        def shape(seen: Configuration) -> Configuration:
            return seen if terms is None else terms.seen_as(seen)

        return LoggedJob(
            window_s=REPORT_EVERY_S if terms is None else terms.report_every_s,
            commit_interval_s=interval_s,
            latency=LatencyChoice.AUTO if terms is None else terms.latency,
            shape=shape,
        )

    def _identity(self) -> str:
        """From the name and the beginning of the application, which its log says first."""
        first = self._logged(0.0)
        for event in EventLog(self._log.path).events(LoggedJob.EVENTS):
            first.take(event)
            if first.began_unix_s is not None and first.name:
                break
        return run_id(first.name or "log", first.began_unix_s)
