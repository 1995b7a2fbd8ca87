"""Counts what the copy program lost or doubled, from the files of its sink alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow.parquet as pq

from tidewise.core import BadInputError

_FIRST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LossReport:
    """What a sink holds of the ordinals that it ought to hold once each."""

    expected: int
    """Ordinals that were committed."""
    found: int
    """Different ones of them in the sink."""
    lost: int
    """Those that are not in the sink."""
    doubled: int
    """Those that are in the sink more than once."""
    uncommitted: int
    """Rows past the committed end: of a batch that was written and will be replayed."""
    first_lost: tuple[int, ...]
    """The ten lowest lost ones."""
    first_doubled: tuple[int, ...]
    """The ten lowest doubled ones."""

    @property
    def clean(self) -> bool:
        """Whether each committed record is there exactly once."""
        return self.lost == 0 and self.doubled == 0


def count_losses(sink: Path, *, committed_end: int) -> LossReport:
    """Compare a sink of the copy program with the committed offset's `records`."""
    times = np.zeros(committed_end, dtype=np.uint16)
    uncommitted = 0
    for file in _files_of(sink):
        ordinals = pq.ParquetFile(file).read(columns=["ordinal"]).column("ordinal").to_numpy()
        committed = ordinals[ordinals < committed_end]
        uncommitted += len(ordinals) - len(committed)
        if len(committed):
            # A file's ordinals lie close together: counting from its lowest keeps the memory small.
            least = int(committed.min())
            counted = np.bincount(committed - least)
            times[least : least + len(counted)] += counted.astype(np.uint16)
    lost, doubled = np.flatnonzero(times == 0), np.flatnonzero(times > 1)
    return LossReport(
        expected=committed_end,
        found=committed_end - len(lost),
        lost=len(lost),
        doubled=len(doubled),
        uncommitted=uncommitted,
        first_lost=tuple(int(ordinal) for ordinal in lost[:_FIRST]),
        first_doubled=tuple(int(ordinal) for ordinal in doubled[:_FIRST]),
    )


def committed_end(checkpoint: Path) -> int:
    """The `records` of the last batch that a checkpoint of the embedded source has committed; 0 before the first."""
    batches = [int(file.name) for file in (checkpoint / "commits").glob("[0-9]*")]
    if not batches:
        return 0
    return int(json.loads((checkpoint / "offsets" / str(max(batches))).read_text().splitlines()[-1])["records"])


def _files_of(sink: Path) -> list[Path]:
    """The files that count: those in the log of a file sink, or those of finished batch folders."""
    log = sink / "_spark_metadata"
    if log.is_dir():
        return _logged_files(log)
    if not sink.is_dir():
        raise BadInputError(f"{sink} is no folder; name the one that the copy program was given as --out")
    return sorted(sink.glob("batch=*/*.parquet"))


def _logged_files(log: Path) -> list[Path]:
    """Files lie there from the moment they are begun; only the log says which are part of the result."""
    plain = {int(file.name): file for file in log.glob("[0-9]*") if file.suffix == ""}
    compact = {int(file.stem): file for file in log.glob("[0-9]*.compact")}
    # A compact entry repeats all entries up to its own.
    last = max(compact, default=-1)
    entries = [compact[last]] if compact else []
    entries += [file for batch, file in sorted(plain.items()) if batch > last]
    lines = [line for entry in entries for line in entry.read_text().splitlines()[1:]]
    return [Path(unquote(urlsplit(json.loads(line)["path"]).path)) for line in lines]
