"""Days that are over are rewritten into few sorted files, and old ones dropped, while others write and read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from tidewise.core import BadInputError
from tidewise.pipeline.context import UnreadableFileError, spark_told
from tidewise.pipeline.telemetry_claim import Tell, locked, read_facts, remove_folder, write_json, writing_batch
from tidewise.pipeline.telemetry_tables import (
    COMPACTED,
    TABLES,
    Table,
    batches_of,
    buckets_of,
    days_of,
    is_read,
    read_committed,
    read_compacted,
    read_table,
)

READERS_S = 3600.0
"""How long what was replaced stays for those who have begun to read it."""
KEPT_DAYS: Mapping[str, int] = {"reports": 7, "observations_10s": 30, "dead_letters": 30}
"""By table; all others as long as OTHERS_KEPT_DAYS."""
OTHERS_KEPT_DAYS = 400
MOST_KEPT_DAYS = 36_500
_COMPACTING = ".compacting.lock"
_DRAFT = "_compacting"
_DROPPED = "_dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What was done."""

    days: int
    """Days of tables that were rewritten."""
    folders_removed: int
    """Of batches that had been replaced earlier."""
    problems: tuple[str, ...] = ()
    """Of days that stay as they are because a file of theirs cannot be read."""


def compact(
    session: SparkSession,
    folder: Path,
    today: date,
    *,
    readers_s: float = READERS_S,
    tell: Tell = lambda _: None,
) -> Compaction:
    """Rewrite every day before `today`: partial rows merged, sorted by job and time, one file per bucket.

    The stream may go on meanwhile: rows that come late for such a day are read beside it, and go into it next time.
    A day changes from its batches to the rewritten rows by the replacement of one file, so readers see each row once
    before, at and after that; killed at any point, it can be run again. Replaced files stay for `readers_s`. A day with
    a file that cannot be read stays as it is, and is told. BadInputError where there are no tables, TemporaryError
    where another compaction runs, PermanentError where Spark gave up.
    """
    read_facts(folder)
    with _alone(folder):
        removed = sum(_remove_replaced(day, readers_s) for table in TABLES for _, day in days_of(folder / table))
        rewritten = 0
        problems = []
        for table, day, path in _days_before(folder, today):
            try:
                with spark_told("the compaction"):
                    is_new = _compact_day(session, folder, table, day, path)
            except UnreadableFileError as error:
                problems.append(f"{table.name} of {day} stays as it is: {error}")
                tell(f"{problems[-1]}.")
                continue
            finally:
                remove_folder(folder / _DRAFT)
            if is_new:
                rewritten += 1
                tell(f"{table.name} of {day} is compacted.")
        return Compaction(days=rewritten, folders_removed=removed, problems=tuple(problems))


def _days_before(folder: Path, today: date) -> Iterator[tuple[Table, date, Path]]:
    for table in TABLES.values():
        for day, path in days_of(folder / table.name):
            if day < today:
                yield table, day, path


def retain(folder: Path, days: Mapping[str, int], *, today: date) -> int:
    """Drop the days of each named table that lie more than so many days before today; how many were dropped.

    Rows that come late for a day that was dropped begin it again, until the next time.
    """
    read_facts(folder)
    unknown = sorted(set(days) - set(TABLES))
    if unknown:
        raise BadInputError(f"there is no table {unknown[0]!r}: write one of {', '.join(TABLES)}")
    for table, kept in days.items():
        if not 0 <= kept <= MOST_KEPT_DAYS:
            raise BadInputError(f"{table} cannot be kept for {kept} days: write at most {MOST_KEPT_DAYS}")
    with _alone(folder):
        bin_folder = folder / _DROPPED
        remove_folder(bin_folder)
        bin_folder.mkdir()
        dropped = 0
        # Away from under the stream in one step; the files themselves can take their time.
        with writing_batch(folder):
            for table, kept in days.items():
                for day, path in list(days_of(folder / table)):
                    if day < today - timedelta(days=kept):
                        path.rename(bin_folder / f"{table}-{day}")
                        dropped += 1
        remove_folder(bin_folder)
        return dropped


def kept_days(chosen: Mapping[str, int] | None = None) -> dict[str, int]:
    """How long each table is kept, with what somebody chose for some."""
    return {name: KEPT_DAYS.get(name, OTHERS_KEPT_DAYS) for name in TABLES} | dict(chosen or {})


def _alone(folder: Path) -> AbstractContextManager[None]:
    return locked(
        folder / _COMPACTING, taken=f"the tables in {folder} are being compacted by somebody else: wait for it"
    )


def _compact_day(session: SparkSession, folder: Path, table: Table, day: date, path: Path) -> bool:
    """Whether there was anything to rewrite."""
    # First which batches are whole, then what is there: all of those are.
    through = read_committed(folder)
    before = read_compacted(path)
    fresh = {
        batch
        for bucket in buckets_of(path)
        for batch, _ in batches_of(bucket)
        if 0 <= batch <= through and is_read(batch, before)
    }
    if not fresh:
        return False
    generation = 1 if before is None else before.generation + 1
    rows = read_table(session, folder, table, only=day).where(f"batch <= {max(fresh)}")
    merged = rows if table.summary is None else table.summary.merge(rows)
    columns = [one.name for one in table.columns]
    draft = folder / _DRAFT
    remove_folder(draft)
    (
        merged.selectExpr(*columns, "lpad(cast(bucket AS STRING), 2, '0') AS bucket")
        .repartition("bucket")
        .sortWithinPartitions("bucket", *table.sorted_by)
        .write.partitionBy("bucket")
        .option("compression", "zstd")
        .parquet(str(draft))
    )
    for bucket in buckets_of(draft):
        place = path / bucket.name / f"batch={-generation}"
        # What a compaction that was killed here had left: nothing has named it yet.
        remove_folder(place)
        bucket.rename(place)
    write_json(path / COMPACTED, {"generation": generation, "through": max(fresh)})
    return True


def _remove_replaced(day: Path, readers_s: float) -> int:
    """Folders of a compacted day that nobody begins to read any more."""
    compacted = read_compacted(day)
    if compacted is None or time.time() - (day / COMPACTED).stat().st_mtime < readers_s:
        return 0
    replaced = [
        path for bucket in buckets_of(day) for batch, path in batches_of(bucket) if not is_read(batch, compacted)
    ]
    for path in replaced:
        remove_folder(path)
    return len(replaced)
