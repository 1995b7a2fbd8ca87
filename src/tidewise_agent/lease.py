"""Who may write a checkpoint and its sink: one application at a time, counted by an epoch that only grows.

Spark notices a second writer only after the sink has been written, so it cannot be left to Spark. A lease is a small
file beside the checkpoint. It changes hands in three ways only: nobody holds it, its holder has released it, or its
holder is known to be dead.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path


class LeaseRefusedError(RuntimeError):
    """Another application holds the checkpoint, or has taken it over."""


@dataclass(frozen=True)
class Holder:
    """The content of a lease."""

    application: str
    epoch: int
    pid: int
    released: bool
    at: float
    """When it was written, for people; nothing is decided by it."""


class Lease:
    """The lease of one checkpoint as one application sees it."""

    def __init__(self, folder: Path, *, application: str) -> None:
        self._path = folder / "lease.json"
        self._application = application
        self._epoch: int | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch under which this application holds the lease; None while it does not."""
        return self._epoch

    def claim(self, *, gone: frozenset[str] = frozenset()) -> int:
        """Take the lease; `gone` names applications that are known to be dead. LeaseRefusedError where it is held."""
        with self._locked():
            holder = self.holder()
            if holder is not None and holder.application != self._application:
                if not holder.released and holder.application not in gone:
                    raise LeaseRefusedError(
                        f"The checkpoint of {self._path.parent} is held by the application {holder.application} "
                        f"(epoch {holder.epoch}), which has not released it and is not known to be dead."
                    )
                if self._epoch is not None and holder.epoch > self._epoch:
                    self._epoch = None
            mine = holder is not None and holder.application == self._application and not holder.released
            epoch = holder.epoch if mine and holder is not None else (holder.epoch if holder else 0) + 1
            self._write(Holder(self._application, epoch, os.getpid(), released=False, at=time.time()))
            self._epoch = epoch
            return epoch

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
                self._write(Holder(self._application, holder.epoch, os.getpid(), released=True, at=time.time()))
        self._epoch = None

    def holder(self) -> Holder | None:
        """Who holds it, or held it last; None where nobody ever did."""
        try:
            return Holder(**json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def _write(self, holder: Holder) -> None:
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(asdict(holder), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_name("lease.lock").open("a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


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
    return None if "://" in location else Path(location).absolute()
