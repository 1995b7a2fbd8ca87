"""Real-time mode answers right where it is said to run, and Spark refuses the other queries in the words told."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.jobs.psm.answers import answer
from tests.jobs.queries import last_said
from tests.jobs.real_time import Place, assert_refused, assert_right, events, fill
from tidewise.jobs.psm.__main__ import KIND
from tidewise.jobs.psm.queries import QUERIES
from tidewise.kafka.broker import LocalBroker

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("jobs")]

TOPIC = "psm-live"
KEYS = {"q3": ("window_start", "owner"), "q4": ("window_start", "product"), "q5": ("window_start", "product")}
"""What names a row where all are updates."""


@pytest.fixture(scope="module")
def filled(broker: LocalBroker) -> str:
    """The address of a broker whose topic is full."""
    fill(broker.address, KIND, topic=TOPIC)
    return broker.address


@pytest.fixture
def place(spark: SparkSession, filled: str, tmp_path: Path) -> Place:
    return Place(spark=spark, kind=KIND, address=filled, topic=TOPIC, checkpoint=tmp_path)


@pytest.mark.parametrize("name", [query.name for query in QUERIES.values() if query.real_time])
def test_spark_refuses_it_as_told(place: Place, name: str) -> None:
    assert_refused(place, QUERIES[name])


@pytest.mark.parametrize("name", [query.name for query in QUERIES.values() if not query.real_time])
def test_the_last_that_was_said_is_right(place: Place, name: str) -> None:
    right = answer(name, events(KIND, closed_by="search"))
    assert_right(place, QUERIES[name], right=right, settled=functools.partial(last_said, key=KEYS[name]))
