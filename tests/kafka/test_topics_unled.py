"""A topic that was just made may not be led yet, whatever the metadata say."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from tidewise.kafka import topics


class Client:
    """Leads its one partition from the third question on."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.asked = 0

    def list_topics(self, timeout: float) -> Any:  # noqa: ANN401, ARG002 -- as the real one
        return SimpleNamespace(topics={"t": SimpleNamespace(partitions={0: None})})

    def list_offsets(self, asked: dict[Any, Any], request_timeout: float) -> dict[Any, Future[Any]]:  # noqa: ARG002 -- the same
        self.asked += 1
        answer: Future[Any] = Future()
        if self.asked < 3:
            answer.set_exception(KafkaException(KafkaError(self.code)))
        else:
            answer.set_result(SimpleNamespace(offset=7))
        return dict.fromkeys(asked, answer)


def client_of(code: int, monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client(code)

    @contextmanager
    def admin_client(_address: str) -> Iterator[Client]:
        yield client

    monkeypatch.setattr(topics, "admin_client", admin_client)
    return client


def test_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION, monkeypatch)
    assert topics.ends("h:1", "t")[0].following == 7
    assert client.asked == 4


def test_other_refusals_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED, monkeypatch)
    with pytest.raises(KafkaException):
        topics.ends("h:1", "t")
    assert client.asked == 1
