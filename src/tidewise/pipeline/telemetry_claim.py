"""Whose a folder of tables is: one query writes it at a time, and always the same one; the files that say so."""

from __future__ import annotations

import fcntl
import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.host.processes import wait_until
from tidewise.host.whole_files import write_whole

Tell = Callable[[str], None]
"""Takes a sentence for whoever waits."""

FORMAT = 1
BUCKETS = 16
CHECKPOINT = "_checkpoint"
FACTS = "tidewise-tables.json"
_WRITING = ".writing.lock"
_BATCH = ".batch.lock"
_BATCH_S = 600.0
"""By then whoever writes a batch, or takes days away, has come to an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a folder of tables is, as it was made."""

    buckets: int
    query: str | None
    """The query that writes it, as its checkpoint names it; None before its first batch."""
    writer: str | None
    """Who claimed it last."""


def read_facts(folder: Path) -> Facts:
    """BadInputError where the folder holds no tables, or tables of another version."""
    told = read_json(folder / FACTS)
    if told is None:
        raise BadInputError(f"there are no tables in {folder}: name the folder that tidewise telemetry tables wrote")
    if told.get("format") != FORMAT:
        raise BadInputError(
            f"the tables in {folder} have format {told.get('format')}, and this version of Tidewise knows format "
            f"{FORMAT}: use the version that wrote them, or another folder"
        )
    return Facts(buckets=int(told["buckets"]), query=told.get("query"), writer=told.get("writer"))


def read_json(path: Path) -> dict[str, Any] | None:
    """What was written there; None where nothing was."""
    try:
        told = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path} cannot be read: {error}") from error
    if not isinstance(told, dict):
        raise BadInputError(f"{path} was not written by Tidewise: it holds no JSON object")
    return told


def remove_folder(path: Path) -> None:
    """With all that is in it, where it is there."""
    with suppress(FileNotFoundError):
        shutil.rmtree(path)


def write_json(path: Path, told: Mapping[str, object]) -> None:
    """Whole or not at all."""
    write_whole(path, (json.dumps(told) + "\n",))


@dataclass(slots=True, kw_only=True)
class Claim:
    """The right to write batches into a folder."""

    folder: Path
    facts: Facts

    def check(self) -> None:
        """PermanentError where somebody has claimed the folder since."""
        if read_facts(self.folder).writer != self.facts.writer:
            raise PermanentError(f"somebody else writes the tables in {self.folder} now: this query has stopped")

    def belongs_to(self, query: str) -> None:
        """Note down whose tables these are, before the first row is written."""
        if self.facts.query is None:
            self.facts = replace(self.facts, query=query)
            _write_facts(self.folder, self.facts)


@contextmanager
def claimed(folder: Path, *, buckets: int) -> Iterator[Claim]:
    """The right to write batches; BadInputError, or TemporaryError while another query writes, where there is none.

    A lock that ends with its process keeps others out on this machine, and on file systems whose flock reaches across
    machines (NFS from version 4 on; not most mounts of object stores). Elsewhere the later of two queries gets its
    way: the earlier one finds another name in the folder before its next batch, and stops.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"tables cannot be kept in {folder}: {error.strerror}; name another folder") from error
    taken = f"another query writes the tables in {folder}: end it first, or name another folder"
    with locked(folder / _WRITING, taken=taken):
        found = read_facts(folder) if (folder / FACTS).exists() else None
        if found is not None and found.buckets != buckets:
            raise BadInputError(
                f"the tables in {folder} have {found.buckets} buckets, not {buckets}: write as many, or another folder"
            )
        if found is None and any(not path.name.startswith(".") for path in folder.iterdir()):
            raise BadInputError(f"{folder} holds something else than tables of Tidewise: name an empty folder")
        query = None if found is None else found.query
        _require_checkpoint(folder, query)
        facts = Facts(buckets=buckets, query=query, writer=uuid.uuid4().hex)
        _write_facts(folder, facts)
        yield Claim(folder=folder, facts=facts)


def query_of(folder: Path) -> str | None:
    """The query whose checkpoint is there."""
    told = read_json(folder / CHECKPOINT / "metadata")
    return None if told is None else str(told["id"])


def _require_checkpoint(folder: Path, query: str | None) -> None:
    there = query_of(folder)
    if query is not None and there != query:
        raise BadInputError(
            f"the tables in {folder} were written by another query than the one in {folder / CHECKPOINT}, which would "
            f"write rows a second time: bring its checkpoint back, or begin in another folder"
        )


def _write_facts(folder: Path, facts: Facts) -> None:
    told = {"format": FORMAT, "buckets": facts.buckets, "query": facts.query, "writer": facts.writer}
    write_json(folder / FACTS, told)


@contextmanager
def locked(path: Path, *, taken: str, deadline_s: float = 0.0) -> Iterator[None]:
    """Keep others out by a lock that the system takes back when its owner dies.

    TemporaryError, with this sentence, where it is still taken at the deadline.
    """
    with _opened(path) as file:
        if not wait_until(lambda: _is_locked(file), deadline_s=deadline_s):
            raise TemporaryError(taken)
        yield


def writing_batch(folder: Path) -> AbstractContextManager[None]:
    """While a batch is written no day is taken away, and the other way round; waits for its turn."""
    taken = f"a batch is still being written to {folder} after {_BATCH_S:.0f} s: try again later"
    return locked(folder / _BATCH, taken=taken, deadline_s=_BATCH_S)


def _is_locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _opened(path: Path) -> IO[str]:
    try:
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"{path.parent} cannot be written to: {error.strerror}; name another folder") from error
