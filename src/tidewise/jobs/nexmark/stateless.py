"""Queries that look at each bid by itself."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidewise.jobs.nexmark.events import bids, clock, day, hour, minute
from tidewise.jobs.query import Read

_EUROS = 0.908
"""What a dollar is worth."""


def q0(read: Read) -> DataFrame:
    """Every bid, as it came."""
    return bids(read).select("auction", "bidder", "price", "event_time", "extra")


def q1(read: Read) -> DataFrame:
    """Every bid, its price in euros."""
    return q0(read).withColumn("price", F.col("price") * _EUROS)


def q2(read: Read) -> DataFrame:
    """The bids on every 123rd auction."""
    return bids(read).where("auction % 123 = 0").select("auction", "price")


def q10(read: Read) -> DataFrame:
    """Every bid with its day and minute, by which the files are parted."""
    timed = bids(read).withColumns({"day": day().cast("string"), "minute": minute()})
    return timed.select("auction", "bidder", "price", "event_time", "extra", "day", clock("minute"))


def q14(read: Read) -> DataFrame:
    """Bids of a million to fifty million euros, with their time of day and how many letters c their text has."""
    price = F.col("price") * _EUROS
    time_type = F.when(hour().between(8, 18), "dayTime").when((hour() <= 6) | (hour() >= 20), "nightTime")
    without_c = F.length(F.replace("extra", F.lit("c"), F.lit("")))
    return (
        bids(read)
        .where((price > 1_000_000) & (price < 50_000_000))
        .select(
            "auction",
            "bidder",
            price.alias("price"),
            time_type.otherwise("otherTime").alias("bid_time_type"),
            "event_time",
            "extra",
            (F.length("extra") - without_c).alias("c_counts"),
        )
    )


def q21(read: Read) -> DataFrame:
    """Bids with the number of their channel: of the four large ones known, of the others told by the url."""
    told = F.regexp_extract("url", "[?&]channel_id=([^&]*)", 1)
    channel_id = F.when(F.lower("channel") == "apple", "0")
    for number, name in enumerate(("google", "facebook", "baidu"), start=1):
        channel_id = channel_id.when(F.lower("channel") == name, str(number))
    numbered = bids(read).withColumn("channel_id", channel_id.otherwise(told))
    return numbered.where("channel_id <> ''").select("auction", "bidder", "price", "channel", "channel_id")


def q22(read: Read) -> DataFrame:
    """Bids with the first three folders of their url."""
    folders = (F.split_part("url", F.lit("/"), F.lit(3 + place)).alias(f"dir{place}") for place in (1, 2, 3))
    return bids(read).select("auction", "bidder", "price", "channel", *folders)
