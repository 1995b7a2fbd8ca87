"""One experiment or supervisor at a time in a folder: a lock that ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from tidewise.core import BadInputError, PermanentError

CLAIM_FILE = ".running"
_TRIES = 100


@contextmanager
def claimed(home: Path, *, taken: str | None = None) -> Iterator[str]:
    """Make the folder if need be, and keep others out; BadInputError, with this sentence, where another is in it.

    Yields a token that `read_token` finds in this folder, and in no other that happens to have its name elsewhere. A
    folder that was made here and is empty in the end goes again.
    """
    made = [folder for folder in (home, *home.parents) if not folder.exists()]
    file = _locked(home, taken or f"another experiment is writing to {home}; wait for it or choose another --out")
    with file:
        token = uuid.uuid4().hex
        file.truncate(0)
        file.write(token)
        file.flush()
        try:
            yield token
        finally:
            (home / CLAIM_FILE).unlink(missing_ok=True)
            with suppress(OSError):  # as soon as there is something in one
                for folder in made:
                    folder.rmdir()


def _locked(home: Path, taken: str) -> TextIO:
    """The claim's file, open and locked."""
    path = home / CLAIM_FILE
    for _ in range(_TRIES):
        try:
            home.mkdir(parents=True, exist_ok=True)
            file = path.open("a", encoding="utf-8")  # not "w": what another wrote into it stays
        except FileNotFoundError:
            continue  # whoever made the folder took it away in this very moment
        except OSError as error:
            raise PermanentError(f"the folder {home} cannot be written to: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise BadInputError(taken) from None
        if _is_file_of(file, path):
            return file
        # The holder before removed it between our opening and our lock: others would make and lock another one.
        file.close()
    raise PermanentError(f"the folder {home} cannot be claimed: it goes again as soon as it is made")


def _is_file_of(file: TextIO, path: Path) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(file.fileno())
    return (mine.st_dev, mine.st_ino) == (found.st_dev, found.st_ino)


def read_token(home: Path) -> str | None:
    """The token of whoever has claimed this folder; None where nobody has, or there is no such folder here."""
    try:
        return (home / CLAIM_FILE).read_text(encoding="utf-8")
    except OSError:
        return None
