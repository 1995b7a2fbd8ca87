"""A process is known by its number and its start time, so that a reused number is never taken for it."""

from __future__ import annotations

import os
import signal as signals
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tidewise.core import BadInputError, PermanentError
from tidewise_agent.proc import ProcessStat, stat_of

_PROC = Path("/proc")
_POLL_S = 0.02


def wait_until(condition: Callable[[], bool], *, deadline_s: float, poll_s: float = _POLL_S) -> bool:
    """Whether the condition came true before the deadline; it is asked at least once."""
    end_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() >= end_s:
            return False
        time.sleep(poll_s)
    return True


def can_find() -> bool:
    """Whether the system tells of its processes, so that `find` and `descendants` see them."""
    return (_PROC / "self" / "stat").exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """One process for as long as it lives; `started_ticks` is None where the system does not tell."""

    pid: int
    started_ticks: int | None

    def __post_init__(self) -> None:
        if self.pid <= 0:
            raise BadInputError(f"a process number is a positive whole number, not {self.pid}")

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process that has this number now, or None."""
        if not can_find():
            return cls(pid=pid, started_ticks=None) if _exists(pid) else None
        stat = stat_of(pid)
        return None if stat is None else cls(pid=pid, started_ticks=stat.started_ticks)

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> Self:
        """The identity that `to_dict` wrote."""
        pid, started_ticks = value.get("pid"), value.get("started_ticks")
        if type(pid) is not int or not (started_ticks is None or type(started_ticks) is int):
            raise BadInputError(
                f"a process is written as {{'pid': 1, 'started_ticks': 2}} in whole numbers, not {dict(value)!r}"
            )
        return cls(pid=pid, started_ticks=started_ticks)

    def to_dict(self) -> dict[str, int | None]:
        return {"pid": self.pid, "started_ticks": self.started_ticks}

    def is_alive(self) -> bool:
        """A zombie is dead: it runs no more, only its parent has not asked after it yet."""
        if self.started_ticks is None:
            return _exists(self.pid)
        stat = self._stat()
        return stat is not None and not stat.is_dead

    def is_stopped(self) -> bool:
        """Whether it was frozen by SIGSTOP (or a debugger); False where the system does not tell."""
        stat = None if self.started_ticks is None else self._stat()
        return stat is not None and stat.state in "Tt"

    def signal(self, number: signals.Signals) -> bool:
        """Send a signal to this process and no other; False when it is gone."""
        try:
            return self._signal(number)
        except ProcessLookupError:
            return False
        except PermissionError as error:
            raise PermanentError(
                f"process {self.pid} belongs to somebody else: run the command as the user who started it"
            ) from error

    def _signal(self, number: signals.Signals) -> bool:
        if self.started_ticks is None or not hasattr(os, "pidfd_open"):
            if not self.is_alive():
                return False
            os.kill(self.pid, number)
            return True
        # Whoever holds the descriptor holds the process: its number cannot pass to another between look and signal.
        descriptor = os.pidfd_open(self.pid)
        try:
            if not self.is_alive():
                return False
            signals.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)
        return True

    def kill(self, *, deadline_s: float = 10.0) -> bool:
        """End it at once and wait until it is gone; False when it still lives at the deadline."""
        self.signal(signals.SIGKILL)
        return self.wait_gone(deadline_s=deadline_s)

    def wait_gone(self, *, deadline_s: float) -> bool:
        """Whether it ended before the deadline."""
        return wait_until(lambda: not self.is_alive(), deadline_s=deadline_s)

    def _stat(self) -> ProcessStat | None:
        stat = stat_of(self.pid)
        return stat if stat is not None and stat.started_ticks == self.started_ticks else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundProcess:
    """A process that runs now, what it was started with, and where (None: not for us to see)."""

    identity: ProcessIdentity
    argv: tuple[str, ...]
    folder: Path | None

    def option(self, name: str) -> str | None:
        """The word after an option on its command line."""
        try:
            return self.argv[self.argv.index(name) + 1]
        except (ValueError, IndexError):
            return None


def find(wanted: Callable[[tuple[str, ...]], bool]) -> tuple[FoundProcess, ...]:
    """All living processes whose command line is wanted; none where the system does not tell."""
    return tuple(found for pid in _pids() if (found := _found(pid, wanted)) is not None)


def find_with_environment(variable: str, value: str) -> tuple[ProcessIdentity, ...]:
    """All living processes that were started with this variable set to this; none where the system does not tell."""
    wanted = f"{variable}={value}".encode()
    found = []
    for pid in _pids():
        identity = ProcessIdentity.of(pid)
        try:
            environment = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if identity is not None and wanted in environment and identity.is_alive():
            found.append(identity)
    return tuple(found)


def descendants(pid: int) -> tuple[ProcessIdentity, ...]:
    """All living processes below this one, nearest first; none where the system does not tell."""
    return tuple(
        ProcessIdentity(pid=one, started_ticks=stat.started_ticks) for one, stat in _below(pid) if stat.state != "Z"
    )


def _below(pid: int) -> list[tuple[int, ProcessStat]]:
    """All processes below this one, nearest first, those included that have ended and were not asked after yet."""
    children: dict[int, list[tuple[int, ProcessStat]]] = {}
    for each in _pids():
        stat = stat_of(each)
        if stat is not None:
            children.setdefault(stat.parent, []).append((each, stat))
    below: list[tuple[int, ProcessStat]] = []
    generation = children.get(pid, [])
    while generation:
        below += generation
        generation = [child for parent, _ in generation for child in children.get(parent, ())]
    return below


class TreeCpu:
    """The CPU time of a process and all below it from now on, those counted that end meanwhile.

    A process that ignores the ends of its children (as the one that starts Spark's Python workers does) is never told
    their time: what such a child had used before is not missed when it has gone, but what it used since is.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = _tree(pid)

    def used_s(self) -> float | None:
        """How much it was so far; None where the system does not tell, or the process is gone."""
        now = _tree(self._pid)
        if not self._before or not now:
            return None
        used_s = sum(one.cpu_s + one.ended_children_cpu_s for one in now.values())
        for identity, before in self._before.items():
            parent = next((each for each in self._before if each.pid == before.parent), None)
            forgotten = identity not in now and parent is not None and _ignores_children(parent.pid)
            used_s -= 0.0 if forgotten else before.cpu_s + before.ended_children_cpu_s
        # Sums of the same ticks in another order differ in their last digit.
        return max(0.0, used_s)


def _tree(pid: int) -> dict[ProcessIdentity, ProcessStat]:
    own = stat_of(pid)
    found = [] if own is None else [(pid, own), *_below(pid)]
    return {ProcessIdentity(pid=one, started_ticks=stat.started_ticks): stat for one, stat in found}


def _ignores_children(pid: int) -> bool:
    """Whether a process ignores the signal that tells it of the end of a child."""
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    ignored = next((int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:")), 0)
    return bool(ignored & 1 << (signals.SIGCHLD - 1))


def reap(identity: ProcessIdentity) -> None:
    """Take note of the end of our own child, which is a zombie until then; nothing for anybody else's."""
    try:
        os.waitpid(identity.pid, os.WNOHANG)
    except ChildProcessError:
        return


def ended_by(identity: ProcessIdentity, *, deadline_s: float) -> bool:
    """Stop a process the gentle way, thawing it first; the hard way at the deadline; whether it is gone."""
    identity.signal(signals.SIGTERM)
    identity.signal(signals.SIGCONT)
    return identity.wait_gone(deadline_s=deadline_s) or identity.kill()


def _found(pid: int, wanted: Callable[[tuple[str, ...]], bool]) -> FoundProcess | None:
    identity = ProcessIdentity.of(pid)
    try:
        raw = (_PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    argv = tuple(raw.decode("utf-8", errors="surrogateescape").rstrip("\0").split("\0"))
    if identity is None or not raw or not wanted(argv) or not identity.is_alive():
        return None
    return FoundProcess(identity=identity, argv=argv, folder=_folder(pid))


def _folder(pid: int) -> Path | None:
    try:
        return (_PROC / str(pid) / "cwd").readlink()
    except OSError:
        return None


def _pids() -> Iterator[int]:
    if not can_find():
        return
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
