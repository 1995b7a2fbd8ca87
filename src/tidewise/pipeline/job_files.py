"""The files of a table of observations, bucket by bucket: which are there, whose rows they hold, and their columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tidewise.core import PermanentError
from tidewise.pipeline.telemetry_claim import read_facts

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

JOB, PROGRAM, START, WINDOW = "job", "program", "window_start_unix_s", "window_s"
CONFIGURED = (
    "executors",
    "slots_per_executor",
    "cores_per_executor",
    "memory_mib_per_executor",
    "commit_interval_s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The files of one bucket, which hold all rows of its jobs."""

    days: tuple[tuple[str, ...], ...]
    """Those of each day, in the order of days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What is in a bucket."""

    jobs: tuple[str, ...]
    """In the order of their names."""
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Columns of observations, and how they are stored."""

    means: Mapping[str, tuple[str, str]]
    """By their names: the stored columns whose quotient they are."""
    sums: tuple[str, ...]
    """Stored as they are."""

    @classmethod
    def of(cls, *, means: Sequence[str], sums: Sequence[str]) -> Wanted:
        """By their names in the view."""
        from tidewise.pipeline.telemetry_partials import quotient_of  # noqa: PLC0415 - needs PySpark, an optional extra

        return cls(means={name: quotient_of(name) for name in means}, sums=tuple(sums))

    @property
    def stored(self) -> list[str]:
        """All columns that are read for them, each once."""
        parts = [part for parts in self.means.values() for part in parts]
        return list(dict.fromkeys([*parts, *self.sums]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """A part of a file, with all its columns."""

    path: str
    number: int
    file: pq.ParquetFile
    names: tuple[str, ...]
    """The columns that the file has: older ones may lack some."""

    @property
    def rows(self) -> int:
        return int(self.file.metadata.row_group(self.number).num_rows)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """These columns, as far as they are there; PermanentError where they are damaged."""
        there = [name for name in columns if name in self.names]
        try:
            return self.file.read_row_group(self.number, columns=there, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(self.path, error) from error

    def may_hold(self, first: str, last: str) -> bool:
        """Whether it can hold any job between these two."""
        told = self.file.metadata.row_group(self.number).column(self.names.index(JOB)).statistics
        return told is None or not told.has_min_max or bool(told.min <= last and told.max >= first)


def buckets_in(tables: Path, table: str) -> list[Bucket]:
    """The buckets of a table with all that is committed by now; BadInputError where the folder holds no tables.

    Workers find their files whatever folder they work in.
    """
    from tidewise.pipeline.telemetry_tables import (  # noqa: PLC0415 - it needs PySpark, an optional extra
        batches_of,
        buckets_of,
        days_of,
        files_of,
        is_read,
        read_committed,
        read_compacted,
    )

    read_facts(tables)
    tables = tables.absolute()
    committed = read_committed(tables)
    found: defaultdict[str, dict[date, tuple[str, ...]]] = defaultdict(dict)
    for day, path in days_of(tables / table):
        # Before the listing: what a later one would name in its place stays for a while.
        compacted = read_compacted(path)
        for bucket in buckets_of(path):
            counted = [place for batch, place in batches_of(bucket) if batch <= committed and is_read(batch, compacted)]
            files = tuple(str(file) for place in counted for file in files_of(place))
            if files:
                found[bucket.name][day] = files
    return [Bucket(days=tuple(days.values())) for _, days in sorted(found.items())]


def listed(bucket: Bucket) -> Listed:
    """The jobs of a bucket."""
    jobs: set[str] = set()
    rows = 0
    for path in (path for day in bucket.days for path in day):
        for group in row_groups(path):
            jobs.update(group.read([JOB]).column(JOB).unique().to_pylist())
            rows += group.rows
    return Listed(jobs=tuple(sorted(jobs)), rows=rows)


def row_groups(path: str) -> Iterator[RowGroup]:
    """Those of a file that are not empty; PermanentError where it is damaged."""
    with _opened(path) as file:
        names = tuple(file.schema_arrow.names)
        for number in range(file.num_row_groups):
            group = RowGroup(path=path, number=number, file=file, names=names)
            if group.rows:
                yield group


def _opened(path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, read_dictionary=[JOB, PROGRAM])
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(path: str, error: Exception) -> PermanentError:
    told = " ".join(str(error).split())
    return PermanentError(f"{path} cannot be read ({told}): bring it back from a copy, or take it away")


def numbered(column: pa.ChunkedArray, number: Callable[[str | None], int]) -> Integers:
    """The numbers of words of which there are few: each is looked up once."""
    words = column.unify_dictionaries().combine_chunks()
    numbers = np.array([number(word) for word in (*words.dictionary.to_pylist(), None)], dtype=np.int64)
    places: Integers = words.indices.fill_null(len(numbers) - 1).to_numpy(zero_copy_only=False)
    return numbers[places]


def sums_at(rows: pa.Table, name: str, places: Integers) -> Floats:
    """A stored sum in these rows; 0 where it is null or the file does not have it: of nothing."""
    if name not in rows.column_names:
        return np.zeros(len(places))
    column = rows.column(name)
    filled = column.fill_null(0.0) if column.null_count else column
    return np.asarray(filled.to_numpy()[places], dtype=np.float64)
