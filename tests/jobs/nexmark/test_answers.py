"""Every query of Nexmark answers what its definition in SQL does, over a stop and with its state cut anew."""

from __future__ import annotations

import argparse
import datetime
import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.jobs.nexmark.answers import ANSWERS, answer
from tests.jobs.nexmark.inputs import KIND, made
from tests.jobs.queries import Rows, assert_same, come, last_said, reading, started
from tests.jobs.running import progress, rows_of, stop_in_a_batch, to_the_end, write_in_order
from tidewise.jobs.nexmark.queries import QUERIES
from tidewise.jobs.query import Query

pytestmark = pytest.mark.xdist_group("jobs")

WINDOW = datetime.timedelta(seconds=10)


def assert_right(query: Query, given: argparse.Namespace, *, drops: bool = True) -> None:
    """The rows are those that DuckDB has; `drops`: some events were too late when they came."""
    events, found = made(), rows_of(given.out)
    right = answer(query.name, events.on_time if drops and ANSWERS[query.name].drops else events.events)
    assert_same(_per_bidder(found, given.checkpoint) if query.name == "q12" else last_said(found, query.key), right)


def _per_bidder(rows: Rows, checkpoint: Path) -> Rows:
    """Each bidder's bids in all windows, which are those in which a batch was begun."""
    batches_ms = [
        json.loads(file.read_text(encoding="utf-8").splitlines()[1])["batchTimestampMs"]
        for file in (checkpoint / "offsets").glob("[0-9]*")
    ]
    begun = [datetime.datetime.fromtimestamp(batch_ms / 1000, datetime.UTC) for batch_ms in batches_ms]
    bids: Counter[int] = Counter()
    for row in last_said(rows, ("bidder", "window_start")):
        assert row["window_end"] - row["window_start"] == WINDOW
        assert any(row["window_start"] <= moment < row["window_end"] for moment in begun)
        bids[row["bidder"]] += row["bids"]
    return [{"bidder": bidder, "bids": count} for bidder, count in bids.items()]


def test_every_query_has_an_answer() -> None:
    assert list(QUERIES) == list(ANSWERS)


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_the_answer_is_right_over_a_stop_and_with_other_state_partitions(
    spark: SparkSession, tmp_path: Path, query: Query
) -> None:
    records, given = tmp_path / "records", started(tmp_path, query)
    write_in_order(tmp_path / "all", made().events, files=3)
    *first, last = sorted((tmp_path / "all").iterdir())
    come(first, records)
    to_the_end(query.make(reading(spark, KIND, records)), given, output_mode=query.output_mode)
    if query.stores:
        spark._streamingCheckpointManager.repartition(str(given.checkpoint), 3)
    come([last], records)
    done = to_the_end(query.make(reading(spark, KIND, records)), given, output_mode=query.output_mode)
    assert {state["numShufflePartitions"] for state in progress(done)[-1]["stateOperators"]} == (
        {3} if query.stores else set()
    )
    assert_right(query, given)


@pytest.mark.soak
@pytest.mark.parametrize("partitions", [1, 5])
@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_the_answer_is_right_with_the_other_store_and_a_batch_cut_short(
    spark: SparkSession, tmp_path: Path, query: Query, partitions: int
) -> None:
    records, given = tmp_path / "records", started(tmp_path, query, store="hdfs", partitions=partitions)
    write_in_order(records, made().events, files=6)
    stop_in_a_batch(query.make(reading(spark, KIND, records)), given, output_mode=query.output_mode)
    to_the_end(query.make(reading(spark, KIND, records)), given, output_mode=query.output_mode)
    assert_right(query, given)


@pytest.mark.soak
@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_in_one_batch_nothing_is_too_late(spark: SparkSession, tmp_path: Path, query: Query) -> None:
    records, given = tmp_path / "records", started(tmp_path, query)
    write_in_order(records, made().events, files=1)
    to_the_end(query.make(reading(spark, KIND, records)), given, output_mode=query.output_mode)
    assert_right(query, given, drops=False)
