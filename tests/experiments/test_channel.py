"""A controller answers those who know its secret, and nobody learns more than a sentence from a refusal."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.experiments.channel import CHANNEL_FILE, Answer, Channel, ask, controller_of


def handle(do: str, arguments: Answer) -> Answer:
    if do == "refuse":
        raise PermanentError("this cannot be done")
    return {"did": do, "with": arguments}


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Channel]:
    made = Channel(tmp_path, handle)
    yield made
    made.close()


@pytest.mark.usefixtures("channel")
def test_a_question_gets_its_answer(tmp_path: Path) -> None:
    assert ask(tmp_path, "pause", by="me") == {"did": "pause", "with": {"by": "me"}}
    assert controller_of(tmp_path) is not None


@pytest.mark.usefixtures("channel")
def test_a_refusal_is_told(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="this cannot be done"):
        ask(tmp_path, "refuse")


@pytest.mark.usefixtures("channel")
def test_only_the_owner_can_read_the_secret_and_only_who_knows_it_is_heard(tmp_path: Path) -> None:
    path = tmp_path / CHANNEL_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, "token": "guessed"}), encoding="utf-8")
    with pytest.raises(PermanentError, match="the token does not match"):
        ask(tmp_path, "pause")


@pytest.mark.usefixtures("channel")
def test_nonsense_does_not_end_it(tmp_path: Path) -> None:
    port = json.loads((tmp_path / CHANNEL_FILE).read_text(encoding="utf-8"))["port"]
    for nonsense in (b"\xff\xfe\n", b"[]\n", b""):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(nonsense)
    assert ask(tmp_path, "pause")["did"] == "pause"


def test_where_nobody_is_at_work_that_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no job is under control"):
        ask(tmp_path, "status")
    made = Channel(tmp_path, handle)
    text = (tmp_path / CHANNEL_FILE).read_text(encoding="utf-8")
    made.close()
    assert controller_of(tmp_path) is None
    (tmp_path / CHANNEL_FILE).write_text(text, encoding="utf-8")
    with pytest.raises(TemporaryError, match="does not answer"):
        ask(tmp_path, "status")
