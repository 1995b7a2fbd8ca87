"""A copy of a checkpoint to warm up on: the same position and the same state, and nothing of it is ever committed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_NOTES = "scratch.txt"
_OUTPUT = "-out"
_FRESH = "-new"
"""Ends the name of a clone that is not complete."""


def clone_checkpoint(checkpoint: Path, target: Path) -> int:
    """Link the checkpoint as of its last committed batch to `target`, which must not exist; that batch, or -1.

    The clone is there as a whole or not at all: until it is, it lies beside under another name.

    Spark never changes a file of a checkpoint in place (it writes another and renames), so that links are as good as
    copies and take no time, however large the state is. The owner goes on meanwhile: the commits are listed first, and
    what vanishes under our hands is too old to be needed.
    """
    if target.exists():
        raise FileExistsError(f"{target} is there already")
    fresh = _fresh(target)
    remove(fresh)  # of one that was killed on the way
    fresh.mkdir(parents=True)
    last = _link_all(checkpoint, fresh)
    fresh.rename(target)
    return last


def _link_all(checkpoint: Path, target: Path) -> int:
    last = max(numbers_in(checkpoint / "commits"), default=-1)
    if last < 0:
        return last
    _link(checkpoint / "metadata", target / "metadata")
    for log in ("offsets", "commits"):
        (target / log).mkdir()
        for batch in numbers_in(checkpoint / log):
            if batch <= last:
                _link(checkpoint / log / str(batch), target / log / str(batch))
    for tree in ("state", "sources"):
        for folder, _, names in os.walk(checkpoint / tree):
            inside = target / Path(folder).relative_to(checkpoint)
            inside.mkdir(parents=True, exist_ok=True)
            for name in names:
                _link(Path(folder) / name, inside / name)
    return last


def note_scratch(home: Path, scratch: Path) -> None:
    """Write down, in the folder of an application, where it is about to clone to: it may be killed any time after."""
    with (home / _NOTES).open("a", encoding="utf-8") as notes:
        notes.write(f"{scratch}\n")


def clear_up(home: Path) -> None:
    """Remove what the application of this folder cloned, and what it wrote into nowhere."""
    try:
        # A line that was cut short, by a kill or a full disk, may name a real checkpoint: only whole ones count.
        noted = (home / _NOTES).read_text(encoding="utf-8").split("\n")[:-1]
    except FileNotFoundError:
        return
    for line in noted:
        scratch = Path(line)
        is_ours = scratch.parent.name == "_tidewise" and scratch.name.startswith(("warm-", "copy-"))
        if is_ours and scratch.is_absolute():
            remove_scratch(scratch)


def output_of(scratch: Path) -> Path:
    """Where a query on this clone writes to, for nobody to read."""
    return scratch.with_name(f"{scratch.name}{_OUTPUT}")


def _fresh(scratch: Path) -> Path:
    return scratch.with_name(f"{scratch.name}{_FRESH}")


def owner_of(folder: Path) -> str:
    """The name that a clone to warm up on was given, of the clone itself or of what lies beside it."""
    return folder.name.removeprefix("warm-").removesuffix(_OUTPUT).removesuffix(_FRESH)


def remove_scratch(scratch: Path) -> None:
    """Remove a clone, what was written on it, and what was to become one."""
    for folder in (scratch, output_of(scratch), _fresh(scratch)):
        remove(folder)


def remove(folder: Path) -> None:
    """Remove a clone; the checkpoint it was linked from keeps its files."""
    shutil.rmtree(folder, ignore_errors=True)


def numbers_in(folder: Path) -> list[int]:
    """The batches that a log of a checkpoint holds, in order."""
    try:
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    except FileNotFoundError:
        return []


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        pass  # Spark has thrown it away meanwhile: it is older than the batch to go on from.
    except OSError:  # A file system without links.
        shutil.copy2(source, target)
