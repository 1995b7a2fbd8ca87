"""A program that ends by itself, whose every word is known."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

FOLDER = Path(sys.argv[1])


def tell(frame: DataFrame, batch: int) -> None:
    print("batch", batch, sorted(row.n for row in frame.collect()), flush=True)  # noqa: T201 -- the program's output


def main() -> None:
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    (FOLDER / "in").mkdir()
    (FOLDER / "in" / "a.json").write_text('{"n": 1}\n{"n": 2}\n', encoding="utf-8")
    reader = spark.readStream.schema("n int").option("maxFilesPerTrigger", 1)
    writer = reader.json(str(FOLDER / "in")).writeStream.option("checkpointLocation", str(FOLDER / "checkpoint"))
    query = writer.foreachBatch(tell).trigger(processingTime="100 milliseconds").start()
    query.processAllAvailable()
    query.stop()
    print("ended", query.awaitTermination(1), query.exception(), flush=True)  # noqa: T201 -- the same
    spark.stop()


if __name__ == "__main__":
    main()
