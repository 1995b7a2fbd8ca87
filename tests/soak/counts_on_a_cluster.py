"""A user's program on a cluster of its own: counts per key, with state, into foreachBatch."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

FOLDER = Path(sys.argv[1])


def keep(frame: DataFrame, batch: int) -> None:
    total = sum(row["count"] for row in frame.collect())
    with (FOLDER / "batches").open("a", encoding="utf-8") as file:
        file.write(f"{batch} {total}\n")


def main() -> None:
    spark = (
        SparkSession.builder.master("local-cluster[2,1,640]")
        .config("spark.ui.enabled", "false")
        .config("spark.executor.memory", "512m")
        .config("spark.sql.shuffle.partitions", 2)
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = rows.groupBy((rows["value"] % 3).alias("k")).count().writeStream.outputMode("complete").foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(FOLDER / "checkpoint")).trigger(processingTime="500 milliseconds")
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
