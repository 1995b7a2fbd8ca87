"""Queries that keep some of all bids there ever were: the last of each bidder, the highest of each auction."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidewise.jobs.nexmark.events import bids
from tidewise.jobs.query import Read

HIGHEST = 10
"""q19 keeps so many bids of an auction."""


def q18(read: Read) -> DataFrame:
    """The last bid of each bidder on each auction.

    Spark has no windows over rows in streams: an aggregate keeps the bid with the latest time.
    """
    bid = F.struct("price", "channel", "url", "event_time", "extra")
    last = bids(read).groupBy("bidder", "auction").agg(F.max_by(bid, F.struct("event_time", "ordinal")).alias("last"))
    return last.select("auction", "bidder", "last.*")


def q19(read: Read) -> DataFrame:
    """The ten highest bids of each auction, of equal ones the earliest.

    Spark has no windows over rows in streams: an aggregate keeps the ten highest. A batch with a bid on an auction
    says all its ranks anew.
    """
    bid = F.struct("bidder", "price", "channel", "url", "event_time", "extra")
    rising = F.struct("price", -F.unix_micros("event_time"), -F.col("ordinal"))
    highest = bids(read).groupBy("auction").agg(F.max_by(bid, rising, HIGHEST).alias("highest"))
    return highest.select("auction", F.posexplode("highest").alias("before", "bid")).selectExpr(
        "auction", "bid.*", "before + 1 AS rank"
    )
