"""Queries that join: people with their auctions, bids with their auction, and bids with a table."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidewise.jobs.nexmark.events import auctions, bids, persons
from tidewise.jobs.query import Read

SIDE_KEYS = 10_000
"""How many rows the table beside the stream has."""


def q3(read: Read) -> DataFrame:
    """Who sells in category 10, in Oregon, Idaho and California."""
    sellers = persons(read).where("state IN ('OR', 'ID', 'CA')").selectExpr("id AS seller", "name", "city", "state")
    sold = auctions(read).where("category = 10").select("id", "seller")
    return sold.join(sellers, "seller").select("name", "city", "state", "id")


def q8(read: Read) -> DataFrame:
    """Who opened an auction in the ten seconds in which they registered."""
    window = F.window("event_time", "10 seconds")
    registered = persons(read).select(window.alias("registered"), "id", "name")
    opened = auctions(read).select(window.alias("opened"), "seller")
    same = (F.col("id") == F.col("seller")) & (F.col("registered") == F.col("opened"))
    return registered.join(opened, same, "left_semi").selectExpr("id", "name", "registered.start AS window_start")


def q13(read: Read) -> DataFrame:
    """Every bid with what a table beside the stream has for it."""
    events = bids(read)
    # From Arrow it is part of the plan, which real-time mode takes; from a list it would be an RDD, which it refuses.
    rows = {"key": pa.array(range(SIDE_KEYS)), "value": [f"value-{key}" for key in range(SIDE_KEYS)]}
    side = events.sparkSession.createDataFrame(pa.table(rows))
    joined = events.join(F.broadcast(side), F.col("auction") % SIDE_KEYS == F.col("key"))
    return joined.select("auction", "bidder", "price", "event_time", "value")


def q20(read: Read) -> DataFrame:
    """Every bid on an auction of category 10, with what is sold."""
    # Made anew, a time is no event time to Spark, which would drop what comes late though everything is kept.
    time = "timestamp_micros(unix_micros(event_time))"
    bid = bids(read).selectExpr(
        *("auction", "bidder", "price", "channel", "url", f"{time} AS bid_time", "extra AS bid_extra")
    )
    sold = auctions(read).selectExpr(
        *("id", "item", "description", "initial_bid", "reserve", f"{time} AS auction_time"),
        *("expires", "seller", "category", "extra AS auction_extra"),
    )
    return bid.join(sold.where("category = 10"), F.col("auction") == F.col("id")).drop("id")
