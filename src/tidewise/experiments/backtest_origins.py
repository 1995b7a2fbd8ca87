"""What a forecaster said at many moments of a load, beside what came: the part of a backtest that is spread out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import numpy.typing as npt

from tidewise.core import Configuration, Forecast, Forecaster, JobStatus, Observation
from tidewise.forecast import SAMPLE_S, make_forecaster

Floats = npt.NDArray[np.float64]

BLOCK_S = 600.0
BLOCKS = 3
HORIZON_S = BLOCKS * BLOCK_S
LOWER, UPPER = 0.05, 0.95
"""Between these levels lies the 90 % interval."""
_CONFIGURATION = Configuration(executors=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stretch:
    """Some origins of one load for one model, with all the samples that are needed to judge them."""

    load: str
    model: str
    seed: int
    sample_s: float
    begin: int
    """Number of the first sample that is here; the load's own first is 0."""
    rates_per_s: Floats
    origins: tuple[int, ...]
    """How many samples of the load lie before each origin."""

    def __str__(self) -> str:
        return f"{self.model} on {self.load}, seed {self.seed}, at sample {self.origins[0]} to {self.origins[-1]}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judged:
    """One row per origin, in the order of the load."""

    origins: npt.NDArray[np.int64]
    errors_per_s: Floats
    """Sums of the absolute errors of the median, by block of the horizon."""
    came_per_s: Floats
    """Sums of what came, by block."""
    inside: Floats
    """Share of the samples that came inside of the 90 % interval, by block."""
    peaks_per_s: Floats
    """Highest sample of the first block: as it came, of the median, and of the interval's upper end."""
    ahead_per_s: Floats
    """The last sample of the first block: lower end, median and upper end of its forecast, and what came."""
    forecast_s: Floats
    """CPU time of the forecast, the one before having been asked for a sample earlier."""
    first_s: Floats
    """CPU time of the first forecast of each stretch, which makes those of the past as well."""

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """One after the other."""
        return cls(
            **{field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)}
        )


def forecaster_sample_s(sample_s: float) -> float:
    """The samples of a forecaster whose reports are as long as these: its usual ones, or as long where they are longer.

    In shorter ones it would see less far ahead than is judged.
    """
    return max(SAMPLE_S, sample_s)


def judge(stretch: Stretch) -> Judged:
    """Let a new forecaster learn what comes before each origin, and compare what it says there with what came."""
    forecaster = make_forecaster(stretch.model, sample_s=forecaster_sample_s(stretch.sample_s))
    steps = round(HORIZON_S / stretch.sample_s)
    rows: list[tuple[Sequence[float], ...]] = []
    forecast_s: list[float] = []
    first_s: list[float] = []
    known, asked_at = stretch.begin, -1
    for origin in stretch.origins:
        known = _learn(forecaster, stretch, known, origin - 1)
        # Asked for at every sample, as a controller does, a forecast takes much less than after a silence.
        if asked_at != known:
            took_s = _forecast(forecaster, stretch.sample_s)[1]
            first_s = first_s or [took_s]
        known = asked_at = _learn(forecaster, stretch, known, origin)
        forecast, took_s = _forecast(forecaster, stretch.sample_s)
        forecast_s.append(took_s)
        came = stretch.rates_per_s[origin - stretch.begin :][:steps]
        rows.append(_compared(forecast, came))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    errors, came_sums, inside, peaks, ahead = columns
    return Judged(
        origins=np.array(stretch.origins),
        errors_per_s=errors,
        came_per_s=came_sums,
        inside=inside,
        peaks_per_s=peaks,
        ahead_per_s=ahead,
        forecast_s=np.array(forecast_s),
        first_s=np.array(first_s),
    )


def _learn(forecaster: Forecaster, stretch: Stretch, known: int, until: int) -> int:
    """Give it the samples up to this number, which is how many of the load it knows then."""
    for number in range(known, until):
        rate = float(stretch.rates_per_s[number - stretch.begin])
        forecaster.learn(sample_report(number, rate, stretch.sample_s))
    return until


def sample_report(number: int, rate_per_s: float, sample_s: float) -> Observation:
    """The sample of this number as a report of a job that keeps up: forecasters look at nothing but its load."""
    return Observation(
        time_s=(number + 1) * sample_s,
        window_s=sample_s,
        configuration=_CONFIGURATION,
        status=JobStatus.RUNNING,
        input_rate_per_s=rate_per_s,
        processed_rate_per_s=rate_per_s,
        backlog_records=0.0,
    )


def _forecast(forecaster: Forecaster, sample_s: float) -> tuple[Forecast, float]:
    began_s = time.process_time()
    forecast = forecaster.forecast(horizon_s=HORIZON_S, step_s=sample_s)
    return forecast, time.process_time() - began_s


def _compared(forecast: Forecast, came: Floats) -> tuple[Sequence[float], ...]:
    lower, median, upper = (np.array(forecast.path(level)) for level in (LOWER, 0.5, UPPER))
    per_block = len(came) // BLOCKS
    inside = (came >= lower) & (came <= upper)
    first, last = slice(0, per_block), per_block - 1
    return (
        np.abs(median - came).reshape(BLOCKS, -1).sum(axis=1).tolist(),
        came.reshape(BLOCKS, -1).sum(axis=1).tolist(),
        inside.reshape(BLOCKS, -1).mean(axis=1).tolist(),
        [float(path[first].max()) for path in (came, median, upper)],
        [float(path[last]) for path in (lower, median, upper, came)],
    )
