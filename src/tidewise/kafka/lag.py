"""What waits behind offsets that somebody else committed: Spark writes them into its checkpoint, and none to Kafka."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidewise.kafka.client import ANSWER_S, kafka_client, quiet_settings
from tidewise.kafka.topics import Reach, ends

if TYPE_CHECKING:
    from confluent_kafka import Message

_POLL_S = 0.2
_AT_ONCE = 500
_FETCH_BYTES = 1024
"""Of each partition one record is wanted; a broker sends one whole batch however small this is."""

_Key = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """One partition. Offsets stand for records: a compacted or transactional topic holds fewer."""

    topic: str
    partition: int
    committed: int | None
    """None: nothing of it was committed; it is new, and will be read from its first record."""
    first: int
    """The oldest offset that is still there."""
    following: int
    """The offset that the next record gets."""
    oldest_s: float | None
    """Age of the oldest record that is not committed, by its timestamp; None where none waits, or none could be read
    in time."""

    @property
    def records(self) -> int:
        """What is there and not committed."""
        start = self.first if self.committed is None or self.is_anew else max(self.committed, self.first)
        return self.following - start

    @property
    def lost(self) -> int:
        """What was deleted before it was read, by the topic's retention."""
        return 0 if self.committed is None else max(0, self.first - self.committed)

    @property
    def is_anew(self) -> bool:
        """More was committed than there ever was: the topic was deleted and made anew, or it is another broker's."""
        return self.committed is not None and self.committed > self.following


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """All partitions of the topics, the worst first."""

    partitions: tuple[PartitionLag, ...]

    @property
    def records(self) -> int:
        return sum(one.records for one in self.partitions)

    @property
    def lost(self) -> int:
        return sum(one.lost for one in self.partitions)

    @property
    def oldest_s(self) -> float | None:
        """Age of the oldest record that is not committed; None where none waits, or none could be read in time."""
        return max((one.oldest_s for one in self.partitions if one.oldest_s is not None), default=None)


def lag(committed: Mapping[str, Mapping[int, int]], address: str, *, deadline_s: float = ANSWER_S) -> Lag:
    """What waits behind these offsets, by topic and partition; each is the next one to read.

    Reads at most one batch of records per partition, and leaves nothing on the broker. TemporaryError where no broker
    answers, BadInputError where a topic is not there.
    """
    reaches = {(topic, number): one for topic in committed for number, one in ends(address, topic).items()}
    now = {
        key: PartitionLag(
            topic=key[0],
            partition=key[1],
            committed=committed[key[0]].get(key[1]),
            first=reach.first,
            following=reach.following,
            oldest_s=None,
        )
        for key, reach in (reaches | _gone(committed, reaches)).items()
    }
    starts = {key: one.following - one.records for key, one in now.items() if one.records > 0}
    ages = _ages_s(starts, address, deadline_s=deadline_s) if starts else {}
    told = (replace(one, oldest_s=ages.get(key)) for key, one in now.items())
    worst_first = sorted(told, key=lambda one: (-one.lost, not one.is_anew, -(one.oldest_s or 0.0), -one.records))
    return Lag(partitions=tuple(worst_first))


def _gone(committed: Mapping[str, Mapping[int, int]], reaches: Mapping[_Key, Reach]) -> dict[_Key, Reach]:
    """Partitions that were read and are not there any more: the topic was made anew with fewer."""
    read = {(topic, number) for topic, partitions in committed.items() for number in partitions}
    return {key: Reach(first=0, following=0) for key in read - reaches.keys()}


def _ages_s(starts: Mapping[_Key, int], address: str, *, deadline_s: float) -> dict[_Key, float]:
    """The age of the first record from each of these offsets on; without those that none came from in time."""
    kafka = kafka_client()
    consumer = kafka.Consumer(
        {
            **quiet_settings(address),
            # The client asks for a name; one that is assigned its partitions joins no group, and commits nothing.
            "group.id": "tidewise-lag",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": _FETCH_BYTES,
            "queued.min.messages": 1,
        }
    )
    until_s = time.monotonic() + deadline_s
    wanted, ages = set(starts), {}
    try:
        consumer.assign([kafka.TopicPartition(topic, number, at) for (topic, number), at in starts.items()])
        while wanted and time.monotonic() < until_s:
            for message in consumer.consume(_AT_ONCE, timeout=_POLL_S):
                key = (message.topic(), message.partition())
                if key not in wanted or not _is_answer(message):
                    continue
                wanted.discard(key)
                consumer.pause([kafka.TopicPartition(*key)])
                kind, stamp_ms = message.timestamp()
                if message.error() is None and kind != kafka.TIMESTAMP_NOT_AVAILABLE:
                    ages[key] = max(0.0, time.time() - stamp_ms / 1000.0)
    finally:
        consumer.close()
    return ages


def _is_answer(message: Message) -> bool:
    """Whether it is a record, or says that the partition holds none; other errors mend themselves, or time runs out."""
    error = message.error()
    return error is None or error.code() == kafka_client().KafkaError._PARTITION_EOF  # noqa: SLF001 - how the client spells its own codes
