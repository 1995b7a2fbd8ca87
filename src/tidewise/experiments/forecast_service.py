"""Forecasts of every job from what is told of its load, each with its recent error: TidalScale's three services in one.

The line, Holt-Winters and how they are weighed are the policy's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tidewise.core import BadInputError, Configuration, InvalidValueError, JobStatus, Observation
from tidewise.core.saved import check_format, damage_told
from tidewise.core.telemetry import SCHEMA
from tidewise.pipeline.per_job import JobRow, PerJob
from tidewise.pipeline.per_job_query import PerJobService
from tidewise.policies.tidal_predictions import TidalPredictions

SHORT_TOPIC = "forecast-short"
LONG_TOPIC = "forecast-long"
FORECAST_TOPIC = "forecast"
FORECAST_KIND = "forecast"
"""Of the lines in these topics, as reports have theirs."""
TOGETHER = "short+long"
"""What the aggregation is called as a model."""
FORGET_AFTER_S = 7 * 86_400.0
"""A job that was not told of for so long starts anew: its season is remembered for four days."""
_FORMAT = 1
"""The version of what is saved."""
_CONFIGURATION = Configuration(executors=1)
"""Series of loads do not look at it."""
SANE = f"schema <= {SCHEMA} AND at_unix_s BETWEEN 0 AND 1e11 AND window_s > 0 AND window_s < 1e9"
"""Which reports can be read at all, in SQL; NaN is more than any number there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSettings:
    """How far ahead, and from what; TidalScale's where nothing else is said."""

    horizon_s: float = 180.0
    short_window_s: float = 540.0
    season_s: float = 86_400.0
    error_smoothing: float = 0.5

    def __post_init__(self) -> None:
        try:
            self.predictions()
        except InvalidValueError as wrong:
            raise BadInputError(f"the forecasts cannot be made: {wrong}") from wrong

    def predictions(self) -> TidalPredictions:
        """New ones, which know nothing yet."""
        return TidalPredictions(
            horizon_s=self.horizon_s,
            short_window_s=self.short_window_s,
            season_s=self.season_s,
            error_smoothing=self.error_smoothing,
        )


class JobForecasts:
    """The forecasts of one job: new ones whenever a sample of its load is complete, from all reports until then."""

    def __init__(self, settings: ForecastSettings) -> None:
        self._settings = settings
        self._predictions = settings.predictions()
        self._clock = RunClock()
        self._told_at = 0
        """The sample after which forecasts were told last."""
        self._line = 0
        """How often they were told."""

    def take(self, rows: list[JobRow]) -> list[dict[str, object]]:
        """The forecasts after the last of these reports: nobody could use those in between any more."""
        for row in rows:
            self._predictions.learn(_load_of(row, self._clock))
        if not rows or self._predictions.samples == self._told_at:
            return []
        self._told_at = self._predictions.samples
        return self._forecasts(float(rows[-1]["at_unix_s"]))

    def save(self) -> str:
        """Everything, as one line."""
        return json.dumps(
            {
                "format": _FORMAT,
                "predictions": self._predictions.save(),
                "zero_unix_s": self._clock.zero_unix_s,
                "told_at": self._told_at,
                "line": self._line,
            }
        )

    def load(self, text: str) -> None:
        """Go on where `save` stood; BadInputError where that is something else."""
        saved = json.loads(text)
        check_format(saved, version=_FORMAT, what="the saved forecasts have", instead="let them learn anew")
        with damage_told(what="the saved forecasts are", instead="let them learn anew"):
            self._predictions.load(saved["predictions"])
            self._clock.zero_unix_s = saved["zero_unix_s"]
            self._told_at, self._line = int(saved["told_at"]), int(saved["line"])

    def _forecasts(self, now_unix_s: float) -> list[dict[str, object]]:
        said = self._predictions.predicted()
        if said.per_s is None:
            return []
        self._line += 1
        weight = said.weight_short
        made = (
            (SHORT_TOPIC, said.short_per_s, said.short_error, self._predictions.short_model, weight),
            (LONG_TOPIC, said.long_per_s, said.long_error, self._predictions.long_model, 1.0 - weight),
            (FORECAST_TOPIC, said.per_s, said.error, TOGETHER, weight),
        )
        return [
            {
                "topic": topic,
                "schema": SCHEMA,
                "kind": FORECAST_KIND,
                # One that starts anew numbers anew, and begins at another time; see PerJobService for other states.
                "run": f"{topic}-{self._clock.zero_unix_s}",
                "line": self._line,
                "made_at_unix_s": now_unix_s,
                "for_unix_s": now_unix_s + self._settings.horizon_s,
                "per_s": per_s,
                "error": error,
                "model": model,
                "weight": counts,
            }
            for topic, per_s, error, model, counts in made
            if per_s is not None
        ]


class RunClock:
    """Seconds since the first report, to the millisecond: unix times are too large to be added up finely."""

    def __init__(self) -> None:
        self.zero_unix_s: float | None = None

    def time_s(self, unix_s: float) -> float:
        """A moment on the clock."""
        if self.zero_unix_s is None:
            self.zero_unix_s = unix_s
        return round(unix_s - self.zero_unix_s, 3)


def _load_of(row: JobRow, clock: RunClock) -> Observation:
    return Observation(
        time_s=clock.time_s(row["at_unix_s"]),
        window_s=row["window_s"],
        configuration=_CONFIGURATION,
        status=JobStatus.RUNNING,
        input_rate_per_s=row["load_per_s"],
        processed_rate_per_s=row["load_per_s"],
        backlog_records=0.0,
    )


def forecasts_of(settings: ForecastSettings) -> Callable[[], PerJob]:
    """Makes the forecasts of one job after the other; can be sent to Spark's workers."""
    return partial(JobForecasts, settings)


def forecast_service(settings: ForecastSettings) -> PerJobService:
    """From reports to the three topics of forecasts, for all jobs."""
    return PerJobService(
        name="forecast",
        tells=(SHORT_TOPIC, LONG_TOPIC, FORECAST_TOPIC),
        fields=(
            "schema int, kind string, job string, run string, line bigint, at_unix_s double, window_s double, "
            "load_per_s double"
        ),
        where=f"kind = 'report' AND {SANE} AND load_per_s >= 0 AND load_per_s < 1e15",
        columns=("job", "run", "line", "at_unix_s", "window_s", "load_per_s"),
        make=forecasts_of(settings),
        answers=(
            "schema int, kind string, run string, line bigint, made_at_unix_s double, for_unix_s double, "
            "per_s double, error double, model string, weight double"
        ),
        forget_after_s=FORGET_AFTER_S,
    )
