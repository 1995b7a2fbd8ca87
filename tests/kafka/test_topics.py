"""What topics answer where there is no broker, or no client."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidewise.core import BadInputError, TemporaryError
from tidewise.host.daemons import free_ports
from tidewise.kafka import client, topics


@pytest.mark.parametrize("call", ["describe", "create", "delete", "ends"])
def test_where_no_broker_answers_a_sentence_says_how_to_start_one(
    call: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(topics, "ANSWER_S", 1.0)
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    arguments: tuple[object, ...] = {"describe": (), "create": ("a", 1)}.get(call, ("a",))
    with pytest.raises(TemporaryError, match=rf"no Kafka broker answers at {address}: start one \(tidewise kafka up\)"):
        getattr(topics, call)(address, *arguments)
    assert capfd.readouterr().err == "", "the client writes to standard error by itself unless it is kept from it"


def test_nobody_is_ready_where_nobody_listens() -> None:
    (port,) = free_ports(1)
    assert topics.is_ready(f"127.0.0.1:{port}", cluster_id="x", timeout_s=0.5) is False


def test_impossible_partitions_are_told_without_asking_a_broker() -> None:
    with pytest.raises(BadInputError, match="1 partition or more, not 0: correct that of 'a'"):
        topics.create("127.0.0.1:1", "a", 0)
    with pytest.raises(BadInputError, match="100,000 partitions at most, not 99999999999: correct that of 'a'"):
        topics.create("127.0.0.1:1", "a", 99_999_999_999)


def test_a_missing_client_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(BadInputError, match=r"pip install 'tidewise\[kafka\]'"):
        client.kafka_client()
    with pytest.raises(BadInputError, match=r"pip install 'tidewise\[kafka\]'"):
        topics.describe("127.0.0.1:1")


def test_the_commands_are_there_without_the_client(tmp_path: Path) -> None:
    program = "import sys; sys.modules['confluent_kafka'] = None; from tidewise.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, "kafka", "up"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "tidewise: the Kafka client is not installed: pip install 'tidewise[kafka]'\n",
    )
