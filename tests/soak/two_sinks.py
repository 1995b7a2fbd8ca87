"""A user's program with two queries: every ordinal into files, and every ordinal through foreachBatch by batch id.

Its records come from the embedded source or, where a broker is named, from a topic; then a third query may write every
ordinal to another topic.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidewise.jobs.decoding import TOO_LARGE_BYTES, decoded
from tidewise.jobs.embedded import NAME, EmbeddedSource
from tidewise.jobs.program import BatchFolders
from tidewise.jobs.records.kinds import KINDS

_EMBEDDED_DELAY = "10 seconds"
_TOPIC_DELAY = "1 hour"
"""After a restart of the broker, partitions come minutes apart: what is older than the watermark would be dropped."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--brokers")
    parser.add_argument("--topic")
    parser.add_argument("--out-topic")
    options = parser.parse_args()
    folder: Path = options.folder
    spark = (
        SparkSession.builder.appName("two-sinks")
        .config("spark.sql.shuffle.partitions", 2)
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    delay = _EMBEDDED_DELAY if options.topic is None else _TOPIC_DELAY
    records = _embedded(spark, folder) if options.topic is None else _topic(spark, options.brokers, options.topic)
    # Stateful, so that the state moves along; no ordinal comes twice from the source, so none is dropped here.
    plain = records.withWatermark("event_time", delay).dropDuplicatesWithinWatermark(["ordinal"]).select("ordinal")
    (
        plain.writeStream.format("parquet")
        .option("path", str(folder / "files"))
        .option("checkpointLocation", str(folder / "checkpoint-files"))
        .trigger(processingTime="1 second")
        .start()
    )
    (
        records.select("ordinal")
        .writeStream.foreachBatch(BatchFolders(folder / "batches"))
        .option("checkpointLocation", str(folder / "checkpoint-batches"))
        .trigger(processingTime="1 second")
        .start()
    )
    if options.out_topic is not None:
        (
            records.select(F.col("ordinal").cast("string").alias("value"))
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", options.brokers)
            .option("topic", options.out_topic)
            .option("checkpointLocation", str(folder / "checkpoint-topic"))
            .trigger(processingTime="1 second")
            .start()
        )
    spark.streams.awaitAnyTermination()


def _embedded(spark: SparkSession, folder: Path) -> DataFrame:
    spark.dataSource.register(EmbeddedSource)
    return spark.readStream.format(NAME).option("schedule", str(folder / "schedule.json")).load()


def _topic(spark: SparkSession, brokers: str, topic: str) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers).option("subscribe", topic)
    raw = reader.option("startingOffsets", "earliest").load()
    return decoded(raw, KINDS["clicks"], "json", too_large_bytes=TOO_LARGE_BYTES)


if __name__ == "__main__":
    main()
