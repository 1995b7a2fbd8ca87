"""Sends a job's records to a topic as a load says, in several processes, and accounts for every one of them."""

from __future__ import annotations

import json
import math
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tidewise.core import BadInputError, TemporaryError, TidewiseError
from tidewise.core.readers import did_you_mean
from tidewise.experiments.senders import Watch, run_senders, started_senders
from tidewise.jobs.records.encoding import Encoding
from tidewise.jobs.records.kinds import KINDS, Disorder
from tidewise.jobs.schedule import Schedule, write_schedule
from tidewise.kafka import topics
from tidewise.kafka.lateness import Lateness
from tidewise.kafka.sending import SendProgress, SendReport
from tidewise.workload import Load
from tidewise.workload.trace import Trace

SCHEDULE_NAME = "schedule.json"
REPORT_NAME = "report.json"
_BEGINS_IN_S = 0.1
_GRACE_S = 30.0
"""How much longer than it needs at most a process may stay silent on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Production:
    """What to send where; raises BadInputError for what cannot be."""

    job: str
    brokers: str
    topic: str
    partitions: int | None = None
    """How many the topic is to have, which makes it where it is missing; None: it is there."""
    encoding: Encoding = "json"
    processes: int = 2
    seed: int = 0
    disorder: Disorder = field(default_factory=Disorder)
    broken_share: float = 0.0
    at_once: bool = False
    """Send as fast as the broker takes it; event times stay as scheduled, by a schedule that ends now unless it is said
    when it began: from the future, jobs would refuse them."""
    wait_s: float = 60.0
    """How long a broker that does not answer is waited for at the start."""
    retry_s: float = 120.0
    """How long a record is tried again before it counts as failed."""
    flush_s: float = 120.0
    """How long the last answers are waited for at the end."""

    def __post_init__(self) -> None:
        if self.job not in KINDS:
            raise BadInputError(f"there is no job {self.job!r}{did_you_mean(self.job, KINDS)}")
        if self.encoding not in {"json", "avro"}:
            raise BadInputError(f"the encoding is json or avro, not {self.encoding!r}")
        if self.processes < 1:
            raise BadInputError(f"it takes 1 process or more, not {self.processes}")
        if self.partitions is not None:
            topics.check_partitions(self.topic, self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """What was sent, by all processes together."""

    production: Production
    schedule: Schedule
    partitions: int
    processes: int
    report: SendReport
    grew_by: int | None
    """By how many records the topic grew meanwhile: as many as were acknowledged, where nobody else writes to it; None:
    that could not be told."""
    silent: int = 0
    """How many processes gave no report: what they sent is not in it."""
    whole: bool
    """Whether it ran to its end, and nobody stopped it."""
    unwritten: str | None = None
    """Why the report is not in the folder; None: it is, or nobody wants it there."""

    @property
    def lost(self) -> int | None:
        """How many records were acknowledged that the topic did not grow by; None: that could not be told."""
        return None if self.grew_by is None else max(self.report.acknowledged - self.grew_by, 0)

    def as_json(self) -> dict[str, object]:
        """Everything as plain data."""
        report, timed = self.report, not self.production.at_once
        return {
            "job": self.production.job,
            "topic": self.production.topic,
            "encoding": self.production.encoding,
            "seed": self.production.seed,
            "partitions": self.partitions,
            "processes": self.processes,
            "processes_without_report": self.silent,
            "began_unix_s": self.schedule.began_unix_s,
            "whole": self.whole,
            "due": report.due,
            "sent": report.sent,
            "acknowledged": report.acknowledged,
            "failed": report.failed,
            "unsent": report.unsent,
            "topic_grew_by": self.grew_by,
            "lost": self.lost,
            "seconds": round(report.seconds, 3),
            "acknowledged_per_s": round(report.acknowledged / report.seconds, 1) if report.seconds > 0 else None,
            "sent_late": _late(report.sent_late) if timed else None,
            "acknowledged_late": _late(report.acknowledged_late) if timed else None,
            "offsets": {
                str(number): {"first": found.first, "last": found.last} for number, found in report.offsets.items()
            },
            "problems": dict(report.problems),
        }


def _late(lateness: Lateness) -> dict[str, float | None]:
    return {
        "p50_s": lateness.quantile_s(0.5),
        "p99_s": lateness.quantile_s(0.99),
        "worst_s": lateness.worst_s if lateness.total else None,
    }


def schedule_of(load: Load, *, duration_s: int | None, seed: int, scale: float, began_unix_s: float) -> Schedule:
    """The load second by second; without a duration, a trace is followed to its end."""
    if duration_s is None:
        if not isinstance(load, Trace) or load.repeat:
            raise BadInputError(f"the load {load.name} has no end of its own: say for how long (--for 60s)")
        duration_s = load.run_length_s
    rates = load.rates_per_s(duration_s, seed) * scale
    return Schedule(began_unix_s=began_unix_s, rates_per_s=tuple(rates.tolist()), after="stop")


def produce(
    production: Production,
    schedule: Schedule,
    *,
    folder: Path | None = None,
    began_unix_s: float | None = None,
    stop: threading.Event | None = None,
    say: Callable[[str], None] = lambda _: None,
    progress: Callable[[SendProgress], None] = lambda _: None,
) -> Produced:
    """Send the whole schedule, which begins when the processes are ready (at once: ends then), or at `began_unix_s`.

    Ctrl-C, or the event, ends it in order: what is on its way is waited for, and the report tells the rest; a second
    Ctrl-C ends it at once. Writes the schedule and the report into the folder. Whatever went wrong once records were
    sent is in the report, and told to `say`: an error is raised only where no process has anything to report.
    """
    _check_folder(folder)
    partitions = _partitions(production, say)
    processes = min(production.processes, partitions)
    before = topics.ends(production.brokers, production.topic)
    with started_senders(production, partitions, processes) as senders:
        length_s = schedule.step_s * len(schedule.rates_per_s)
        if began_unix_s is None:
            began_unix_s = time.time() + (-length_s if production.at_once else _BEGINS_IN_S)
        begun = Schedule(
            began_unix_s=began_unix_s, step_s=schedule.step_s, rates_per_s=schedule.rates_per_s, after=schedule.after
        )
        if folder is not None:
            _write_schedule(folder, begun)
        watch = Watch(
            progress=progress,
            stop=stop or threading.Event(),
            may_rest_until_unix_s=-math.inf if production.at_once else began_unix_s + length_s,
            stops_within_s=production.flush_s + _GRACE_S,
            silent_for_s=production.retry_s + production.flush_s + _GRACE_S,
            say=say,
        )
        reports, whole = run_senders(senders, begun, watch)
    produced = Produced(
        production=production,
        schedule=begun,
        partitions=partitions,
        processes=processes,
        report=SendReport.together(reports),
        grew_by=_growth(production, before, say),
        silent=processes - len(reports),
        whole=whole,
    )
    return produced if folder is None else _written(folder, produced)


def _check_folder(folder: Path | None) -> None:
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        used = any((folder / name).exists() for name in (SCHEDULE_NAME, REPORT_NAME))
    except OSError as error:
        raise BadInputError(f"the folder {folder} cannot be made: {error.strerror}") from error
    if used:
        raise BadInputError(f"the folder {folder} holds what was sent before; name another or remove it")
    try:
        # Tried, not asked for: rights do not tell of a disk that is full or can only be read.
        with tempfile.TemporaryFile(dir=folder) as trial:
            trial.write(b"{}")
    except OSError as error:
        raise _unwritable(folder, error) from error


def _write_schedule(folder: Path, schedule: Schedule) -> None:
    try:
        write_schedule(folder / SCHEDULE_NAME, schedule)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> BadInputError:
    return BadInputError(f"nothing can be written into the folder {folder}: {error.strerror}; name another")


def _written(folder: Path, produced: Produced) -> Produced:
    """The same, with the reason where it could not be written: what was sent cannot be sent again to know it."""
    file = folder / REPORT_NAME
    try:
        file.write_text(json.dumps(produced.as_json(), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        with suppress(OSError):  # half a report is worse than none, and why there is none is told already
            file.unlink()
        return replace(produced, unwritten=f"the report could not be written to {file}: {error.strerror}")
    return produced


def _growth(production: Production, before: Mapping[int, topics.Reach], say: Callable[[str], None]) -> int | None:
    try:
        after = topics.ends(production.brokers, production.topic)
    except TidewiseError as error:
        say(f"by how many records the topic grew could not be told: {error}")
        return None
    # A partition that is there no more, because the topic was made anew with fewer, has lost all it held.
    ends = {number: reach.following for number, reach in after.items()}
    return sum(ends.get(number, 0) - reach.following for number, reach in before.items())


def _partitions(production: Production, say: Callable[[str], None]) -> int:
    """How many partitions the topic has, once a broker answers; makes the topic where that was asked for."""
    known = _known_topics(production, say)
    if production.partitions is not None:
        topics.create(production.brokers, production.topic, production.partitions)
        return production.partitions
    if production.topic not in known:
        raise BadInputError(
            f"there is no topic {production.topic!r} at {production.brokers}{did_you_mean(production.topic, known)}; "
            f"to have it made, say how many partitions it shall have (--partitions 2)"
        )
    return known[production.topic]


def _known_topics(production: Production, say: Callable[[str], None]) -> Mapping[str, int]:
    end_s = time.monotonic() + production.wait_s
    while True:
        try:
            return topics.describe(production.brokers)
        except TemporaryError as error:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise
            say(f"{error}; waiting for it, up to {left_s:.0f} s more")
            time.sleep(min(error.retry_after_s, left_s))
