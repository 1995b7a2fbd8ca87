"""Real-time mode takes the queries that it is said to take, and Spark refuses the others in the words that are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.jobs.real_time import assert_as_told, fill
from tidewise.jobs.nexmark.__main__ import KIND
from tidewise.jobs.nexmark.queries import QUERIES
from tidewise.jobs.query import Query
from tidewise.kafka.broker import LocalBroker

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("jobs")]


@pytest.fixture(scope="module")
def filled(broker: LocalBroker) -> str:
    """The address of a broker whose topic `events` is full."""
    fill(broker.address, KIND)
    return broker.address


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_real_time_mode_is_as_it_is_told(spark: SparkSession, filled: str, tmp_path: Path, query: Query) -> None:
    assert_as_told(spark, filled, tmp_path, KIND, query)
