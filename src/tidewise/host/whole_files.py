"""Files that appear whole or not at all, for whoever may read the folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def write_whole(path: Path, parts: Iterable[str]) -> None:
    """Write or replace a file; when this returns, its content outlives the power supply.

    Until then it has a name that begins with a dot, which Spark's file source passes by.
    """
    fresh = path.with_name(f".{path.name}.writing")
    with fresh.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
