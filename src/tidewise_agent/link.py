"""The connection to the controller: the agent calls, tells what it sees, and carries out what it is asked once."""

from __future__ import annotations

import json
import queue
import socket
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]

_BUFFERED_MESSAGES = 2_000
_REMEMBERED_REQUESTS = 1_000
_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 5.0
_SILENCE_S = 30.0
"""Both sides send something at least every few seconds; a connection silent for this long is dead."""
_HEARTBEAT_S = 5.0


class Link:
    """Keeps a connection up, for as long as the process lives; without one, messages wait in a bounded buffer."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        hello: Callable[[], Message],
        handle: Callable[[str, Message], Message],
    ) -> None:
        """`hello` introduces the application at every connection; `handle(operation, arguments)` carries out."""
        self._address = (host, port)
        self._hello = hello
        self._handle = handle
        self._outgoing: deque[Message] = deque(maxlen=_BUFFERED_MESSAGES)
        self._dropped = 0
        self._news = threading.Condition()
        self._requests: queue.SimpleQueue[tuple[str, str, Message]] = queue.SimpleQueue()
        self._answers: OrderedDict[str, Message | None] = OrderedDict()
        self._connected = threading.Event()
        self._unanswered = 0
        """Requests that were taken: their answers are still to be sent."""
        self._closed = False

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set()

    def start(self) -> None:
        for name, work in (("link", self._keep_connected), ("requests", self._carry_out)):
            threading.Thread(target=work, name=f"tidewise-{name}", daemon=True).start()

    def send(self, kind: str, **content: Any) -> None:
        """Queue a message; never blocks, and drops the oldest where the controller has been away for long."""
        with self._news:
            if len(self._outgoing) == _BUFFERED_MESSAGES:
                self._dropped += 1
            self._outgoing.append({"kind": kind, **content})
            self._news.notify()

    def close(self, *, within_s: float) -> None:
        """Send what is waiting and the answer to come, as far as it goes in this time."""
        with self._news:
            self._news.wait_for(
                lambda: (not self._outgoing and not self._unanswered) or not self._connected.is_set(), timeout=within_s
            )
            self._closed = True
            self._news.notify_all()

    def _keep_connected(self) -> None:
        wait_s = _FIRST_WAIT_S
        while not self._closed:
            try:
                with socket.create_connection(self._address, timeout=5.0) as connection:
                    self._talk(connection)
                wait_s = _FIRST_WAIT_S
            except Exception:  # noqa: BLE001, S110 -- away, no controller at all, or a context that is going down:
                pass  # the job goes on, and the agent calls again.
            finally:
                self._connected.clear()
            with self._news:
                self._news.wait_for(lambda: self._closed, timeout=wait_s)
            wait_s = min(_LONGEST_WAIT_S, 2 * wait_s)

    def _talk(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(_SILENCE_S)
        _send(connection, {"kind": "hello", **self._hello()})
        lines = connection.makefile("rb")
        welcome = json.loads(lines.readline() or b"{}")
        if welcome.get("kind") != "welcome":
            # Refused (a token that does not match) or not the controller at all: asking again soon would not help.
            raise ValueError(f"the controller did not welcome the agent: {welcome}")
        self._connected.set()
        writer = threading.Thread(target=self._write_to, args=(connection,), name="tidewise-writer", daemon=True)
        writer.start()
        try:
            for line in lines:
                message = json.loads(line)
                if message.get("kind") == "request":
                    request = (message["id"], message["operation"], message.get("arguments", {}))
                    with self._news:
                        self._unanswered += 1
                    self._requests.put(request)
        finally:
            self._connected.clear()
            with self._news:
                self._news.notify_all()
            writer.join(timeout=10.0)

    def _write_to(self, connection: socket.socket) -> None:
        try:
            while self._connected.is_set() and not (self._closed and not self._outgoing):
                with self._news:
                    self._news.wait_for(
                        lambda: bool(self._outgoing) or self._closed or not self._connected.is_set(),
                        timeout=_HEARTBEAT_S,
                    )
                    if not self._connected.is_set():
                        return  # what waits is for the next connection
                    message = self._outgoing[0] if self._outgoing else {"kind": "alive"}
                    dropped, self._dropped = self._dropped, 0
                if dropped:
                    _send(connection, {"kind": "dropped", "messages": dropped})
                _send(connection, message)
                with self._news:
                    # Only what was sent leaves the buffer; it may have been pushed out by then.
                    if self._outgoing and self._outgoing[0] is message:
                        self._outgoing.popleft()
                    self._news.notify_all()
        except OSError:
            self._connected.clear()
            connection.close()

    def _carry_out(self) -> None:
        while True:
            request_id, operation, arguments = self._requests.get()
            if request_id in self._answers:
                answer = self._answers[request_id]
            else:
                answer = self._answer(operation, arguments)
                self._answers[request_id] = answer
                while len(self._answers) > _REMEMBERED_REQUESTS:
                    self._answers.popitem(last=False)
            self.send("answer", id=request_id, **(answer or {}))
            with self._news:
                self._unanswered -= 1
                self._news.notify_all()

    def _answer(self, operation: str, arguments: Message) -> Message:
        try:
            return {"ok": True, "result": self._handle(operation, arguments)}
        except Exception as error:  # noqa: BLE001 -- the controller is told, whatever went wrong
            return {"ok": False, "error": f"{type(error).__name__}: {error}"}


def _send(connection: socket.socket, message: Message) -> None:
    connection.sendall(json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n")
