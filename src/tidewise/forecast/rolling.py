"""The forecaster around the models: samples in, blended paths with intervals of their own past errors out."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tidewise.core import MEDIAN, BadInputError, Forecast, NotReadyError, Observation
from tidewise.core.checks import require, require_finite, require_text
from tidewise.forecast.bursts import BurstDetector
from tidewise.forecast.model import STEPS, Model, growth_bounds, last_value
from tidewise.forecast.saved import FORMAT, check_saved, damage_told
from tidewise.forecast.season import find_season
from tidewise.forecast.series import Rates, RateSeries, filled
from tidewise.forecast.weighing import blended, what_came, widths
from tidewise.host.threads import on_one_thread

_LEAST_SAMPLES = 3
_SEASON_EVERY = 16
"""The season is looked for anew after as many samples."""
_BURST_SAMPLES = 10
"""So long a burst may bypass the models; by then they have seen enough of it."""
_WATCHED = 240
"""Of a history that is learnt at once, so many samples tell of bursts: older ones have been forgotten by the end."""
_BURST_WIDENING = 1.5
_BURST_SHARE = 0.5
_SURPRISING_SPREADS = 3.0
_SURPRISING = 0.1
"""A sample surprises that differs by as many spreads from what was expected, and by this share at least."""
_EARLY_SPREAD = 0.5
_LEAST_ERRORS = 19
"""The fewest errors that can tell the quantile 0.05."""
_SCALE_FLOOR = 0.05


class RollingForecaster:
    """One model, or several weighed by their recent errors; its own past forecasts say how far it may be off.

    Every model is a pure function of the samples before an origin. When a forecast is asked for, the origins of the
    last hours that were not looked at before are forecast too, and all of them are compared with what came. So the
    answer depends on the observations alone, nothing but samples has to be kept or saved, and learning costs next to
    nothing; the first forecast after a long silence takes longer (seconds), those after it milliseconds.
    """

    def __init__(
        self,
        *,
        name: str,
        members: tuple[Model, ...],
        sample_s: float = 60.0,
        season_s: float | None = None,
        levels: tuple[float, ...] = (0.05, 0.25, 0.5, 0.75, 0.95),
        max_samples: int = 3000,
        max_origins: int = 240,
        remembered: int = 60,
        power: float = 10.0,
    ) -> None:
        """Set it up.

        name: what it is called in plans, reports and saved states.
        members: the models; where there are several, they are blended.
        sample_s: over how long rates are averaged; no shorter than the reports.
        season_s: the length of the season; None: it is looked for.
        levels: the quantile levels of the paths, the median among them.
        max_samples: how many samples a model may look back.
        max_origins: from how many past origins the intervals come.
        remembered: over how many samples the errors of members are averaged.
        power: members weigh as their mean errors to this negative power.
        """
        require_text("name", name)
        require(len(members) >= 1, "a forecaster needs at least one model")
        require_finite("sample_s", sample_s, above=0.0)
        require(MEDIAN in levels, "levels need the median, 0.5")
        require(list(levels) == sorted(set(levels)), f"levels must ascend without repeats, not {levels}")
        require(all(0.0 < level < 1.0 for level in levels), f"levels must lie between 0 and 1, not {levels}")
        require(max_samples >= 16, f"max_samples must be at least 16, not {max_samples}")
        require(max_origins >= 1, f"max_origins must be at least 1, not {max_origins}")
        require(remembered >= 1, f"remembered must be at least 1, not {remembered}")
        require_finite("power", power, least=0.0)
        if season_s is not None:
            require_finite("season_s", season_s, least=2.0 * sample_s)
        self._name = name
        self._members = members
        self._sample_s = sample_s
        self._given_season = None if season_s is None else round(season_s / sample_s)
        self._levels = levels
        self._max_samples = max_samples
        self._origins = max_origins + STEPS
        # Members are judged before the first origin whose blend is judged.
        self._member_origins = self._origins + (remembered + STEPS if len(members) > 1 else 0)
        self._remembered = remembered
        self._power = power
        self._series = self._new_series()
        self._bursts = self._new_bursts()
        self._paths: dict[int, Rates] = {}
        """What every member said at an origin, a row each."""
        self._seasons: dict[int, int | None] = {}
        self._epoch = self._series.epoch

    @property
    def name(self) -> str:
        return self._name

    @property
    def season_s(self) -> float | None:
        """The season it reckons with now; None: there is none."""
        season = self._season(self._series.count)
        return None if season is None else season * self._sample_s

    @property
    def in_burst(self) -> bool:
        """Whether a burst was told so lately that the models may not have caught up."""
        alarm_s = self._bursts.alarm_s
        return alarm_s is not None and self._series.clock_s - alarm_s < _BURST_SAMPLES * self._sample_s

    def learn(self, observation: Observation) -> None:
        """Take one observation in; one that is not later than the last is ignored."""
        if self._series.add(observation):
            self._bursts.add(
                end_s=self._series.clock_s,
                window_s=observation.window_s,
                rate_per_s=observation.load_per_s,
            )

    def learn_samples(self, rates: Rates, *, end_s: float) -> None:
        """Begin anew with whole samples, the last of which ends then, NaN where nothing is known: a history at once.

        What it then knows is what it would know had each of them been reported; bursts are told by the latest alone.
        """
        self._series.replace(rates, end_s=end_s)
        self._bursts = self._new_bursts()
        latest = rates[-_WATCHED:].tolist()
        for back, rate in zip(range(len(latest) - 1, -1, -1), latest, strict=True):
            if not math.isnan(rate):
                self._bursts.add(end_s=end_s - back * self._sample_s, window_s=self._sample_s, rate_per_s=rate)

    @on_one_thread
    def forecast(self, *, horizon_s: float, step_s: float) -> Forecast:
        require_finite("horizon_s", horizon_s, above=0.0)
        require_finite("step_s", step_s, above=0.0)
        now = self._series.count
        recent = self._series.history(until=now, at_most=self._max_samples + self._member_origins)
        known = int(np.count_nonzero(~np.isnan(recent)))
        if known < _LEAST_SAMPLES:
            raise NotReadyError(f"{known} of the first {_LEAST_SAMPLES} samples of {self._sample_s:g} s are here")
        paths, came = self._blended(now)
        steps = max(1, math.ceil(horizon_s / step_s - 1e-9))
        shares, reach = _overlap(steps, step_s / self._sample_s, self._series.since_sample_s / self._sample_s)
        usual = float(np.nanmean(recent[-self._max_samples :]))
        scales = np.sqrt(np.maximum(paths, _SCALE_FLOOR * usual) * usual) + 1e-9
        unknown = np.isnan(came)
        errors = np.where(unknown, 0.0, came - paths) @ shares.T
        errors = np.where(unknown @ (shares.T > 0.0), np.nan, errors / (scales @ shares.T))
        median, scale = shares @ paths[-1], shares @ scales[-1]
        highest = float(np.nanmax(recent[-STEPS:], initial=0.0))
        early = _EARLY_SPREAD * np.maximum(median, highest) / scale
        offsets = widths(errors, self._levels, reach=reach, early=early, least_errors=_LEAST_ERRORS)
        offsets *= scale * np.sqrt(np.maximum(reach / STEPS, 1.0))
        quantiles = np.maximum(median + offsets, 0.0)
        # A complete sample was expected by the origin before it, one that has begun by the last.
        expected = paths[-1] if self._series.since_sample_s > 1e-6 else paths[-2]
        if self._is_bypassed(float(expected[0])):
            quantiles = self._in_burst(quantiles, offsets, stays=self._bursts_stay(paths, came))
        return Forecast(
            made_at_s=self._series.now_s,
            step_s=float(step_s),
            levels=self._levels,
            paths_per_s=tuple(map(tuple, quantiles.tolist())),
            model=self._name,
        )

    def save(self) -> dict[str, object]:
        """All it has learnt, as numbers and lists: what JSON can hold."""
        return {
            "format": FORMAT,
            "model": self._name,
            "sample_s": self._sample_s,
            "series": self._series.to_plain(),
            "bursts": self._bursts.to_plain(),
        }

    def load(self, saved: Mapping[str, object]) -> None:
        """Go on from what `save` gave; BadInputError where that is of another version, model or sample."""
        check_saved(saved, model=self._name)
        if saved.get("sample_s") != self._sample_s:
            raise BadInputError(
                f"the saved forecaster has samples of {saved.get('sample_s')} s and this one of {self._sample_s:g} s: "
                "give it the same sample_s, or let it learn anew"
            )
        series = self._new_series()
        bursts = self._new_bursts()
        with damage_told(self._name):
            series.from_plain(saved["series"])  # type: ignore[arg-type]  # checked by trying
            bursts.from_plain(saved["bursts"])  # type: ignore[arg-type]  # checked by trying
        self._series, self._bursts = series, bursts
        self._paths, self._seasons = {}, {}
        self._epoch = series.epoch

    def _new_series(self) -> RateSeries:
        return RateSeries(sample_s=self._sample_s, keep=self._max_samples + self._member_origins + _SEASON_EVERY)

    def _new_bursts(self) -> BurstDetector:
        return BurstDetector(sample_s=min(10.0, self._sample_s))

    def _blended(self, now: int) -> tuple[Rates, Rates]:
        """The path from every origin that is looked at, the last from now, and what came after each."""
        if self._epoch != self._series.epoch:
            self._paths, self._seasons = {}, {}
            self._epoch = self._series.epoch
        oldest = max(1, now - self._member_origins + 1)
        rows = []
        for origin in range(oldest, now + 1):
            found = self._paths.get(origin)
            if found is None:
                found = self._paths[origin] = self._member_paths(origin)
            rows.append(found)
        for origin in [origin for origin in self._paths if origin < oldest]:
            del self._paths[origin]
        paths = np.stack(rows)
        after = self._series.history(until=now, at_most=len(rows) - 1)
        came = what_came(after, steps=STEPS)
        blend = blended(paths, came, remembered=self._remembered, power=self._power)
        return blend[-self._origins :], came[-self._origins :]

    def _member_paths(self, origin: int) -> Rates:
        """What every member says at this origin; NaN where it has nothing to say."""
        rates = filled(self._series.history(until=origin, at_most=self._max_samples))
        paths = np.full((len(self._members), STEPS), np.nan)
        if not len(rates):
            paths[:] = 0.0
            return paths
        season, bounds = self._season(origin), growth_bounds(rates)
        for row, member in enumerate(self._members):
            if season is not None or not member.seasonal or len(self._members) == 1:
                path = member.path(rates, season, bounds)
                if path is not None:
                    paths[row] = path
        if np.isnan(paths).all():
            paths[:] = last_value(rates)
        return paths

    def _season(self, origin: int) -> int | None:
        """The season in samples by what was known a little before this origin."""
        if not any(member.seasonal for member in self._members):
            return None
        looked_at = origin // _SEASON_EVERY * _SEASON_EVERY
        if self._given_season is not None:
            known = len(self._series.history(until=origin, at_most=self._max_samples))
            return self._given_season if known >= 2 * self._given_season else None
        if looked_at not in self._seasons:
            rates = filled(self._series.history(until=looked_at, at_most=self._max_samples))
            for old in [old for old in self._seasons if old < looked_at - 2 * self._member_origins]:
                del self._seasons[old]
            self._seasons[looked_at] = find_season(rates)
        return self._seasons[looked_at]

    def _is_bypassed(self, expected_per_s: float) -> bool:
        """Whether a burst was told that the models did not expect either, and have not caught up with."""
        if not self.in_burst:
            return False
        level = self._bursts.level_per_s
        return abs(expected_per_s - level) > self._surprising_share * max(level, expected_per_s)

    @property
    def _surprising_share(self) -> float:
        return max(_SURPRISING_SPREADS * self._bursts.spread, _SURPRISING)

    def _bursts_stay(self, paths: Rates, came: Rates) -> bool:
        """Whether samples that surprised the models were nearer to what came than what the models said after them.

        So it is with a change of regime, and so it is not with short bursts. Where nothing surprised: yes.
        """
        before, expected = came[:-1, :1], paths[:-1, :1]
        surprised = np.abs(before - expected) > self._surprising_share * np.maximum(before, expected)
        after = came[1:, :_BURST_SAMPLES]
        counted = surprised & ~np.isnan(after)
        held, said = np.abs(after - before), np.abs(after - paths[1:, :_BURST_SAMPLES])
        return float(held[counted].sum()) <= float(said[counted].sum())

    def _in_burst(self, quantiles: Rates, offsets: Rates, *, stays: bool) -> Rates:
        """The level of the burst goes on, if bursts do; the interval is wider, by half the burst, and holds both."""
        level = self._bursts.level_per_s
        sides = np.sign(np.round(np.array(self._levels) - MEDIAN, 12))[:, None]
        burst = np.abs(level - quantiles[self._levels.index(MEDIAN)])
        wider = np.maximum(level + _BURST_WIDENING * offsets + sides * _BURST_SHARE * burst, 0.0)
        held = np.where(sides < 0.0, np.minimum(wider, quantiles), np.maximum(wider, quantiles))
        return np.asarray(np.maximum.accumulate(np.where(sides == 0.0, level if stays else quantiles, held), axis=0))


def _overlap(steps: int, step: float, since: float) -> tuple[Rates, Rates]:
    """Of each step asked for, the shares that the samples to come have in it, and how far ahead its end lies.

    All in samples; the steps begin `since` after the last complete sample, and the last sample goes on for ever.
    """
    starts = since + step * np.arange(steps, dtype=np.float64)
    edges = np.arange(STEPS + 1.0)
    edges[-1] = np.inf
    covered = np.clip((starts + step)[:, None], edges[:-1], edges[1:]) - np.clip(starts[:, None], edges[:-1], edges[1:])
    return np.asarray(covered / covered.sum(axis=1, keepdims=True)), np.asarray(starts + step)
