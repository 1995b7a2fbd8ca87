"""What Spark refuses of the definitions as they are written, in the words that the registry quotes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.jobs.nexmark.inputs import KIND, made
from tests.jobs.queries import reading
from tests.jobs.running import options_without_source, to_the_end, write_in_order
from tidewise.jobs.nexmark.events import bids, day
from tidewise.jobs.nexmark.queries import QUERIES
from tidewise.jobs.program import session_of
from tidewise.jobs.query import Read

pytestmark = pytest.mark.xdist_group("jobs")

_QUOTED = re.compile(r"\('(.+?)'\)")


def q4(read: Read) -> DataFrame:
    """An average after another aggregation."""
    final = bids(read).groupBy("auction").agg(F.max("price").alias("price"))
    return final.groupBy().agg(F.avg("price"))


def q12(read: Read) -> DataFrame:
    """Windows of the clock that are forgotten when they are over."""
    clock = bids(read).select("bidder", F.current_timestamp().alias("now")).withWatermark("now", "0 seconds")
    return clock.groupBy(F.window("now", "10 seconds"), "bidder").count()


def q15(read: Read) -> DataFrame:
    """How many different bidders a day has."""
    return bids(read).groupBy(day()).agg(F.count_distinct("bidder"))


def q19(read: Read) -> DataFrame:
    """The highest bids by their rank, as q6, q9 and q18 have ranks too."""
    rank = F.row_number().over(Window.partitionBy("auction").orderBy(F.desc("price")))
    return bids(read).withColumn("rank", rank).where("rank <= 10")


@pytest.mark.parametrize(("name", "as_written"), [("q4", q4), ("q12", q12), ("q15", q15), ("q19", q19)])
def test_spark_refuses_the_definition_in_these_words(
    spark: SparkSession, tmp_path: Path, name: str, as_written: Callable[[Read], DataFrame]
) -> None:
    said = _QUOTED.search(QUERIES[name].reshaped or "")
    assert said is not None
    given = options_without_source(tmp_path)
    session_of(given)
    write_in_order(tmp_path / "records", made().on_time, files=2)
    written = as_written(reading(spark, KIND, tmp_path / "records"))
    with pytest.raises((AnalysisException, StreamingQueryException), match=re.escape(said[1])):
        to_the_end(written, given, output_mode="update")
