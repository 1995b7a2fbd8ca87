"""What the models of a fleet learn from: the rows of one job, as they come from Spark, and how many of them come."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewise.core import Configuration, InvalidValueError, JobStatus, LatencyMethod, NotReadyError, Observation
from tidewise.core.checks import require
from tidewise.experiments.fleet_tables import OBSERVATIONS
from tidewise.pipeline.grouped import Looks
from tidewise.pipeline.job_files import CONFIGURED, PROGRAM, START, Wanted
from tidewise.pipeline.job_rows import IS_WHOLE, LOAD, OBSERVED, Thinning

Floats = npt.NDArray[np.float64]

SAMPLE_S = 60.0
SAMPLES = 3360
"""Of the newest minutes so many: 3,000 that the models of a load look back on, and 360 at which the ensemble judges
itself. Two days and a third, so that a daily season is seen twice."""
WINDOWS = 240
"""About so many windows, of all the time there is, for capacity, latency and memory: their points are running means of
at most 60 windows each."""
_RATES = ("input_rate_per_s", "processed_rate_per_s", "backlog_records")
_KNOWN_OR_NOT = ("latency_p95_s", "busy_share", "cpu_share", "memory_share", "state_mib")
_WITHIN_ONE = ("busy_share", "cpu_share")
_SECONDS = ("window_s", "changing_s", "down_s")


def all_columns() -> Looks:
    """What all models of a job look at."""
    wanted = Wanted.of(means=(*_RATES, *_KNOWN_OR_NOT), sums=_SECONDS)
    thinning = Thinning(newest_s=SAMPLES * SAMPLE_S, whole=WINDOWS)
    return Looks(table=OBSERVATIONS, thinning=thinning, wanted=wanted)


def loads_only(only: Callable[[Sequence[str]], Collection[str]] = tuple) -> Looks:
    """What forecasters look at, of some jobs or all."""
    wanted = Wanted.of(means=(), sums=())
    return Looks(table=OBSERVATIONS, thinning=Thinning(newest_s=SAMPLES * SAMPLE_S), wanted=wanted, only=only)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Samples:
    """The load of a job as mean rates of equal samples; NaN where nothing is known."""

    rates_per_s: Floats
    end_unix_s: float

    def __post_init__(self) -> None:
        require(len(self.rates_per_s) >= 1, "a load needs at least one sample")


def samples_of(rows: pa.Table) -> Samples:
    """The newest samples of a job; NotReadyError where no row tells of its load.

    Of rows that tell of the same sample, as after a change of the configuration within it, each weighs by its seconds.
    """
    times_s, rates, observed_s = _floats(rows, START) + SAMPLE_S, _floats(rows, LOAD), _floats(rows, OBSERVED)
    known = np.isfinite(times_s) & np.isfinite(rates) & (rates >= 0.0) & (observed_s > 0.0)
    times_s, rates, observed_s = times_s[known], rates[known], observed_s[known]
    if not len(times_s):
        raise NotReadyError("no row tells of the load")
    end_s = float(times_s.max())
    back = np.rint((end_s - times_s) / SAMPLE_S).astype(np.int64)
    near = back < SAMPLES
    back, rates, observed_s = back[near], rates[near], observed_s[near]
    sums, over_s = (np.bincount(back, weights, minlength=1) for weights in (rates * observed_s, observed_s))
    means = np.divide(sums, over_s, out=np.full(len(sums), np.nan), where=over_s > 0.0)
    return Samples(rates_per_s=np.asarray(means[::-1]), end_unix_s=end_s)


def windows_of(rows: pa.Table) -> Iterator[tuple[str, Observation]]:
    """The windows that came whole, each with the version of the program; those that no job can have are left out."""
    whole = rows.filter(rows.column(IS_WHOLE))
    needed = {name: whole.column(name).to_pylist() for name in ("window_s", *_RATES)}
    known = {name: _known(whole, name, most=1.0 if name in _WITHIN_ONE else math.inf) for name in _KNOWN_OR_NOT}
    fields: dict[str, Sequence[Any]] = {
        **needed,
        "time_s": (_floats(whole, START) + SAMPLE_S).tolist(),
        "status": list(map(_status, *(_floats(whole, name).tolist() for name in ("changing_s", "down_s")))),
        "arrival_rate_per_s": _known(whole, LOAD),
        "latency_method": [None if value is None else LatencyMethod.EVENT_TIME for value in known["latency_p95_s"]],
        **known,
    }
    configured = zip(*(whole.column(name).to_pylist() for name in CONFIGURED), strict=True)
    made: dict[tuple[Any, ...], Configuration | None] = {}  # many windows have the same
    for program, numbers, *values in zip(whole.column(PROGRAM).to_pylist(), configured, *fields.values(), strict=True):
        if numbers not in made:
            made[numbers] = _configuration(numbers)
        configuration = made[numbers]
        if configuration is None or None in values[: len(needed)]:
            continue
        with suppress(InvalidValueError):
            observation = Observation(configuration=configuration, **dict(zip(fields, values, strict=True)))
            yield program or "", observation


def _configuration(numbers: tuple[Any, ...]) -> Configuration | None:
    """None where no job can have it."""
    if None not in numbers:
        with suppress(InvalidValueError):
            return Configuration(**dict(zip(CONFIGURED, numbers, strict=True)))
    return None


def _status(changing_s: float, down_s: float) -> JobStatus:
    """NaN: unknown, and so not told of."""
    if down_s > 0.0:
        return JobStatus.DOWN
    return JobStatus.CHANGING if changing_s > 0.0 else JobStatus.RUNNING


def _known(rows: pa.Table, name: str, *, most: float = math.inf) -> list[float | None]:
    """The values of a column; None for what is unknown, or what nothing can have."""
    values = _floats(rows, name)
    known = np.isfinite(values) & (values >= 0.0)
    values = np.minimum(values, most)
    return [value if is_known else None for value, is_known in zip(values.tolist(), known.tolist(), strict=True)]


def _floats(rows: pa.Table, name: str) -> Floats:
    return np.asarray(rows.column(name).to_numpy(), dtype=np.float64)
