"""What waits behind committed offsets, on a real broker: counted by partition, aged by record, and nothing hidden."""

from __future__ import annotations

import time

import confluent_kafka
import confluent_kafka.admin
import pytest

from tidewise.core import BadInputError, TemporaryError
from tidewise.host.daemons import free_ports
from tidewise.kafka import topics
from tidewise.kafka.broker import LocalBroker
from tidewise.kafka.lag import Lag, PartitionLag, lag

pytestmark = pytest.mark.xdist_group("jobs")


@pytest.fixture
def address(broker: LocalBroker) -> str:
    return broker.address


def _send(address: str, topic: str, records: dict[int, int], *, ago_s: float = 0.0) -> None:
    """So many records to each partition, as if they had been sent a while ago."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 50})
    stamp_ms = int(1000 * (time.time() - ago_s))
    for partition, count in records.items():
        for number in range(count):
            producer.produce(topic, value=f"{number}", partition=partition, timestamp=stamp_ms)
    assert producer.flush(30.0) == 0


def _by_partition(found: Lag) -> dict[tuple[str, int], PartitionLag]:
    return {(one.topic, one.partition): one for one in found.partitions}


def test_records_and_seconds_are_those_of_each_partition(address: str) -> None:
    topics.create(address, "orders", 3)
    topics.create(address, "refunds", 1)
    _send(address, "orders", {0: 10, 1: 5}, ago_s=100.0)
    _send(address, "orders", {0: 7, 1: 300}, ago_s=30.0)
    found = lag({"orders": {0: 10, 1: 2, 2: 0}, "refunds": {0: 0}}, address)
    ours = _by_partition(found)
    assert {key: one.records for key, one in ours.items()} == {
        ("orders", 0): 7,
        ("orders", 1): 303,
        ("orders", 2): 0,
        ("refunds", 0): 0,
    }
    assert ours["orders", 0].oldest_s == pytest.approx(30.0, abs=20.0)
    assert ours["orders", 1].oldest_s == pytest.approx(100.0, abs=20.0)
    assert ours["orders", 2].oldest_s is None
    assert (found.records, found.lost, found.oldest_s) == (310, 0, ours["orders", 1].oldest_s)
    assert (found.partitions[0].topic, found.partitions[0].partition) == ("orders", 1), "the worst comes first"


def test_a_partition_that_was_added_since_waits_from_its_first_record(address: str) -> None:
    topics.create(address, "grown", 2)
    _send(address, "grown", {0: 4, 1: 6})
    (new,) = (one for one in lag({"grown": {0: 4}}, address).partitions if one.partition == 1)
    assert (new.committed, new.records, new.lost, new.is_anew) == (None, 6, 0, False)


def test_what_was_deleted_before_it_was_read_is_lost(address: str) -> None:
    topics.create(address, "short", 1)
    _send(address, "short", {0: 20})
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
    for done in admin.delete_records([confluent_kafka.TopicPartition("short", 0, 15)]).values():
        done.result()
    found = lag({"short": {0: 12}}, address)
    assert (found.lost, found.records) == (3, 5)
    assert lag({"short": {0: 16}}, address).lost == 0


def test_a_topic_made_anew_is_noticed_where_it_has_less_than_was_committed(address: str) -> None:
    topics.create(address, "again", 2)
    _send(address, "again", {0: 9})
    topics.delete(address, "again")
    topics.create(address, "again", 1)
    _send(address, "again", {0: 4})
    ours = _by_partition(lag({"again": {0: 9, 1: 1}}, address))
    assert (ours["again", 0].is_anew, ours["again", 0].records, ours["again", 0].lost) == (True, 4, 0)
    assert (ours["again", 1].is_anew, ours["again", 1].records) == (True, 0), "a partition that is gone"


def test_offsets_that_hold_no_record_have_no_age_and_take_no_time(address: str) -> None:
    topics.create(address, "sure", 1)
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": "sure"})
    producer.init_transactions(30.0)
    producer.begin_transaction()
    producer.produce("sure", value="1", partition=0)
    producer.commit_transaction(30.0)
    _wait_for_marker(address, "sure", after=1)
    began_s = time.monotonic()
    (one,) = lag({"sure": {0: 1}}, address, deadline_s=30.0).partitions
    assert (one.records, one.oldest_s) == (1, None), "the marker of the transaction is an offset"
    assert time.monotonic() - began_s < 15.0


def _wait_for_marker(address: str, topic: str, *, after: int) -> None:
    """A commit is final before its marker is in the topic."""
    until_s = time.monotonic() + 30.0
    while topics.ends(address, topic)[0].following <= after:
        assert time.monotonic() < until_s, "no marker came"
        time.sleep(0.05)


def test_nothing_is_left_on_the_broker(address: str) -> None:
    topics.create(address, "seen", 1)
    _send(address, "seen", {0: 3})
    before = _groups(address)
    lag({"seen": {0: 0}}, address)
    assert _groups(address) == before


def _groups(address: str) -> set[str]:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
    return {one.group_id for one in admin.list_consumer_groups(request_timeout=10.0).result().valid}


def test_an_unknown_topic_is_named(address: str) -> None:
    with pytest.raises(BadInputError, match="no topic 'ordres'"):
        lag({"ordres": {0: 1}}, address)


def test_a_broker_that_does_not_answer_is_for_later() -> None:
    (port,) = free_ports(1)
    with pytest.raises(TemporaryError, match=f"127.0.0.1:{port}"):
        lag({"orders": {0: 1}}, f"127.0.0.1:{port}", deadline_s=1.0)
