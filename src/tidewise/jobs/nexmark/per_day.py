"""Queries that count per day. No watermark closes a day: its counts stay right however late a bid comes.

With one, Spark would look through the state of the whole day in every batch, for what could be forgotten.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidewise.jobs.nexmark.events import bids, clock, day, minute
from tidewise.jobs.query import Read

_RANKS = ("total", "rank1", "rank2", "rank3")
_COUNTS = [f"{rank}_{what}" for what in ("bids", "bidders", "auctions") for rank in _RANKS]
"""What q15 and q16 count, in order; a row that counts tells the place of what it counts for."""
_TOTAL_BIDDERS, _TOTAL_AUCTIONS = _COUNTS.index("total_bidders"), _COUNTS.index("total_auctions")


def q15(read: Read) -> DataFrame:
    """How many bids, bidders and auctions a day has, in all and by the rank of the price."""
    counts = _counting(read).groupBy("day").agg(*_counts())
    return counts.withColumn("day", F.col("day").cast("string"))


def q16(read: Read) -> DataFrame:
    """The same of each channel, and the last minute in which it had a bid."""
    counts = _counting(read, "channel").groupBy("channel", "day").agg(F.max("minute").alias("minute"), *_counts())
    return counts.withColumns({"day": F.col("day").cast("string"), "minute": clock("minute")})


def q17(read: Read) -> DataFrame:
    """How many bids an auction has on a day, in all and by the rank of the price, and how high they are."""
    ranks = (F.count_if(_rank() == rank).alias(f"rank{rank}_bids") for rank in (1, 2, 3))
    functions = {"min": F.min, "max": F.max, "avg": F.avg, "sum": F.sum}
    prices = (function("price").alias(f"{name}_price") for name, function in functions.items())
    counts = bids(read).groupBy("auction", day()).agg(F.count("*").alias("total_bids"), *ranks, *prices)
    return counts.withColumn("day", F.col("day").cast("string"))


def _rank() -> Column:
    return F.when(F.col("price") < 10_000, 1).when(F.col("price") < 1_000_000, 2).otherwise(3)


def _counting(read: Read, *by: str) -> DataFrame:
    """A row for every bid, and one for each bidder and auction that is seen for the first time, in all or of a rank.

    Spark refuses to count what is distinct in a stream. A set of all that a day had would be right too, but every batch
    would read and write it whole.
    """
    every = bids(read).select(*by, day(), _rank().alias("place"), minute())
    seen = F.array(
        *(
            F.struct((rank + total).alias("place"), F.col(number).alias("number"))
            for total, number in ((_TOTAL_BIDDERS, "bidder"), (_TOTAL_AUCTIONS, "auction"))
            for rank in (F.lit(0), _rank())
        )
    )
    new = bids(read).select(*by, day(), F.inline(seen)).dropDuplicates()
    return every.unionByName(new.drop("number"), allowMissingColumns=True)


def _counts() -> list[Column]:
    # Each bid is one row, of its rank, and counts for the total as well.
    total_bids = F.count_if(F.col("place") < _TOTAL_BIDDERS).alias(_COUNTS[0])
    return [
        total_bids,
        *(F.count_if(F.col("place") == place).alias(name) for place, name in enumerate(_COUNTS) if place > 0),
    ]
