"""What producing promises: every record of the schedule once, in its partition, in order, and a report that adds up."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Consumer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from tests.experiments.senders import fork_senders
from tidewise.core import BadInputError, TemporaryError
from tidewise.experiments.job_feed import JobFeed
from tidewise.experiments.load_words import load_of
from tidewise.experiments.produce import Production, produce, schedule_of
from tidewise.jobs.records.encoding import Encoder
from tidewise.jobs.records.kinds import KINDS
from tidewise.jobs.schedule import Schedule, read_schedule
from tidewise.kafka import topics
from tidewise.kafka.broker import LocalBroker
from tidewise.kafka.sending import SendProgress
from tidewise.workload import Constant

pytestmark = pytest.mark.xdist_group("jobs")

BEGAN_S = 1_800_000_000.0


def job_feed(name: str, *, process: int, processes: int, partitions: int, at_once: bool = False) -> JobFeed:
    return JobFeed(
        schedule=Schedule(began_unix_s=BEGAN_S, rates_per_s=(1000.0,), after="stop"),
        end=1000,
        kind=KINDS[name],
        encoder=Encoder(KINDS[name], "json", seed=1),
        partitions=partitions,
        process=process,
        processes=processes,
        at_once=at_once,
    )


@given(
    st.sampled_from(["ysb", "tsw"]),
    st.integers(1, 7),
    st.integers(1, 4),
    st.lists(st.integers(0, 1000), min_size=1, max_size=4),
)
def test_the_shares_of_all_processes_are_the_whole_once_and_in_order(
    name: str, partitions: int, processes: int, cuts: list[int]
) -> None:
    processes = min(processes, partitions)
    bounds = [0, *sorted(cuts), 1000]
    seen: dict[int, list[int]] = {}
    for process in range(processes):
        feed = job_feed(name, process=process, processes=processes, partitions=partitions)
        for first, end in itertools.pairwise(bounds):
            parts = feed.parts(first, end) if end > first else []
            assert sum(len(part.values) for part in parts) == feed.count(first, end)
            for part in parts:
                assert part.partition % processes == process
                assert len(part.due_unix_s) == len(part.values)
                seen.setdefault(part.partition, []).extend(json.loads(value)["ordinal"] for value in part.values)
    assert sorted(itertools.chain(*seen.values())) == list(range(1000))
    for partition, ordinals in seen.items():
        assert ordinals == sorted(ordinals)
        assert (KINDS[name].partitions(np.array(ordinals), partitions) == partition).all()


def test_a_record_is_due_when_its_event_happened() -> None:
    feed = job_feed("ysb", process=0, processes=1, partitions=1)
    (part,) = feed.parts(10, 20)
    assert part.due_unix_s.tolist() == pytest.approx([BEGAN_S + n / 1000 for n in range(11, 21)])
    assert [json.loads(value)["event_time"] for value in part.values] == [BEGAN_S * 1000 + n for n in range(11, 21)]
    assert feed.due_unix_s(10) == part.due_unix_s[0]
    assert feed.available(BEGAN_S + 0.5) == 500


def test_at_once_everything_is_due_from_the_beginning() -> None:
    assert job_feed("ysb", process=0, processes=1, partitions=1, at_once=True).available(0.0) == 1000


def test_a_load_is_named_by_its_shape_and_settings() -> None:
    rates = load_of('square low_per_s=10 high_per_s=100 period="20s"').rates_per_s(20, 0)
    assert rates.tolist() == [10.0] * 10 + [100.0] * 10
    assert load_of("square low_per_s=10 high_per_s=100 period=20s").rates_per_s(20, 0).tolist() == rates.tolist()


def test_a_load_is_named_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "a trace.csv"
    file.write_text("time,rate\n0,10\n1,20\n2,30\n3,40\n")
    assert load_of(f"'{file}'").rates_per_s(4, 0).tolist() == [10.0, 20.0, 30.0, 40.0]
    assert load_of(f"'{file}' factor=2 between=hold").rates_per_s(4, 0).tolist() == [20.0, 40.0, 60.0, 80.0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the load is empty; write it like"),
        ("sinus mean_per_s=3", "there is no load shape 'sinus'; did you mean 'sine'"),
        ("sine 1000", "'1000' in the load .* is not a setting; write it like"),
        ("sine mean=1000", "has no setting 'mean'; did you mean 'mean_per_s'"),
        ("sine mean_per_s=1000 period=10", '10 has no unit; write it like "10s"'),
        ("'sine", "cannot be read"),
        ("nowhere.csv", "nowhere.csv"),
    ],
)
def test_a_wrong_load_is_told_with_what_to_write(text: str, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        load_of(text)


def test_a_trace_with_a_hole_is_refused_by_its_row(tmp_path: Path) -> None:
    file = tmp_path / "holes.csv"
    file.write_text("time,rate\n" + "".join(f"{n},5\n" for n in (0, 1, 2, 3, 4, 500, 501, 502)))
    with pytest.raises(BadInputError, match=r"holes\.csv, row 7: .*gap"):
        load_of(str(file))


def test_a_trace_is_followed_to_its_end_and_a_shape_needs_a_duration(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("time,rate\n0,10\n1,20\n2,30\n")
    schedule = schedule_of(load_of(str(file)), duration_s=None, seed=0, scale=2.0, began_unix_s=BEGAN_S)
    assert schedule.rates_per_s == (20.0, 40.0, 60.0)
    assert schedule.available(BEGAN_S + 100.0) == 120
    with pytest.raises(BadInputError, match=r"constant has no end of its own: say for how long \(--for 60s\)"):
        schedule_of(Constant(rate_per_s=1.0), duration_s=None, seed=0, scale=1.0, began_unix_s=BEGAN_S)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"job": "ysp"}, "there is no job 'ysp'; did you mean 'ysb'"),
        ({"encoding": "xml"}, "json or avro, not 'xml'"),
        ({"processes": 0}, "1 process or more, not 0"),
        ({"partitions": 99_999_999_999}, "100,000 partitions at most, not 99999999999"),
    ],
)
def test_a_production_that_cannot_be_is_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        Production(**{"job": "ysb", "brokers": "127.0.0.1:1", "topic": "t", **settings})  # type: ignore[arg-type] # on purpose


def flat(rate_per_s: float, seconds: int) -> Schedule:
    return schedule_of(Constant(rate_per_s=rate_per_s), duration_s=seconds, seed=0, scale=1.0, began_unix_s=BEGAN_S)


def test_a_broker_that_is_not_there_is_waited_for_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "ANSWER_S", 0.2)
    said: list[str] = []
    with pytest.raises(TemporaryError, match=r"no Kafka broker answers at 127\.0\.0\.1:1"):
        produce(Production(job="ysb", brokers="127.0.0.1:1", topic="t", wait_s=1.0), flat(10.0, 1), say=said.append)
    assert said
    assert "waiting for it" in said[0]


def test_a_folder_that_holds_an_earlier_report_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(BadInputError, match="holds what was sent before"):
        produce(Production(job="ysb", brokers="127.0.0.1:1", topic="t"), flat(10.0, 1), folder=tmp_path)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """That processes which are spawned send as well is shown once, where two of them send all."""
    fork_senders(monkeypatch)


def read_topic(address: str, topic: str, count: int) -> dict[int, list[int]]:
    """The ordinals in each partition, as they lie there."""
    reader = Consumer({"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False})
    try:
        numbers = topics.describe(address)[topic]
        reader.assign([TopicPartition(topic, number, 0) for number in range(numbers)])
        found: dict[int, list[int]] = {number: [] for number in range(numbers)}
        for message in reader.consume(count, timeout=60.0):
            value, partition = message.value(), message.partition()
            assert value is not None
            assert partition is not None
            found[partition].append(json.loads(value)["ordinal"])
        return found
    finally:
        reader.close()


def test_two_processes_send_all_and_the_report_agrees_with_the_topic(broker: LocalBroker, tmp_path: Path) -> None:
    told: list[SendProgress] = []
    production = Production(job="ysb", brokers=broker.address, topic="two", partitions=2, retry_s=60.0)
    produced = produce(production, flat(2000.0, 3), folder=tmp_path / "out", progress=told.append)
    report = produced.report
    assert (report.due, report.acknowledged, report.failed, report.unsent) == (6000, 6000, 0, 0)
    assert produced.whole
    assert produced.grew_by == 6000
    reach = topics.ends(broker.address, "two")
    assert {n: one.records for n, one in reach.items()} == {0: 3000, 1: 3000}
    assert {n: (one.first, one.last) for n, one in report.offsets.items()} == {0: (0, 2999), 1: (0, 2999)}
    assert read_topic(broker.address, "two", 6000) == {0: list(range(0, 6000, 2)), 1: list(range(1, 6000, 2))}
    assert report.acknowledged_late.total == 6000
    assert told
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (written["acknowledged"], written["topic_grew_by"], written["processes"]) == (6000, 6000, 2)
    assert read_schedule(tmp_path / "out" / "schedule.json") == produced.schedule


@pytest.mark.usefixtures("forked")
def test_at_once_sends_without_waiting_with_the_times_of_the_schedule(broker: LocalBroker) -> None:
    production = Production(
        job="tsw", brokers=broker.address, topic="fast", partitions=3, encoding="avro", at_once=True, retry_s=60.0
    )
    produced = produce(production, flat(1000.0, 3600 * 24 * 365 // 1_000_000), began_unix_s=BEGAN_S)
    assert produced.report.acknowledged == produced.grew_by == 31_000
    assert produced.schedule.began_unix_s == BEGAN_S
    assert produced.as_json()["sent_late"] is None
    assert produced.processes == 2


def test_a_topic_that_is_missing_or_another_is_told(broker: LocalBroker) -> None:
    topics.create(broker.address, "known", 2)
    with pytest.raises(BadInputError, match=r"no topic 'knwn' at .* did you mean 'known'.*--partitions"):
        produce(Production(job="ysb", brokers=broker.address, topic="knwn"), flat(10.0, 1))
    with pytest.raises(BadInputError, match="'known' has 2 partitions already, not 3"):
        produce(Production(job="ysb", brokers=broker.address, topic="known", partitions=3), flat(10.0, 1))


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("by_signal", [True, False])
def test_stopped_in_the_middle_it_still_reports(broker: LocalBroker, by_signal: bool) -> None:
    stop, asked = threading.Event(), threading.Event()

    def interrupt(step: SendProgress) -> None:
        if step.acknowledged > 0 and not asked.is_set():
            asked.set()
            if by_signal:
                os.kill(os.getpid(), signal.SIGINT)
            else:
                stop.set()

    production = Production(job="ysb", brokers=broker.address, topic=f"stopped-{by_signal}", partitions=2, retry_s=60.0)
    produced = produce(production, flat(500.0, 300), progress=interrupt, stop=stop)
    assert not produced.whole
    assert 0 < produced.report.acknowledged < 150_000
    assert produced.grew_by == produced.report.acknowledged
    assert produced.report.due == produced.report.acknowledged + produced.report.unsent


@pytest.mark.usefixtures("forked")
def test_a_broker_that_restarts_in_the_middle_gets_everything_once(broker: LocalBroker) -> None:
    restarted = threading.Event()

    def restart(step: SendProgress) -> None:
        if step.acknowledged > 0 and not restarted.is_set():
            restarted.set()
            broker.stop()
            broker.start()

    production = Production(job="ysb", brokers=broker.address, topic="restarted", partitions=2, retry_s=120.0)
    produced = produce(production, flat(1000.0, 8), progress=restart)
    assert restarted.is_set()
    assert (produced.report.acknowledged, produced.report.failed) == (8000, 0)
    assert read_topic(broker.address, "restarted", 8000) == {0: list(range(0, 8000, 2)), 1: list(range(1, 8000, 2))}
