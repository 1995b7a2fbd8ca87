"""What the models of a fleet learn from: the rows of one job, as they come from Spark, and how many of them come."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewise.core import Configuration, InvalidValueError, JobStatus, LatencyMethod, NotReadyError, Observation
from tidewise.core.checks import require
from tidewise.pipeline.grouped import IS_WHOLE, Thinning, require_columns

if TYPE_CHECKING:
    from tidewise.pipeline.grouped import Frame

Floats = npt.NDArray[np.float64]

SAMPLE_S = 60.0
SAMPLES = 3360
"""Of the newest minutes so many: 3,000 that the models of a load look back on, and 360 at which the ensemble judges
itself. Two days and a third, so that a daily season is seen twice."""
WINDOWS = 240
"""About so many windows, of all the time there is, for capacity, latency and memory: their points are running means of
at most 60 windows each."""
_CONFIGURED = (
    "executors",
    "slots_per_executor",
    "cores_per_executor",
    "memory_mib_per_executor",
    "commit_interval_s",
)
_RATES = ("input_rate_per_s", "processed_rate_per_s", "backlog_records")
_KNOWN_OR_NOT = ("latency_p95_s", "busy_share", "cpu_share", "memory_share", "state_mib")
_AS_THEY_ARE = ("job", "program", "window_s", *_CONFIGURED, "load_per_s", *_RATES, *_KNOWN_OR_NOT)
NEEDED = (*_AS_THEY_ARE, "window_start_unix_s", "changing_s", "down_s")
"""The columns of `observations_60s` that models learn from."""

THINNED = Thinning(
    by="job",
    order="at_unix_s",
    newest_s=SAMPLES * SAMPLE_S,
    narrow=("load_per_s",),
    whole=WINDOWS,
    kinds=("program", *_CONFIGURED),
)
"""For all models."""
LOADS_ONLY = Thinning(by="job", order="at_unix_s", newest_s=SAMPLES * SAMPLE_S, narrow=("load_per_s",))


def fleet_rows(observations: Frame) -> Frame:
    """Rows as the models learn from them, of the table `observations_60s`; BadInputError where it lacks a column."""
    require_columns(observations, NEEDED)
    return observations.selectExpr(
        *_AS_THEY_ARE,
        f"cast(window_start_unix_s + {SAMPLE_S} as double) as at_unix_s",
        f"""case when down_s > 0 then '{JobStatus.DOWN.value}'
                 when changing_s > 0 then '{JobStatus.CHANGING.value}'
                 else '{JobStatus.RUNNING.value}' end as status""",
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Samples:
    """The load of a job as mean rates of equal samples; NaN where nothing is known."""

    rates_per_s: Floats
    end_unix_s: float

    def __post_init__(self) -> None:
        require(len(self.rates_per_s) >= 1, "a load needs at least one sample")


def samples_of(rows: pa.Table) -> Samples:
    """The newest samples of a job; NotReadyError where no row tells of its load."""
    times_s, rates = (_floats(rows, name) for name in ("at_unix_s", "load_per_s"))
    known = np.isfinite(times_s) & np.isfinite(rates) & (rates >= 0.0)
    times_s, rates = times_s[known], rates[known]
    if not len(times_s):
        raise NotReadyError("no row tells of the load")
    end_s = float(times_s.max())
    back = np.rint((end_s - times_s) / SAMPLE_S).astype(np.int64)
    near = back < SAMPLES
    back, rates = back[near], rates[near]
    sums, counts = (np.bincount(back, weights, minlength=1) for weights in (rates, np.ones(len(rates))))
    means = np.where(counts > 0.0, sums / np.maximum(counts, 1.0), np.nan)
    return Samples(rates_per_s=np.asarray(means[::-1]), end_unix_s=end_s)


def windows_of(rows: pa.Table) -> Iterator[tuple[str, Observation]]:
    """The windows that came whole, each with the version of the program; those that no job can have are left out."""
    for row in rows.filter(rows.column(IS_WHOLE)).to_pylist():
        observation = _observation(row)
        if observation is not None:
            yield row["program"] or "", observation


def _observation(row: dict[str, Any]) -> Observation | None:
    if any(row[name] is None for name in ("window_s", *_CONFIGURED, *_RATES)):
        return None
    known: dict[str, Any] = {name: _at_least_0(row[name]) for name in _KNOWN_OR_NOT}
    for name in ("busy_share", "cpu_share"):
        share = known[name]
        known[name] = None if share is None else min(1.0, share)
    try:
        return Observation(
            time_s=row["at_unix_s"],
            window_s=row["window_s"],
            configuration=Configuration(**{name: row[name] for name in _CONFIGURED}),
            status=JobStatus(row["status"]),
            **{name: row[name] for name in _RATES},
            arrival_rate_per_s=_at_least_0(row["load_per_s"]),
            latency_method=None if known["latency_p95_s"] is None else LatencyMethod.EVENT_TIME,
            **known,
        )
    except InvalidValueError:
        return None


def _at_least_0(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value >= 0.0 else None


def _floats(rows: pa.Table, name: str) -> Floats:
    return np.asarray(rows.column(name).to_numpy(), dtype=np.float64)
