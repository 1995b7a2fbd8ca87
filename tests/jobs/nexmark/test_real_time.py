"""Real-time mode answers right where it is said to run; elsewhere Spark refuses, or answers wrong, as is told."""

from __future__ import annotations

import functools
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.jobs.nexmark.answers import answer
from tests.jobs.queries import Rows, last_said
from tests.jobs.real_time import Place, assert_refused, assert_right, events, fill, running, wait_for
from tests.jobs.running import values_of
from tidewise.jobs.nexmark.__main__ import KIND
from tidewise.jobs.nexmark.queries import QUERIES
from tidewise.kafka.broker import LocalBroker

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("jobs")]

TOPIC = "nexmark-live"
CLOCK = QUERIES["q12"]
"""Spark takes it, and should not."""
WINDOW_S = 10.0


@pytest.fixture(scope="module")
def filled(broker: LocalBroker) -> str:
    """The address of a broker whose topic is full."""
    fill(broker.address, KIND, topic=TOPIC)
    return broker.address


@pytest.fixture
def place(spark: SparkSession, filled: str, tmp_path: Path) -> Place:
    return Place(spark=spark, kind=KIND, address=filled, topic=TOPIC, checkpoint=tmp_path)


@pytest.mark.parametrize("name", [query.name for query in QUERIES.values() if query.real_time and query != CLOCK])
def test_spark_refuses_it_as_told(place: Place, name: str) -> None:
    assert_refused(place, QUERIES[name])


@pytest.mark.parametrize("name", [query.name for query in QUERIES.values() if not query.real_time])
def test_the_last_that_was_said_is_right(place: Place, name: str) -> None:
    right = answer(name, events(KIND, closed_by="person"))
    settled = highest if name == "q7" else functools.partial(last_said, key=QUERIES[name].key)
    assert_right(place, QUERIES[name], right=right, settled=settled)


def highest(rows: Rows) -> Rows:
    """What q7 says of each window in the end; until then it has said whichever bids were the highest, and often."""
    prices: Counter[object] = Counter()
    for row in rows:
        prices[row["window_start"]] = max(row["price"], prices[row["window_start"]])
    top = [row for row in rows if row["price"] == prices[row["window_start"]]]
    return last_said(top, ("auction", "bidder", "event_time", "extra"))


def test_the_clock_stands_still_for_q12(place: Place) -> None:
    """Bids of two windows are counted in one; should they not be one day, q12 can run in real-time mode."""
    place = replace(place, topic=f"{TOPIC}-twice")
    bids = sum(row["bids"] for row in answer(CLOCK.name, events(KIND, closed_by="person")))
    fill(place.address, KIND, topic=place.topic)
    with running(place, CLOCK) as live:
        wait_for(live, lambda: counted(place).total() == bids)
        time.sleep(WINDOW_S)
        fill(place.address, KIND, topic=place.topic)
        wait_for(live, lambda: counted(place).total() == 2 * bids)
    assert list(counted(place).values()) == [2 * bids]


def counted(place: Place) -> Counter[str]:
    """How many bids q12 has counted in each window."""
    windows: Counter[str] = Counter()
    for row in last_said(list(values_of(place.address, place.answers(CLOCK))), CLOCK.key):
        windows[row["window_start"]] += row["bids"]
    return windows
