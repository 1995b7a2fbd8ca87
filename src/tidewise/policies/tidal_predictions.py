"""The load of the next minutes as TidalScale sees it: a line, Holt-Winters, and both weighed by the other's error."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tidewise.core import Observation
from tidewise.core.checks import require, require_finite
from tidewise.core.saved import check_format, damage_told
from tidewise.forecast.holt import HOLT_WINTERS
from tidewise.forecast.lines import LINE
from tidewise.forecast.model import STEPS, Model
from tidewise.forecast.series import RateSeries, filled

_LINE_SAMPLES = 9
"""The samples of the short-term line."""
_SEASON_SAMPLES = 288
"""Points in a season of the long-term prediction: five minutes each for a day."""
_SEASONS_KEPT = 4
_JUDGED = 8
"""Errors further back weigh less than 1 in 200 when each counts half of the one after it."""
_ROUNDING = 1e-9
_FORMAT = 1
"""The version of what is saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What is predicted, and how wrong that was lately; unknown with too few samples."""

    per_s: float | None
    """Both predictions together; the short-term one alone where there is no other."""
    error: float | None
    """The recent errors of both, weighed as the predictions are."""
    weight_short: float
    """The error of the long-term prediction over the sum of both; half where neither is known or wrong."""
    short_per_s: float | None = None
    long_per_s: float | None = None
    short_error: float | None = None
    """100 |came - said| / (|came| + |said|), smoothed; None before both predictions could be judged."""
    long_error: float | None = None


class Predictor(Protocol):
    """Whoever can tell TidalScale what load is to come."""

    def learn(self, observation: Observation) -> None:
        """Take one report in."""

    def predicted(self) -> Predicted:
        """What is to be expected now."""


class TidalPredictions:
    """Learns from every report at next to no cost; each model is fitted once for every sample, when it is asked."""

    short_model = LINE.name
    long_model = HOLT_WINTERS.name

    def __init__(
        self,
        *,
        horizon_s: float = 180.0,
        short_window_s: float = 540.0,
        season_s: float = 86_400.0,
        error_smoothing: float = 0.5,
    ) -> None:
        """`error_smoothing`: what a new error counts in the average of those before."""
        require_finite("horizon", horizon_s, above=0.0)
        require_finite("short_window", short_window_s, above=0.0)
        require_finite("season", season_s, above=0.0)
        require(0.0 < error_smoothing <= 1.0, f"error_smoothing must be above 0 and at most 1, not {error_smoothing:g}")
        short_s, long_s = short_window_s / _LINE_SAMPLES, season_s / _SEASON_SAMPLES
        reach_s = STEPS * min(short_s, long_s)
        require(
            horizon_s <= reach_s,
            f"horizon must be at most {reach_s:g} s with this short_window and season, not {horizon_s:g} s",
        )
        self.horizon_s = horizon_s
        self._smoothing = error_smoothing
        judged_s = (_JUDGED + _steps(horizon_s, short_s)) * short_s
        self._short = _Prediction(LINE, sample_s=short_s, season=None, judged_s=judged_s)
        self._long = _Prediction(HOLT_WINTERS, sample_s=long_s, season=_SEASON_SAMPLES, judged_s=judged_s)

    @property
    def samples(self) -> int:
        """Changes when there is something new to be predicted from."""
        return self._short.samples

    def learn(self, observation: Observation) -> None:
        """Take one report in; one that is not later than the last is ignored."""
        self._short.learn(observation)
        self._long.learn(observation)

    def predicted(self) -> Predicted:
        short, long = self._short.ahead(self.horizon_s), self._long.ahead(self.horizon_s)
        errors = self._errors()
        both = 0.0 if errors is None else sum(errors)
        weight = 0.5 if errors is None or both <= 0.0 else errors[1] / both
        return Predicted(
            per_s=short if short is None or long is None else weight * short + (1.0 - weight) * long,
            error=None if errors is None else weight * errors[0] + (1.0 - weight) * errors[1],
            weight_short=weight,
            short_per_s=short,
            long_per_s=long,
            short_error=None if errors is None else errors[0],
            long_error=None if errors is None else errors[1],
        )

    def save(self) -> dict[str, object]:
        """All it has learnt, as text, numbers and lists."""
        return {"format": _FORMAT, "short": self._short.to_plain(), "long": self._long.to_plain()}

    def load(self, saved: Mapping[str, object]) -> None:
        """Go on from what `save` gave; BadInputError where that is something else."""
        instead = "let them learn anew"
        check_format(saved, version=_FORMAT, what="the saved predictions have", instead=instead)
        with damage_told(what="the saved predictions are", instead=instead):
            self._short.from_plain(saved["short"])  # type: ignore[arg-type]  # checked by trying
            self._long.from_plain(saved["long"])  # type: ignore[arg-type]  # checked by trying

    def _errors(self) -> tuple[float, float] | None:
        """The recent errors of the short- and of the long-term prediction; None where neither could be judged."""
        samples_ahead = _steps(self.horizon_s, self._short.sample_s)
        short_error = long_error = 0.0
        judged = 0
        for age in reversed(range(_JUDGED)):
            came, came_at_s = self._short.came(age)
            made_at_s = came_at_s - samples_ahead * self._short.sample_s
            short = self._short.ahead(self.horizon_s, at_s=made_at_s)
            long = self._long.ahead(self.horizon_s, at_s=made_at_s)
            if came is None or short is None or long is None:
                continue
            share = self._smoothing if judged else 1.0
            short_error += share * (_error(came, short) - short_error)
            long_error += share * (_error(came, long) - long_error)
            judged += 1
        return (short_error, long_error) if judged else None


class _Prediction:
    """One model on samples of its own length; asked seldom, for now or for a moment that is past."""

    def __init__(self, model: Model, *, sample_s: float, season: int | None, judged_s: float) -> None:
        """`judged_s`: how far back the moments lie that are asked for."""
        self.sample_s = sample_s
        self._model = model
        self._season = season
        self._keep = _SEASONS_KEPT * season if season else 4 * STEPS
        # As much lies behind every moment that is asked for as behind this one: what was predicted then and what is
        # computed again after a crash are the same.
        self._held = self._keep + _steps(judged_s, sample_s)
        self._series = RateSeries(sample_s=sample_s, keep=self._held)
        self._made: dict[tuple[int, int], float | None] = {}

    @property
    def samples(self) -> int:
        """How many there were."""
        return self._series.count

    def learn(self, observation: Observation) -> None:
        self._series.add(observation)

    def came(self, age: int) -> tuple[float | None, float]:
        """The sample so many before the last complete one, and when it ended on the clock of the series."""
        number = self._series.count - age
        held = self._series.history(until=number, at_most=1)
        ends_s = self._series.clock_s - self._series.since_sample_s - age * self.sample_s
        known = len(held) == 1 and not math.isnan(held[0])
        return (float(held[0]) if known else None), ends_s

    def ahead(self, horizon_s: float, *, at_s: float | None = None) -> float | None:
        """The rate so far ahead of now, or of this moment of the clock; None with too few samples."""
        back = 0
        if at_s is not None:
            since_s = self._series.clock_s - self._series.since_sample_s - at_s
            back = max(0, math.ceil(since_s / self.sample_s - _ROUNDING))
        origin = self._series.epoch, self._series.count - back
        if origin not in self._made:
            if len(self._made) > 4 * STEPS:
                self._made.clear()
            self._made[origin] = self._predict(origin[1], _steps(horizon_s, self.sample_s))
        return self._made[origin]

    def to_plain(self) -> dict[str, object]:
        """The samples that are looked at, and the predictions that are still judged: to make them again costs more."""
        plain = self._series.to_plain()
        samples = self._series.history(until=self._series.count, at_most=self._held)
        epoch, oldest = self._series.epoch, self._series.count - 2 * _JUDGED
        made = [[number, said] for (of, number), said in self._made.items() if of == epoch and number > oldest]
        text = base64.b64encode(samples.astype("<f8").tobytes()).decode("ascii")
        return {**plain, "rates": text, "first": self._series.count - len(samples), "made": made}

    def from_plain(self, plain: Mapping[str, object]) -> None:
        """Go on where `to_plain` stood; KeyError, TypeError or ValueError where it is something else."""
        rates = np.frombuffer(base64.b64decode(plain["rates"], validate=True), dtype="<f8")  # type: ignore[arg-type]  # checked by trying
        self._series.from_plain({**plain, "rates": rates.tolist()})
        epoch = self._series.epoch
        made = [(int(number), said) for number, said in plain["made"]]  # type: ignore[attr-defined]  # checked by trying
        self._made = {(epoch, number): None if said is None else float(said) for number, said in made}

    def _predict(self, until: int, steps: int) -> float | None:
        if until < 1:
            return None
        rates = filled(self._series.history(until=until, at_most=self._keep))
        # A season has to have been seen twice to be told from a trend.
        season = self._season if self._season is not None and len(rates) >= 2 * self._season else None
        path = self._model.path(rates, season)
        return None if path is None else float(path[steps - 1])


def _steps(horizon_s: float, sample_s: float) -> int:
    """The sample to come in which the horizon ends."""
    return max(1, math.ceil(horizon_s / sample_s - _ROUNDING))


def _error(came: float, said: float) -> float:
    """The symmetric error in percent."""
    total = abs(came) + abs(said)
    return 100.0 * abs(came - said) / total if total > 0.0 else 0.0
