"""The file in which a daemon's owner writes down what was started, so that any process can find it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from tidewise.core import BadInputError
from tidewise.host.private_files import create_private, write_private

State = TypeVar("State")


def claim(path: Path, state: Mapping[str, object], *, what: str) -> None:
    """Make the folder of the file ours before anything else is written or started in it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with create_private(path) as file:
            file.write(_text(state))
    except OSError as error:
        raise BadInputError(
            f"a {what} cannot be kept in {path.parent}: {error.strerror}; name another folder"
        ) from error


def save(path: Path, state: Mapping[str, object]) -> None:
    """Write it down anew, whole or not at all."""
    write_private(path, _text(state))


def read(path: Path, read_state: Callable[[Mapping[str, object]], State], *, what: str, mend: str) -> State | None:
    """What was written down; None: nothing was. `mend`: what to do first about a file of another version."""
    try:
        return read_state(json.loads(path.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, BadInputError) as error:
        raise BadInputError(f"{path} is not the state of a {what} of this version: {mend}, then remove it") from error


def _text(state: Mapping[str, object]) -> str:
    return json.dumps(state, indent=2) + "\n"
