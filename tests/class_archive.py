"""`python -m tests.class_archive FILE`: an archive of what Java loads for Spark, from which it starts in less time.

Tests start Java a hundred times. An archive is for one Java and one Spark: others pass it by.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

_PATIENCE_S = 180


def main() -> None:
    """Run a little of everything on Spark, and wait until Java has written what it has loaded."""
    file = Path(sys.argv[1]).absolute()
    fresh = file.with_suffix(".fresh")
    fresh.unlink(missing_ok=True)
    os.environ |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--driver-java-options '-XX:ArchiveClassesAtExit={fresh} -Xlog:disable' pyspark-shell",
    }
    with tempfile.TemporaryDirectory() as folder:
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        _use(session, Path(folder))
        gateway = SparkContext._gateway
        assert gateway is not None
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=_PATIENCE_S)
    fresh.rename(file)


def _use(session: SparkSession, folder: Path) -> None:
    """Batches and streams with state, from and to files, with Python's workers beside."""
    rows = session.range(1000).selectExpr("id", "id % 7 AS key", "timestamp_seconds(id) AS at")
    rows.write.parquet(str(folder / "rows"))
    assert session.read.parquet(str(folder / "rows")).groupBy("key").count().count() == 7
    assert session.sparkContext.parallelize(range(4), 2).map(str).collect() == ["0", "1", "2", "3"]
    stream = session.readStream.schema(rows.schema).parquet(str(folder / "rows")).withWatermark("at", "1 second")
    counted = stream.groupBy("key").count().writeStream.outputMode("update").trigger(availableNow=True)
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    session.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    query = counted.foreachBatch(lambda batch, _: batch.foreach(print)).option("checkpointLocation", str(folder / "cp"))
    assert query.start().awaitTermination(_PATIENCE_S)


if __name__ == "__main__":
    main()
