"""What the open loop promises, on a broker that is slow, full, failing, silent or out of order, in made-up time."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import BadInputError
from tidewise.kafka import sending
from tidewise.kafka.sending import OnDelivery, Part, Sender, SendProgress, SendReport, kafka_producer

RATE_PER_S = 1000


@dataclass
class Clock:
    """Time that passes only where somebody waits."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class EvenFeed:
    """A thousand ordinals a second from the clock's start on, in turn to two partitions of which both are ours."""

    end: int = 5000
    began_s: float = 1000.0
    encoded: list[tuple[int, int]] = field(default_factory=list)

    def available(self, unix_s: float) -> int:
        return int((unix_s - self.began_s) * RATE_PER_S)

    def due_unix_s(self, ordinal: int) -> float:
        return self.began_s + (ordinal + 1) / RATE_PER_S

    def count(self, first: int, end: int) -> int:
        return end - first

    def parts(self, first: int, end: int) -> Sequence[Part]:
        self.encoded.append((first, end))
        return [
            Part(
                partition=partition,
                values=[b"%d" % n for n in range(first, end) if n % 2 == partition],
                due_unix_s=np.array([self.due_unix_s(n) for n in range(first, end) if n % 2 == partition]),
            )
            for partition in (0, 1)
        ]


@dataclass
class FakeMessage:
    at: int

    def offset(self) -> int:
        return self.at


@dataclass
class FakeProducer:
    """The client and its broker: takes `room` messages, answers each after `delay_s`."""

    clock: Clock
    delay_s: float = 0.01
    room: int = 10**9
    down: Callable[[float], bool] = lambda _now_s: False
    fails: Callable[[bytes], bool] = lambda _value: False
    too_large: Callable[[bytes], bool] = lambda _value: False
    reversed_answers: bool = False
    purges: bool = True
    held: dict[int, list[bytes]] = field(default_factory=lambda: {0: [], 1: []})
    waiting: deque[tuple[float, int, bytes, OnDelivery]] = field(default_factory=deque)

    def produce_batch(
        self, topic: str, messages: list[dict[str, object]], partition: int, *, on_delivery: OnDelivery
    ) -> int:
        assert topic == "t"
        taken, full = 0, False
        for message in messages:
            value = message["value"]
            assert isinstance(value, bytes)
            full = full or len(self.waiting) >= self.room
            if full:
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
            elif self.too_large(value):
                message["_error"] = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
            else:
                taken += 1
                self.waiting.append((self.clock() + self.delay_s, partition, value, on_delivery))
        return taken

    def poll(self, timeout: float) -> int:
        if timeout > 0.0:
            self.clock.sleep(timeout)
        if self.down(self.clock()):
            return 0
        ready = []
        while self.waiting and self.waiting[0][0] <= self.clock():
            ready.append(self.waiting.popleft())
        answers: list[tuple[OnDelivery, KafkaError | None, FakeMessage]] = []
        for _, partition, value, on_delivery in ready:
            if self.fails(value):
                answers.append((on_delivery, KafkaError(KafkaError._MSG_TIMED_OUT), FakeMessage(-1001)))
            else:
                self.held[partition].append(value)
                answers.append((on_delivery, None, FakeMessage(len(self.held[partition]) - 1)))
        for on_delivery, error, message in reversed(answers) if self.reversed_answers else answers:
            on_delivery(error, cast("Message", message))
        return len(answers)

    def flush(self, timeout: float) -> int:
        end_s = self.clock() + timeout
        while self.waiting and self.clock() < end_s:
            self.poll(min(0.01, max(end_s - self.clock(), 1e-6)))
        return len(self.waiting)

    def purge(self) -> None:
        if self.purges:
            answers, self.waiting = list(self.waiting), deque()
            for _, _, _, on_delivery in answers:
                on_delivery(KafkaError(KafkaError._PURGE_QUEUE), cast("Message", FakeMessage(-1001)))


def run(
    producer: FakeProducer,
    feed: EvenFeed | None = None,
    *,
    stop: Callable[[], bool] = lambda: False,
    told: list[SendProgress] | None = None,
    flush_s: float = 60.0,
) -> SendReport:
    clock = producer.clock
    progress = [] if told is None else told
    sender = Sender(producer, topic="t", clock=clock, sleep=clock.sleep)
    report = sender.run(feed or EvenFeed(), stop=stop, progress=progress.append, flush_s=flush_s)
    assert report.due == report.acknowledged + report.failed + report.unsent
    assert report.sent == report.acknowledged + report.failed
    assert sum(report.problems.values()) == report.failed
    return report


def numbers(producer: FakeProducer, partition: int) -> list[int]:
    return [int(value) for value in producer.held[partition]]


def assert_in_order_and_whole(producer: FakeProducer, end: int = 5000) -> None:
    assert numbers(producer, 0) == list(range(0, end, 2))
    assert numbers(producer, 1) == list(range(1, end, 2))


def test_everything_is_sent_by_the_clock_and_in_order() -> None:
    producer = FakeProducer(Clock())
    report = run(producer)
    assert_in_order_and_whole(producer)
    assert (report.due, report.acknowledged, report.failed, report.unsent) == (5000, 5000, 0, 0)
    assert 5.0 <= report.seconds < 5.2
    assert report.sent_late.worst_s < 0.02
    assert 0.01 <= report.acknowledged_late.worst_s < 0.04
    assert {number: (found.first, found.last) for number, found in report.offsets.items()} == {
        0: (0, 2499),
        1: (0, 2499),
    }


def test_nothing_is_sent_before_it_is_due() -> None:
    clock = Clock()
    producer, feed = FakeProducer(clock), EvenFeed(end=100, began_s=clock.now_s + 3.0)
    report = run(producer, feed)
    assert 3.1 <= report.seconds < 3.2
    assert all(end <= feed.available(clock.now_s) for _, end in feed.encoded)


def test_a_slow_broker_does_not_slow_the_clock_down() -> None:
    producer = FakeProducer(Clock(), delay_s=2.0)
    report = run(producer)
    assert_in_order_and_whole(producer)
    assert report.sent_late.worst_s < 0.02
    assert 2.0 <= report.acknowledged_late.worst_s < 2.1
    assert report.seconds < 7.2


def test_what_has_no_room_waits_as_numbers_and_is_sent_late_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_MOST_ON_THEIR_WAY", 100)
    producer, feed = FakeProducer(Clock(), delay_s=0.2), EvenFeed(end=2000)
    most = 0
    deliver = producer.produce_batch

    def counting(topic: str, messages: list[dict[str, object]], partition: int, *, on_delivery: OnDelivery) -> int:
        nonlocal most
        taken = deliver(topic, messages, partition, on_delivery=on_delivery)
        most = max(most, len(producer.waiting))
        return taken

    monkeypatch.setattr(sending, "_MOST_AT_ONCE", 50)
    monkeypatch.setattr(producer, "produce_batch", counting)
    report = run(producer, feed)
    assert_in_order_and_whole(producer, 2000)
    assert most < 150
    assert report.sent_late.worst_s > 1.0
    assert report.acknowledged == 2000


def test_a_client_that_is_full_is_asked_again_and_order_is_kept() -> None:
    producer = FakeProducer(Clock(), delay_s=0.05, room=30)
    report = run(producer, EvenFeed(end=2000))
    assert_in_order_and_whole(producer, 2000)
    assert report.acknowledged == 2000


def test_a_broker_that_is_down_for_a_while_gets_everything_afterwards() -> None:
    clock, told = Clock(), list[SendProgress]()
    producer = FakeProducer(clock, down=lambda now_s: 1001.0 <= now_s < 1004.0)
    report = run(producer, told=told)
    assert_in_order_and_whole(producer)
    assert report.acknowledged == 5000
    assert 2.9 < report.acknowledged_late.worst_s < 3.2
    assert max(step.sent - step.acknowledged for step in told) > 1500


def test_failed_records_are_counted_with_their_reason() -> None:
    producer = FakeProducer(Clock(), fails=lambda value: value.endswith(b"00"))
    report = run(producer)
    assert (report.acknowledged, report.failed) == (4951, 49)
    assert report.problems == {"Local: Message timed out": 49}


def test_records_that_the_client_refuses_are_counted_and_the_others_sent() -> None:
    producer = FakeProducer(Clock(), too_large=lambda value: value == b"7")
    report = run(producer)
    assert (report.acknowledged, report.failed) == (4999, 1)
    assert report.problems == {"Broker: Message size too large": 1}


def test_answers_in_any_order_are_all_counted() -> None:
    producer = FakeProducer(Clock(), reversed_answers=True, fails=lambda value: value.endswith(b"3"))
    report = run(producer)
    assert (report.acknowledged, report.failed) == (4500, 500)


def test_whoever_stops_it_learns_what_was_not_sent() -> None:
    clock = Clock()
    producer = FakeProducer(clock, delay_s=0.1)
    report = run(producer, stop=lambda: clock.now_s > 1002.0)
    assert 1990 <= report.acknowledged <= 2010
    assert report.unsent < 10
    assert report.due == producer_total(producer) + report.unsent


def producer_total(producer: FakeProducer) -> int:
    return sum(map(len, producer.held.values()))


def test_what_waited_for_room_when_it_was_stopped_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_MOST_ON_THEIR_WAY", 100)
    clock = Clock()
    producer = FakeProducer(clock, down=lambda now_s: now_s < 1010.0)
    report = run(producer, stop=lambda: clock.now_s > 1003.0)
    assert report.due == pytest.approx(3000, abs=20)
    assert report.unsent == report.due - report.acknowledged
    assert 100 <= report.acknowledged < 200


@pytest.mark.parametrize("purges", [True, False])
def test_a_broker_that_never_answers_is_given_up_at_the_deadline(purges: bool) -> None:
    clock = Clock()
    producer = FakeProducer(clock, down=lambda _: True, purges=purges)
    report = run(producer, flush_s=5.0)
    assert (report.acknowledged, report.failed) == (0, 5000)
    assert report.seconds < 16.0
    assert report.offsets == {}


def test_progress_is_told_every_second() -> None:
    told: list[SendProgress] = []
    run(FakeProducer(Clock()), told=told)
    assert 4 <= len(told) <= 6
    assert [step.sent for step in told] == pytest.approx([1000 * n for n in range(1, len(told) + 1)], abs=150)
    assert all(step.behind_s < 0.1 for step in told)


def test_how_far_it_is_behind_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_MOST_ON_THEIR_WAY", 100)
    told: list[SendProgress] = []
    run(FakeProducer(Clock(), down=lambda now_s: now_s < 1004.0), told=told)
    assert told[2].behind_s == pytest.approx(3.0, abs=0.2)
    assert told[2].due == pytest.approx(3000, abs=100)


@given(
    st.floats(0.0, 1.0),
    st.integers(1, 500),
    st.integers(2, 9),
    st.floats(0.0, 3.0),
)
def test_nothing_is_ever_lost_unseen(delay_s: float, room: int, modulus: int, stop_after_s: float) -> None:
    clock = Clock()
    producer = FakeProducer(clock, delay_s=delay_s, room=room, fails=lambda value: int(value) % modulus == 1)
    report = run(producer, EvenFeed(end=1500), stop=lambda: clock.now_s > 1000.0 + stop_after_s)
    assert report.acknowledged == producer_total(producer)
    for partition in (0, 1):
        assert numbers(producer, partition) == sorted(numbers(producer, partition))


def test_reports_of_several_processes_add_up() -> None:
    first, second = run(FakeProducer(Clock())), run(FakeProducer(Clock(), fails=lambda value: value == b"9"))
    both = SendReport.together([first, second])
    assert (both.due, both.acknowledged, both.failed) == (10_000, 9_999, 1)
    assert both.problems == {"Local: Message timed out": 1}
    assert both.acknowledged_late.total == 9_999


def test_a_missing_client_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(BadInputError, match=r"pip install 'tidewise\[kafka\]'"):
        kafka_producer("127.0.0.1:1")
