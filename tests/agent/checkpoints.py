"""The files of a checkpoint, as Spark leaves them."""

from __future__ import annotations

import json
from pathlib import Path


def offsets_text(batch: int) -> str:
    return f"v1\n{json.dumps({'batchWatermarkMs': 0, 'batchTimestampMs': batch})}\n{json.dumps({'records': batch})}"


def commit_text(batch: int) -> str:
    return f'v1\n{{"nextBatchWatermarkMs":{batch}}}'


def write_batch(checkpoint: Path, batch: int, *, committed: bool = True) -> None:
    for log, text in (("offsets", offsets_text(batch)), ("commits", commit_text(batch))):
        if log == "offsets" or committed:
            (checkpoint / log).mkdir(parents=True, exist_ok=True)
            (checkpoint / log / str(batch)).write_text(text, encoding="utf-8")


def purge_before(checkpoint: Path, batch: int) -> None:
    for log in ("offsets", "commits"):
        for file in (checkpoint / log).iterdir():
            if int(file.name) < batch:
                file.unlink()
