"""Topics of a broker: made, listed, removed, and how far their partitions reach."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidewise.core import BadInputError, TemporaryError
from tidewise.core.readers import did_you_mean
from tidewise.host.processes import wait_until
from tidewise.kafka.client import ANSWER_S, admin_client, kafka_client

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._listoffsets import OffsetSpec
    from confluent_kafka.admin._metadata import ClusterMetadata

_POLL_S = 0.05
USUAL_PARTITIONS = 4
"""Of a topic that is made because it is missing."""
MOST_PARTITIONS = 100_000
"""More than one broker can keep; a number far beyond it is a slip of the hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What a partition holds: from its first offset on, up to the one that comes next."""

    first: int
    following: int

    @property
    def records(self) -> int:
        """How many offsets lie between; a transaction's marker takes one as well."""
        return self.following - self.first


def check_partitions(name: str, partitions: int) -> None:
    """BadInputError where no topic can have so many."""
    if not 1 <= partitions <= MOST_PARTITIONS:
        told = "1 partition or more" if partitions < 1 else f"{MOST_PARTITIONS:,} partitions at most"
        raise BadInputError(f"a topic has {told}, not {partitions}: correct that of {name!r}")


def create(address: str, name: str, partitions: int) -> None:
    """Make a topic and wait until it can be used; one that is there already, with as many partitions, is fine."""
    check_partitions(name, partitions)
    kafka = kafka_client()
    with admin_client(address) as client:
        try:
            wanted = kafka.admin.NewTopic(name, num_partitions=partitions, replication_factor=1)
            client.create_topics([wanted], request_timeout=ANSWER_S)[name].result()
        except kafka.KafkaException as error:
            code = error.args[0].code()
            if code == kafka.KafkaError.TOPIC_EXCEPTION:
                raise BadInputError(f"{name!r} cannot be the name of a topic: {error.args[0].str()}") from error
            if code != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        if not wait_until(lambda: _is_led(client, name), deadline_s=ANSWER_S, poll_s=_POLL_S):
            raise TemporaryError(f"the topic {name!r} has no leader after {ANSWER_S:g} s at {address}: try again")
        there = len(_metadata(client).topics[name].partitions)
    if there != partitions:
        raise BadInputError(
            f"the topic {name!r} has {there} partitions already, not {partitions}: ask for {there}, name another "
            f"topic, or delete this one first"
        )


def ensure(address: str, *names: str) -> None:
    """Make those of these topics that are missing, with a few partitions; the others stay as they are."""
    there = describe(address)
    for name in names:
        if name not in there:
            create(address, name, USUAL_PARTITIONS)


def describe(address: str) -> dict[str, int]:
    """All topics with their number of partitions, but for the broker's own."""
    with admin_client(address) as client:
        return _partitions(_metadata(client))


def delete(address: str, name: str) -> None:
    """Remove a topic with all that it holds, and wait until it is gone."""
    with admin_client(address) as client:
        _check_known(client, address, name)
        client.delete_topics([name], request_timeout=ANSWER_S)[name].result()
        if not wait_until(lambda: name not in _metadata(client).topics, deadline_s=ANSWER_S, poll_s=_POLL_S):
            raise TemporaryError(f"the topic {name!r} is still there after {ANSWER_S:g} s at {address}: try again")


def ends(address: str, topic: str) -> dict[int, Reach]:
    """Where each partition of a topic begins and ends now."""
    kafka = kafka_client()
    unled = {
        kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
        kafka.KafkaError.LEADER_NOT_AVAILABLE,
        kafka.KafkaError.UNKNOWN_LEADER_EPOCH,
    }
    with admin_client(address) as client:
        partitions = range(_check_known(client, address, topic))

        def offsets(end: OffsetSpec) -> dict[int, int]:
            asked = {kafka.TopicPartition(topic, number): end for number in partitions}
            until_s = time.monotonic() + ANSWER_S
            while True:
                told = client.list_offsets(asked, request_timeout=ANSWER_S)
                try:
                    return {one.partition: answer.result().offset for one, answer in told.items()}
                except kafka.KafkaException as error:
                    # A topic that was just made is led by word of the metadata before its leader knows of it.
                    if error.args[0].code() not in unled or time.monotonic() >= until_s:
                        raise
                time.sleep(_POLL_S)

        # The beginning first: it only grows, as the end does, so that no partition holds less than nothing.
        first = offsets(kafka.admin.OffsetSpec.earliest())
        following = offsets(kafka.admin.OffsetSpec.latest())
    return {number: Reach(first=first[number], following=following[number]) for number in partitions}


def is_ready(address: str, *, cluster_id: str, timeout_s: float) -> bool:
    """Whether the broker of this very cluster answers here and leads all partitions."""
    try:
        with admin_client(address) as client:
            told = client.list_topics(timeout=timeout_s)
    except TemporaryError:
        return False
    led = all(part.leader in told.brokers for topic in told.topics.values() for part in topic.partitions.values())
    return bool(told.brokers) and led and told.cluster_id == cluster_id


def _check_known(client: AdminClient, address: str, name: str) -> int:
    """How many partitions the topic has; BadInputError where there is no such topic."""
    known = _partitions(_metadata(client))
    if name not in known:
        raise BadInputError(f"there is no topic {name!r} at {address}{did_you_mean(name, sorted(known))}")
    return known[name]


def _is_led(client: AdminClient, name: str) -> bool:
    told = _metadata(client)
    topic = told.topics.get(name)
    leaders = [] if topic is None else [part.leader for part in topic.partitions.values()]
    return bool(leaders) and all(leader in told.brokers for leader in leaders)


def _metadata(client: AdminClient) -> ClusterMetadata:
    return client.list_topics(timeout=ANSWER_S)


def _partitions(told: ClusterMetadata) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in told.topics.items() if not name.startswith("__")}
