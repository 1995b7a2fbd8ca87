"""The models of every job of a fleet, fitted in one Spark job and kept as a table: forecaster, capacity, quality."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidewise.core import (
    BadInputError,
    ChangeCost,
    Configuration,
    JobStatus,
)
from tidewise.experiments.backtest import score
from tidewise.experiments.backtest_origins import BLOCKS, Judged
from tidewise.experiments.fleet_samples import (
    SAMPLE_S,
    Floats,
    Samples,
    all_columns,
    samples_of,
    windows_of,
)
from tidewise.forecast import RollingForecaster, SavedForecaster, find_season
from tidewise.forecast.model import STEPS, Model, growth_bounds, last_value
from tidewise.forecast.registry import ENSEMBLE
from tidewise.forecast.series import filled
from tidewise.forecast.weighing import blended
from tidewise.host.threads import on_one_thread
from tidewise.pipeline.grouped import Worked, each_job, has_answers
from tidewise.qos import Candidates, JobModel, Physics

if TYPE_CHECKING:
    from tidewise.pipeline.grouped import Frame, Session

FORECASTER = "ensemble"
"""What is saved can be gone on from by the ensemble with all its members too: they keep the samples alone."""
LOOKS_BACK = 3000
WEIGHED_AT, JUDGED_AT = 2, 2
"""At so many origins the members are weighed, and at so many after those the blend is judged. One origin costs what
all members cost, some 9 ms: a goal of 50 ms a job on two cores leaves room for four."""
_APART = 2 * STEPS
_LEAST_LEARNT = 240
"""With fewer samples before the first origin nothing is weighed, and all members stay."""
_POWER = 10.0
_KEPT_MEMBERS = 3
_AS_GOOD = 1.5
"""Members whose error is within this factor of the best are kept: those beyond would weigh less than a fiftieth."""
_DIGITS = 5
_LEAST = 1e-100
"""A rate below this is none."""
SCHEMA = """
    program string, fitted_at_unix_s double, points int, windows int,
    load_mean_per_s double, load_peak_per_s double, load_spread double, season_s double,
    members string, error_10min double, error_30min double, naive_error_10min double,
    records_per_core_s double, records_per_core_log_sd double, batch_fixed_s double, executor_mib double,
    state_mib double, forecaster string, job_model string
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedJob:
    """One row of the table of models, and the objects that are in it."""

    job: str
    program: str
    fitted_at_unix_s: float
    members: tuple[str, ...]
    summary: Mapping[str, object]
    """The other columns by their names."""
    forecaster_state: Mapping[str, object]
    job_model_state: Mapping[str, object]

    def forecaster(self) -> SavedForecaster:
        """Goes on from the job's samples, with the members that were good at its load."""
        found = forecaster_of(self.members)
        found.load(self.forecaster_state)
        return found

    def job_model(self, *, changes: tuple[ChangeCost, ...], physics: Physics | None = None) -> JobModel:
        """Goes on from the job's windows; `changes`: the engine's mechanisms."""
        return JobModel.load(self.job_model_state, physics=physics, changes=changes)


def fit_fleet(
    session: Session,
    tables: Path,
    folder: str | Path,
    *,
    now_unix_s: float,
    progress: Callable[[int, int], None] | None = None,
) -> Worked:
    """Fit the models of all jobs of the table `observations_60s`, and write them to the folder, a row each."""
    return each_job(
        session,
        tables,
        partial(fit_job, now_unix_s=now_unix_s),
        looks=all_columns(),
        schema=SCHEMA,
        folder=folder,
        progress=progress,
    )


def read_models(session: Session, folder: str | Path) -> Frame:
    """The table of models."""
    if not has_answers(folder):
        raise BadInputError(f"there is no table of models at {folder}: make it with tidewise fleet fit")
    return session.read.parquet(str(folder))


def read_model(session: Session, folder: str | Path, job: str) -> FittedJob:
    """The models of one job; BadInputError where it has none, or could not be fitted."""
    frame = read_models(session, folder)
    rows = frame.where(frame["job"] == job).limit(1).collect()
    if not rows:
        raise BadInputError(f"the table of models at {folder} has no job {job!r}: look for its name in it")
    return fitted_job(rows[0].asDict())


def fitted_job(row: Mapping[str, Any]) -> FittedJob:
    """The objects of a row of the table; BadInputError where it holds an error instead."""
    if row["error"] is not None:
        raise BadInputError(f"{row['job']} has no models: {row['error']}")
    inside = {"job", "program", "fitted_at_unix_s", "members", "forecaster", "job_model", "error"}
    return FittedJob(
        job=row["job"],
        program=row["program"],
        fitted_at_unix_s=row["fitted_at_unix_s"],
        members=tuple(row["members"].split(",")),
        summary={name: value for name, value in row.items() if name not in inside},
        forecaster_state=json.loads(row["forecaster"]),
        job_model_state=json.loads(row["job_model"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFacts:
    """What is worth knowing of a table of models."""

    jobs: int
    """That were fitted."""
    error_10min: float | None
    """Median over jobs; shares of the load."""
    naive_error_10min: float | None
    beats_naive: float | None
    """Share of jobs whose forecaster was nearer than the naive one."""
    with_season: int
    with_capacity: int
    """Jobs whose reports told how much they can process."""
    bytes_per_job: float

    def sentences(self) -> list[str]:
        """For people."""
        said = [
            f"{self.with_capacity:,} of {self.jobs:,} show what they can process; {self.with_season:,} have a season."
        ]
        if self.error_10min is not None and self.naive_error_10min is not None and self.beats_naive is not None:
            said.append(
                f"Forecasts of the next 10 min were off by {self.error_10min:.1%} (median), the naive one by "
                f"{self.naive_error_10min:.1%}; {self.beats_naive:.0%} of the jobs are forecast better than that."
            )
        return said


_FACTS = """
    SELECT count(*) AS jobs, median(error_10min) AS error_10min, median(naive_error_10min) AS naive_error_10min,
           avg(cast(error_10min < naive_error_10min AS double)) AS beats_naive, count(season_s) AS with_season,
           count(records_per_core_s) AS with_capacity,
           coalesce(avg(length(forecaster) + length(job_model)), 0) AS bytes_per_job
    FROM {models} WHERE error IS NULL
"""


def fleet_facts(session: Session, folder: str | Path) -> FleetFacts:
    """Of a table of models."""
    found = session.sql(_FACTS, models=read_models(session, folder)).collect()[0]
    return FleetFacts(**found.asDict())


@on_one_thread
def fit_job(_job: str, rows: pa.Table, *, now_unix_s: float) -> list[dict[str, object]]:
    """The row of one job: its models as JSON, and what is worth reading of them."""
    samples = samples_of(rows)
    known = samples.rates_per_s[~np.isnan(samples.rates_per_s)]
    mean = float(known.mean())
    return [
        {
            "fitted_at_unix_s": now_unix_s,
            "points": len(known),
            "load_mean_per_s": mean,
            "load_peak_per_s": float(known.max()),
            "load_spread": float(known.std()) / mean if mean > 0.0 else None,
            **_forecasting(samples),
            **_quality(rows),
        }
    ]


def forecaster_of(members: Sequence[str]) -> RollingForecaster:
    """A new one with these members of the ensemble."""
    unknown = set(members) - {model.name for model in ENSEMBLE}
    if unknown:
        raise BadInputError(f"the ensemble has no member {min(unknown)!r}: fit the fleet anew")
    return RollingForecaster(name=FORECASTER, members=tuple(model for model in ENSEMBLE if model.name in members))


def forecaster_state(samples: Samples) -> dict[str, object]:
    """What a forecaster that has learnt these samples would save; they are rounded to five digits."""
    taught = forecaster_of([model.name for model in ENSEMBLE])
    taught.learn_samples(_to_digits(samples.rates_per_s, _DIGITS), end_s=samples.end_unix_s)
    return taught.save()


def _to_digits(values: Floats, digits: int) -> Floats:
    """The nearest numbers of so many digits: those are short as text."""
    places = digits - 1 - np.floor(np.log10(np.maximum(np.abs(values), _LEAST)))
    scales = 10.0 ** np.abs(places)  # of whole powers, so that both ways the result is the number nearest to its text
    return np.asarray(np.where(places >= 0.0, np.rint(values * scales) / scales, np.rint(values / scales) * scales))


def _forecasting(samples: Samples) -> dict[str, object]:
    state = json.dumps(forecaster_state(samples), allow_nan=False, separators=(",", ":"))
    everyone = [model.name for model in ENSEMBLE]
    rates = filled(samples.rates_per_s)
    origins = [len(rates) - STEPS - number * _APART for number in range(WEIGHED_AT + JUDGED_AT)][::-1]
    if origins[0] < _LEAST_LEARNT:
        return {"members": ",".join(everyone), "forecaster": state}
    season = find_season(rates[: origins[0]])
    paths = np.stack([_member_paths(rates[max(0, origin - LOOKS_BACK) : origin], season) for origin in origins])
    came = np.stack([rates[origin : origin + STEPS] for origin in origins])
    blend = _score(origins, _blend(paths, came), came)
    naive = _score(origins, np.stack([last_value(rates[:origin]) for origin in origins[-JUDGED_AT:]]), came)
    return {
        "season_s": None if season is None else season * SAMPLE_S,
        "members": ",".join(_good_members(paths, came)),
        "error_10min": blend[0],
        "error_30min": blend[-1],
        "naive_error_10min": naive[0],
        "forecaster": state,
    }


def _member_paths(rates: Floats, season: int | None) -> Floats:
    """What every member says; NaN where it has nothing to say."""
    bounds = growth_bounds(rates)
    paths = [_path(model, rates, season, bounds) for model in ENSEMBLE]
    return np.stack([np.full(STEPS, np.nan) if path is None else path for path in paths])


def _path(model: Model, rates: Floats, season: int | None, bounds: tuple[Floats, Floats]) -> Floats | None:
    return None if season is None and model.seasonal else model.path(rates, season, bounds)


def _blend(paths: Floats, came: Floats) -> Floats:
    """What the ensemble says at the origins that are judged, its members weighed by the errors at those before."""
    weighed, judged = paths[:WEIGHED_AT], paths[WEIGHED_AT:]
    # The ensemble counts an error once all of its steps have come: so many origins in between tell nothing.
    between = np.zeros((STEPS, *paths.shape[1:]))
    unknown = np.full((STEPS + len(judged), STEPS), np.nan)
    rows = np.concatenate([weighed, between, judged])
    said = blended(rows, np.concatenate([came[:WEIGHED_AT], unknown]), remembered=len(rows), power=_POWER)
    return said[-len(judged) :]


def _good_members(paths: Floats, came: Floats) -> list[str]:
    """The best, and those nearly as good, by their errors at all origins."""
    errors = np.abs(paths - came[:, np.newaxis]).mean(axis=(0, 2))
    ranked = sorted((float(error), model.name) for error, model in zip(errors, ENSEMBLE, strict=True) if error >= 0.0)
    best = ranked[0][0]
    return [name for error, name in ranked[:_KEPT_MEMBERS] if error <= _AS_GOOD * best + 1e-12]


def _score(origins: Sequence[int], said: Floats, came: Floats) -> tuple[float | None, ...]:
    """Errors 0-10, 10-20 and 20-30 minutes ahead, as a backtest reckons them; no intervals are looked at here."""
    came = came[-len(said) :]
    blocks = (len(said), BLOCKS, -1)
    nothing = np.full((len(said), BLOCKS), np.nan)
    judged = Judged(
        origins=np.array(origins[-len(said) :]),
        errors_per_s=np.abs(said - came).reshape(blocks).sum(axis=2),
        came_per_s=came.reshape(blocks).sum(axis=2),
        inside=nothing,
        peaks_per_s=nothing,
        ahead_per_s=nothing,
        forecast_s=np.zeros(1),
        first_s=np.zeros(1),
    )
    return score(judged).wape


def _quality(rows: pa.Table) -> dict[str, object]:
    """Capacity, latency and memory, learnt from the windows of the job in their order."""
    model = JobModel(changes=())
    windows, usual, memory_seen, state_mib = 0, None, False, None
    for program, window in windows_of(rows):
        model.use_version(program)
        model.learn(window)
        windows += 1
        if window.status is JobStatus.RUNNING:
            usual = window.configuration
            memory_seen = memory_seen or window.memory_share is not None
            state_mib = window.state_mib
    found: dict[str, object] = {
        "program": model.program_version,
        "windows": windows,
        "state_mib": state_mib,
        "job_model": json.dumps(_rounded(model.save()), allow_nan=False, separators=(",", ":")),
    }
    if usual is None or not model.capacity.windows:
        return found
    alone = Configuration(executors=1, memory_mib_per_executor=usual.memory_mib_per_executor)
    capacity = model.capacity.predict(Candidates.listing([alone]))
    found["records_per_core_s"] = float(capacity.median[0])
    found["records_per_core_log_sd"] = float(capacity.log_sd[0])
    if model.latency.windows:
        found["batch_fixed_s"] = _batch_fixed_s(model.latency_p95_s(usual, 0.0).mean, usual.commit_interval_s)
    if memory_seen:
        found["executor_mib"] = float(model.memory.predict(Candidates.listing([alone]), 0.0).median[0])
    return found


def _batch_fixed_s(at_rest_s: float, interval_s: float) -> float:
    """What a batch takes without records, output included, from the 95th percentile of latency without load.

    That is the batch and 95 % of the wait for it, which is the trigger interval, or the batch before where that lasts
    longer.
    """
    beyond_s = at_rest_s - 0.95 * interval_s
    return max(beyond_s if beyond_s <= interval_s else at_rest_s / 1.95, 1e-3)


def _rounded(value: object) -> object:
    """The same plain data with numbers of seven digits: more than any of them is known to."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value
