"""Where agents call in: checks their token, hands their messages on, and asks them to do things, each once."""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidewise.core import BadInputError, PermanentError, TemporaryError

_LOG = logging.getLogger(__name__)

Message = Mapping[str, Any]

_SILENCE_S = 30.0
"""Agents say at least something every few seconds: a connection silent for this long is given up."""
_LONGEST_LINE = 4 * 1024 * 1024
_HEARTBEAT_S = 5.0


@dataclass(slots=True, eq=False)
class _Line:
    """The connection of one agent."""

    application: str
    connection: socket.socket
    sending: threading.Lock = field(default_factory=threading.Lock)

    def send(self, message: Message) -> None:
        with self.sending:
            self.connection.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")


@dataclass(slots=True, eq=False)
class _Asked:
    """A request that waits for its answer."""

    answered: threading.Event = field(default_factory=threading.Event)
    answer: Message = field(default_factory=dict)


class Switchboard:
    """Listens on 127.0.0.1; `heard(application, message)` is called for every message, in the thread of its line.

    A request that was sent and whose answer is missing is sent again, under the same id, when the agent calls in again:
    the agent carries each id out once.
    """

    def __init__(
        self, *, token: str, port: int = 0, heard: Callable[[str, Message], None], host: str = "127.0.0.1"
    ) -> None:
        """BadInputError where the port is taken."""
        self._token = token
        self._heard = heard
        self._lines: dict[str, _Line] = {}
        self._asked: dict[str, _Asked] = {}
        self._open: dict[str, tuple[str, Message]] = {}
        """Requests without an answer yet: application and what was sent."""
        self._news = threading.Condition()
        self._closed = False
        self.refused = 0
        """How many callers were turned away, for a wrong token above all."""
        self._server = socket.socket()
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._server.bind((host, port))
        except OSError as error:
            self._server.close()
            raise BadInputError(
                f"port {port} of {host} is taken ({error.strerror}): choose another, or 0 for any that is free"
            ) from error
        self._server.listen(64)
        self.host = host
        self.port = int(self._server.getsockname()[1])
        for name, work in (("accept", self._accept), ("heartbeat", self._beat)):
            threading.Thread(target=work, name=f"switchboard-{name}", daemon=True).start()

    def is_connected(self, application: str) -> bool:
        with self._news:
            return application in self._lines

    def wait_connected(self, application: str, *, within_s: float) -> bool:
        with self._news:
            return self._news.wait_for(lambda: application in self._lines, timeout=within_s)

    def ask(
        self,
        application: str,
        operation: str,
        arguments: Message | None = None,
        *,
        within_s: float,
        request_id: str | None = None,
        give_up: Callable[[], bool] | None = None,
    ) -> Message:
        """The agent's answer; PermanentError with its words where it refuses, TemporaryError where none comes.

        `give_up` ends the wait early, for an application that is known to have died.
        """
        name = request_id or uuid.uuid4().hex
        message = {"kind": "request", "id": name, "operation": operation, "arguments": dict(arguments or {})}
        asked = _Asked()
        with self._news:
            self._asked[name] = asked
            self._open[name] = (application, message)
            line = self._lines.get(application)
        try:
            if line is not None:
                self._try_send(line, message)
            deadline_s = time.monotonic() + within_s
            while not asked.answered.wait(timeout=0.2):
                if time.monotonic() >= deadline_s or (give_up is not None and give_up()):
                    raise TemporaryError(f"the agent of {application} did not answer {operation!r} in time")
        finally:
            with self._news:
                del self._asked[name]
                del self._open[name]
        if not asked.answer.get("ok"):
            raise PermanentError(str(asked.answer.get("error", "the agent gave no reason")))
        result: Message = asked.answer.get("result", {})
        return result

    def close(self) -> None:
        """Hang up; the jobs go on."""
        with self._news:
            self._closed = True
            lines = list(self._lines.values())
            self._news.notify_all()
        _hang_up(self._server)  # a mere close would leave the port open for as long as `_accept` waits
        for line in lines:
            _hang_up(line.connection)

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="switchboard-line", daemon=True).start()

    def _beat(self) -> None:
        """Agents wait for a word now and then as well, to know that the controller lives."""
        while True:
            with self._news:
                if self._news.wait_for(lambda: self._closed, timeout=_HEARTBEAT_S):
                    return
                lines = list(self._lines.values())
            for line in lines:
                self._try_send(line, {"kind": "alive"})

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(_SILENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line: _Line | None = None
        try:
            with connection, connection.makefile("rb") as lines:
                first = lines.readline(_LONGEST_LINE)
                if not first:
                    return  # hung up without a word
                line = self._welcome(connection, _message(first))
                if line is None:
                    return
                for text in iter(lambda: lines.readline(_LONGEST_LINE), b""):
                    self._take(line.application, _message(text))
        except (OSError, ValueError) as error:
            if not self._closed:
                _LOG.info("A line to an agent was lost: %s", error)
        finally:
            if line is not None:
                with self._news:
                    if self._lines.get(line.application) is line:
                        del self._lines[line.application]
                    self._news.notify_all()

    def _welcome(self, connection: socket.socket, hello: Message) -> _Line | None:
        token, application = str(hello.get("token", "")), str(hello.get("application", ""))
        if hello.get("kind") != "hello" or not hmac.compare_digest(token.encode(), self._token.encode()):
            self.refused += 1
            sentence = "the token does not match: this agent belongs to another run"
            _LOG.warning("An agent was refused: %s", sentence)
            connection.sendall(json.dumps({"kind": "refused", "sentence": sentence}).encode() + b"\n")
            return None
        line = _Line(application=application, connection=connection)
        line.send({"kind": "welcome"})
        self._heard(application, hello)
        with self._news:
            if self._closed:
                return None  # while it was being welcomed
            older = self._lines.get(application)
            self._lines[application] = line
            waiting = [message for name, message in self._open.values() if name == application]
            self._news.notify_all()
        if older is not None:
            _hang_up(older.connection)
        for message in waiting:
            self._try_send(line, message)
        return line

    def _take(self, application: str, message: Message) -> None:
        if message.get("kind") == "answer":
            with self._news:
                asked = self._asked.get(str(message.get("id")))
            if asked is not None:
                asked.answer = message
                asked.answered.set()
        elif message.get("kind") != "alive":
            self._heard(application, message)

    def _try_send(self, line: _Line, message: Message) -> None:
        try:
            line.send(message)
        except OSError as error:
            _LOG.info("A message to %s could not be sent: %s", line.application, error)
            _hang_up(line.connection)


def _message(text: bytes) -> Message:
    """What was said; ValueError where it is not an object."""
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError(f"not a message: {text[:80]!r}")  # noqa: TRY004 -- as for text that is no JSON
    return message


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
