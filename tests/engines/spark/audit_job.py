"""A program that makes a real checkpoint: a file sink with compaction, then named sources and a repartition of state.

Run as a process of its own, so that its Java machine ends with it: audit_job.py FOLDER
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

DEADLINE_S = 120


def main(home: Path) -> None:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.sql.streaming.fileSink.log.compactInterval", "3")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    try:
        for batches in (4, 2):  # the second time it is a restart
            write_files(spark, home, batches)
        repartition_state(spark, home)
    finally:
        spark.stop()


def write_files(spark: SparkSession, home: Path, batches: int) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("startTimestamp", 0).load()
    writer = rows.writeStream.format("json").option("checkpointLocation", str(home / "files"))
    query = writer.option("path", str(home / "sink")).start()
    end = time.monotonic() + DEADLINE_S
    while len(query.recentProgress) < batches:
        if time.monotonic() > end:
            raise TimeoutError(f"{len(query.recentProgress)} of {batches} batches after {DEADLINE_S} s")
        time.sleep(0.05)
    query.stop()


def repartition_state(spark: SparkSession, home: Path) -> None:
    texts = home / "texts"
    texts.mkdir()
    for number in range(2):
        (texts / f"{number}.txt").write_text("a\nb\n")
    spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
    checkpoint = str(home / "state")
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).name("lines").load(str(texts))
    writer = lines.groupBy("value").count().writeStream.outputMode("complete").format("noop")
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start().awaitTermination(DEADLINE_S)
    spark._streamingCheckpointManager.repartition(checkpoint, 2, True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
