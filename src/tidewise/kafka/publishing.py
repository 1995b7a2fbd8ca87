"""Publishes lines to a topic, each under its key, and comes back when the broker has them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from tidewise.core import PermanentError, TemporaryError
from tidewise.kafka import topics
from tidewise.kafka.client import kafka_client, quiet_settings

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

DEADLINE_S = 30.0
_GRACE_S = 5.0
"""The client tells of a message that has run out of time a little later."""
_FULL_S = 0.05


class _Producer(Protocol):
    """What is used of the client's producer."""

    def produce(
        self,
        topic: str,
        *,
        key: bytes,
        value: bytes,
        on_delivery: Callable[[KafkaError | None, Message], None],
    ) -> None:
        """Take a message; BufferError where there is no room now."""

    def poll(self, timeout: float) -> int: ...
    def flush(self, timeout: float) -> int: ...
    def purge(self) -> None: ...


class TopicLines:
    """Lines for one topic, which is made where it is missing; what the broker has had to confirm is in all its copies.

    The lines of one key keep their order. A line that was sent may come twice where a send failed, never where it did
    not.
    """

    gather_s = 1.0
    """How long lines are worth gathering."""
    most_lines = 5_000

    def __init__(self, address: str, topic: str, *, deadline_s: float = DEADLINE_S) -> None:
        """BadInputError where the client is not installed; nobody is asked anything yet."""
        self.address = address
        self.topic = topic
        self._deadline_s = deadline_s
        self._kafka = kafka_client()
        self._producer: _Producer | None = None

    def send(self, lines: Sequence[tuple[str, str]]) -> None:
        """Send lines, each given with its key, and wait until the broker has confirmed them.

        TemporaryError: the broker is away or did not confirm all of them in time; the same call may succeed later.
        PermanentError: it refuses them.
        """
        if not lines:
            return
        producer = self._producer or self._begin()
        problems: list[KafkaError] = []
        confirmed = 0

        def delivered(error: KafkaError | None, _message: Message) -> None:
            nonlocal confirmed
            if error is None:
                confirmed += 1
            else:
                problems.append(error)

        until_s = time.monotonic() + self._deadline_s
        for key, line in lines:
            if not self._offer(producer, key, line, delivered, until_s=until_s):
                break
        left = producer.flush(max(0.0, until_s - time.monotonic()) + _GRACE_S)
        if problems or left or confirmed < len(lines):
            # With its messages: whatever of them is still on its way comes twice at worst.
            producer.purge()
            producer.flush(0.0)
            self._producer = None
            raise self._problem(problems, unconfirmed=len(lines) - confirmed, of=len(lines))

    def close(self) -> None:
        """Let go of the broker; all that was sent is confirmed."""
        self._producer = None

    def _begin(self) -> _Producer:
        topics.ensure(self.address, self.topic)
        settings = {
            **quiet_settings(self.address),
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": "lz4",
            "message.timeout.ms": round(1000 * self._deadline_s),
            "reconnect.backoff.max.ms": 1000,
            # As other clients spread keys, so that all agree where a job is.
            "partitioner": "murmur2_random",
        }
        self._producer = cast("_Producer", self._kafka.Producer(settings))
        return self._producer

    def _offer(
        self,
        producer: _Producer,
        key: str,
        line: str,
        delivered: Callable[[KafkaError | None, Message], None],
        *,
        until_s: float,
    ) -> bool:
        """Hand a line to the client; whether it had room in time."""
        while True:
            try:
                producer.produce(self.topic, key=key.encode(), value=line.encode(), on_delivery=delivered)
            except BufferError:
                if time.monotonic() >= until_s:
                    return False
                producer.poll(_FULL_S)
            except self._kafka.KafkaException as error:
                told: KafkaError = error.args[0]
                self._producer = None
                raise self._problem([told], unconfirmed=1, of=1) from error
            else:
                producer.poll(0.0)
                return True

    def _problem(self, problems: Sequence[KafkaError], *, unconfirmed: int, of: int) -> Exception:
        lasting = [one for one in problems if not self._may_pass(one)]
        if lasting:
            return PermanentError(
                f"the Kafka broker at {self.address} refuses lines for the topic {self.topic!r}: {lasting[0].str()}"
            )
        said = f" ({problems[0].str()})" if problems else ""
        return TemporaryError(
            f"the Kafka broker at {self.address} has not confirmed {unconfirmed} of {of} lines for the topic "
            f"{self.topic!r} within {self._deadline_s:g} s{said}"
        )

    def _may_pass(self, error: KafkaError) -> bool:
        kafka_error = self._kafka.KafkaError
        passing = {
            kafka_error._MSG_TIMED_OUT,  # noqa: SLF001 - how the client spells its own, not the broker's, errors
            kafka_error._TIMED_OUT,  # noqa: SLF001 - the same
            kafka_error._TRANSPORT,  # noqa: SLF001 - the same
            kafka_error._ALL_BROKERS_DOWN,  # noqa: SLF001 - the same
            kafka_error._UNKNOWN_TOPIC,  # noqa: SLF001 - the same; the topic is made again
            kafka_error._UNKNOWN_PARTITION,  # noqa: SLF001 - the same
            kafka_error._PURGE_QUEUE,  # noqa: SLF001 - the same
            kafka_error._PURGE_INFLIGHT,  # noqa: SLF001 - the same
            kafka_error.UNKNOWN_TOPIC_OR_PART,
        }
        return error.retriable() or error.code() in passing
