"""A run second by second, as every figure is computed from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidewise.core.checks import require

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_INT, _FLOAT, _BOOL = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.bool_)
COLUMNS: dict[str, tuple[np.dtype[Any], bool]] = {
    "second": (_INT, False),
    "input_rate_per_s": (_FLOAT, False),
    "processed_rate_per_s": (_FLOAT, False),
    "backlog_records": (_FLOAT, False),
    "latency_p50_s": (_FLOAT, True),
    "latency_p95_s": (_FLOAT, True),
    "latency_p99_s": (_FLOAT, True),
    "up": (_BOOL, False),
    "busy_share": (_FLOAT, True),
    "cpu_share": (_FLOAT, True),
    "memory_share": (_FLOAT, True),
    "state_mib": (_FLOAT, True),
    "executors": (_INT, False),
    "cores": (_FLOAT, False),
    "memory_mib": (_FLOAT, False),
    "forecast_per_s": (_FLOAT, True),
}
"""Column by column: its kind, and whether a value may be missing."""
_LATENCIES = ("latency_p50_s", "latency_p95_s", "latency_p99_s")


@dataclass(frozen=True, kw_only=True, eq=False)
class Series:
    """A run second by second; arrays of one length that cannot be written to. NaN stands for what is not known.

    Latency is by ARRIVAL: how long the records that arrived in this second waited for their output. So a second in
    which the job was down carries the wait that its records had, and a second whose records were never output before
    the run ended has none (NaN), as has a second in which nothing arrived.
    """

    second: IntArray
    """0, 1, 2, ... without holes: a second that nobody measured is a row of what is not known."""
    input_rate_per_s: FloatArray
    processed_rate_per_s: FloatArray
    backlog_records: FloatArray
    latency_p50_s: FloatArray
    latency_p95_s: FloatArray
    latency_p99_s: FloatArray
    up: BoolArray
    """False while the job was down, be it for a failure or in the gap of a change."""
    busy_share: FloatArray
    cpu_share: FloatArray
    memory_share: FloatArray
    state_mib: FloatArray
    executors: IntArray
    cores: FloatArray
    """Paid for; executors only."""
    memory_mib: FloatArray
    """Paid for; executors only."""
    forecast_per_s: FloatArray
    """The median that had been forecast for this second."""

    def __post_init__(self) -> None:
        for name, (dtype, nullable) in COLUMNS.items():
            object.__setattr__(self, name, _column(name, getattr(self, name), dtype, nullable=nullable))
        lengths = {name: getattr(self, name).size for name in COLUMNS}
        require(len(set(lengths.values())) == 1, f"the columns of a series must have one length, not {lengths}")
        require(len(self) > 0, "a series needs at least one second")
        require(bool(np.array_equal(self.second, np.arange(len(self)))), "the seconds of a series must be 0, 1, 2, ...")
        known = np.isfinite(self.latency_p50_s)
        for name in _LATENCIES[1:]:
            require(
                bool(np.array_equal(known, np.isfinite(getattr(self, name)))),
                f"latency_p50_s and {name} must be known in the same seconds",
            )
        ascending = (self.latency_p50_s <= self.latency_p95_s) & (self.latency_p95_s <= self.latency_p99_s)
        require(bool(ascending[known].all()), "the latency percentiles of a second must ascend")

    def __len__(self) -> int:
        return int(self.second.size)


def _column(name: str, values: npt.ArrayLike, dtype: np.dtype[Any], *, nullable: bool) -> npt.NDArray[Any]:
    given = np.asarray(values)
    require(given.ndim == 1, f"{name} must be one-dimensional")
    require(given.dtype.kind in "biuf", f"{name} must hold numbers, not {given.dtype}")
    if given.dtype.kind == "f":
        require(nullable or not np.isnan(given).any(), f"{name} must be known in every second")
        require(not np.isinf(given).any(), f"{name} must be finite; NaN stands for what is not known")
    column = given.astype(dtype)  # a copy, so that nobody can change it afterwards
    if dtype != _FLOAT:
        require(bool((column == given).all()), f"{name} must hold values of type {dtype}")
    if dtype != _BOOL:
        require(not (column < 0).any(), f"{name} must not be negative")
    column.flags.writeable = False
    return column
