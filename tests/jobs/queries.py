"""How the queries of benchmarks are tried: events come file by file, and DuckDB says what is right."""

from __future__ import annotations

import argparse
import datetime
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from tests.jobs.running import options_without_source
from tidewise.jobs.program import session_of
from tidewise.jobs.query import Query, Read
from tidewise.jobs.records.kinds import RecordKind

Rows = list[dict[str, Any]]


def come(files: Iterable[Path], folder: Path) -> None:
    """What is in these files has come."""
    folder.mkdir(exist_ok=True)
    for file in files:
        shutil.copy2(file, folder)  # with its age, by which Spark goes


def reading(spark: SparkSession, kind: RecordKind, folder: Path) -> Read:
    """A file is a batch."""
    reader = spark.readStream.schema(kind.schema).option("maxFilesPerTrigger", 1)
    return lambda: reader.parquet(str(folder)).withWatermark("event_time", "4 seconds")


def started(folder: Path, query: Query, *, store: str = "rocksdb", partitions: int = 2) -> argparse.Namespace:
    """A session for the query, with this store, or with one that it can use."""
    state = ("--state-provider", store if store in query.stores else "rocksdb", "--state-partitions", str(partitions))
    given = options_without_source(folder, "--sink", "foreachbatch", *state)
    session_of(given)
    return given


def last_said(rows: Rows, key: Sequence[str]) -> Rows:
    """Where answers are corrected, the last that was said of each key; otherwise all."""
    return list({tuple(row[name] for name in key): row for row in rows}.values()) if key else rows


def assert_same(found: Rows, right: Rows) -> None:
    """The same rows, in any order."""
    missing, wrong = told(right) - told(found), told(found) - told(right)
    counts = f"of {len(right)} rows {missing.total()} are missing, and {wrong.total()} are wrong"
    assert (list(missing)[:3], list(wrong)[:3]) == ([], []), counts


def told(rows: Rows) -> Counter[str]:
    """Rows that can be compared: moments in UTC, without their zone, and only the digits of a number that are sure."""
    return Counter(str({name: _plain(value) for name, value in row.items()}) for row in rows)


def _plain(value: object) -> object:
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat()
    return float(f"{value:.12g}") if isinstance(value, float) else value


def rows_of_sql(sql: str, events: pa.Table, *, views: str) -> Rows:
    """What DuckDB answers about a table `events`; moments are in UTC, and do not say so."""
    with duckdb.connect() as connection:
        connection.register("events", _without_zones(events))
        connection.execute(views)
        found = connection.execute(sql)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _without_zones(events: pa.Table) -> pa.Table:
    """DuckDB shows moments in the zone of the machine, unless they have none."""
    plain = pa.timestamp("us")
    return events.cast(
        pa.schema([field.with_type(plain) if pa.types.is_timestamp(field.type) else field for field in events.schema])
    )
