"""The memory of a run in one SQLite file, written so that a controller killed at any point leaves whole events only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Self
from urllib.parse import quote

from tidewise.control.codec import decode, encode
from tidewise.core import (
    BadInputError,
    JournalEvent,
    JournalVersionError,
    PermanentError,
    TemporaryError,
    TidewiseError,
)

FORMAT_VERSION = 1
APPLICATION_ID = 0x54_69_64_77  # "Tidw", by which a file is known as a journal of Tidewise.

_ROWS_PER_READ = 1000
_FULL = frozenset({sqlite3.SQLITE_FULL})
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_NO_JOURNAL = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})


class Durability(StrEnum):
    """What an append survives once it has returned."""

    PROCESS = "process"
    """The death of the controller, at any point. After a power cut or a crash of the operating system the last
    appends may be missing; the file is whole. (synchronous=NORMAL)"""
    POWER = "power"
    """A power cut as well, at the price of one flush to disk per append. (synchronous=FULL)"""


class SqliteJournal:
    """A journal in an SQLite file in WAL mode; implements `core.Journal`.

    One writer at a time: a second one is refused with TemporaryError, by a lock (`<file>.lock`) that the operating
    system takes back when its owner dies. Any number of readers, also while a controller writes. Used by one thread
    at a time. An `append` that raises has written nothing; PermanentError: the disk is full or broken;
    TemporaryError: another program holds the file.
    """

    def __init__(
        self,
        path: Path,
        *,
        durability: Durability = Durability.PROCESS,
        locked_for_s: float = 5.0,
        readonly: bool = False,
        is_over: bool = False,
    ) -> None:
        self.path = path
        self._readonly = readonly
        self._connection: sqlite3.Connection | None = None
        self._lock = None if readonly else _lock(path)
        try:
            with _told(path):
                self._connection = (
                    _connect_readonly(path, is_over=is_over) if readonly else _connect(path, locked_for_s)
                )
                if not readonly:
                    self._prepare(durability)
                self._check()
        except TidewiseError:
            self.close()
            raise

    @classmethod
    def open_readonly(cls, path: Path, *, is_over: bool = False) -> Self:
        """Open a journal for reports, while a controller writes it or afterwards; `append` is refused.

        `is_over`: nobody writes it any more, ever; to read it leaves no files beside it then.
        """
        if not path.is_file():
            raise BadInputError(f"There is no journal at {path}.")
        return cls(path, readonly=True, is_over=is_over)

    def append(self, events: Iterable[JournalEvent]) -> None:
        """Write the events at the end, all or none."""
        if self._readonly:
            raise PermanentError(f"The journal {self.path} was opened for reading only.")
        rows = [(event.at_s, *encode(event)) for event in events]
        if not rows:
            return
        connection = self._open()
        with _told(self.path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany("INSERT INTO event (at_s, kind, body) VALUES (?, ?, ?)", rows)
                connection.execute("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise

    def read(self) -> Iterator[JournalEvent]:
        """All events, oldest first, those included that are appended meanwhile."""
        for _, event in self.read_after(0):
            yield event

    def read_after(self, after: int) -> Iterator[tuple[int, JournalEvent]]:
        """The events after the line of this number, each with its own; lines are numbered from 1."""
        connection = self._open()
        while True:
            # In pieces: one long read would keep the writer from folding its log into the file.
            with _told(self.path):
                rows = connection.execute(
                    "SELECT sequence, kind, body FROM event WHERE sequence > ? ORDER BY sequence LIMIT ?",
                    (after, _ROWS_PER_READ),
                ).fetchall()
            for sequence, kind, body in rows:
                yield sequence, decode(kind, body, where=f"Line {sequence} of {self.path}")
            if len(rows) < _ROWS_PER_READ:
                return
            after = rows[-1][0]

    def latest_at_s(self) -> float | None:
        """The latest time of any event; None where there is none."""
        with _told(self.path):
            row = self._open().execute("SELECT max(at_s) FROM event").fetchone()
        return None if row[0] is None else float(row[0])

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise PermanentError(f"The journal {self.path} is closed.")
        return self._connection

    def _prepare(self, durability: Durability) -> None:
        connection = self._open()
        if self._is_new():
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT")
                connection.execute(
                    "CREATE TABLE event (sequence INTEGER PRIMARY KEY, at_s REAL NOT NULL, kind TEXT NOT NULL,"
                    " body TEXT NOT NULL) STRICT"
                )
                connection.execute("INSERT INTO meta VALUES ('format_version', ?)", (str(FORMAT_VERSION),))
                connection.execute("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise
        synchronous = {Durability.PROCESS: "NORMAL", Durability.POWER: "FULL"}[durability]
        connection.execute(f"PRAGMA synchronous = {synchronous}")

    def _is_new(self) -> bool:
        connection = self._open()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        return bool(application == 0 and tables == 0)

    def _check(self) -> None:
        connection = self._open()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if self._is_new():
            raise BadInputError(
                f"The journal {self.path} is empty: its run has only just begun, or was stopped before it did; make the"
                " run again, or put a copy of its journal there."
            )
        if application != APPLICATION_ID:
            raise BadInputError(f"{self.path} is not a journal of Tidewise but another program's database.")
        row = connection.execute("SELECT value FROM meta WHERE name = 'format_version'").fetchone()
        found = "no" if row is None else row[0]
        if found != str(FORMAT_VERSION):
            raise JournalVersionError(
                f"The journal {self.path} has format {found}, and this version of Tidewise reads format"
                f" {FORMAT_VERSION}: use the version that wrote it, or begin a new run."
            )


def _roll_back(connection: sqlite3.Connection) -> None:
    # A full disk makes SQLite roll back by itself; a failure to do so is not worth more than the first one.
    if connection.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def _lock(path: Path) -> int:
    beside = path.with_name(path.name + ".lock")
    try:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise BadInputError(f"The journal {path} cannot be written: {error.strerror} ({beside}).") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise TemporaryError(
            f"Another controller is writing the journal {path}: end it first, or choose another run."
        ) from error
    return descriptor


def _connect(path: Path, locked_for_s: float) -> sqlite3.Connection:
    # No isolation level: every transaction is begun and ended by name.
    return sqlite3.connect(path, isolation_level=None, timeout=locked_for_s, check_same_thread=False)


def _connect_readonly(path: Path, *, is_over: bool) -> sqlite3.Connection:
    log = path.with_name(f"{path.name}-wal")
    # Whoever was reading when the controller ended has kept it from folding its log into the file.
    is_whole = is_over and not (log.exists() and log.stat().st_size)
    name = f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if is_whole else ''}"
    connection = sqlite3.connect(name, uri=True, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorcode & 0xFF not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
            raise
        # In a folder that may not be written, SQLite cannot make the index of a log; a run that is over has no log.
        connection = sqlite3.connect(f"{name}&immutable=1", uri=True, isolation_level=None, check_same_thread=False)
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """SQLite's errors as Tidewise's, by what the caller should do about them."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _FULL:
            raise PermanentError(
                f"The disk is full: the journal {path} took nothing of the last step; make room and start again."
            ) from error
        if code in _LOCKED:
            raise TemporaryError(f"Another program holds the journal {path}.") from error
        if code in _NO_JOURNAL:
            raise BadInputError(
                f"{path} is not a journal of Tidewise, or it is damaged ({error}): put a copy of it there, or make the "
                "run again."
            ) from error
        raise PermanentError(f"The journal {path} cannot be used: {error}.") from error
