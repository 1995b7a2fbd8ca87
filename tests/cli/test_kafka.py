"""The broker's commands as a user meets them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from confluent_kafka import Producer

from tests.cli.conftest import Invoke
from tidewise.cli.kafka import kafka_commands
from tidewise.core import BadInputError
from tidewise.kafka.broker import LocalBroker
from tidewise.kafka.client import quiet_settings

pytestmark = pytest.mark.xdist_group("jobs")


@pytest.fixture
def run(invoke: Callable[[typer.Typer], Invoke]) -> Invoke:
    return invoke(kafka_commands)


def test_a_broker_is_started_shown_and_stopped(run: Invoke) -> None:
    try:
        told = run("up", "--topic", "clicks:4", "--topic", "counts:1")
        assert "Address:  127.0.0.1:" in told
        assert "Topics:   2\n" in told
        assert "clicks: 4 partitions, 0 records" in told
        assert "counts: 1 partition, 0 records" in told
        assert "tidewise kafka down --folder runs/kafka" in told
        shown = json.loads(run("status", "--json"))
        assert shown["address"] in told
        producer = Producer(quiet_settings(shown["address"]))
        producer.produce("clicks", b"x")
        assert producer.flush(60.0) == 0
        assert json.loads(run("status", "--json"))["topics"] == {
            "clicks": {"partitions": 4, "records": 1},
            "counts": {"partitions": 1, "records": 0},
        }
        with pytest.raises(BadInputError, match=r"runs in .* already"):
            run("up")
        broker = LocalBroker.find(Path("runs/kafka"))
        assert broker is not None
        broker.process.kill()
        with pytest.raises(BadInputError, match="does not run any more"):
            run("status")
        assert json.loads(run("down", "--json")) == {"folder": "runs/kafka", "was_running": False}
        with pytest.raises(BadInputError, match="there is no broker in runs/kafka"):
            run("down")
    finally:
        left = LocalBroker.find(Path("runs/kafka"))
        if left is not None:
            left.down()


@pytest.mark.parametrize("command", ["down", "status"])
def test_where_there_is_none_a_sentence_says_so(run: Invoke, command: str) -> None:
    with pytest.raises(BadInputError, match="there is no broker in runs/x: start one"):
        run(command, "--folder", "runs/x")


@pytest.mark.parametrize("topic", ["clicks", "clicks:", ":4", "clicks:four", "clicks:-1"])
def test_a_topic_without_its_partitions_is_told(run: Invoke, topic: str) -> None:
    with pytest.raises(BadInputError, match="write it like --topic clicks:4"):
        run("up", "--topic", topic)


def test_a_topic_with_two_numbers_is_told(run: Invoke) -> None:
    with pytest.raises(BadInputError, match="names clicks with 4 and with 5 partitions: drop one"):
        run("up", "--topic", "clicks:4", "--topic", "clicks:5")


@pytest.mark.parametrize(
    ("partitions", "told"), [("0", "1 partition or more"), ("99999999999", "100,000 partitions at")]
)
def test_a_topic_with_impossible_partitions_is_told_before_anything_starts(
    run: Invoke, monkeypatch: pytest.MonkeyPatch, partitions: str, told: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", "nowhere")  # nothing could be started anyway
    with pytest.raises(BadInputError, match=told):
        run("up", "--topic", f"clicks:{partitions}")


def test_help_teaches_by_example(run: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tidewise"])
    for command in ("up", "down", "status"):
        assert f"tidewise kafka {command}" in run(command, "--help")
