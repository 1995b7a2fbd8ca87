"""A user's program with two queries: every ordinal into files, and every ordinal through foreachBatch by batch id."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tidewise.jobs.embedded import NAME, EmbeddedSource
from tidewise.jobs.program import BatchFolders


def main(folder: Path) -> None:
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
    spark.dataSource.register(EmbeddedSource)
    records = spark.readStream.format(NAME).option("schedule", str(folder / "schedule.json")).load()
    # Stateful, so that the state moves along; no ordinal comes twice from the source, so none is dropped here.
    plain = (
        records.withWatermark("event_time", "10 seconds").dropDuplicatesWithinWatermark(["ordinal"]).select("ordinal")
    )
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
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
