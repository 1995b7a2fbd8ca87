"""Files that only their owner can read, because they hold a secret: a command line is there for anybody to read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_KEY_ESCAPES = str.maketrans({" ": "\\ ", ":": "\\:", "=": "\\="})


def create_private(path: Path) -> TextIO:
    """A new file that only its owner can read; FileExistsError when there is one."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")


def write_private(path: Path, text: str) -> None:
    """Write or replace such a file, whole or not at all; when this returns, it outlives the power supply."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    with create_private(fresh) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def write_properties(path: Path, settings: Mapping[str, str]) -> None:
    """Write Spark settings as a private file that `--properties-file` takes."""
    lines = (f"{key.translate(_ESCAPES).translate(_KEY_ESCAPES)}={_value(value)}\n" for key, value in settings.items())
    write_private(path, "".join(lines))


def _value(value: str) -> str:
    escaped = value.translate(_ESCAPES)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped  # a leading space would be taken for none
