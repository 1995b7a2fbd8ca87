"""Values as they lie in Kafka, without a broker, and what becomes of them."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tests.jobs.running import observed, options_without_source, rows_of, to_the_end, write_in_order
from tidewise.jobs.decoding import dead_letters, decoded
from tidewise.jobs.program import session_of
from tidewise.jobs.records.encoding import Encoder, Encoding, is_broken
from tidewise.jobs.records.kinds import RecordKind
from tidewise.jobs.schedule import Schedule

SENT = datetime.datetime(2023, 11, 14, 22, 20, tzinfo=datetime.UTC)
SCHEMA = "value binary, topic string, partition int, offset bigint, timestamp timestamp"

_PAST = Schedule(began_unix_s=1_700_000_000.0, rates_per_s=(1000.0,))
_BROKEN_SHARE = 0.05


def as_kafka_has(values: list[bytes | None]) -> pa.Table:
    count = len(values)
    return pa.table(
        {
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["topic"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([SENT] * count, pa.timestamp("us", tz="UTC")),
        }
    )


def reasons(spark: SparkSession, values: list[bytes | None], kind: RecordKind, encoding: Encoding) -> list[str | None]:
    """Of each value why it is no record, or None; what is not refused is decoded."""
    raw = spark.createDataFrame(as_kafka_has(values))
    bad = {row.offset: row.reason for row in dead_letters(raw, kind, encoding).collect()}
    assert decoded(raw, kind, encoding).count() == len(values) - len(bad)
    return [bad.get(offset) for offset in range(len(values))]


def check_stream(spark: SparkSession, folder: Path, kind: RecordKind, encoding: Encoding) -> None:
    """Good records come out as they went in, broken ones are counted and kept, and the query goes on to its end."""
    total = 3000
    values = Encoder(kind, encoding, broken_share=_BROKEN_SHARE).encode(0, total, _PAST.pieces(0, total))
    broken = set(np.flatnonzero(is_broken(np.arange(total), seed=0, share=_BROKEN_SHARE)).tolist())
    write_in_order(folder / "topic", as_kafka_has([*values]), files=3)
    raw = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "topic"))
    given = options_without_source(folder, "--sink", "foreachbatch")
    session_of(given)

    query = to_the_end(decoded(raw, kind, encoding), given)
    made = kind.batch(seed=0, first=0, end=total, pieces=_PAST.pieces(0, total)).to_pylist()
    for row in made:
        row["event_time"] = _whole_ms(row["event_time"])
    found = sorted(rows_of(given.out), key=lambda row: int(row["ordinal"]))
    assert found == [row for row in made if row["ordinal"] not in broken]
    assert observed(query, "dead_letters", "records") == len(broken) > 0

    beside = options_without_source(folder / "beside", "--sink", "foreachbatch")
    to_the_end(dead_letters(raw, kind, encoding), beside)
    kept = rows_of(beside.out)
    assert {row["offset"] for row in kept} == broken
    assert all(row["value"] == values[row["offset"]] and row["topic"] == "topic" for row in kept)
    assert {row["reason"].partition(":")[0] for row in kept} == {"malformed", "oversized"}


def _whole_ms(moment: datetime.datetime) -> datetime.datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def shown(frame: DataFrame) -> str:
    """The plan that Spark would carry out."""
    return str(frame._jdf.queryExecution().executedPlan().toString())
