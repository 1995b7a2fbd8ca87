"""Two queries, one with a Python UDF and one with foreachBatch; the program waits for whichever ends first."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

FOLDER = Path(sys.argv[1])


@udf(LongType())
def doubled(value: int) -> int:
    import os  # noqa: PLC0415 -- in the Python worker

    unfinished = FOLDER / f"worker-{os.getpid()}"  # moved into place whole: the test reads while workers write
    unfinished.write_text(str("tidewise_agent" in sys.modules), encoding="utf-8")
    unfinished.replace(FOLDER / "workers" / str(os.getpid()))
    return 2 * value


def keep(frame: DataFrame, batch: int) -> None:
    with (FOLDER / "batches").open("a", encoding="utf-8") as file:
        file.write(f"{batch} {frame.count()}\n")


def main() -> None:
    (FOLDER / "workers").mkdir(exist_ok=True)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", 7).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    counted = rows.groupBy((rows["value"] % 3).alias("k")).count().select(doubled("count").alias("n"))
    for name, frame in (("counted", counted), ("kept", rows)):
        writer = frame.writeStream.queryName(name).option("checkpointLocation", str(FOLDER / name))
        writer = writer.trigger(processingTime="1 hour").outputMode("update")
        (writer.foreachBatch(keep) if name == "kept" else writer.format("noop")).start()
    print("waits", len(spark.streams.active), flush=True)  # noqa: T201 -- the program's output
    spark.streams.awaitAnyTermination()
    print("one has ended", flush=True)  # noqa: T201 -- the same


if __name__ == "__main__":
    main()
