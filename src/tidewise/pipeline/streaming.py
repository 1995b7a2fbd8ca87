"""What every streaming query of ours has in common: its state, its settings, and how often it looks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # What a batch has changed is written, not the whole store.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",  # would read before every write
    # Or a stream that forgets by the clock would run one empty batch after the other.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # A file that somebody took away or broke stops nothing but itself.
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
}


def own_session(session: SparkSession, *, partitions: int, more: Mapping[str, str] | None = None) -> SparkSession:
    """A session for one query, with what Spark has to be told before it is started.

    `partitions`: of its state and its batches; what a checkpoint has, it keeps.
    """
    own = session.newSession()
    for name, value in {**_SETTINGS, "spark.sql.shuffle.partitions": str(partitions), **(more or {})}.items():
        own.conf.set(name, value)
    return own


def triggered(writer: DataStreamWriter, *, every_s: float | None) -> DataStreamWriter:
    """A batch in so long; without, until all that is there has been read."""
    if every_s is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{max(1, round(1000 * every_s))} milliseconds")


def fresh_progress(query: StreamingQuery, *, after: int) -> list[StreamingQueryProgress]:
    """Of the batches after this one, as far as Spark remembers them."""
    latest = query.lastProgress
    if latest is None or latest.batchId <= after:
        return []
    return [progress for progress in query.recentProgress if progress.batchId > after]


def lost_lines(progress: StreamingQueryProgress) -> int:
    """How many lines of topics were deleted before this batch could read them; Spark passes them by in silence."""
    # Its own fields have offsets as text, in a form that depends on the version.
    sources = json.loads(progress.json)["sources"]
    return sum(
        max(0, _lines(source["endOffset"]) - _lines(source["startOffset"]) - source["numInputRows"])
        for source in sources
        if source["description"].startswith("KafkaV2") and source["startOffset"] is not None
    )


def late_rows(progress: StreamingQueryProgress) -> int:
    """How many rows this batch dropped because they lay behind the watermark; Spark says no more of them."""
    return sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)


def _lines(offsets: Mapping[str, Mapping[str, int]]) -> int:
    """Those before these offsets of a topic's partitions."""
    return sum(count for partitions in offsets.values() for count in partitions.values())
