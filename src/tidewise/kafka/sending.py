"""Sends records when they are due, however slow the broker is: what cannot go yet waits, and how late it is is told."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol, cast

from tidewise.kafka.client import kafka_client, quiet_settings
from tidewise.kafka.lateness import Lateness, Seconds

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

OnDelivery = Callable[["KafkaError | None", "Message"], None]

_TICK_S = 0.005
"""How long to wait where nothing is due: records of so long a time go to the client together."""
_MOST_AT_ONCE = 8_000
"""How many ordinals are encoded in one go: few enough that answers of the broker are heard between."""
_MOST_ON_THEIR_WAY = 200_000
_MOST_BYTES_ON_THEIR_WAY = 128 * 1024 * 1024
_PROGRESS_EVERY_S = 1.0
_PURGE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Records of one partition, in the order in which it shall hold them."""

    partition: int
    values: list[bytes]
    due_unix_s: Seconds
    """When each was due."""


class Feed(Protocol):
    """What one process sends: a sequence of ordinals, of which it may own only some."""

    @property
    def end(self) -> int:
        """The ordinal after the last."""

    def available(self, unix_s: float) -> int:
        """How many ordinals are due by then; never fewer at a later moment."""

    def due_unix_s(self, ordinal: int) -> float:
        """When this ordinal is due."""

    def count(self, first: int, end: int) -> int:
        """How many of these ordinals are this process's own."""

    def parts(self, first: int, end: int) -> Sequence[Part]:
        """Its own records among these ordinals, a part for each of its partitions."""


class KafkaProducer(Protocol):
    """What is used of the client's producer."""

    def produce_batch(
        self, topic: str, messages: list[dict[str, object]], partition: int, *, on_delivery: OnDelivery
    ) -> int:
        """Take messages; those which are refused get an `_error`."""

    def poll(self, timeout: float) -> int: ...
    def flush(self, timeout: float) -> int: ...
    def purge(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SendProgress:
    """Where a sender stands; all counts are its own records since the start."""

    due: int
    sent: int
    acknowledged: int
    failed: int
    behind_s: float
    """How long the oldest record that was not sent yet has been due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The offsets that a partition gave to what was acknowledged."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReport:
    """What became of all records that were due: due = acknowledged + failed + unsent."""

    due: int
    sent: int
    """Handed to the client: acknowledged + failed."""
    acknowledged: int
    failed: int
    """Not acknowledged in time or refused; the broker may hold some of them all the same."""
    unsent: int
    """Due, but not handed to the client before the end."""
    seconds: float
    sent_late: Lateness
    """From when a record was due to when the client had it."""
    acknowledged_late: Lateness
    """From when a record was due to when the broker had confirmed it."""
    offsets: Mapping[int, Stretch]
    """By partition."""
    problems: Mapping[str, int]
    """What the client or the broker said of failed records, and of how many."""

    @staticmethod
    def together(reports: Iterable[SendReport]) -> SendReport:
        """One report of several processes, which own different partitions."""
        each = tuple(reports)
        sent_late, acknowledged_late, problems = Lateness(), Lateness(), Counter[str]()
        for report in each:
            sent_late.merge(report.sent_late)
            acknowledged_late.merge(report.acknowledged_late)
            problems.update(report.problems)
        return SendReport(
            due=sum(report.due for report in each),
            sent=sum(report.sent for report in each),
            acknowledged=sum(report.acknowledged for report in each),
            failed=sum(report.failed for report in each),
            unsent=sum(report.unsent for report in each),
            seconds=max((report.seconds for report in each), default=0.0),
            sent_late=sent_late,
            acknowledged_late=acknowledged_late,
            offsets=dict(sorted((item for report in each for item in report.offsets.items()), key=itemgetter(0))),
            problems=dict(problems),
        )


def kafka_producer(brokers: str, *, retry_s: float = 120.0) -> KafkaProducer:
    """A producer that keeps the order of each partition, doubles nothing, and tries again for `retry_s`."""
    kafka = kafka_client()
    settings = {
        **quiet_settings(brokers),
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 20,
        "batch.size": 1_000_000,
        "compression.type": "lz4",
        "message.timeout.ms": round(1000 * retry_s),
        "reconnect.backoff.max.ms": 1000,
        # Beyond what a sender lets be on its way, so that the client never has to refuse anything.
        "queue.buffering.max.messages": 2 * _MOST_ON_THEIR_WAY,
        "queue.buffering.max.kbytes": 4 * _MOST_BYTES_ON_THEIR_WAY // 1024,
    }
    return cast("KafkaProducer", kafka.Producer(settings))


@dataclass(slots=True)
class _Tally:
    """What is counted while a sender runs."""

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    bytes_on_their_way: int = 0
    sent_late: Lateness = field(default_factory=Lateness)
    acknowledged_late: Lateness = field(default_factory=Lateness)
    offsets: dict[int, Stretch] = field(default_factory=dict)
    problems: Counter[str] = field(default_factory=Counter)

    @property
    def on_their_way(self) -> int:
        return self.sent - self.acknowledged - self.failed

    def fail(self, sentence: str) -> None:
        self.failed += 1
        self.problems[sentence] += 1

    def saw(self, partition: int, offset: int | None) -> None:
        if offset is not None:
            known = self.offsets.get(partition)
            first, last = (offset, offset) if known is None else (min(known.first, offset), max(known.last, offset))
            self.offsets[partition] = Stretch(first=first, last=last)


class _Chunk:
    """The records of one part on their way; it hears of each of them."""

    def __init__(self, part: Part, tally: _Tally, clock: Callable[[], float]) -> None:
        self._part = part
        self._tally = tally
        self._clock = clock
        self._open = len(part.values)
        self._acknowledged = 0
        self.size = sum(map(len, part.values))

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """Called by the client for every message, so it does no more than it must."""
        tally = self._tally
        if error is None:
            tally.acknowledged += 1
            self._acknowledged += 1
            # A partition gives offsets in order, so those at the ends of a chunk are enough.
            if self._acknowledged == 1 or self._open == 1:
                tally.saw(self._part.partition, message.offset())
        else:
            tally.fail(error.str())
        self._open -= 1
        if self._open == 0:
            self._close()

    def refused(self, sentence: str) -> None:
        """A record that the client did not take, and never will."""
        self._tally.fail(sentence)
        self._open -= 1
        if self._open == 0:
            self._close()

    def _close(self) -> None:
        self._tally.bytes_on_their_way -= self.size
        if self._acknowledged > 0:
            # All count as acknowledged with the last of them: a few milliseconds too much rather than too little.
            self._tally.acknowledged_late.add(self._clock() - self._part.due_unix_s[: self._acknowledged])


class Sender:
    """The open loop of one process: sends by the clock, and the broker cannot slow the clock down.

    What is due while too much is on its way already waits as a range of ordinals, which costs no memory, in its order;
    it is sent as soon as there is room. One sender sends once.
    """

    def __init__(
        self,
        producer: KafkaProducer,
        *,
        topic: str,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._clock = clock
        self._sleep = sleep
        self._tally = _Tally()
        self._next = 0

    def run(
        self,
        feed: Feed,
        *,
        stop: Callable[[], bool] = lambda: False,
        progress: Callable[[SendProgress], None] = lambda _: None,
        flush_s: float = 60.0,
    ) -> SendReport:
        """Send until the feed ends or `stop` says so, then wait up to `flush_s` for the broker's answers."""
        began_s = told_s = self._clock()
        while self._next < feed.end and not stop():
            self._send_due(feed)
            if self._clock() - told_s >= _PROGRESS_EVERY_S:
                told_s = self._clock()
                progress(self._progress(feed))
        due = min(feed.available(self._clock()), feed.end)
        self._finish(lambda: progress(self._progress(feed)), deadline_s=self._clock() + flush_s)
        tally = self._tally
        unsent = feed.count(self._next, due) if due > self._next else 0
        return SendReport(
            due=tally.sent + unsent,
            sent=tally.sent,
            acknowledged=tally.acknowledged,
            failed=tally.failed,
            unsent=unsent,
            seconds=self._clock() - began_s,
            sent_late=tally.sent_late,
            acknowledged_late=tally.acknowledged_late,
            offsets=tally.offsets,
            problems=dict(tally.problems),
        )

    def _send_due(self, feed: Feed) -> None:
        due = min(feed.available(self._clock()), feed.end)
        if due <= self._next:
            self._producer.poll(0.0)
            self._sleep(_TICK_S)
            return
        if self._tally.on_their_way >= _MOST_ON_THEIR_WAY or self._tally.bytes_on_their_way >= _MOST_BYTES_ON_THEIR_WAY:
            self._producer.poll(_TICK_S)
            return
        end = min(due, self._next + _MOST_AT_ONCE)
        for part in feed.parts(self._next, end):
            self._hand_over(part)
        self._next = end
        self._producer.poll(0.0)
        if end == due:
            self._sleep(_TICK_S)

    def _hand_over(self, part: Part) -> None:
        tally = self._tally
        if not part.values:
            return
        chunk = _Chunk(part, tally, self._clock)
        tally.sent += len(part.values)
        tally.bytes_on_their_way += chunk.size
        waiting: list[dict[str, object]] = [{"value": value} for value in part.values]
        while waiting:
            taken = self._producer.produce_batch(self._topic, waiting, part.partition, on_delivery=chunk.delivered)
            if taken == len(waiting):
                break
            waiting = self._refused(waiting, chunk)
            if waiting:
                self._producer.poll(_TICK_S)
        tally.sent_late.add(self._clock() - part.due_unix_s)

    @staticmethod
    def _refused(messages: list[dict[str, object]], chunk: _Chunk) -> list[dict[str, object]]:
        """What to offer again because the client was full: it refuses all after the first, so that order is kept."""
        again: list[dict[str, object]] = []
        for message in messages:
            error = cast("KafkaError | None", message.get("_error"))
            if error is None:
                continue
            if error.name() == "_QUEUE_FULL":
                again.append({"value": message["value"]})
            else:
                chunk.refused(error.str())
        return again

    def _finish(self, tell: Callable[[], None], *, deadline_s: float) -> None:
        """Wait for answers; what has none at the deadline is given up, and so counted as failed."""
        while self._tally.on_their_way > 0 and (left_s := deadline_s - self._clock()) > 0.0:
            self._producer.flush(min(left_s, _PROGRESS_EVERY_S))
            tell()
        if self._tally.on_their_way > 0:
            self._producer.purge()
            self._producer.flush(_PURGE_S)
        for _ in range(self._tally.on_their_way):
            self._tally.fail("the client gave no answer")

    def _progress(self, feed: Feed) -> SendProgress:
        now_s = self._clock()
        due = min(feed.available(now_s), feed.end)
        waiting = max(due - self._next, 0)
        behind_s = 0.0
        if waiting:
            behind_s = max(now_s - feed.due_unix_s(self._next), 0.0)
        return SendProgress(
            due=self._tally.sent + (feed.count(self._next, due) if waiting else 0),
            sent=self._tally.sent,
            acknowledged=self._tally.acknowledged,
            failed=self._tally.failed,
            behind_s=behind_s,
        )
