"""Builds checkpoints, ledgers and file sinks as Spark 4.3 and the agent write them, for the audit's tests."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def entry(batch: int, *sources: str, version: str = "v1") -> str:
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 1794757026224 + batch, "conf": {"a": "b"}}
    return "\n".join([version, json.dumps(metadata, separators=(",", ":")), *sources])


def ledger_line(
    batch: int, offsets: str, *, commit: str = COMMIT, owner: str = "app-1", epoch: int = 1, at: float = 1790000000.5
) -> str:
    line = {"batch": batch, "offsets": offsets, "commit": commit, "at": at, "owner": owner, "epoch": epoch}
    return json.dumps(line) + "\n"


@dataclass
class Story:
    """A query's life, to be spoilt by a test and then written down."""

    folder: Path
    offsets: dict[int, str]
    kept_from: int = 0
    ledger: list[str] | None = None
    uncommitted: set[int] = field(default_factory=set)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def sink(self) -> Path:
        return self.folder / "sink"

    def write(self) -> Path:
        for part in ("offsets", "commits", "_tidewise"):
            (self.checkpoint / part).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text('{"id":"b3c36262-8329-4c73-99d9-378201b97415"}')
        for batch, text in self.offsets.items():
            if batch >= self.kept_from:
                (self.checkpoint / "offsets" / str(batch)).write_text(text)
                (self.checkpoint / "offsets" / f".{batch}.crc").write_bytes(b"crc")
                if batch not in self.uncommitted:
                    (self.checkpoint / "commits" / str(batch)).write_text(COMMIT)
        if self.ledger is not None:
            (self.checkpoint / "_tidewise" / "ledger.jsonl").write_text("".join(self.ledger))
        return self.checkpoint

    def write_sink(self, *, compact_every: int = 3, files: int = 2) -> Path:
        """Each batch writes files and logs them; every few batches the log repeats all before."""
        log = self.sink / "_spark_metadata"
        log.mkdir(parents=True)
        lines: list[str] = []
        for batch in sorted(set(self.offsets) - self.uncommitted):
            own = [self._data_file(batch, number) for number in range(files)]
            lines += own
            compact = batch % compact_every == compact_every - 1
            name, content = (f"{batch}.compact", lines) if compact else (str(batch), own)
            (log / name).write_text("\n".join(["v1", *content]))
        return self.sink

    def _data_file(self, batch: int, number: int) -> str:
        path = self.sink / f"part-{number:05}-{batch}-c000.json"
        path.write_text("x" * (10 + batch))
        return json.dumps(
            {
                "path": path.absolute().as_uri(),
                "size": 10 + batch,
                "isDir": False,
                "modificationTime": 1794757025600 + batch,
                "blockReplication": 1,
                "blockSize": 33554432,
                "action": "add",
            },
            separators=(",", ":"),
        )


def counting(folder: Path, *, batches: int = 8, kept_from: int = 0, rows: int = 10) -> Story:
    offsets = {batch: entry(batch, f'{{"records":{rows * (batch + 1)}}}') for batch in range(batches)}
    ledger = [ledger_line(batch, text) for batch, text in offsets.items()]
    return Story(folder=folder, offsets=offsets, kept_from=kept_from, ledger=ledger)
