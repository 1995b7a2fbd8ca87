"""A folder of line files that others read while it grows: a file appears whole, or not at all."""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from tidewise.core import PermanentError, TemporaryError

SUFFIX = ".jsonl"
_HIDDEN_SUFFIX = ".writing"
_LEFT_BEHIND_S = 3600.0
"""A file that has been written for so long was left behind by somebody who was killed; its lines were sent again."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""There may be room later."""


class LineFolder:
    """Takes lines for a folder, each time as one file; any number of writers share a folder.

    While a file is written, its name begins with a dot, which Spark's file source passes by.
    """

    gather_s = 10.0
    """How long lines are worth gathering, so that there are not too many files."""
    most_lines = 20_000
    """In one file."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        """PermanentError where the folder cannot be made."""
        self.folder = folder
        self._clock = clock
        self._writer = uuid.uuid4().hex[:8]
        self._files = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._clear()
        except OSError as error:
            raise PermanentError(f"the folder {folder} cannot be made: {error.strerror}") from error

    def send(self, lines: Sequence[tuple[str, str]]) -> None:
        """Write the lines, each given with its job; when this returns, they outlive the power supply.

        TemporaryError where the disk is full, PermanentError where the folder cannot be written to.
        """
        if not lines:
            return
        self._files += 1
        # In order of time by name, too: for people who look into the folder.
        name = f"{round(1000 * self._clock()):015d}-{self._writer}-{self._files:06d}{SUFFIX}"
        hidden = self.folder / f".{name}{_HIDDEN_SUFFIX}"
        try:
            with hidden.open("x", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{line}\n" for _, line in lines)
                file.flush()
                os.fsync(file.fileno())
            hidden.replace(self.folder / name)
            self._keep_name()
        except OSError as error:
            hidden.unlink(missing_ok=True)
            kind = TemporaryError if error.errno in _FULL else PermanentError
            raise kind(f"the folder {self.folder} cannot be written to: {error.strerror}") from error

    def close(self) -> None:
        """Nothing is held between two calls."""

    def _keep_name(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _clear(self) -> None:
        for path in self.folder.glob(f".*{SUFFIX}{_HIDDEN_SUFFIX}"):
            try:
                is_old = path.stat().st_mtime < self._clock() - _LEFT_BEHIND_S
            except FileNotFoundError:
                continue  # whoever wrote it has just given it its name
            if is_old:
                path.unlink(missing_ok=True)
