"""Tidewise keeps Spark Structured Streaming jobs at their promised latency and recovery time for the least money."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidewise.engines.spark.attach import Attached

__version__ = "0.1.0"


def attach(session: SparkSession, *, window_s: float = 5.0) -> Attached:
    """Watch the streaming queries of a session that runs already, as in a notebook; nothing in it is changed."""
    from tidewise.engines.spark.attach import Attached  # noqa: PLC0415 -- only those who attach need Spark's part

    return Attached(session, window_s=window_s)
