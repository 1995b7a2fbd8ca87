"""Tells the rows of runs to a place, and remembers how far only when they are there: none is lost, some come twice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tidewise.core import BadInputError, PermanentError, TemporaryError, format_duration
from tidewise.core.telemetry import Envelope
from tidewise.experiments.telemetry_sources import Source, Told, read_memory, write_memory
from tidewise.experiments.telemetry_target import Sink

_POLL_S = 1.0
_EVENTS_AT_ONCE = 1000
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 30.0
_TELL_EVERY_S = 60.0
_SILENT_AFTER_S = 120.0
"""Nothing new for so long is worth a sentence."""
_TRIES = 5
_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """What has been told so far."""

    rows: Mapping[str, int]
    """By their kind."""
    waiting: int
    """Read, and not told yet."""
    problems: tuple[str, ...] = ()
    """What could not be told at all, in sentences."""

    @property
    def total(self) -> int:
        return sum(self.rows.values())


@dataclass(slots=True, kw_only=True, eq=False)
class _Shipment:
    """A source and how far it was told."""

    source: Source
    told: Told | None = None
    """None: it is not known yet whose rows it has."""


@dataclass(slots=True)
class _Trouble:
    """Something that is away, which is told once a minute and not more."""

    since_s: float
    wait_s: float = _FIRST_WAIT_S
    told_s: float = field(default=float("-inf"))


class Shipper:
    """Reads sources on from where they were and tells their rows; `run` belongs to one thread, the rest to any.

    What is remembered was told. Killed at any point, the next one tells again what was told and not remembered, with
    the same run and line. What is away is tried again; the sources are only ever read.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        sink: Sink,
        *,
        target: str,
        tell: Callable[[str], None],
        progress: Callable[[Shipped], None] = lambda _: None,
        once: bool = False,
        patience_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tell` is given what a person ought to know, in sentences.

        `once`: only what is there already is told. `patience_s`: how long a place may be away then.
        """
        self._shipments = [_Shipment(source=source) for source in sources]
        self._sink = sink
        self._target = target
        self._tell = tell
        self._progress = progress
        self._once = once
        self._patience_s = patience_s
        self._clock = clock
        self._woken = threading.Event()
        self._is_stopping = False
        self._rows: Counter[str] = Counter()
        self._waiting: list[tuple[_Shipment, Envelope]] = []
        self._gathered_since_s = 0.0
        self._news_s = 0.0
        self._said_silent = False
        self._troubles: dict[str, _Trouble] = {}  # by what is away
        self._problems: list[str] = []

    # For any thread.

    def stop(self) -> None:
        """End soon; what was read and not told is left for the next one."""
        self._is_stopping = True
        self._woken.set()

    def finish(self, *, patience_s: float) -> None:
        """Tell what is there by now, and end; a place may be away for so long."""
        self._patience_s = patience_s
        self._once = True
        self._woken.set()

    # For its own thread.

    def run(self) -> Shipped:
        """Until all sources are over, or what is there has been told (`once`), or somebody stops it.

        TemporaryError where the place was away for too long, with `once`; PermanentError where it takes no rows.
        """
        self._news_s = self._clock()
        while not self._is_stopping:
            ends = self._once  # before reading: what is written after it was said need not be told
            is_new = self._gather()
            is_away = any(shipment.source.name in self._troubles for shipment in self._shipments)
            is_done = not self._shipments or (ends and not is_new and not is_away)
            if self._waiting and (is_done or self._is_full or self._is_old):
                self._send()
            if is_done and not self._waiting:
                break
            if not is_new:
                self._wait()
        return self.shipped

    @property
    def shipped(self) -> Shipped:
        return Shipped(rows=dict(self._rows), waiting=len(self._waiting), problems=tuple(self._problems))

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) >= self._sink.most_lines

    @property
    def _is_old(self) -> bool:
        return self._clock() - self._gathered_since_s >= self._sink.gather_s

    def _gather(self) -> bool:
        """Read what has come, as far as there is room; whether there may be more."""
        is_new = False
        for shipment in tuple(self._shipments):
            if self._is_full:
                return True
            source = shipment.source
            try:
                is_new = self._take(shipment) or is_new
            except TemporaryError as error:
                self._trouble_with(source.name, error)
                continue
            except PermanentError as error:
                self._drop(shipment, str(error))
                continue
            self._is_back(source.name)
            if source.is_over and not source.has_more:
                self._shipments.remove(shipment)
            elif self._once and source.waits_for is not None:
                self._drop(shipment, source.waits_for)
        return is_new

    def _take(self, shipment: _Shipment) -> bool:
        """Whether more may be there."""
        source = shipment.source
        if shipment.told is None:
            self._recall(shipment)
        rows = [] if shipment.told is None else source.read(_EVENTS_AT_ONCE)
        known = 0 if shipment.told is None else shipment.told.line
        fresh = [row for row in rows if row.line > known]
        if fresh:
            if not self._waiting:
                self._gathered_since_s = self._clock()
            self._waiting += [(shipment, row) for row in fresh]
            self._news_s, self._said_silent = self._clock(), False
        return bool(rows) or source.has_more

    def _recall(self, shipment: _Shipment) -> None:
        """How far an earlier one came; written down before anything is told, so that it is known to be possible."""
        source = shipment.source
        run = source.run
        if run is None:
            return
        known = read_memory(source.memory(self._target))
        if known is not None and known.run == run:
            source.recall(known)
        else:
            known = Told(run=run, interval_s=source.interval_s)
            self._remember(shipment, known)
        shipment.told = known

    def _remember(self, shipment: _Shipment, told: Told) -> None:
        for tries_left in reversed(range(_TRIES)):
            try:
                write_memory(shipment.source.memory(self._target), told, self._target)
            except (FileNotFoundError, TemporaryError) as error:
                # The run has ended, and its folder has its name; or somebody else wrote in this very moment.
                if not tries_left:
                    sentence = f"how far {shipment.source.name} was told cannot be written down: {error}"
                    raise PermanentError(sentence) from error
                self._sleep(_AGAIN_S)
            else:
                shipment.told = told
                return

    def _drop(self, shipment: _Shipment, sentence: str) -> None:
        self._shipments.remove(shipment)
        self._problems.append(sentence)
        self._tell(sentence)

    def _send(self) -> None:
        """Tell what is waiting, in its order; comes back when all of it was, or somebody stops it."""
        while self._waiting and not self._is_stopping:
            batch = self._waiting[: self._sink.most_lines]
            try:
                self._sink.send([(row.job, row.to_json()) for _, row in batch])
            except TemporaryError as error:
                self._back_off(self._trouble_with(self._target, error))
                continue
            self._is_back(self._target)
            last = {shipment: row.line for shipment, row in batch}
            self._waiting = self._waiting[len(batch) :]
            self._rows.update(row.row.kind for _, row in batch)
            for shipment, line in last.items():
                known = shipment.told
                if known is None:
                    raise LookupError("rows were read before it was known whose they are")
                self._remember(shipment, Told(run=known.run, line=line, interval_s=known.interval_s))
            self._gathered_since_s = self._clock()
            self._progress(self.shipped)

    def _trouble_with(self, what: str, error: TemporaryError) -> _Trouble:
        now_s = self._clock()
        trouble = self._troubles.setdefault(what, _Trouble(now_s))
        if self._once and now_s - trouble.since_s >= self._patience_s:
            raise error
        if now_s - trouble.told_s >= _TELL_EVERY_S:
            trouble.told_s = now_s
            self._tell(f"{error}; it is tried again, and nothing is lost.")
        return trouble

    def _is_back(self, what: str) -> None:
        if self._troubles.pop(what, None) is not None:
            self._tell(f"{what} answers again.")

    def _back_off(self, trouble: _Trouble) -> None:
        self._sleep(trouble.wait_s)
        trouble.wait_s = min(_LONGEST_WAIT_S, 2.0 * trouble.wait_s)

    def _wait(self) -> None:
        if self._clock() - self._news_s >= _SILENT_AFTER_S and not self._said_silent:
            self._said_silent = True
            names = ", ".join(shipment.source.name for shipment in self._shipments[:3])
            self._tell(
                f"Nothing new has come from {names} for {format_duration(_SILENT_AFTER_S)}; it is still watched."
            )
        self._sleep(_POLL_S)

    def _sleep(self, seconds: float) -> None:
        self._woken.wait(timeout=seconds)
        if not self._is_stopping:
            self._woken.clear()


def refuse_twice(sources: Sequence[Source]) -> None:
    """BadInputError where the same is to be told twice."""
    names = Counter(source.name for source in sources)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise BadInputError(f"{twice[0]} is named twice; name it once")
