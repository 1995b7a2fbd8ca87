"""Where agents call in: strangers are refused, requests reach their agent once, and a broken line harms nobody."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import pytest

from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.engines.spark import switchboard as switchboard_module
from tidewise.engines.spark.switchboard import Message, Switchboard
from tidewise.host.processes import wait_until
from tidewise_agent.link import Link

LONG_S = 30.0
TOKEN = "the-token"  # noqa: S105 -- made up


class Caller:
    """An agent by hand."""

    def __init__(self, board: Switchboard) -> None:
        self.connection = socket.create_connection((board.host, board.port), timeout=LONG_S)
        self.lines = self.connection.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()

    def say(self, message: object) -> None:
        self.say_raw(json.dumps(message).encode() + b"\n")

    def say_raw(self, text: bytes) -> None:
        self.connection.sendall(text)

    def hear(self) -> Any:  # noqa: ANN401 -- JSON, or None where the other side has hung up
        try:
            line = self.lines.readline()
        except ConnectionResetError:
            return None
        return json.loads(line) if line else None

    def greet(self, application: str = "a", token: str = TOKEN) -> Any:  # noqa: ANN401 -- JSON
        self.say({"kind": "hello", "token": token, "application": application})
        return self.hear()

    def request(self) -> Any:  # noqa: ANN401 -- JSON
        while True:
            message = self.hear()
            if message is None or message["kind"] == "request":
                return message

    def hang_up(self) -> None:
        self.lines.close()
        self.connection.close()


class Heard:
    """What the board handed on."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Message]] = []
        self.news = threading.Condition()

    def __call__(self, application: str, message: Message) -> None:
        with self.news:
            self.messages.append((application, message))
            self.news.notify_all()

    def wait_for(self, kind: str) -> tuple[str, Message]:
        def found() -> tuple[str, Message] | None:
            return next((one for one in self.messages if one[1]["kind"] == kind), None)

        with self.news:
            assert self.news.wait_for(lambda: found() is not None, timeout=LONG_S), f"no {kind} was heard"
            result = found()
            assert result is not None
            return result


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def board(heard: Heard) -> Iterator[Switchboard]:
    one = Switchboard(token=TOKEN, heard=heard)
    yield one
    one.close()


def test_messages_are_handed_on_with_the_name_of_their_application(board: Switchboard, heard: Heard) -> None:
    with Caller(board) as caller:
        assert caller.greet("a") == {"kind": "welcome"}
        caller.say({"kind": "alive"})
        caller.say({"kind": "progress", "query": "q"})
        assert heard.wait_for("hello")[0] == "a"
        assert heard.wait_for("progress") == ("a", {"kind": "progress", "query": "q"})
        assert [message["kind"] for _, message in heard.messages] == ["hello", "progress"]
        assert board.is_connected("a")
    assert wait_until(lambda: not board.is_connected("a"), deadline_s=LONG_S)


@pytest.mark.parametrize("token", ["", "another", TOKEN + "x", "t\u00f6ken"])
def test_a_token_that_does_not_match_is_refused_with_a_sentence_and_counted(
    board: Switchboard, heard: Heard, token: str
) -> None:
    with Caller(board) as caller:
        assert caller.greet(token=token) == {
            "kind": "refused",
            "sentence": "the token does not match: this agent belongs to another run",
        }
        assert caller.hear() is None, "it was not hung up on"
    assert board.refused == 1
    assert not board.is_connected("a")
    assert heard.messages == []


@pytest.mark.parametrize(
    "first",
    [b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b"3\n", b"{}\n", b"\xff\n", b'{"kind":"progress","token":"the-token"}\n'],
)
def test_a_stranger_gets_nowhere_and_harms_nobody(board: Switchboard, heard: Heard, first: bytes) -> None:
    with Caller(board) as stranger:
        stranger.say_raw(first)
        answer = stranger.hear()
        assert answer is None or answer["kind"] == "refused"
    assert heard.messages == []
    with Caller(board) as caller:
        assert caller.greet() == {"kind": "welcome"}


@pytest.mark.parametrize("nonsense", [b"no JSON\n", b"[]\n", b"null\n"])
def test_nonsense_from_an_agent_ends_its_line_only(board: Switchboard, heard: Heard, nonsense: bytes) -> None:
    with Caller(board) as other, Caller(board) as caller:
        other.greet("b")
        caller.greet("a")
        caller.say_raw(nonsense)
        assert caller.request() is None
        other.say({"kind": "idle", "query": "q"})
        assert heard.wait_for("idle")[0] == "b"
    with Caller(board) as caller:
        assert caller.greet("a") == {"kind": "welcome"}


def test_a_port_that_is_taken_is_told(board: Switchboard, heard: Heard) -> None:
    with pytest.raises(BadInputError, match=rf"port {board.port} of 127.0.0.1 is taken .*choose another"):
        Switchboard(token=TOKEN, port=board.port, heard=heard)


def test_a_port_can_be_used_again_at_once(heard: Heard) -> None:
    first = Switchboard(token=TOKEN, heard=heard)
    with Caller(first) as caller:
        caller.greet()
        first.close()
        assert caller.request() is None
    second = Switchboard(token=TOKEN, port=first.port, heard=heard)
    with Caller(second) as caller:
        assert caller.greet() == {"kind": "welcome"}
    second.close()


class Asking(threading.Thread):
    """Asks in a thread of its own, and keeps what came of it."""

    def __init__(self, board: Switchboard, *, within_s: float = LONG_S) -> None:
        super().__init__(daemon=True)
        self.board = board
        self.within_s = within_s
        self.result: Message | Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.board.ask("a", "scale", {"executors": 3}, within_s=self.within_s)
        except (PermanentError, TemporaryError) as error:
            self.result = error

    def ended(self) -> Message | Exception | None:
        self.join(timeout=LONG_S)
        return self.result


def test_an_answer_finds_its_request(board: Switchboard) -> None:
    with Caller(board) as caller:
        caller.greet("a")
        assert board.wait_connected("a", within_s=LONG_S)
        asking = Asking(board)
        request = caller.request()
        assert (request["operation"], request["arguments"]) == ("scale", {"executors": 3})
        caller.say({"kind": "answer", "id": "of nobody", "ok": True, "result": {"present": ["9"]}})
        caller.say({"kind": "answer", "id": request["id"], "ok": True, "result": {"present": ["0"]}})
        assert asking.ended() == {"present": ["0"]}


def test_a_refusal_is_given_in_the_words_of_the_agent(board: Switchboard) -> None:
    with Caller(board) as caller:
        caller.greet("a")
        assert board.wait_connected("a", within_s=LONG_S)
        asking = Asking(board)
        caller.say({"kind": "answer", "id": caller.request()["id"], "ok": False, "error": "there is no room"})
        refusal = asking.ended()
    assert isinstance(refusal, PermanentError)
    assert str(refusal) == "there is no room"


def test_a_request_is_sent_again_when_the_agent_calls_again(board: Switchboard) -> None:
    with Caller(board) as caller:
        caller.greet("a")
        assert board.wait_connected("a", within_s=LONG_S)
        asking = Asking(board)
        first = caller.request()
    with Caller(board) as caller:
        caller.greet("a")
        again = caller.request()
        assert again == first
        caller.say({"kind": "answer", "id": again["id"], "ok": True, "result": {}})
        assert asking.ended() == {}
    with Caller(board) as caller:
        caller.greet("a")
        caller.connection.settimeout(0.5)
        with pytest.raises(TimeoutError):  # what is answered is not sent again
            caller.request()


def test_a_request_made_before_the_agent_calls_waits_for_it(board: Switchboard) -> None:
    asking = Asking(board)
    with Caller(board) as caller:
        caller.greet("a")
        caller.say({"kind": "answer", "id": caller.request()["id"], "ok": True})
        assert asking.ended() == {}


def test_no_answer_in_time_is_temporary(board: Switchboard) -> None:
    asking = Asking(board, within_s=0.1)
    assert isinstance(asking.ended(), TemporaryError)
    began_s = time.monotonic()
    with pytest.raises(TemporaryError, match="the agent of a did not answer 'drain' in time"):
        board.ask("a", "drain", within_s=LONG_S, give_up=lambda: True)
    assert time.monotonic() - began_s < LONG_S / 2


def test_an_application_that_calls_a_second_time_has_one_line(board: Switchboard) -> None:
    with Caller(board) as old, Caller(board) as new:
        old.greet("a")
        assert board.wait_connected("a", within_s=LONG_S)
        assert new.greet("a") == {"kind": "welcome"}
        assert old.request() is None, "the older line was left open"
        assert board.is_connected("a")
        asking = Asking(board)
        new.say({"kind": "answer", "id": new.request()["id"], "ok": True, "result": {"line": "new"}})
        assert asking.ended() == {"line": "new"}


def test_a_silent_line_is_given_up(board: Switchboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switchboard_module, "_SILENCE_S", 0.2)
    with Caller(board) as caller:
        caller.greet("a")
        assert caller.request() is None
        assert wait_until(lambda: not board.is_connected("a"), deadline_s=LONG_S)


def test_agent_and_board_understand_each_other_over_a_lost_line(board: Switchboard, heard: Heard) -> None:
    carried: list[str] = []

    def handle(operation: str, arguments: Message) -> dict[str, Any]:
        carried.append(operation)
        return dict(arguments)

    hello = {"token": TOKEN, "application": "a"}
    link = Link(host=board.host, port=board.port, hello=lambda: hello, handle=handle)
    link.start()
    assert board.wait_connected("a", within_s=LONG_S)
    assert board.ask("a", "scale", {"executors": 2}, within_s=LONG_S, request_id="r1") == {"executors": 2}
    board.close()
    assert wait_until(lambda: not link.is_connected, deadline_s=LONG_S)
    link.send("note", number=7)
    another = Switchboard(token=TOKEN, port=board.port, heard=heard)
    try:
        assert another.wait_connected("a", within_s=LONG_S)
        assert another.ask("a", "scale", {"executors": 2}, within_s=LONG_S, request_id="r1") == {"executors": 2}
        assert heard.wait_for("note")[1]["number"] == 7
        assert carried == ["scale"]
    finally:
        link.close(within_s=0.0)
        another.close()
