"""The agent's line: nothing blocks the program, each request is carried out once, and a lost line comes back."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest

from tidewise_agent import link as link_module
from tidewise_agent.link import Link, Message

LONG_S = 30.0


class Controller:
    """The other end, by hand: one port, one connection at a time, line by line."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(LONG_S)
        self.port = int(self.server.getsockname()[1])
        self.connection: socket.socket | None = None
        self.hello: Message = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        self.server.close()

    def pick_up(self, answer: Message | None = None) -> None:
        connection, _ = self.server.accept()
        self.hang_up()
        self.connection = connection
        self.connection.settimeout(LONG_S)
        self.lines = self.connection.makefile("rb")
        self.hello = self.hear()
        self.say(answer or {"kind": "welcome"})

    def hear(self) -> Any:  # noqa: ANN401 -- JSON
        line = self.lines.readline()
        if not line:
            raise ConnectionError("the agent has hung up")
        return json.loads(line)

    def hear_kind(self, kind: str) -> Message:
        while True:
            message: Message = self.hear()
            if message["kind"] == kind:
                return message

    def say(self, message: Message) -> None:
        self.say_raw(json.dumps(message).encode() + b"\n")

    def say_raw(self, text: bytes) -> None:
        assert self.connection is not None
        self.connection.sendall(text)

    def ask(self, request_id: str, operation: str, **arguments: object) -> None:
        self.say({"kind": "request", "id": request_id, "operation": operation, "arguments": arguments})

    def hang_up(self) -> None:
        if self.connection is not None:
            self.lines.close()
            self.connection.close()
            self.connection = None


def refuse_all(operation: str, _arguments: Message) -> Message:
    raise ValueError(f"cannot {operation}")


MakeLink = Callable[..., Link]


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller() as one:
        yield one


@pytest.fixture
def make_link(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeLink]:
    monkeypatch.setattr(link_module, "_FIRST_WAIT_S", 0.05)
    monkeypatch.setattr(link_module, "_LONGEST_WAIT_S", 0.2)
    made: list[Link] = []

    def make(
        handle: Callable[[str, Message], Message] = refuse_all,
        *,
        hello: Callable[[], Message] = lambda: {"token": "t"},
    ) -> Link:
        link = Link(host="127.0.0.1", port=controller.port, hello=hello, handle=handle)
        made.append(link)
        link.start()
        return link

    yield make
    for link in made:
        link.close(within_s=0.0)


def test_it_introduces_itself_and_delivers_in_order(controller: Controller, make_link: MakeLink) -> None:
    link = make_link(hello=lambda: {"token": "t", "application": "a"})
    for number in range(50):
        link.send("note", number=number)
    controller.pick_up()
    assert controller.hello == {"kind": "hello", "token": "t", "application": "a"}
    assert [controller.hear()["number"] for _ in range(50)] == list(range(50))


def test_without_a_controller_the_newest_messages_wait_and_the_rest_is_counted(
    controller: Controller, make_link: MakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "_BUFFERED_MESSAGES", 10)
    link = make_link()
    began_s = time.monotonic()
    for number in range(25):
        link.send("note", number=number)
    assert time.monotonic() - began_s < 5.0, "it waited for a controller that is not there"
    controller.pick_up()
    assert controller.hear() == {"kind": "dropped", "messages": 15}
    assert [controller.hear()["number"] for _ in range(10)] == list(range(15, 25))


def test_a_lost_line_comes_back_and_what_waited_is_sent(controller: Controller, make_link: MakeLink) -> None:
    link = make_link()
    controller.pick_up()
    link.send("note", number=1)
    assert controller.hear()["number"] == 1
    controller.hang_up()
    controller.pick_up()
    link.send("note", number=2)
    assert controller.hear_kind("note")["number"] == 2


def test_the_same_request_is_carried_out_once(controller: Controller, make_link: MakeLink) -> None:
    carried: list[Message] = []

    def handle(operation: str, arguments: Message) -> Message:
        carried.append(arguments)
        return {"operation": operation, "times": len(carried)}

    make_link(handle)
    controller.pick_up()
    controller.ask("one", "scale", executors=3)
    first = controller.hear_kind("answer")
    assert first == {"kind": "answer", "id": "one", "ok": True, "result": {"operation": "scale", "times": 1}}
    controller.ask("one", "scale", executors=3)
    assert controller.hear_kind("answer") == first
    controller.hang_up()
    controller.pick_up()
    controller.ask("one", "scale", executors=3)  # after a reconnection
    assert controller.hear_kind("answer") == first
    controller.ask("two", "scale", executors=3)
    assert controller.hear_kind("answer")["result"]["times"] == 2
    assert len(carried) == 2


def test_a_request_that_is_sent_again_while_it_is_on_is_not_begun_again(
    controller: Controller, make_link: MakeLink
) -> None:
    go_on, began = threading.Event(), threading.Semaphore(0)

    def handle(_operation: str, _arguments: Message) -> Message:
        began.release()
        assert go_on.wait(LONG_S)
        return {"done": True}

    make_link(handle)
    controller.pick_up()
    controller.ask("one", "drain")
    assert began.acquire(timeout=LONG_S)
    controller.hang_up()  # before the answer
    controller.pick_up()
    controller.ask("one", "drain")
    go_on.set()
    assert controller.hear_kind("answer")["result"] == {"done": True}
    assert controller.hear_kind("answer")["result"] == {"done": True}
    assert not began.acquire(blocking=False)


def test_a_refusal_is_answered_with_its_reason_and_the_next_request_is_served(
    controller: Controller, make_link: MakeLink
) -> None:
    make_link(refuse_all)
    controller.pick_up()
    controller.ask("one", "fly")
    answer = controller.hear_kind("answer")
    assert (answer["ok"], answer["error"]) == (False, "ValueError: cannot fly")
    controller.ask("two", "swim")
    assert controller.hear_kind("answer")["error"] == "ValueError: cannot swim"


def test_refused_it_asks_again_later_and_keeps_its_messages(controller: Controller, make_link: MakeLink) -> None:
    link = make_link()
    link.send("note", number=1)
    controller.pick_up({"kind": "refused", "sentence": "the token does not match"})
    assert not link.is_connected
    controller.hang_up()
    controller.pick_up()
    assert controller.hear()["number"] == 1


@pytest.mark.parametrize("nonsense", [b"no JSON\n", b"[]\n", b'{"kind":"request"}\n', b"\xff\xfe\n"])
def test_nonsense_on_the_line_does_not_end_it_for_good(
    controller: Controller, make_link: MakeLink, nonsense: bytes
) -> None:
    make_link(lambda _operation, _arguments: {})
    controller.pick_up()
    controller.say_raw(nonsense)
    controller.hang_up()
    controller.pick_up()
    controller.ask("one", "describe")
    assert controller.hear_kind("answer")["ok"] is True


def test_an_introduction_that_fails_is_tried_again(controller: Controller, make_link: MakeLink) -> None:
    """A context that is going down cannot be described."""
    troubles = [RuntimeError("the context is gone")]

    def hello() -> Message:
        if troubles:
            raise troubles.pop()
        return {"token": "t"}

    make_link(hello=hello)
    with pytest.raises(ConnectionError):
        controller.pick_up()
    controller.pick_up()
    assert controller.hello == {"kind": "hello", "token": "t"}


def test_a_silent_line_is_given_up(
    controller: Controller, make_link: MakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "_SILENCE_S", 0.3)
    monkeypatch.setattr(link_module, "_HEARTBEAT_S", 0.1)
    make_link()
    controller.pick_up()
    controller.pick_up()  # it has called again though nobody hung up


def test_a_quiet_program_says_that_it_lives(
    controller: Controller, make_link: MakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "_HEARTBEAT_S", 0.1)
    make_link()
    controller.pick_up()
    assert [controller.hear()["kind"] for _ in range(3)] == ["alive"] * 3


def test_closing_sends_what_waits_within_its_time(controller: Controller, make_link: MakeLink) -> None:
    link = make_link()
    controller.pick_up()
    link.send("ending", failure=None)
    link.close(within_s=LONG_S)
    assert controller.hear_kind("ending") == {"kind": "ending", "failure": None}


def test_closing_waits_for_the_answer_to_the_request_that_asked_for_it(
    controller: Controller, make_link: MakeLink
) -> None:
    closed = threading.Event()
    links: list[Link] = []

    def leave(_operation: str, _arguments: Message) -> Message:
        def close() -> None:
            links[0].close(within_s=LONG_S)
            closed.set()

        threading.Thread(target=close, daemon=True).start()
        assert not closed.wait(0.3), "it was closed before the answer"
        return {}

    links.append(make_link(handle=leave))
    controller.pick_up()
    controller.ask("r1", "retire")
    assert controller.hear_kind("answer")["ok"] is True
    assert closed.wait(LONG_S)


def test_closing_without_a_controller_does_not_keep_the_program(make_link: MakeLink) -> None:
    link = make_link()
    link.send("ending", failure=None)
    began_s = time.monotonic()
    link.close(within_s=0.2)
    assert time.monotonic() - began_s < 5.0


def test_a_message_that_json_does_not_know_is_told_as_text(controller: Controller, make_link: MakeLink) -> None:
    link = make_link()
    controller.pick_up()
    link.send("note", what={1, 2}.__class__)
    assert "set" in controller.hear_kind("note")["what"]
