"""How other commands talk to a controller that runs: one question and one answer on 127.0.0.1, with a secret."""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from tidewise.core import BadInputError, PermanentError, TemporaryError, TidewiseError
from tidewise.host.private_files import write_private
from tidewise.host.processes import ProcessIdentity

_LOG = logging.getLogger(__name__)

CHANNEL_FILE = "controller.json"
_HOST = "127.0.0.1"
_LONGEST_LINE = 1 << 20
_ANSWER_WITHIN_S = 30.0
_QUESTION_WITHIN_S = 5.0

Answer = dict[str, object]
Handler = Callable[[str, Answer], Answer]


class Channel:
    """Answers until `close`; the file in the home tells where, to its owner only."""

    def __init__(self, home: Path, handle: Handler) -> None:
        """`handle` is given what to do and its arguments, by a thread of its own; TidewiseError is an answer too."""
        self._path = home / CHANNEL_FILE
        self._handle = handle
        self._token = secrets.token_hex(24)
        self._closed = False
        self._listener = socket.create_server((_HOST, 0))
        process = ProcessIdentity.of(os.getpid())
        content = {
            "port": self._listener.getsockname()[1],
            "token": self._token,
            "process": None if process is None else process.to_dict(),
        }
        write_private(self._path, json.dumps(content))
        threading.Thread(target=self._listen, name="channel", daemon=True).start()

    def close(self) -> None:
        """Stop answering; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                # A mere close would leave the port open for as long as `_listen` waits.
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _listen(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(connection,), name="channel-answer", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(_QUESTION_WITHIN_S)
            try:
                question = json.loads(_line(connection))
                connection.settimeout(_ANSWER_WITHIN_S)
                connection.sendall(json.dumps(self._answer(question)).encode() + b"\n")
            except (OSError, ValueError) as error:
                _LOG.info("A question could not be answered: %s", error)

    def _answer(self, question: object) -> Answer:
        if not isinstance(question, dict) or not hmac.compare_digest(str(question.get("token")), self._token):
            return {"error": "the token does not match"}
        try:
            return self._handle(str(question.get("do")), dict(question.get("with") or {}))
        except TidewiseError as error:
            return {"error": str(error)}


def ask(home: Path, do: str, **arguments: object) -> Answer:
    """Have the controller of this home do something; BadInputError where none runs, PermanentError where it refuses."""
    path = home / CHANNEL_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise BadInputError(f"no job is under control in {home}; name the home of a `tidewise run`") from None
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path} cannot be read: {error}") from error
    question = {"token": content["token"], "do": do, "with": arguments}
    try:
        with socket.create_connection((_HOST, int(content["port"])), timeout=_QUESTION_WITHIN_S) as connection:
            connection.settimeout(_ANSWER_WITHIN_S)
            connection.sendall(json.dumps(question).encode() + b"\n")
            answer = json.loads(_line(connection))
    except (OSError, ValueError) as error:
        raise TemporaryError(
            f"the controller of {home} does not answer ({error}); where it has died, `tidewise run` takes its job back"
        ) from error
    if not isinstance(answer, dict):
        raise TemporaryError(f"the controller of {home} gave no answer that can be read")
    if "error" in answer:
        raise PermanentError(str(answer["error"]))
    return answer


def controller_of(home: Path) -> ProcessIdentity | None:
    """The controller that runs in this home; None: there is none."""
    try:
        process = json.loads((home / CHANNEL_FILE).read_text(encoding="utf-8"))["process"]
        found = None if process is None else ProcessIdentity.from_dict(process)
    except (OSError, ValueError, KeyError, BadInputError):
        return None
    return found if found is not None and found.is_alive() else None


def _line(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\n"):
        piece = connection.recv(65536)
        if not piece:
            raise ValueError("the other side ended in the middle of a sentence")
        received += piece
        if len(received) > _LONGEST_LINE:
            raise ValueError("the sentence is too long")
    return received
