"""Starts programs that go on by themselves, on ports of 127.0.0.1 that are free, and waits until they are ready."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tidewise.core import PermanentError, TemporaryError
from tidewise.host.processes import ProcessIdentity, reap, wait_until

HOST = "127.0.0.1"
START_S = 120.0
"""A JVM on a busy machine may take long; a healthy start takes about 5 s."""
_PORT_ATTEMPTS = 5
_TAIL_BYTES = 64 * 1024
_PORT_TAKEN = ("BindException", "Address already in use")


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A program that was started, and where it listens."""

    identity: ProcessIdentity
    ports: tuple[int, ...]
    """The one that others use first."""
    log: Path

    @property
    def port(self) -> int:
        return self.ports[0]

    def to_dict(self) -> dict[str, object]:
        return {"process": self.identity.to_dict(), "ports": list(self.ports), "log": str(self.log)}

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> Self:
        """What `to_dict` wrote; KeyError, TypeError or ValueError where it did not."""
        process, ports = value["process"], value["ports"]
        if not isinstance(process, dict) or not isinstance(ports, list) or not ports:
            raise TypeError("a process is an object, and listens on one port at least")
        return cls(
            identity=ProcessIdentity.from_dict(process),
            ports=tuple(int(port) for port in ports),
            log=Path(str(value["log"])),
        )


def spawn(
    name: str, argv: Sequence[str], *, environment: Mapping[str, str], logs: Path, ports: tuple[int, ...]
) -> Daemon:
    """Start a program that outlives this one; it is not ready yet. What it says goes to a new file in `logs`."""
    log = _unused(logs, name)
    # A session of its own: Ctrl-C in the terminal it was started from is not meant for it.
    # Not by Popen, which warns when it is forgotten while its process runs on: here that is the point.
    pid = os.posix_spawn(
        argv[0],
        list(argv),
        environment,
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )
    identity = ProcessIdentity.of(pid)
    if identity is None:  # not even a zombie of our own child is there: somebody else waits for our children
        raise PermanentError(f"the {name} ended as soon as it was started; see {log}")
    return Daemon(identity=identity, ports=ports, log=log)


def settle(
    daemons: list[Daemon], *, what: str, ready: Callable[[], set[int]], again: Callable[[int], Daemon]
) -> list[Daemon]:
    """Wait until all daemons are ready, by their ports; start those again that found theirs taken.

    Raises when one ends for another reason, or is not ready in time; stops none.
    """
    daemons = list(daemons)
    attempts = [1] * len(daemons)

    def settled() -> bool:
        for index, daemon in enumerate(daemons):
            reap(daemon.identity)
            if daemon.identity.is_alive():
                continue
            if attempts[index] == _PORT_ATTEMPTS or not _port_was_taken(daemon.log):
                raise PermanentError(f"a {what} ended as soon as it was started: {last_line(daemon.log)}")
            attempts[index] += 1
            daemons[index] = again(index)
        return {daemon.port for daemon in daemons} <= ready()

    if not wait_until(settled, deadline_s=START_S, poll_s=0.1):
        late = next((one for one in daemons if one.port not in ready()), daemons[0])
        raise TemporaryError(f"a {what} was not ready after {START_S:g} s: {last_line(late.log)}")
    return daemons


def last_line(log: Path) -> str:
    """The end of a log in one line that tells most, with its place."""
    lines = [line.strip() for line in _tail(log).splitlines() if line.strip()]
    telling = [line for line in lines if "Exception" in line or " ERROR " in line or line.startswith("Error")]
    return f"{(telling or lines or ['it wrote nothing'])[-1][:300]} (in {log})"


def _port_was_taken(log: Path) -> bool:
    tail = _tail(log)
    return any(sign in tail for sign in _PORT_TAKEN)


def _tail(log: Path) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", errors="replace")


def free_ports(count: int) -> list[int]:
    """So many ports that nobody listens on now; somebody else may be faster, see `settle`."""
    with ExitStack() as held:  # all at once, so that they differ
        return [held.enter_context(socket.create_server((HOST, 0))).getsockname()[1] for _ in range(count)]


def _unused(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    log = folder / f"{name}.log"
    while log.exists():
        number += 1
        log = folder / f"{name}-{number}.log"
    return log
