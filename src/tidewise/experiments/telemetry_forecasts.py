"""Forecasts of a run held against the load that came, at a few fixed horizons."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tidewise.core import Forecast, Observation
from tidewise.core.telemetry import ForecastErrorRow

HORIZONS_S = (60.0, 180.0, 600.0)
"""How long before the time that is forecast."""
_EVERY_S = 60.0
"""One forecast in so long is held against what came: those in between tell little more."""
_OVER_S = 60.0
"""The load is compared as its mean over so long, up to the time that was forecast."""
_LOW, _HIGH = 0.05, 0.95
_LEAST_SHARE = 0.5
"""A minute of which less was reported is not judged."""
_KEPT_S = _OVER_S + 120.0
_LATE_S = 600.0
"""A forecast for a time that nobody reported by then is let go."""
_REPORTS_MOST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """What was said of one minute."""

    target_s: float
    horizon_s: float
    model: str
    expected_per_s: float
    low_per_s: float | None
    high_per_s: float | None


class ForecastErrors:
    """Keeps the forecasts whose time has not come, at most a few dozen, and the reports of the last minutes."""

    def __init__(self, *, began_unix_s: float) -> None:
        self._began_unix_s = began_unix_s
        self._claims: list[_Claim] = []
        self._reports: deque[Observation] = deque(maxlen=_REPORTS_MOST)
        self._last_made_s: float | None = None

    def learn(self, forecast: Forecast) -> None:
        """A forecast that a decision rested on."""
        made_s = forecast.made_at_s
        if self._last_made_s is not None and made_s < self._last_made_s + _EVERY_S:
            return
        self._last_made_s = made_s
        self._claims += [_claim(forecast, horizon_s) for horizon_s in HORIZONS_S if horizon_s <= forecast.horizon_s]

    def report(self, observation: Observation) -> list[ForecastErrorRow]:
        """A report; the forecasts that can be judged with it, the earliest time first."""
        now_s = observation.time_s
        self._reports.append(observation)
        while self._reports[0].time_s < now_s - _KEPT_S:
            self._reports.popleft()
        due = sorted(
            (claim for claim in self._claims if claim.target_s <= now_s), key=lambda one: (one.target_s, one.horizon_s)
        )
        self._claims = [claim for claim in self._claims if claim.target_s > now_s]
        rows = [self._row(claim) for claim in due if claim.target_s >= now_s - _LATE_S]
        return [row for row in rows if row is not None]

    def _row(self, claim: _Claim) -> ForecastErrorRow | None:
        came_per_s = self._came_per_s(claim.target_s)
        if came_per_s is None:
            return None
        both_per_s = claim.expected_per_s + came_per_s
        return ForecastErrorRow(
            at_unix_s=self._began_unix_s + claim.target_s,
            model=claim.model,
            horizon_s=claim.horizon_s,
            expected_per_s=claim.expected_per_s,
            low_per_s=claim.low_per_s,
            high_per_s=claim.high_per_s,
            came_per_s=came_per_s,
            error_share=abs(claim.expected_per_s - came_per_s) / both_per_s if both_per_s > 0.0 else 0.0,
        )

    def _came_per_s(self, until_s: float) -> float | None:
        """The mean load of the last minute up to then; None where too little of it was reported."""
        arrived = known_s = 0.0
        for one in self._reports:
            common_s = min(one.time_s, until_s) - max(one.time_s - one.window_s, until_s - _OVER_S)
            if common_s > 0.0:
                arrived += one.load_per_s * common_s
                known_s += common_s
        return arrived / known_s if known_s >= _LEAST_SHARE * _OVER_S else None


def _claim(forecast: Forecast, horizon_s: float) -> _Claim:
    def level_per_s(level: float) -> float | None:
        if level not in forecast.levels:
            return None
        return _mean_per_s(forecast.path(level), forecast.step_s, until_s=horizon_s)

    return _Claim(
        target_s=forecast.made_at_s + horizon_s,
        horizon_s=horizon_s,
        model=forecast.model,
        expected_per_s=_mean_per_s(forecast.path(), forecast.step_s, until_s=horizon_s),
        low_per_s=level_per_s(_LOW),
        high_per_s=level_per_s(_HIGH),
    )


def _mean_per_s(path: tuple[float, ...], step_s: float, *, until_s: float) -> float:
    """The mean of a path over the minute that ends so long after the forecast was made."""
    total, begin_s = 0.0, max(0.0, until_s - _OVER_S)
    first = int(begin_s // step_s)
    for index in range(first, len(path)):
        common_s = min((index + 1) * step_s, until_s) - max(index * step_s, begin_s)
        if common_s <= 0.0:
            break
        total += path[index] * common_s
    return total / (until_s - begin_s)
