"""The queries over windows of time: the top category, the median price, and what came before a click."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidewise.jobs.query import Read


def top_categories(read: Read) -> DataFrame:
    """Of each owner in each ten minutes the category that was clicked most; of several the lowest."""
    window = F.window("event_time", "10 minutes")
    clicks = read().where("event_type = 'click'").groupBy(window, "owner", "category").agg(F.count("*").alias("clicks"))
    top = F.max(F.struct("clicks", (-F.col("category")).alias("before"))).alias("top")
    return (
        clicks.groupBy("window", "owner")
        .agg(top)
        .selectExpr("window.start AS window_start", "owner", "-top.before AS category", "top.clicks AS clicks")
    )


def owners_medians(read: Read) -> DataFrame:
    """The median price of each owner's clicks in each minute."""
    return (
        read()
        .where("event_type = 'click'")
        .groupBy(F.window("event_time", "1 minute"), "owner")
        .agg(F.median("price").alias("median"))
        .selectExpr("window.start AS window_start", "owner", "median")
    )


def impressions_per_click(read: Read) -> DataFrame:
    """How often a product was shown for each click on it, in five minutes, anew every minute."""
    counted = _per_click(read(), "impression", F.window("event_time", "5 minutes", "1 minute"))
    shown = counted.select("window.start", "window.end", "product", "others", "clicks", "ratio")
    return shown.toDF("window_start", "window_end", "product", "impressions", "clicks", "ratio")


def searches_per_click(read: Read) -> DataFrame:
    """How often a product was searched for each click on it, in each minute."""
    counted = _per_click(read(), "search", F.window("event_time", "1 minute"))
    found = counted.select("window.start", "product", "others", "clicks", "ratio")
    return found.toDF("window_start", "product", "searches", "clicks", "ratio")


def _per_click(events: DataFrame, other: str, window: Column) -> DataFrame:
    """Events of one other type for each click, in one pass; products without a click are left out."""
    kind = F.col("event_type")
    return (
        events.where(kind.isin("click", other))
        .groupBy(window, "product")
        .agg(F.count_if(kind == other).alias("others"), F.count_if(kind == "click").alias("clicks"))
        .where("clicks > 0")
        .withColumn("ratio", F.col("others") / F.col("clicks"))
    )
