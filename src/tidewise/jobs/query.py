"""A query of a benchmark: what it answers, how Spark computes it, and what it asks of Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame

Read = Callable[[], DataFrame]
"""All events, with their watermark; each call reads the source anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query, with its definition in one sentence."""

    name: str
    sentence: str
    make: Callable[[Read], DataFrame]
    output_mode: Literal["append", "update"] = "append"
    key: tuple[str, ...] = ()
    """The columns that name a row, where answers are corrected: the last that was said of a key counts."""
    partition_by: tuple[str, ...] = ()
    """The columns by which files of its answer lie in folders."""
    stores: tuple[str, ...] = ("rocksdb", "hdfs")
    """The state stores that it can use; none: it keeps no state."""
    real_time: str | None = None
    """Why it cannot run in real-time mode; None: it can."""
    reshaped: str | None = None
    """How it differs from its definition in SQL, and why the answer is still right; None: as written."""
