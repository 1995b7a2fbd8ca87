"""The program of Nexmark runs the query that it is asked for, or says in a sentence why it cannot."""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.jobs.running import rows_of
from tidewise.jobs import query_program
from tidewise.jobs.nexmark.__main__ import KIND, main
from tidewise.jobs.nexmark.queries import QUERIES
from tidewise.jobs.program import STATE_PROVIDERS, options_of, parsed
from tidewise.jobs.schedule import Schedule, write_schedule

pytestmark = pytest.mark.xdist_group("jobs")

EMBEDDED = ["--schedule", "s", "--checkpoint", "c"]
REAL_TIME = ["--source", "kafka", "--brokers", "b:1", "--topic", "t", "--sink", "kafka", "--out-topic", "o"]
REAL_TIME += ["--checkpoint", "c", "--mode", "real-time"]
PAST = Schedule(began_unix_s=1_700_006_370.0, rates_per_s=(20.0,) * 60, after="stop")
"""From 23:59:30 of a day until 00:00:30 of the next."""
TOTAL = 1200


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence with which the program ends."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--query", "q55", *EMBEDDED], "there is no query 'q55'; did you mean 'q5'?"),
        (["--query", "bids", *EMBEDDED], f"there is no query 'bids'; known: {', '.join(QUERIES)}"),
        (["--query", "q6", "--state-provider", "hdfs", *EMBEDDED], "q6 needs --state-provider rocksdb, not hdfs"),
        (
            ["--query", "q15", "--sink", "files", "--out", "o", *EMBEDDED],
            "q15 corrects what it said, which files cannot; use --sink foreachbatch, kafka or noop",
        ),
        (EMBEDDED, "the following arguments are required: --query"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(arguments, capsys) == f"nexmark: error: {sentence}"


@pytest.mark.parametrize("name", [query.name for query in QUERIES.values() if query.real_time])
def test_real_time_mode_is_refused_with_the_reason(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = refused([*REAL_TIME, "--query", name], capsys)
    assert sentence == f"nexmark: error: --mode real-time is not for {name}: {QUERIES[name].real_time}; leave it out"


def test_every_query_has_a_number_and_what_can_be_true_of_it() -> None:
    assert list(QUERIES) == [f"q{number}" for number in range(23)]
    for query in QUERIES.values():
        assert query.key or query.output_mode == "append", f"{query.name} corrects rows that have no name"
        assert set(query.stores) <= set(STATE_PROVIDERS)


@pytest.mark.parametrize("name", ["q3", "q16"])
def test_a_query_may_read_a_topic_twice(spark: SparkSession, name: str) -> None:
    given = parsed(options_of("a test"), ["--source", "kafka", "--brokers", "b:1", "--topic", "t", "--checkpoint", "c"])
    # Spark refuses it where the dead letters of both readings are counted under one name.
    assert QUERIES[name].make(query_program.reading(spark, given, KIND)).isStreaming


def run(arguments: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program, until all events of the schedule are done."""

    def wait_until_done(_options: argparse.Namespace, query: StreamingQuery, *_more: StreamingQuery | None) -> None:
        query.processAllAvailable()
        query.stop()

    monkeypatch.setattr(query_program, "wait", wait_until_done)
    write_schedule(folder / "schedule.json", PAST)
    places = ["--schedule", str(folder / "schedule.json"), "--checkpoint", str(folder / "checkpoint")]
    main([*arguments, *places, "--out", str(folder / "out"), "--trigger", "0 seconds"])


def bids() -> pa.Table:
    events = pa.Table.from_batches([KIND.batch(seed=0, first=0, end=TOTAL, pieces=PAST.pieces(0, TOTAL))])
    return events.filter(pc.equal(events["event_type"], "bid"))


def test_q10_writes_a_folder_for_each_day_and_minute(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(["--query", "q10", "--sink", "files"], tmp_path, monkeypatch)
    assert spark.streams.active == []
    folders = {str(file.parent.relative_to(tmp_path / "out")) for file in (tmp_path / "out").rglob("*.parquet")}
    # Spark writes a colon so, which some file systems do not have.
    assert folders == {"day=2023-11-14/minute=23%3A59", "day=2023-11-15/minute=00%3A00"}
    found = pa.concat_tables(pq.ParquetFile(file).read() for file in (tmp_path / "out").rglob("*.parquet"))
    assert sorted(found["price"].to_pylist()) == sorted(bids()["price"].to_pylist())


def test_a_query_that_reads_twice_and_corrects_itself_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ["--max-records-per-batch", "500", "--work", "1"]
    run(["--query", "q15", "--sink", "foreachbatch", *more], tmp_path, monkeypatch)
    assert spark.streams.active == []
    said = rows_of(tmp_path / "out")
    last = {row["day"]: row["total_bids"] for row in said}
    assert len(said) > len(last) == 2
    assert sum(last.values()) == bids().num_rows
