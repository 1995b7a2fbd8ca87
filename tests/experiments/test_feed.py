"""What the feeds of a job promise: records from when they say on, and what became of them, whatever happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from tests.experiments.senders import a_report
from tidewise.core import PermanentError, TemporaryError
from tidewise.experiments import feed as feed_module
from tidewise.experiments.feed import EmbeddedFeed, KafkaFeed
from tidewise.experiments.produce import Produced, Production
from tidewise.jobs.schedule import Schedule, read_schedule
from tidewise.kafka.broker import LocalBroker

NOW_S = 1_800_000_000.0
DAY = np.array([100.0, 200.0, 300.0])


def quiet_for(passed_s: float, folder: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddedFeed:
    """A feed that was started to begin 12 s later, so long after that."""
    feed = EmbeddedFeed(folder)
    monkeypatch.setattr(time, "time", lambda: NOW_S)
    feed.start(7.0, in_s=12.0)
    monkeypatch.setattr(time, "time", lambda: NOW_S + 12.0 + passed_s)
    return feed


@pytest.mark.parametrize(
    ("passed_s", "in_s", "quiet_steps"),
    [(20.0, 5.0, 25), (20.4, 5.0, 26), (0.2, 0.1, 1), (-3.0, 1.0, 1)],
    ids=["whole", "rounded up", "one step at least", "before it began"],
)
def test_the_embedded_day_begins_at_a_whole_step_and_leaves_the_past_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passed_s: float, in_s: float, quiet_steps: int
) -> None:
    feed = quiet_for(passed_s, tmp_path, monkeypatch)
    assert read_schedule(tmp_path / "schedule.json") == Schedule(began_unix_s=NOW_S + 12.0, rates_per_s=(7.0,))
    assert feed.begin_day(DAY, in_s=in_s) == pytest.approx(quiet_steps - passed_s)
    found = read_schedule(tmp_path / "schedule.json")
    assert found.began_unix_s == NOW_S + 12.0
    assert found.rates_per_s == (7.0,) * quiet_steps + (100.0, 200.0, 300.0)
    feed.end()
    assert feed.told() == []


@pytest.mark.parametrize(("passed_s", "in_s", "eve"), [(20.4, 5.0, 3), (20.0, 2.5, 2), (20.4, 0.5, 0), (-3.0, 9.0, 3)])
def test_the_embedded_day_is_led_up_to_as_far_as_that_is_still_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passed_s: float, in_s: float, eve: int
) -> None:
    feed = quiet_for(passed_s, tmp_path, monkeypatch)
    begins_in_s = feed.begin_day(DAY, in_s=in_s, eve=(11.0, 12.0, 13.0))
    rates = read_schedule(tmp_path / "schedule.json").rates_per_s
    assert rates[-3 - eve :] == (11.0, 12.0, 13.0, 100.0, 200.0, 300.0)[3 - eve :]
    assert set(rates[: -3 - eve]) == {7.0}
    assert len(rates) - 3 == pytest.approx(begins_in_s + passed_s)
    # What has been made stays as it was.
    assert len(rates) - 3 - eve >= passed_s


@dataclass(frozen=True, slots=True)
class Call:
    production: Production
    schedule: Schedule
    folder: Path
    stop: threading.Event
    stopped: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class Producer:
    """In place of `produce`: sends nothing, ends when it is stopped, and answers what it is told to."""

    answer: Callable[[Call], Produced]
    failing: Exception | None = None
    calls: list[Call] = field(default_factory=list)

    def __call__(
        self, production: Production, schedule: Schedule, *, folder: Path, began_unix_s: float, stop: threading.Event
    ) -> Produced:
        assert began_unix_s == schedule.began_unix_s
        call = Call(production, schedule, folder, stop)
        self.calls.append(call)
        if self.failing is not None:
            raise self.failing
        assert stop.wait(30.0)
        call.stopped.set()
        return self.answer(call)


def _produced(call: Call, *, failed: int = 0, lost: int = 0, silent: int = 0) -> Produced:
    report = a_report(acknowledged=1000 - failed, failed=failed)
    return Produced(
        production=call.production,
        schedule=call.schedule,
        partitions=4,
        processes=1,
        report=report,
        grew_by=report.acknowledged - lost,
        silent=silent,
        whole=False,
    )


class _Broker:
    address = "127.0.0.1:1"


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    made_up = Producer(_produced)
    monkeypatch.setattr(feed_module, "produce", made_up)
    return made_up


@pytest.fixture
def feed(tmp_path: Path) -> KafkaFeed:
    return KafkaFeed(tmp_path, cast("LocalBroker", _Broker()), job="clicks", topic="views")


def _wait_for_calls(producer: Producer, count: int) -> None:
    give_up_s = time.monotonic() + 30.0
    while len(producer.calls) < count and time.monotonic() < give_up_s:
        time.sleep(0.01)
    assert len(producer.calls) == count


def _wait_for_problem(feed: KafkaFeed) -> None:
    give_up_s = time.monotonic() + 30.0
    while feed.problem() is None and time.monotonic() < give_up_s:
        time.sleep(0.01)


def test_a_quiet_producer_gives_way_to_the_day_and_both_are_accounted_for(
    feed: KafkaFeed, producer: Producer, tmp_path: Path
) -> None:
    before_s = time.time()
    feed.start(7.0, in_s=12.0)
    _wait_for_calls(producer, 1)
    assert 0.0 < feed.begin_day(DAY, in_s=0.3) <= 0.3
    _wait_for_calls(producer, 2)
    quiet, day = producer.calls
    assert (quiet.folder, day.folder) == (tmp_path / "quiet", tmp_path / "day")
    assert set(quiet.schedule.rates_per_s) == {7.0}
    assert quiet.schedule.began_unix_s >= before_s + 12.0
    assert day.schedule.rates_per_s == (100.0, 200.0, 300.0)
    assert quiet.production.flush_s < 60.0
    assert quiet.stopped.wait(30.0), "it goes on beside the day"
    assert not day.stop.is_set()
    assert feed.problem() is None
    feed.end()
    assert feed.problem() is None
    assert day.stopped.is_set()
    assert feed.told() == ["Sent 2,000 records to views, all acknowledged."]


def test_a_producer_leads_up_to_the_day(feed: KafkaFeed, producer: Producer) -> None:
    feed.start(7.0, in_s=0.0)
    _wait_for_calls(producer, 1)
    asked_s = time.time()
    begins_in_s = feed.begin_day(DAY, in_s=2.3, eve=(11.0, 12.0, 13.0))
    _wait_for_calls(producer, 2)
    quiet, day = producer.calls
    assert day.schedule.rates_per_s == (12.0, 13.0, 100.0, 200.0, 300.0)
    assert day.schedule.began_unix_s + 2.0 == pytest.approx(asked_s + begins_in_s, abs=0.2)
    assert quiet.stopped.wait(30.0), "it goes on beside the day"
    feed.end()


@pytest.mark.parametrize(
    "error", [TemporaryError("no Kafka broker answers"), OSError(28, "No space left on device")], ids=["ours", "disk"]
)
def test_a_producer_that_fails_at_the_start_is_an_error_before_the_day(
    feed: KafkaFeed, producer: Producer, error: Exception
) -> None:
    producer.failing = error
    feed.start(7.0, in_s=0.0)
    feed.end()
    with pytest.raises(PermanentError, match=r"no records were sent to views: .*(answers|No space left on device)"):
        feed.begin_day(DAY, in_s=0.1)
    assert len(producer.calls) == 1


def test_a_producer_that_fails_later_is_told_and_the_run_is_kept(feed: KafkaFeed, producer: Producer) -> None:
    feed.start(7.0, in_s=0.0)
    _wait_for_calls(producer, 1)
    producer.failing = TemporaryError("no Kafka broker answers")
    feed.begin_day(DAY, in_s=0.05)
    _wait_for_calls(producer, 2)
    _wait_for_problem(feed)
    assert feed.problem() == "NOT all records were sent to views: no Kafka broker answers."  # the run may end now
    feed.end()
    assert feed.told() == [
        "Sent 1,000 records to views, all acknowledged.",
        "NOT all records were sent to views: no Kafka broker answers.",
    ]


def test_what_failed_or_was_lost_or_is_not_known_is_told(feed: KafkaFeed, producer: Producer) -> None:
    producer.answer = lambda call: _produced(call, failed=30, lost=4, silent=1)
    feed.start(7.0, in_s=0.0)
    feed.end()
    assert feed.told() == [
        "Sent 1,000 records to views, 30 NOT acknowledged.",
        "LOST: 4 records were acknowledged, but views did not grow by them.",
        "NOT counted: what was sent to views by a producer that gave no report.",
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"failed": 30}, "30 records were NOT acknowledged"), ({"lost": 4}, "LOST: 4 records"), ({"silent": 1}, "NOT c")],
)
def test_whatever_makes_another_load_of_it_is_a_problem(
    feed: KafkaFeed, producer: Producer, wrong: dict[str, int], said: str
) -> None:
    producer.answer = lambda call: _produced(call, **wrong)
    feed.start(7.0, in_s=0.0)
    feed.end()
    problem = feed.problem()
    assert problem is not None
    assert problem.startswith(said)


def test_a_producer_that_does_not_end_is_told(
    feed: KafkaFeed, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def answer(call: Call) -> Produced:
        assert released.wait(30.0)
        return _produced(call)

    producer.answer = answer
    monkeypatch.setattr(feed_module, "_STOPS_WITHIN_S", 0.1)
    feed.start(7.0, in_s=0.0)
    feed.end()
    assert feed.told()[-1] == "NOT counted: what was sent to views by a producer that gave no report."
    assert feed.problem() == feed.told()[-1]
    released.set()
    feed.end()
