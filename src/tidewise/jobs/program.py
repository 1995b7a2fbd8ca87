"""What the two programs share: their options, the session, the source, the sinks, and waiting for the end."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidewise.jobs.embedded import NAME, EmbeddedSource

STATE_PROVIDERS = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}


def options_of(description: str) -> argparse.ArgumentParser:
    """A parser with the options that both programs take."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--schedule", type=Path, required=True, help="JSON file: how many records come when")
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder of the query's checkpoint")
    parser.add_argument("--sink", choices=["files", "foreachbatch", "noop"], default="noop", help="where results go")
    parser.add_argument("--out", type=Path, help="folder that the sinks files and foreachbatch write to")
    parser.add_argument("--trigger", default="1 second", help="time between the starts of two batches")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other records")
    parser.add_argument("--partitions", type=int, default=2, help="tasks that read the source in each batch")
    parser.add_argument("--max-records-per-batch", type=int, help="most records of one batch; no limit if left out")
    parser.add_argument("--state-provider", choices=list(STATE_PROVIDERS), default="rocksdb")
    parser.add_argument("--state-partitions", type=int, default=2, help="fixed for a checkpoint by its first batch")
    parser.add_argument("--app-name", help="name of the application; the program's own if left out")
    parser.add_argument("--master", help="Spark master; left to spark-submit and its settings if left out")
    parser.add_argument("--seconds", type=float, help="stop after this long; run until stopped if left out")
    return parser


def parsed(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """The options given; ends the program with a sentence where they contradict each other."""
    options = parser.parse_args(arguments)
    if options.sink != "noop" and options.out is None:
        parser.error(f"--sink {options.sink} needs --out FOLDER")
    options.app_name = options.app_name or parser.prog
    return options


def session_of(options: argparse.Namespace) -> SparkSession:
    """The session, with the source registered in it."""
    # Spark would take the first python3 on the path for its workers, which need not know this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName(options.app_name)
        .config("spark.sql.shuffle.partitions", options.state_partitions)
        .config("spark.sql.streaming.stateStore.providerClass", STATE_PROVIDERS[options.state_provider])
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        # Over TCP every task of a Python source was seen to take some 40 ms longer.
        .config("spark.python.unix.domain.socket.enabled", "true")
    )
    if options.master is not None:
        builder = builder.master(options.master)
    spark = builder.getOrCreate()
    spark.dataSource.register(EmbeddedSource)
    return spark


def records_of(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """The stream of the embedded source."""
    reader = spark.readStream.format(NAME).option("schedule", str(options.schedule.resolve()))
    reader = reader.option("seed", options.seed).option("partitions", options.partitions)
    if options.max_records_per_batch is not None:
        reader = reader.option("max_records_per_batch", options.max_records_per_batch)
    return reader.load()


def writer_of(results: DataFrame, options: argparse.Namespace, *, output_mode: str) -> DataStreamWriter:
    """The results on their way to the sink; `output_mode` is for sinks that take any: files can only be added to."""
    writer = results.writeStream.option("checkpointLocation", str(options.checkpoint.resolve()))
    writer = writer.queryName(options.app_name).trigger(processingTime=options.trigger).outputMode(output_mode)
    if options.sink == "files":
        return writer.outputMode("append").format("parquet").option("path", str(options.out.resolve()))
    if options.sink == "foreachbatch":
        return writer.foreachBatch(BatchFolders(options.out.resolve()))
    return writer.format("noop")


def wait(query: StreamingQuery, options: argparse.Namespace) -> None:
    """Block until the query ends, or until the time given is over."""
    if options.seconds is None:
        query.awaitTermination()
    elif not query.awaitTermination(options.seconds):
        query.stop()


class BatchFolders:
    """A sink for foreachBatch that a replay does not harm: each batch is a folder, put in place whole or not at all."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        target, mark = self._out / f"batch={batch_id}", uuid.uuid4().hex
        fresh, old = (self._out / f"_{role}-{batch_id}-{mark}" for role in ("fresh", "old"))
        results.write.parquet(str(fresh))
        if target.exists():
            # Between these two moves the batch is missing, but it is not committed yet: it would be replayed.
            target.rename(old)
        fresh.rename(target)
        shutil.rmtree(old, ignore_errors=True)
