"""A program as people write them, which knows nothing of Tidewise: it waits for its query, and stops it on a cue."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

FOLDER = Path(sys.argv[1])


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 -- the program's output


def wait_for_cue(name: str) -> None:
    while not (FOLDER / name).exists():
        time.sleep(0.05)


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.warehouse.dir", str(FOLDER / "warehouse"))
    spark = builder.config("spark.sql.shuffle.partitions", 1).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def rows(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()


def wait_for_a_query(spark: SparkSession) -> None:
    checkpoint = str(FOLDER / "checkpoint-table")
    table = (
        rows(spark).writeStream.trigger(processingTime="300 milliseconds").toTable("t", checkpointLocation=checkpoint)
    )
    writer = rows(spark).writeStream.format("parquet").option("checkpointLocation", str(FOLDER / "checkpoint-files"))
    query = writer.trigger(processingTime="300 milliseconds").start(str(FOLDER / "out"))

    def stop_on_cue() -> None:
        wait_for_cue("stop")
        query.stop()

    threading.Thread(target=stop_on_cue, daemon=True).start()
    say("runs", query.id)
    query.awaitTermination()
    say("ended", query.id, query.isActive, table.isActive)
    table.stop()


def run_what_cannot_be_moved(spark: SparkSession) -> None:
    loose = rows(spark).writeStream.format("noop").queryName("loose").start()
    say("loose", loose.awaitTermination(2), loose.isActive)
    loose.stop()
    (FOLDER / "in").mkdir()
    (FOLDER / "in" / "a.json").write_text('{"n": 1}\n{"n": 2}\n', encoding="utf-8")
    writer = spark.readStream.schema("n int").json(str(FOLDER / "in")).writeStream.trigger(availableNow=True)
    writer.option("checkpointLocation", str(FOLDER / "checkpoint-now"))
    now = writer.foreachBatch(lambda frame, batch: say("batch", batch, frame.count())).start()
    say("now", now.awaitTermination(60), now.isActive)


def main() -> None:
    spark = session()
    wait_for_a_query(spark)
    run_what_cannot_be_moved(spark)
    spark.stop()
    again = session()
    writer = rows(again).writeStream.format("noop").option("checkpointLocation", str(FOLDER / "checkpoint-again"))
    query = writer.start()
    say("again", query.isActive)
    wait_for_cue("fail")
    raise RuntimeError("the program's own failure")


if __name__ == "__main__":
    main()
