"""The first forecaster, and the one that every better one has to beat: the load stays as it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tidewise.core import MEDIAN, Forecast, NotReadyError, Observation
from tidewise.core.checks import require, require_finite
from tidewise.forecast.arrivals import Arrivals, mean_rates_per_s
from tidewise.forecast.saved import FORMAT, check_saved, damage_told

_OUTER = 0.45
"""How far 0.05 and 0.95 are from the median: the levels at which the early spread is meant."""
_KNOWN_SHARE = 0.5
"""A window of the past counts if reports speak for at least this share of it."""


class Naive:
    """The level of the last minute goes on; its own errors of the last hours say how far it may be off.

    Rolling conformal prediction: at every forecast, the same forecast is made again at many moments of the past and
    compared with what then came, separately for each step of the horizon. The quantiles of these errors, with the
    correction for a finite number of them, are added to the level. Nothing is assumed about the shape of the errors;
    while there are too few of them for a step, the spread is a generous share of the highest load seen.

    The errors are computed from the arrivals that were kept, so that they fit whatever step is asked for and do not
    depend on which forecasts were asked for before.
    """

    name: ClassVar[str] = "naive"

    def __init__(
        self,
        *,
        level_window_s: float = 60.0,
        error_window_s: float = 14400.0,
        levels: tuple[float, ...] = (0.05, 0.25, 0.5, 0.75, 0.95),
        min_observations: int = 3,
        min_errors: int = 19,
        max_errors: int = 240,
        early_spread: float = 0.5,
        max_points: int = 8192,
    ) -> None:
        """Set it up.

        level_window_s: over how long the level is averaged.
        error_window_s: how far back the moments lie at which it judges itself.
        levels: the quantile levels of the paths, the median among them.
        min_observations: below this many it is not ready.
        min_errors: below this many, the errors of a step are not trusted; 19 are the fewest that can tell 0.05.
        max_errors: at most this many moments of the past are looked at for each step.
        early_spread: how far 0.05 and 0.95 lie from the level without enough errors, as a share of the highest load.
        max_points: how many points of the past are kept.
        """
        require_finite("level_window_s", level_window_s, above=0.0)
        require_finite("error_window_s", error_window_s, above=0.0)
        require(MEDIAN in levels, "levels need the median, 0.5")
        require(list(levels) == sorted(set(levels)), f"levels must ascend without repeats, not {levels}")
        require(all(0.0 < level < 1.0 for level in levels), f"levels must lie between 0 and 1, not {levels}")
        require(min_observations >= 1, f"min_observations must be at least 1, not {min_observations}")
        require(1 <= min_errors <= max_errors, f"min_errors must be 1 to {max_errors}, not {min_errors}")
        require_finite("early_spread", early_spread, least=0.0)
        require(max_points >= 16, f"max_points must be at least 16, not {max_points}")
        self._level_window_s = level_window_s
        self._error_window_s = error_window_s
        self._levels = levels
        self._min_observations = min_observations
        self._min_errors = min_errors
        self._max_errors = max_errors
        self._early_spread = early_spread
        self._max_points = max_points
        self._arrivals = Arrivals(max_points=max_points)
        self._seen = 0

    def learn(self, observation: Observation) -> None:
        """Take one observation in; one that is not later than the last is ignored."""
        rate = observation.load_per_s
        if self._arrivals.add(end_s=observation.time_s, window_s=observation.window_s, rate_per_s=rate):
            self._seen += 1

    def forecast(self, *, horizon_s: float, step_s: float) -> Forecast:
        require_finite("horizon_s", horizon_s, above=0.0)
        require_finite("step_s", step_s, above=0.0)
        if self._seen < self._min_observations:
            raise NotReadyError(f"{self._seen} of the first {self._min_observations} observations are here")
        steps = max(1, math.ceil(horizon_s / step_s - 1e-9))
        now_s = self._arrivals.end_s
        level = float(self._levels_at(np.array([now_s]), 0.0)[0])
        offsets = self._offsets(self._errors(steps, step_s), level)
        paths = np.maximum(level + offsets, 0.0)
        return Forecast(
            made_at_s=now_s,
            step_s=float(step_s),
            levels=self._levels,
            paths_per_s=tuple(map(tuple, paths.tolist())),
            model=self.name,
        )

    def save(self) -> dict[str, object]:
        """All it has learnt, as numbers and lists: what JSON can hold."""
        return {"format": FORMAT, "model": self.name, "seen": self._seen, "arrivals": self._arrivals.to_plain()}

    def load(self, saved: Mapping[str, object]) -> None:
        """Go on from what `save` gave; BadInputError where that is of another version or model, or damaged."""
        check_saved(saved, model=self.name)
        arrivals = Arrivals(max_points=self._max_points)
        with damage_told(self.name):
            arrivals.from_plain(saved["arrivals"])  # type: ignore[arg-type]  # checked by trying
            self._seen = int(saved["seen"])  # type: ignore[call-overload]  # checked by trying
        self._arrivals = arrivals

    def _errors(self, steps: int, step_s: float) -> NDArray[np.float64]:
        """What came less what would have been forecast: one row per past moment, one column per step, NaN: unknown."""
        # All moments and all edges of their steps lie on one grid that ends now, which is looked up once.
        moments_per_step = self._max_errors * step_s / self._error_window_s
        per_step = max(1, math.floor(moments_per_step))
        apart = max(1, math.ceil(1.0 / moments_per_step))
        grid_s = step_s / per_step
        now_s, start_s = self._arrivals.end_s, self._arrivals.start_s
        # The far steps of young moments have not come yet, so that the moments reach back by a horizon more.
        reach = math.ceil(self._error_window_s / grid_s) + steps * per_step
        oldest = min(reach, math.floor((now_s - start_s) / grid_s))
        moments = np.arange(per_step, oldest + 1, apart)  # in cells of the grid before now
        records, covered_s = self._arrivals.sums(now_s - grid_s * np.arange(oldest, -1, -1, dtype=np.float64))
        edges = (oldest - moments)[:, None] + per_step * np.arange(steps + 1)[None, :]
        come = edges[:, 1:] <= oldest
        edges = np.minimum(edges, oldest)
        actual = mean_rates_per_s(
            np.diff(records[edges]), np.diff(covered_s[edges]), span_s=step_s, least_share=_KNOWN_SHARE
        )
        levels = self._levels_at(now_s - grid_s * moments.astype(np.float64), _KNOWN_SHARE)
        return np.where(come, actual, np.nan) - levels[:, None]

    def _levels_at(self, times_s: NDArray[np.float64], least_share: float) -> NDArray[np.float64]:
        """The level that is known at each of these times."""
        records, covered_s = self._arrivals.sums(np.array([times_s - self._level_window_s, times_s]))
        return mean_rates_per_s(
            records[1] - records[0], covered_s[1] - covered_s[0], span_s=self._level_window_s, least_share=least_share
        )

    def _offsets(self, errors: NDArray[np.float64], level: float) -> NDArray[np.float64]:
        """How far each level lies from the median, for every step."""
        known = np.count_nonzero(~np.isnan(errors), axis=0)
        if len(errors) == 0:
            errors = np.full((1, errors.shape[1]), np.nan)
        ordered = np.sort(errors, axis=0)  # the unknown last
        trusted = known >= self._min_errors
        scale = self._early_spread * max(level, self._arrivals.highest_per_s)
        columns = np.arange(errors.shape[1])
        offsets = np.zeros((len(self._levels), errors.shape[1]))
        for row, quantile in enumerate(self._levels):
            if quantile == MEDIAN:
                continue
            upper = quantile > MEDIAN
            rank = np.ceil((known + 1) * quantile) if upper else np.floor((known + 1) * quantile)
            early = scale * abs(quantile - MEDIAN) / _OUTER
            index = np.clip(rank.astype(np.int64) - 1, 0, np.maximum(known - 1, 0))
            signed = ordered[index, columns] if upper else -ordered[index, columns]
            found = np.fmax(signed, 0.0)  # on the other side of the median, or unknown: nothing
            # Further ahead is never surer than the last step that could be judged.
            judged = np.maximum.accumulate(np.where(trusted, found, 0.0))
            width = np.where(trusted, found, np.maximum(judged, early))
            offsets[row] = width if upper else -width
        return np.maximum.accumulate(offsets, axis=0)
