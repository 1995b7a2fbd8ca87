"""One experiment or supervisor at a time in a folder: a lock that ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidewise.core import BadInputError, PermanentError

CLAIM_FILE = ".running"


@contextmanager
def claimed(home: Path, *, taken: str | None = None) -> Iterator[str]:
    """Make the folder if need be, and keep others out; BadInputError, with this sentence, where another is in it.

    Yields a token that `read_token` finds in this folder, and in no other that happens to have its name elsewhere.
    """
    path = home / CLAIM_FILE
    try:
        home.mkdir(parents=True, exist_ok=True)
        file = path.open("a", encoding="utf-8")  # not "w": what another wrote into it stays
    except OSError as error:
        raise PermanentError(f"the folder {home} cannot be written to: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInputError(
                taken or f"another experiment is writing to {home}; wait for it or choose another --out"
            ) from None
        token = uuid.uuid4().hex
        file.truncate(0)
        file.write(token)
        file.flush()
        try:
            yield token
        finally:
            path.unlink(missing_ok=True)


def read_token(home: Path) -> str | None:
    """The token of whoever has claimed this folder; None where nobody has, or there is no such folder here."""
    try:
        return (home / CLAIM_FILE).read_text(encoding="utf-8")
    except OSError:
        return None
