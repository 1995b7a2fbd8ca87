"""Files that others read while they are written: they see the old one or the new one, never half of it."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str, *, durable: bool = False) -> None:
    """Put a file in the place of its older self; `durable`: it also outlives the power supply.

    The file that is being written is hidden, and of this process alone.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)
