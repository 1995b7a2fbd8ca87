"""How the tests run a program's query on the shared Spark, and read what it wrote."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tidewise.jobs.counts import committed_end
from tidewise.jobs.program import options_of, parsed, writer_of
from tidewise.jobs.schedule import Schedule, write_schedule
from tidewise.kafka import topics
from tidewise.kafka.client import quiet_settings

PATIENCE_S = 240


def options(file: Path, *more: str) -> argparse.Namespace:
    """The options of a program that reads this schedule; checkpoint and output lie beside it."""
    folder = file.parent
    arguments = ["--schedule", str(file), "--checkpoint", str(folder / "checkpoint"), "--out", str(folder / "out")]
    return parsed(options_of("a test"), [*arguments, *more])


def options_without_source(folder: Path, *more: str) -> argparse.Namespace:
    """The options of a program that a test gives its records itself: the schedule that must be there brings none."""
    folder.mkdir(exist_ok=True)
    write_schedule(folder / "none.json", Schedule(began_unix_s=0.0, rates_per_s=(0.0,)))
    return options(folder / "none.json", *more)


def to_the_end(
    results: DataFrame, given: argparse.Namespace, *, output_mode: str = "append", key: str | None = None
) -> StreamingQuery:
    """Run until everything that has come is done."""
    query = writer_of(results, given, output_mode=output_mode, key=key).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    return query


def cut_short(results: DataFrame, given: argparse.Namespace, *, output_mode: str = "append") -> int:
    """The same as `stop_in_a_batch` of the embedded source; how many records were done."""
    stop_in_a_batch(results, given, output_mode=output_mode)
    return committed_end(given.checkpoint)


def stop_in_a_batch(results: DataFrame, given: argparse.Namespace, *, output_mode: str = "append") -> None:
    """Run until two batches are done and stop at once, most likely within the third."""
    query = writer_of(results, given, output_mode=output_mode).trigger(processingTime="0 seconds").start()
    commits, deadline_s = given.checkpoint / "commits", time.monotonic() + PATIENCE_S
    while len(list(commits.glob("[0-9]*"))) < 2:
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline_s, f"no two batches were done in {PATIENCE_S} s"
        time.sleep(0.02)
    query.stop()


def progress(query: StreamingQuery) -> list[dict[str, Any]]:
    return [json.loads(entry.json) for entry in query.recentProgress]


def observed(query: StreamingQuery, name: str, figure: str) -> int:
    """The sum of an observed figure over all batches."""
    return sum(entry["observedMetrics"][name][figure] for entry in progress(query) if entry.get("observedMetrics"))


def rows_of(out: Path) -> list[dict[str, Any]]:
    """What foreachBatch wrote, batch after batch."""
    folders = sorted(out.glob("batch=*"), key=lambda folder: int(folder.name.removeprefix("batch=")))
    return [row for folder in folders for row in _plain(pq.read_table(folder)).to_pylist()]


def values_of(address: str, topic: str) -> Iterator[dict[str, Any]]:
    """What a topic holds now, each partition in its order."""
    ends = {number: reach.following for number, reach in topics.ends(address, topic).items()}
    consumer = confluent_kafka.Consumer(
        quiet_settings(address) | {"group.id": "tests", "enable.auto.commit": False, "enable.partition.eof": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in ends])
    left, deadline_s = sum(ends.values()), time.monotonic() + 60
    try:
        while left > 0:
            assert time.monotonic() < deadline_s, f"{left} records of {topic} cannot be read"
            for message in consumer.consume(min(left, 1000), timeout=1.0):
                assert message.error() is None, message.error()
                left -= 1
                yield json.loads(message.value() or b"null")
    finally:
        consumer.close()


def _plain(table: pa.Table) -> pa.Table:
    """Spark's timestamps are in UTC, which its files do not tell."""
    utc = pa.timestamp("us", tz="UTC")
    return table.cast(
        pa.schema([field.with_type(utc) if pa.types.is_timestamp(field.type) else field for field in table.schema])
    )


def write_in_order(folder: Path, table: pa.Table, *, files: int) -> None:
    """Files that Spark reads one after the other: it goes by their age."""
    folder.mkdir()
    size = -(-table.num_rows // files)
    for number in range(files):
        file = folder / f"{number}.parquet"
        pq.write_table(table.slice(number * size, size), file)
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
