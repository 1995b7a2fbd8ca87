"""Sends a job's records to a topic as a load says, in several processes, and accounts for every one of them."""

from __future__ import annotations

import json
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tidewise.core import BadInputError, PermanentError, TemporaryError, TidewiseError
from tidewise.core.readers import did_you_mean
from tidewise.experiments.job_feed import JobFeed
from tidewise.experiments.signals import asked_to_stop
from tidewise.jobs.records.encoding import Encoder, Encoding
from tidewise.jobs.records.kinds import KINDS, Disorder
from tidewise.jobs.schedule import Schedule, write_schedule
from tidewise.kafka import topics
from tidewise.kafka.lateness import Lateness
from tidewise.kafka.sending import Sender, SendProgress, SendReport, kafka_producer
from tidewise.workload import Load
from tidewise.workload.trace import Trace

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

SCHEDULE_NAME = "schedule.json"
REPORT_NAME = "report.json"
_BEGINS_IN_S = 0.1
_START_S = 120.0
"""How long the processes may take until they are ready."""
_POLL_S = 0.5


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
    """Send as fast as the broker takes it; event times stay as scheduled."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """What was sent, by all processes together."""

    production: Production
    schedule: Schedule
    partitions: int
    processes: int
    report: SendReport
    grew_by: int
    """By how many records the topic grew meanwhile: as many as were acknowledged, where nobody else writes to it."""
    whole: bool
    """Whether it ran to its end, and nobody stopped it."""

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
            "began_unix_s": self.schedule.began_unix_s,
            "whole": self.whole,
            "due": report.due,
            "sent": report.sent,
            "acknowledged": report.acknowledged,
            "failed": report.failed,
            "unsent": report.unsent,
            "topic_grew_by": self.grew_by,
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
    """Send the whole schedule, which begins when the processes are ready, or at `began_unix_s`.

    Ctrl-C, or the event, ends it in order: what is on its way is waited for, and the report tells the rest; a second
    Ctrl-C ends it at once. Writes the schedule and the report into the folder.
    """
    _check_folder(folder)
    partitions = _partitions(production, say)
    processes = min(production.processes, partitions)
    before = topics.ends(production.brokers, production.topic)
    with _senders(production, partitions, processes) as senders:
        began_s = time.time() + _BEGINS_IN_S if began_unix_s is None else began_unix_s
        begun = Schedule(
            began_unix_s=began_s, step_s=schedule.step_s, rates_per_s=schedule.rates_per_s, after=schedule.after
        )
        if folder is not None:
            write_schedule(folder / SCHEDULE_NAME, begun)
        watch = _Watch(progress=progress, stop=stop or threading.Event(), patience_s=production.flush_s + 30.0)
        reports, whole = _run(senders, begun, watch)
    after = topics.ends(production.brokers, production.topic)
    produced = Produced(
        production=production,
        schedule=begun,
        partitions=partitions,
        processes=processes,
        report=SendReport.together(reports),
        grew_by=sum(after[number].following - reach.following for number, reach in before.items()),
        whole=whole,
    )
    if folder is not None:
        (folder / REPORT_NAME).write_text(json.dumps(produced.as_json(), indent=2) + "\n", encoding="utf-8")
    return produced


def _check_folder(folder: Path | None) -> None:
    if folder is None:
        return
    if any((folder / name).exists() for name in (SCHEDULE_NAME, REPORT_NAME)):
        raise BadInputError(f"the folder {folder} holds what was sent before; name another or remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"the folder {folder} cannot be made: {error.strerror}") from error


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    process: SpawnProcess
    pipe: Connection


@contextmanager
def _senders(production: Production, partitions: int, processes: int) -> Iterator[list[_Running]]:
    """The processes, ready to begin; none is left at the end."""
    context = multiprocessing.get_context("spawn")
    running: list[_Running] = []
    try:
        for number in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=send_share, args=(theirs, production, partitions, number, processes), daemon=True
            )
            process.start()
            theirs.close()
            running.append(_Running(process=process, pipe=ours))
        for one in running:
            if not one.pipe.poll(_START_S):
                raise PermanentError(f"a sending process is not ready after {_START_S:g} s; is the machine overloaded?")
            _received(one)
        yield running
    finally:
        for one in running:
            one.pipe.close()
            one.process.join(_POLL_S)
            if one.process.is_alive():
                one.process.kill()
                one.process.join()


def _run(senders: list[_Running], schedule: Schedule, watch: _Watch) -> tuple[list[SendReport], bool]:
    """The report of each process, and whether nobody stopped them."""
    for one in senders:
        one.pipe.send(schedule)
    heard = _Heard(senders, watch.progress)
    signals: list[float] = []
    # Elsewhere than in the main thread no signal can be heard; whoever runs it there has the event.
    in_main = threading.current_thread() is threading.main_thread()
    stopped_s: float | None = None
    with asked_to_stop(lambda: signals.append(time.monotonic())) if in_main else nullcontext():
        while not heard.complete:
            heard.listen()
            if len(signals) > 1:
                raise KeyboardInterrupt
            if stopped_s is None and (signals or watch.stop.is_set()):
                stopped_s = time.monotonic()
                heard.tell_to_stop()
            if stopped_s is not None and time.monotonic() > stopped_s + watch.patience_s:
                raise PermanentError(f"the sending processes gave no report within {watch.patience_s:g} s of the end")
    return heard.reports, stopped_s is None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watch:
    """How a run is looked after."""

    progress: Callable[[SendProgress], None]
    stop: threading.Event
    patience_s: float


class _Heard:
    """What the processes have said so far."""

    def __init__(self, senders: list[_Running], progress: Callable[[SendProgress], None]) -> None:
        self._senders = senders
        self._tell = progress
        self._progress: dict[int, SendProgress] = {}
        self._reports: dict[int, SendReport] = {}
        self._news: set[int] = set()

    @property
    def complete(self) -> bool:
        return len(self._reports) == len(self._senders)

    @property
    def reports(self) -> list[SendReport]:
        return [self._reports[number] for number in sorted(self._reports)]

    def listen(self) -> None:
        """Wait a moment for what they say, and pass their progress on when there is news of all."""
        open_pipes = {one.pipe: number for number, one in enumerate(self._senders) if number not in self._reports}
        for pipe in wait(list(open_pipes), _POLL_S):
            number = open_pipes[cast("Connection[object, object]", pipe)]
            match _received(self._senders[number]):
                case SendProgress() as step:
                    self._progress[number] = step
                    self._news.add(number)
                case SendReport() as report:
                    self._reports[number] = report
        if self._news and len(self._news | self._reports.keys()) == len(self._senders):
            self._news.clear()
            self._tell(_all_progress(self._progress))

    def tell_to_stop(self) -> None:
        for number, one in enumerate(self._senders):
            if number not in self._reports:
                one.pipe.send(None)


def _all_progress(latest: Mapping[int, SendProgress]) -> SendProgress:
    each = latest.values()
    return SendProgress(
        due=sum(one.due for one in each),
        sent=sum(one.sent for one in each),
        acknowledged=sum(one.acknowledged for one in each),
        failed=sum(one.failed for one in each),
        behind_s=max(one.behind_s for one in each),
    )


def _received(one: _Running) -> object:
    """What the process says next; what went wrong in it goes wrong here."""
    try:
        said: object = one.pipe.recv()
    except (EOFError, ConnectionResetError):
        one.process.join(_START_S)
        raise PermanentError(
            f"a sending process ended without its report (exit code {one.process.exitcode}); what it said is above"
        ) from None
    if isinstance(said, TidewiseError):
        raise said
    return said


def send_share(pipe: Connection, production: Production, partitions: int, process: int, processes: int) -> None:
    """What each process does: get ready, hear when to begin, send its own share and report."""
    # Ctrl-C reaches all processes of a terminal; only the first one decides what follows.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        kind = KINDS[production.job]
        encoder = Encoder(
            kind,
            production.encoding,
            seed=production.seed,
            disorder=production.disorder,
            broken_share=production.broken_share,
        )
        # The first records cost most: all that repeats is encoded with them.
        encoder.encode(0, 1, Schedule(began_unix_s=0.0, rates_per_s=(1.0,)).pieces(0, 1))
        sender = Sender(kafka_producer(production.brokers, retry_s=production.retry_s), topic=production.topic)
        pipe.send("ready")
        schedule = pipe.recv()
        feed = JobFeed(
            schedule=schedule,
            end=schedule.available(schedule.began_unix_s + schedule.step_s * (1 + len(schedule.rates_per_s))),
            kind=kind,
            encoder=encoder,
            partitions=partitions,
            process=process,
            processes=processes,
            at_once=production.at_once,
        )
        # Whatever comes through the pipe, its end included, means that it is time to stop.
        pipe.send(sender.run(feed, stop=pipe.poll, progress=pipe.send, flush_s=production.flush_s))
    except TidewiseError as error:
        pipe.send(error)
    except (BrokenPipeError, EOFError):
        return  # nobody is left who would read a report
