"""Who may write a checkpoint and its sink: one application at a time, counted by an epoch that only grows.

Spark notices a second writer only after the sink has been written, so it cannot be left to Spark. A lease is a small
file beside the checkpoint. It changes hands in three ways only: nobody holds it, its holder has released it, or its
holder is known to be dead.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tidewise_agent.files import write_whole
from tidewise_agent.proc import stat_of

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
EXECUTORS_LEAVE_S = 5.0
"""Executors end themselves within this time after their driver died."""


class LeaseRefusedError(RuntimeError):
    """Another application holds the checkpoint, or has taken it over."""


@dataclass(frozen=True)
class Holder:
    """The content of a lease."""

    application: str
    epoch: int
    released: bool
    run: str
    """Whose application it is: within one run, the controller says who is dead."""
    host: str
    processes: list[list[int | None]]
    """Its driver's, each by number and start time: on this host, anybody can see whether they live."""
    at: float
    """When it was written, for people; nothing is decided by it."""

    def is_dead_driver_of_another(self, run: str) -> bool:
        """Whether another run left it behind: on this host, with no process of its driver alive."""
        if self.run == run or self.host != this_host() or not self.processes:
            return False
        return all(pid is not None and _is_dead(pid, ticks) for pid, ticks in self.processes)


class Lease:
    """The lease of one checkpoint as one application sees it."""

    def __init__(self, folder: Path, *, application: str, run: str = "", processes: tuple[int, ...] = ()) -> None:
        """`processes`: the driver's, so that a later run can see when they are dead."""
        self._path = folder / "lease.json"
        self._application = application
        self._run = run
        self._processes: list[list[int | None]] = [[pid, _started_ticks(pid)] for pid in processes]
        self._epoch: int | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch under which this application holds the lease; None while it does not."""
        return self._epoch

    def claim(self, *, gone: frozenset[str] = frozenset()) -> int:
        """Take the lease; `gone` names applications that are known to be dead. LeaseRefusedError where it is held."""
        holder = self.holder()
        if holder is not None and not self._may_follow(holder, gone) and holder.is_dead_driver_of_another(self._run):
            time.sleep(EXECUTORS_LEAVE_S)
            gone |= {holder.application}
        with self._locked():
            holder = self.holder()
            if holder is not None and not self._may_follow(holder, gone):
                where = holder.host.split()[0]
                raise LeaseRefusedError(
                    f"The checkpoint is held by the application {holder.application} on {where} (epoch "
                    f"{holder.epoch}), which has not released it and is not known to be dead; if you know that it is, "
                    f"remove {self._path}."
                )
            mine = holder is not None and holder.application == self._application and not holder.released
            epoch = holder.epoch if mine and holder is not None else (holder.epoch if holder else 0) + 1
            self._write(self._holding(epoch, released=False))
            self._epoch = epoch
            return epoch

    def claim_or_refuse(self, *, gone: frozenset[str]) -> int:
        """As `claim`; a lease that cannot be read or written is refused as well: who knows who holds it."""
        try:
            return self.claim(gone=gone)
        except (OSError, ValueError, TypeError) as error:
            raise LeaseRefusedError(
                f"The lease {self._path} cannot be read or written ({error}), so nobody can tell whether another "
                "application writes this checkpoint; make it usable, or remove it if you know that nobody does."
            ) from error

    def _may_follow(self, holder: Holder, gone: frozenset[str]) -> bool:
        return holder.released or holder.application == self._application or holder.application in gone

    def _holding(self, epoch: int, *, released: bool) -> Holder:
        return Holder(
            application=self._application,
            epoch=epoch,
            released=released,
            run=self._run,
            host=this_host(),
            processes=self._processes,
            at=time.time(),
        )

    def check(self) -> None:
        """LeaseRefusedError unless this application holds the lease; called before every write to the sink."""
        holder = self.holder()
        if holder is None or holder.released or holder.application != self._application or holder.epoch != self._epoch:
            told = "nobody" if holder is None else f"{holder.application} (epoch {holder.epoch})"
            raise LeaseRefusedError(
                f"{self._application} (epoch {self._epoch}) no longer holds the checkpoint of {self._path.parent}, "
                f"{told} does: the batch is not written."
            )

    def release(self) -> None:
        """Let another take it; does nothing where this application does not hold it."""
        with self._locked():
            holder = self.holder()
            if holder is not None and holder.application == self._application and not holder.released:
                self._write(self._holding(holder.epoch, released=True))
        self._epoch = None

    def holder(self) -> Holder | None:
        """Who holds it, or held it last; None where nobody ever did."""
        try:
            return Holder(**json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def _write(self, holder: Holder) -> None:
        write_whole(self._path, json.dumps(asdict(holder)), durable=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_name("lease.lock").open("a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _is_dead(pid: int, ticks: int | None) -> bool:
    """Whether a process is known to be dead: its number is free, or was given to a younger one."""
    stat = stat_of(pid)
    if stat is not None:
        return stat.is_dead or stat.started_ticks != ticks
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False  # it is there, and nothing is told of it


def _started_ticks(pid: int) -> int | None:
    stat = stat_of(pid)
    return None if stat is None else stat.started_ticks


def this_host() -> str:
    """Where process numbers mean the same: the host, since its start, and the name space of this process."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def bookkeeping_folder(checkpoint: str, *, state_folder: str) -> Path:
    """Where lease and ledger of a checkpoint are kept: inside it, or with the job where it is not on a local disk."""
    local = local_path(checkpoint)
    if local is not None:
        return local / "_tidewise"
    return Path(state_folder) / "checkpoints" / "".join(c if c.isalnum() else "-" for c in checkpoint).strip("-")


def local_path(location: str) -> Path | None:
    """The path of a location on a local disk; None for any other."""
    if location.startswith("file:"):
        rest = location[len("file:") :]
        return Path("/" + rest.lstrip("/"))
    return None if _SCHEME.match(location) else Path(location).absolute()
