"""Every query of the price search machine answers what its definition does, over a stop and with its state cut anew."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.jobs.psm.answers import ANSWERS, SLIDE, WINDOW, answer
from tests.jobs.psm.inputs import BEGIN, KIND, made
from tests.jobs.queries import assert_same, come, reading, started
from tests.jobs.running import progress, rows_of, stop_in_a_batch, to_the_end, write_in_order
from tidewise.jobs import query_program
from tidewise.jobs.psm.__main__ import main
from tidewise.jobs.psm.queries import QUERIES, medians_over
from tidewise.jobs.query import Query
from tidewise.jobs.schedule import Schedule, write_schedule

pytestmark = pytest.mark.xdist_group("jobs")

FILES = 4
TRIED = {**QUERIES, "q2": medians_over(window=WINDOW, slide=SLIDE)}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """All events, in the order in which they come."""
    folder = tmp_path_factory.mktemp("psm") / "records"
    write_in_order(folder, made().events, files=FILES)
    return sorted(folder.iterdir())


def test_every_query_has_an_answer() -> None:
    assert list(QUERIES) == list(ANSWERS)


@pytest.mark.parametrize("query", TRIED.values(), ids=list(TRIED))
def test_the_answer_is_right_over_a_stop_and_with_other_state_partitions(
    spark: SparkSession, tmp_path: Path, files: list[Path], query: Query
) -> None:
    records, given = tmp_path / "records", started(tmp_path, query)
    come(files[: FILES // 2], records)
    to_the_end(query.make(reading(spark, KIND, records)), given)
    spark._streamingCheckpointManager.repartition(str(given.checkpoint), 3)
    come(files[FILES // 2 :], records)
    done = to_the_end(query.make(reading(spark, KIND, records)), given)
    assert {state["numShufflePartitions"] for state in progress(done)[-1]["stateOperators"]} == {3}
    assert_same(rows_of(given.out), answer(query.name, made().on_time))


@pytest.mark.soak
@pytest.mark.usefixtures("spark")
def test_the_program_runs_the_query_that_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out(_: argparse.Namespace, query: StreamingQuery, letters: StreamingQuery | None) -> None:
        query.processAllAvailable()
        query.stop()
        assert query.name == "psm"
        assert letters is None

    monkeypatch.setattr(query_program, "wait", run_out)
    schedule, out = tmp_path / "schedule.json", tmp_path / "out"
    past = Schedule(began_unix_s=BEGIN.timestamp(), rates_per_s=(60.0,) * 20, after="stop")
    total = 1200
    write_schedule(schedule, past)
    arguments = ["--query", "q2", "--window", "3", "--slide", "2", "--schedule", str(schedule)]
    main([*arguments, "--checkpoint", str(tmp_path / "checkpoint"), "--sink", "foreachbatch", "--out", str(out)])
    events = KIND.batch(seed=0, first=0, end=total, pieces=past.pieces(0, total))
    clicks = events.filter(pc.equal(events["event_type"], "click"))
    end = pc.subtract(pc.max(clicks["event_time"]), pa.scalar(4_000_000, pa.duration("us")))
    passed = Counter(clicks.filter(pc.less_equal(clicks["event_time"], end))["product"].to_pylist())
    found = sorted((row["product"], row["clicks_until"]) for row in rows_of(out))
    assert len(found) > 10
    assert found == sorted((product, until) for product in passed for until in range(2, passed[product] + 1, 2))


@pytest.mark.soak
@pytest.mark.parametrize("partitions", [1, 5])
@pytest.mark.parametrize("query", TRIED.values(), ids=list(TRIED))
def test_the_answer_is_right_with_the_other_store_and_a_batch_cut_short(
    spark: SparkSession, tmp_path: Path, files: list[Path], query: Query, partitions: int
) -> None:
    records, given = tmp_path / "records", started(tmp_path, query, store="hdfs", partitions=partitions)
    come(files, records)
    stop_in_a_batch(query.make(reading(spark, KIND, records)), given)
    to_the_end(query.make(reading(spark, KIND, records)), given)
    assert_same(rows_of(given.out), answer(query.name, made().on_time))


@pytest.mark.soak
@pytest.mark.parametrize("query", TRIED.values(), ids=list(TRIED))
def test_in_one_batch_nothing_is_too_late(spark: SparkSession, tmp_path: Path, query: Query) -> None:
    records, given = tmp_path / "records", started(tmp_path, query)
    write_in_order(records, made().events, files=1)
    to_the_end(query.make(reading(spark, KIND, records)), given)
    assert_same(rows_of(given.out), answer(query.name, made().events))
