"""One experiment or supervisor at a time in a folder: a lock that ends with its process, however that ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidewise.core import BadInputError, PermanentError

CLAIM_FILE = ".running"


@contextmanager
def claimed(home: Path, *, taken: str | None = None) -> Iterator[None]:
    """Make the folder if need be, and keep others out; BadInputError, with this sentence, where another is in it."""
    path = home / CLAIM_FILE
    try:
        home.mkdir(parents=True, exist_ok=True)
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise PermanentError(f"the folder {home} cannot be written to: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInputError(
                taken or f"another experiment is writing to {home}; wait for it or choose another --out"
            ) from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
