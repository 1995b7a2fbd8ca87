"""The highest bids of a window are all told, or the query stops: none is left out in silence."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidewise.jobs.nexmark.windows import MOST_TIES, q7

pytestmark = pytest.mark.xdist_group("jobs")

AT = datetime.datetime(2023, 11, 14, tzinfo=datetime.UTC)


def highest(spark: SparkSession, ties: int) -> DataFrame:
    """What q7 says of so many bids at the highest price, and some lower ones."""
    prices = [*range(MOST_TIES), *([1000] * ties)]
    rows = [
        {"event_time": AT, "event_type": "bid", "auction": 1, "bidder": bidder, "price": price, "extra": "x"}
        for bidder, price in enumerate(prices)
    ]
    bids = spark.createDataFrame(pa.Table.from_pylist(rows))
    return q7(lambda: bids)


def test_all_ties_are_told_or_the_query_stops(spark: SparkSession) -> None:
    told = highest(spark, MOST_TIES - 1).collect()
    assert [row.price for row in told] == [1000] * (MOST_TIES - 1)
    assert len({row.bidder for row in told}) == len(told)
    with pytest.raises(PySparkException, match="100 bids or more have the highest price of a window"):
        highest(spark, MOST_TIES).collect()
