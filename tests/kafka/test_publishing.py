"""Lines published to a real broker: confirmed before the call comes back, under their keys, in their order."""

from __future__ import annotations

import sys

import pytest
from confluent_kafka import Consumer, TopicPartition

from tidewise.core import PermanentError, TemporaryError
from tidewise.host.daemons import free_ports
from tidewise.kafka import topics
from tidewise.kafka.broker import LocalBroker
from tidewise.kafka.client import quiet_settings
from tidewise.kafka.publishing import TopicLines

pytestmark = pytest.mark.xdist_group("jobs")
LONG_S = 60.0


def read(broker: LocalBroker, topic: str) -> dict[int, list[tuple[str, str]]]:
    """By partition, what it holds."""
    held = topics.ends(broker.address, topic)
    found: dict[int, list[tuple[str, str]]] = {}
    consumer = Consumer(quiet_settings(broker.address) | {"group.id": "readers"})
    try:
        for number, reach in held.items():
            if reach.records:
                consumer.assign([TopicPartition(topic, number, reach.first)])
                messages = consumer.consume(reach.records, timeout=LONG_S)
                found[number] = [
                    ((message.key() or b"").decode(), (message.value() or b"").decode()) for message in messages
                ]
    finally:
        consumer.close()
    return found


def test_where_no_broker_answers_it_is_told_in_time_and_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(topics, "ANSWER_S", 1.0)
    (port,) = free_ports(1)
    lines = TopicLines(f"127.0.0.1:{port}", "metrics")
    for _ in range(2):
        with pytest.raises(TemporaryError, match="no Kafka broker answers"):
            lines.send([("a", "{}")])
    lines.send([])
    assert capfd.readouterr().err == ""


def test_a_missing_client_is_told_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(PermanentError, match=r"pip install 'tidewise\[kafka\]'"):
        TopicLines("127.0.0.1:1", "metrics")


def test_lines_are_there_when_the_call_comes_back_each_key_in_one_partition_and_in_order(broker: LocalBroker) -> None:
    lines = TopicLines(broker.address, "history")
    sent = [(f"job-{number % 7}", f'{{"line": {number}}}') for number in range(700)]
    lines.send(sent[:300])
    assert sum(reach.records for reach in topics.ends(broker.address, "history").values()) == 300
    lines.send(sent[300:])
    lines.close()
    found = read(broker, "history")
    assert topics.describe(broker.address)["history"] == topics.USUAL_PARTITIONS
    for job in {key for key, _ in sent}:
        of_job = [[line for line in part if line[0] == job] for part in found.values()]
        (only,) = [part for part in of_job if part]
        assert only == [line for line in sent if line[0] == job]


def test_a_topic_that_is_there_stays_as_it_is(broker: LocalBroker) -> None:
    topics.create(broker.address, "narrow", 1)
    TopicLines(broker.address, "narrow").send([("a", "{}")])
    assert topics.describe(broker.address)["narrow"] == 1


def test_a_broker_that_goes_away_is_told_and_has_the_rest_when_it_is_back(broker: LocalBroker) -> None:
    lines = TopicLines(broker.address, "interrupted", deadline_s=3.0)
    lines.send([("a", "1")])
    broker.stop()
    with pytest.raises(TemporaryError, match=r"has not confirmed 2 of 2 lines|no Kafka broker answers"):
        lines.send([("a", "2"), ("a", "3")])
    broker.start()
    lines.send([("a", "2"), ("a", "3")])
    (held,) = read(broker, "interrupted").values()
    told = [line for _, line in held]
    assert set(told) == {"1", "2", "3"}
    assert told[-2:] == ["2", "3"]


def test_a_line_that_no_broker_takes_is_refused_for_good(broker: LocalBroker) -> None:
    lines = TopicLines(broker.address, "large")
    with pytest.raises(PermanentError, match="refuses lines for the topic 'large'"):
        lines.send([("a", "x" * 20_000_000)])
    lines.send([("a", "small")])
