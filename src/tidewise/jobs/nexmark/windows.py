"""Queries over windows of time and over sessions."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidewise.jobs.nexmark.events import bids
from tidewise.jobs.query import Read

MOST_TIES = 100
"""So many of a window's highest bids are kept; a window that has as many at the highest price stops the query."""


def q5(read: Read) -> DataFrame:
    """The auctions with the most bids of ten seconds, anew every two seconds."""
    window = F.window("event_time", "10 seconds", "2 seconds")
    counts = bids(read).groupBy(window, "auction").agg(F.count("*").alias("bids"))
    listed = counts.groupBy("window").agg(
        F.max("bids").alias("most"), F.collect_list(F.struct("auction", "bids")).alias("counts")
    )
    top = F.filter("counts", lambda count: count.bids == F.col("most"))
    found = listed.select("window.start", "window.end", F.inline(top))
    return found.toDF("window_start", "window_end", "auction", "bids")


def q7(read: Read) -> DataFrame:
    """The highest bids of each ten seconds."""
    bid = ("auction", "bidder", "price", "event_time", "extra")
    highest = F.max_by(F.struct(*bid), "price", MOST_TIES).alias("highest")
    top = F.filter("highest", lambda one: one.price == F.col("highest")[0].price)
    too_many = F.raise_error(F.lit(f"q7: {MOST_TIES} bids or more have the highest price of a window"))
    return (
        bids(read)
        .groupBy(F.window("event_time", "10 seconds"))
        .agg(highest)
        .select("window.start", "window.end", F.inline(F.when(F.size(top) < MOST_TIES, top).otherwise(too_many)))
        .toDF("window_start", "window_end", *bid)
    )


def q11(read: Read) -> DataFrame:
    """How often each bidder bid before a pause of ten seconds."""
    session = F.session_window("event_time", "10 seconds").alias("session")
    counts = bids(read).groupBy(session, "bidder").agg(F.count("*").alias("bids"))
    return counts.selectExpr("bidder", "bids", "session.start AS session_start", "session.end AS session_end")


def q12(read: Read) -> DataFrame:
    """How often each bidder bid in each ten seconds of the time at which bids are worked on."""
    clock = bids(read).select("bidder", F.window(F.current_timestamp(), "10 seconds").alias("window"))
    counts = clock.groupBy("window", "bidder").agg(F.count("*").alias("bids"))
    return counts.selectExpr("bidder", "bids", "window.start AS window_start", "window.end AS window_end")
