"""The processes that send side by side: started, heard, told to stop, and none is waited for for ever."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, cast

from tidewise.core import PermanentError, TidewiseError
from tidewise.experiments.job_feed import JobFeed
from tidewise.experiments.signals import asked_to_stop
from tidewise.jobs.records.encoding import Encoder
from tidewise.jobs.records.kinds import KINDS
from tidewise.jobs.schedule import Schedule
from tidewise.kafka.sending import Sender, SendProgress, SendReport, kafka_producer

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from tidewise.experiments.produce import Production

_START_S = 120.0
"""How long the processes may take until they are ready."""
_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSender:
    """A process, and our end of the pipe to it."""

    process: SpawnProcess
    pipe: Connection


@contextmanager
def started_senders(production: Production, partitions: int, processes: int) -> Iterator[list[RunningSender]]:
    """The processes, ready to begin; none is left at the end."""
    context = multiprocessing.get_context("spawn")
    running: list[RunningSender] = []
    try:
        for number in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=send_share, args=(theirs, production, partitions, number, processes), daemon=True
            )
            process.start()
            theirs.close()
            running.append(RunningSender(process=process, pipe=ours))
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


def run_senders(senders: list[RunningSender], schedule: Schedule, watch: Watch) -> tuple[list[SendReport], bool]:
    """The report of each process that gave one, and whether nobody stopped them."""
    for one in senders:
        one.pipe.send(schedule)
    heard = _Heard(senders, watch)
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
            if stopped_s is not None and time.monotonic() > stopped_s + watch.stops_within_s:
                heard.give_up(lambda _: True, f"within {watch.stops_within_s:g} s of the end")
            heard.give_up(heard.rests, f"and did nothing for {watch.silent_for_s:g} s")
    if not heard.reports:
        raise PermanentError("no sending process gave a report: what they sent is not known; look into the topic")
    return heard.reports, stopped_s is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How a run is looked after."""

    progress: Callable[[SendProgress], None]
    stop: threading.Event
    may_rest_until_unix_s: float
    """Until then there may be nothing to send: a process only has to say so."""
    stops_within_s: float
    silent_for_s: float
    """How long a process may do nothing: longer than a record is tried again, and its answer waited for."""
    say: Callable[[str], None]


class _Heard:
    """What the processes have said so far."""

    def __init__(self, senders: list[RunningSender], watch: Watch) -> None:
        self._senders = senders
        self._watch = watch
        self._progress: dict[int, SendProgress] = {}
        self._reports: dict[int, SendReport] = {}
        self._news: set[int] = set()
        self._given_up: set[int] = set()
        # Counted in time that was listened for: whoever stops the whole command for an hour blames no process for it.
        self._rested_s = dict.fromkeys(range(len(senders)), 0.0)

    @property
    def complete(self) -> bool:
        return not self._open()

    @property
    def reports(self) -> list[SendReport]:
        return [self._reports[number] for number in sorted(self._reports)]

    def listen(self) -> None:
        """Wait a moment for what they say, and pass their progress on when there is news of all."""
        open_pipes = {self._senders[number].pipe: number for number in self._open()}
        began_s = time.monotonic()
        ready = wait(list(open_pipes), _POLL_S)
        for number in open_pipes.values():
            self._rested_s[number] += min(time.monotonic() - began_s, 2 * _POLL_S)
        for pipe in ready:
            number = open_pipes[cast("Connection[object, object]", pipe)]
            match _received(self._senders[number]):
                case SendProgress() as step:
                    if time.time() < self._watch.may_rest_until_unix_s or _moved(self._progress.get(number), step):
                        self._rested_s[number] = 0.0
                    self._progress[number] = step
                    self._news.add(number)
                case SendReport() as report:
                    self._reports[number] = report
        if self._news and self._news.issuperset(self._open()):
            self._news.clear()
            self._watch.progress(_all_progress(self._progress))

    def tell_to_stop(self) -> None:
        for number in self._open():
            self._senders[number].pipe.send(None)

    def rests(self, number: int) -> bool:
        """Whether the process has done nothing for longer than anything takes."""
        return self._rested_s[number] > self._watch.silent_for_s

    def give_up(self, which: Callable[[int], bool], when: str) -> None:
        """Wait no longer for these; the others go on."""
        for number in filter(which, self._open()):
            self._given_up.add(number)
            self._watch.say(f"sending process {number + 1} gave no report {when}: what it sent is not counted")

    def _open(self) -> list[int]:
        return [n for n in range(len(self._senders)) if n not in self._reports and n not in self._given_up]


def _moved(before: SendProgress | None, now: SendProgress) -> bool:
    return before is None or (before.sent, before.acknowledged, before.failed) != (
        now.sent,
        now.acknowledged,
        now.failed,
    )


def _all_progress(latest: Mapping[int, SendProgress]) -> SendProgress:
    each = latest.values()
    return SendProgress(
        due=sum(one.due for one in each),
        sent=sum(one.sent for one in each),
        acknowledged=sum(one.acknowledged for one in each),
        failed=sum(one.failed for one in each),
        behind_s=max(one.behind_s for one in each),
    )


def _received(one: RunningSender) -> object:
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
