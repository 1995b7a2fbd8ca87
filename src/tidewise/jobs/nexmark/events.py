"""The three types of events, out of the stream that holds them all, and parts of their times in UTC."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidewise.jobs.query import Read


def persons(read: Read) -> DataFrame:
    """Everybody who registers."""
    return read().where("event_type = 'person'")


def auctions(read: Read) -> DataFrame:
    """Every auction that is opened."""
    return read().where("event_type = 'auction'")


def bids(read: Read) -> DataFrame:
    """Every bid."""
    return read().where("event_type = 'bid'")


# Whole seconds know no time zone; Spark's own functions would take that of the session.


def day() -> Column:
    """The date of an event; it is no event time to Spark, so that no watermark ever closes a day."""
    return F.expr("date_from_unix_date(CAST(unix_seconds(event_time) DIV 86400 AS INT))").alias("day")


def hour() -> Column:
    """The hour of an event, from 0 to 23."""
    return F.expr("unix_seconds(event_time) DIV 3600 % 24")


def minute() -> Column:
    """The minute of an event, since the beginning of its day."""
    return F.expr("unix_seconds(event_time) DIV 60 % 1440").alias("minute")


def clock(minute: str) -> Column:
    """A column with minutes of the day, as a clock shows them: 'HH:mm'."""
    parts = (f"{minute} DIV 60", f"{minute} % 60")
    return F.concat_ws(":", *(F.lpad(F.expr(part).cast("string"), 2, "0") for part in parts)).alias("minute")
