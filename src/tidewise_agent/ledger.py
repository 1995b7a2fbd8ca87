"""A copy of every offset and commit entry of a checkpoint, because Spark keeps only about a hundred of them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tidewise_agent.scratch import numbers_in


class Ledger:
    """Appends to `ledger.jsonl` what the checkpoint says of each batch, once, after its commit."""

    def __init__(self, folder: Path, checkpoint: Path, *, application: str) -> None:
        self._path = folder / "ledger.jsonl"
        self._checkpoint = checkpoint
        self._application = application
        self._last = self._last_batch()
        self._size = self._size_now()

    def catch_up(self, *, epoch: int | None) -> int:
        """Copy every committed batch that is not in the ledger yet; how many those were."""
        if self._size_now() != self._size:
            # Another application has been the owner meanwhile: a successor looked first when it began to warm up.
            self._last, self._size = self._last_batch(), self._size_now()
        lines = []
        for batch in self._committed_after(self._last):
            try:
                offsets = (self._checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8")
                commit = (self._checkpoint / "commits" / str(batch)).read_text(encoding="utf-8")
            except FileNotFoundError:
                continue  # Spark has thrown it away between listing and reading: the gap is found by `verify`
            entry = {
                "batch": batch,
                "offsets": offsets,
                "commit": commit,
                "at": time.time(),
                "owner": self._application,
                "epoch": epoch,
            }
            lines.append(json.dumps(entry, separators=(",", ":")))
        if lines:
            self._append(lines)
            self._last = json.loads(lines[-1])["batch"]
            self._size = self._size_now()
        return len(lines)

    def _committed_after(self, last: int) -> list[int]:
        following = self._checkpoint / "commits" / str(last + 1)
        if not following.exists() and last >= 0 and (self._checkpoint / "commits" / str(last)).exists():
            return []
        return [batch for batch in numbers_in(self._checkpoint / "commits") if batch > last]

    def _append(self, lines: list[str]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab+") as file:
            # A line that a crash has torn must not swallow the next one.
            torn = file.tell() > 0 and file.seek(-1, os.SEEK_END) >= 0 and file.read(1) != b"\n"
            text = "\n".join(lines) + "\n"
            file.write((("\n" if torn else "") + text).encode())

    def _size_now(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def _last_batch(self) -> int:
        """The last batch in the ledger; -1 for an empty one. Read from the end: ledgers grow long."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                block = 1 << 16
                while True:
                    start = max(0, size - block)
                    file.seek(start)
                    found = _last_complete(file.read(size - start), whole=start == 0)
                    if found is not None:
                        return found
                    if start == 0:
                        return -1
                    block *= 4
        except FileNotFoundError:
            return -1


def _last_complete(tail: bytes, *, whole: bool) -> int | None:
    lines = tail.split(b"\n")
    for line in reversed(lines if whole else lines[1:]):
        try:
            return int(json.loads(line)["batch"])
        except (ValueError, KeyError, TypeError):
            continue
    return None
