"""The tables of telemetry in a folder: their layout, who may write them, and views for plain Spark SQL.

DIR/TABLE/day=YYYY-MM-DD/bucket=NN/batch=ID/part-*.parquet, where a bucket holds the jobs of one hash. A batch counts
once DIR/_committed.json names it or a later one. A day that was compacted says so in its _compacted.json: then the
folders batch=-GENERATION count, and of the others only batches after the one that it goes through to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tidewise.core.telemetry import ChangeRow, ForecastErrorRow, RecoveryRow, ReportRow, TelemetryRow
from tidewise.pipeline.telemetry_claim import Tell, read_facts, read_json, write_json
from tidewise.pipeline.telemetry_partials import OBSERVATIONS, PERFORMANCE, WINDOW_START, Summary
from tidewise.pipeline.telemetry_schema import ENVELOPE, Column, ddl, row_columns

COMPACTED = "_compacted.json"
_COMMITTED = "_committed.json"
_DAY = re.compile(r"day=(\d{4}-\d{2}-\d{2})")
_BUCKET = re.compile(r"bucket=\d+")
_BATCH_FOLDER = re.compile(r"batch=(-?\d+)")
_FILE = re.compile(r"part-.+\.parquet")
_MAGIC = b"PAR1"
_PARTITION_TYPES = "day DATE, bucket INT, batch BIGINT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of the folder."""

    name: str
    columns: tuple[Column, ...]
    """As they are stored, without the partitions."""
    sorted_by: tuple[str, ...]
    """Within a bucket, once a day is compacted."""
    summary: Summary | None = None
    """How its rows are merged; none where each stands for itself."""

    @property
    def schema(self) -> str:
        """Everything that is read; what a file lacks is null."""
        return f"{ddl(self.columns)}, {_PARTITION_TYPES}"


_RECEIVED = Column(name="received_unix_s", sql_type="DOUBLE", is_required=True)


def _rows(name: str, row: type[TelemetryRow]) -> Table:
    return Table(name=name, columns=(*ENVELOPE, *row_columns(row), _RECEIVED), sorted_by=("job", "at_unix_s"))


def _text(name: str) -> Column:
    return Column(name=name, sql_type="STRING", is_required=False)


ROW_TABLES = {
    row.kind: _rows(name, row)
    for name, row in (
        ("reports", ReportRow),
        ("changes", ChangeRow),
        ("recoveries", RecoveryRow),
        ("forecast_errors", ForecastErrorRow),
    )
}
"""By the kind of their rows."""
OBSERVATION_WINDOWS_S = {"observations_10s": 10, "observations_60s": 60}
_WINDOWED = {
    name: Table(name=name, columns=OBSERVATIONS.columns, sorted_by=("job", WINDOW_START), summary=OBSERVATIONS)
    for name in OBSERVATION_WINDOWS_S
}
PERFORMANCE_TABLE = Table(
    name="performance", columns=PERFORMANCE.columns, sorted_by=("job", "program"), summary=PERFORMANCE
)
DEAD_LETTERS = Table(
    name="dead_letters",
    columns=(_text("raw"), _text("reason"), _RECEIVED, _text("where_from"), _text("job")),
    sorted_by=("received_unix_s",),
)
TABLES: dict[str, Table] = {
    one.name: one for one in (*ROW_TABLES.values(), *_WINDOWED.values(), PERFORMANCE_TABLE, DEAD_LETTERS)
}


def open_tables(session: SparkSession, folder: Path, *, tell: Tell = lambda _: None) -> dict[str, DataFrame]:
    """Register every table as a temporary view of its name, with partial rows merged into final ones.

    They show what is committed by now; open them again for what comes later, and after an hour at the latest, when
    compaction may take away what they read. `tell` hears of files that are none of these tables': they are passed by.
    BadInputError where the folder holds no tables of this version.
    """
    read_facts(folder)
    views = {}
    for table in TABLES.values():
        stored = read_table(session, folder, table, tell=tell)
        view = stored.drop("batch") if table.summary is None else table.summary.final(stored)
        view.createOrReplaceTempView(table.name)
        views[table.name] = view
    return views


def read_table(
    session: SparkSession, folder: Path, table: Table, *, only: date | None = None, tell: Tell = lambda _: None
) -> DataFrame:
    """All committed rows as they are stored, of one day where asked for, with their partitions."""
    committed = read_committed(folder)
    found = _Found()
    for day, path in days_of(folder / table.name, found.foreign):
        if only is None or day == only:
            found.add(day, path)
    if found.foreign:
        tell(
            f"{len(found.foreign)} files or folders are none of the table {table.name} and are passed by, for example "
            f"{found.foreign[0]}."
        )
    if not found.paths:
        return session.createDataFrame([], table.schema)
    stored = session.read.schema(table.schema).option("basePath", str(folder / table.name)).parquet(*found.paths)
    # Whole buckets are named where nothing speaks against it; what appears in them meanwhile is kept out by this: later
    # batches, and the generation that a compaction is about to put in the place of the one that counts.
    counts = [f"batch BETWEEN 0 AND {committed}"]
    for generation, days in found.compacted.items():
        named = ", ".join(f"DATE'{day}'" for day in days)
        counts.append(f"batch = {-generation} AND day IN ({named})")
    return stored.where(" OR ".join(f"({each})" for each in counts))


@dataclass(slots=True)
class _Found:
    """What of a table is to be read."""

    paths: list[str] = field(default_factory=list)
    compacted: dict[int, list[date]] = field(default_factory=dict)
    """Days by their generation."""
    foreign: list[Path] = field(default_factory=list)

    def add(self, day: date, path: Path) -> None:
        # Before the listing: what a later one would name in its place stays for a while.
        compacted = read_compacted(path)
        if compacted is not None:
            self.compacted.setdefault(compacted.generation, []).append(day)
        for bucket in _matching(path, _BUCKET, self.foreign):
            before = len(self.foreign)
            batches = dict(batches_of(bucket, self.foreign))
            files = {each: list(files_of(batch, self.foreign)) for each, batch in batches.items()}
            counts = [each for each in batches if is_read(each, compacted)]
            if len(self.foreign) > before:
                self.paths += [str(file) for each in counts for file in files[each]]
            elif len(counts) == len(batches):
                self.paths += [str(bucket)] if batches else []
            else:
                self.paths += [str(batches[each]) for each in counts]


def days_of(table: Path, foreign: list[Path] | None = None) -> Iterator[tuple[date, Path]]:
    """The days that a table has, in their order."""
    for path in _matching(table, _DAY, foreign):
        try:
            yield date.fromisoformat(path.name.removeprefix("day=")), path
        except ValueError:
            if foreign is not None:
                foreign.append(path)


def buckets_of(day: Path) -> Iterator[Path]:
    """The buckets that a day has."""
    return _matching(day, _BUCKET, None)


def batches_of(bucket: Path, foreign: list[Path] | None = None) -> Iterator[tuple[int, Path]]:
    """The batches that a bucket has; negative ones are generations of compacted rows."""
    for path in _matching(bucket, _BATCH_FOLDER, foreign):
        yield int(path.name.removeprefix("batch=")), path


def files_of(batch: Path, foreign: list[Path] | None = None) -> Iterator[Path]:
    """The files that a batch has."""
    for file in _matching(batch, _FILE, foreign):
        if _is_parquet(file):
            yield file
        elif foreign is not None:
            foreign.append(file)


def _matching(folder: Path, wanted: re.Pattern[str], foreign: list[Path] | None) -> Iterator[Path]:
    """What is in a folder by this form of name; hidden files are Spark's and ours."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names are enough, and there are many
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if wanted.fullmatch(name):
            yield folder / name
        elif not name.startswith((".", "_")) and foreign is not None:
            foreign.append(folder / name)


def _is_parquet(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


# What of it counts --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What was made of a day of a table."""

    generation: int
    through: int
    """The last batch that is in it."""


def is_read(batch: int, compacted: Compacted | None) -> bool:
    """Whether a batch of a day is one of those that its rows are read from."""
    if compacted is None:
        return batch >= 0
    return batch == -compacted.generation or batch > compacted.through


def read_compacted(day: Path) -> Compacted | None:
    """What was made of a day; None where it is as it was written."""
    told = read_json(day / COMPACTED)
    return None if told is None else Compacted(generation=told["generation"], through=told["through"])


def read_committed(folder: Path) -> int:
    """The last batch that is whole; -1 where none is."""
    told = read_json(folder / _COMMITTED)
    return -1 if told is None else int(told["batch"])


def commit(folder: Path, batch: int) -> None:
    """From now on readers see this batch."""
    write_json(folder / _COMMITTED, {"batch": batch})
