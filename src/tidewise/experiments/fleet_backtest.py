"""How good forecasters would have been on every job of a fleet: rolling origins, as one Spark job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidewise.core import MEDIAN, BadInputError, Forecast, NotReadyError
from tidewise.core.checks import require
from tidewise.experiments.backtest import score
from tidewise.experiments.backtest_origins import LOWER, UPPER, Judged, sample_report
from tidewise.experiments.fleet_samples import SAMPLE_S, Floats, loads_only, samples_of
from tidewise.experiments.telemetry_forecasts import HORIZONS_S
from tidewise.forecast import make_forecaster
from tidewise.forecast.series import filled
from tidewise.host.threads import on_one_thread
from tidewise.pipeline.grouped import Worked, each_job

if TYPE_CHECKING:
    from tidewise.pipeline.grouped import Session

_STEPS = tuple(round(horizon_s / SAMPLE_S) for horizon_s in HORIZONS_S)
"""What is judged is the sample that ends at the horizon."""
NAIVE, ENSEMBLE = "naive", "ensemble"
SCHEMA = "model string, horizon_s double, origins int, wape double, inside double, forecast_p50_s double"
_SUMMARY = """
    SELECT horizon_s, model, count(*) AS jobs, median(wape) AS wape_median, avg(inside) AS inside,
           avg(cast(is_better AS double)) AS beats_naive
    FROM {judged} GROUP BY horizon_s, model ORDER BY horizon_s, model
"""
_LEAST_LEARNT = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetBacktestSettings:
    """What is asked of every job."""

    models: tuple[str, ...] = (NAIVE, ENSEMBLE)
    origins: int = 12
    """So many of each job, the last of them as late as the furthest horizon allows."""
    every: int = 10
    """Samples from one origin to the next: what lies between two is forecast as well, for the intervals."""
    most_jobs: int | None = 200
    """At most about so many jobs, chosen by a hash of their names; None: all. An ensemble takes some seconds a job."""

    def __post_init__(self) -> None:
        require(self.origins >= 1 and self.every >= 1, "a backtest needs at least one origin, a sample apart at least")
        if len(set(self.models)) != len(self.models) or not self.models:
            raise BadInputError("name each model that is wanted, once")
        for model in self.models:
            make_forecaster(model)  # for the sentence that it has where there is none of this name
        if self.most_jobs is not None and self.most_jobs < 1:
            raise BadInputError(f"a backtest needs at least one job, not {self.most_jobs}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizonSummary:
    """All jobs together, at one horizon."""

    horizon_s: float
    model: str
    jobs: int
    wape_median: float | None
    """Over jobs."""
    inside: float | None
    """Share of what came inside of the 90 % interval, over jobs."""
    beats_naive: float | None
    """Share of jobs where its error is smaller than that of the naive forecast; None for that itself."""


def backtest_fleet(
    session: Session,
    tables: Path,
    folder: str | Path,
    settings: FleetBacktestSettings,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Worked:
    """Judge every model on every job of the table `observations_60s`; a row per job, model and horizon."""
    return each_job(
        session,
        tables,
        partial(judge_job, settings=settings),
        looks=loads_only(partial(_some_jobs, most=settings.most_jobs)),
        schema=SCHEMA,
        folder=folder,
        progress=progress,
    )


def _some_jobs(jobs: Sequence[str], *, most: int | None) -> Sequence[str]:
    return jobs if most is None else sorted(jobs, key=lambda job: blake2b(job.encode(), digest_size=8).digest())[:most]


@on_one_thread
def judge_job(job: str, rows: pa.Table, *, settings: FleetBacktestSettings) -> list[dict[str, object]]:
    """The rows of one job."""
    rates = filled(samples_of(rows).rates_per_s)
    last = len(rates) - max(_STEPS)
    origins = [last - number * settings.every for number in range(settings.origins)][::-1]
    origins = [origin for origin in origins if origin >= _LEAST_LEARNT]
    if not origins:
        needed = _LEAST_LEARNT + max(_STEPS)
        raise NotReadyError(f"{job} has {len(rates)} samples of {SAMPLE_S:g} s, and a backtest needs {needed}")
    return [row for model in settings.models for row in _judged_rows(model, rates, origins)]


def _judged_rows(model: str, rates: Floats, origins: Sequence[int]) -> list[dict[str, object]]:
    found = score(_judge(model, rates, origins))
    return [
        {
            "model": model,
            "horizon_s": horizon_s,
            "origins": found.origins,
            "wape": found.wape[place],
            "inside": found.inside[place],
            "forecast_p50_s": found.forecast_p50_s,
        }
        for place, horizon_s in enumerate(HORIZONS_S)
    ]


def _judge(model: str, rates: Floats, origins: Sequence[int]) -> Judged:
    """What a new forecaster says at each origin from what lies before, beside what came: a column per horizon."""
    forecaster = make_forecaster(model, sample_s=SAMPLE_S)
    steps = [step - 1 for step in _STEPS]
    learnt = 0
    said: list[Floats] = []
    took_s: list[float] = []
    for origin in origins:
        for number in range(learnt, origin):
            forecaster.learn(sample_report(number, float(rates[number]), SAMPLE_S))
        learnt = origin
        began_s = time.process_time()
        forecast = forecaster.forecast(horizon_s=HORIZONS_S[-1], step_s=SAMPLE_S)
        took_s.append(time.process_time() - began_s)
        said.append(_at(forecast, steps))
    came = np.stack([rates[origin:][steps] for origin in origins])
    lower, median, upper = np.stack(said, axis=1)
    last = [each[:, -1] for each in (lower, median, upper, came)]
    return Judged(
        origins=np.array(origins),
        errors_per_s=np.abs(median - came),
        came_per_s=came,
        inside=((came >= lower) & (came <= upper)).astype(np.float64),
        peaks_per_s=np.stack([each.max(axis=1) for each in (came, median, upper)], axis=1),
        ahead_per_s=np.stack(last, axis=1),
        forecast_s=np.array(took_s),
        first_s=np.array(took_s[:1]),
    )


def _at(forecast: Forecast, steps: Sequence[int]) -> Floats:
    return np.array([[forecast.path(level)[step] for step in steps] for level in (LOWER, MEDIAN, UPPER)])


def fleet_summary(session: Session, folder: str | Path) -> list[HorizonSummary]:
    """All jobs together, by horizon and model."""
    judged = session.read.parquet(str(folder)).where("error is null")
    naive = judged.where(f"model = '{NAIVE}'").selectExpr("job", "horizon_s", "wape as naive_wape")
    rows = judged.join(naive, ["job", "horizon_s"], "left").selectExpr(
        "*", f"if(model = '{NAIVE}', null, wape < naive_wape) as is_better"
    )
    found = session.sql(_SUMMARY, judged=rows).collect()
    return [HorizonSummary(**row.asDict()) for row in found]
