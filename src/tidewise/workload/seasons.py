"""Days and weeks as people make them: two peaks, quiet nights, other weekends, no day quite like the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tidewise.core.checks import require, require_finite, require_share
from tidewise.workload.combined import noise_factors
from tidewise.workload.load import Rates, generator, require_period, require_rate, seconds_of


def _peak(hours: Rates, *, at_hour: float, sharpness: float) -> Rates:
    """A bump of height 1 that closes over midnight without a seam."""
    return np.asarray(np.exp(sharpness * (np.cos(2 * np.pi * (hours - at_hour) / 24.0) - 1.0)))


def _weekday_activity(hours: Rates) -> Rates:
    return 0.8 * _peak(hours, at_hour=10.5, sharpness=3.0) + _peak(hours, at_hour=20.0, sharpness=5.0)


def _weekend_activity(hours: Rates) -> Rates:
    """Later in the morning and flatter; the evening stays."""
    return 0.8 * _peak(hours, at_hour=13.5, sharpness=2.0) + 0.7 * _peak(hours, at_hour=20.5, sharpness=5.0)


_DAY = np.arange(0.0, 24.0, 1.0 / 60.0)
_LOWEST = float(_weekday_activity(_DAY).min())
_HIGHEST = float(_weekday_activity(_DAY).max())
_WEEKDAY_MEAN = float(_weekday_activity(_DAY).mean())


def _level(activity: Rates, *, night_share: float) -> Rates:
    """Activity brought to a mean of 1 over a weekday, with its lowest minute at `night_share` of its highest."""

    def raised(value: Rates | float) -> Rates:
        return np.asarray(night_share + (1.0 - night_share) * (value - _LOWEST) / (_HIGHEST - _LOWEST))

    return np.maximum(raised(activity) / float(raised(_WEEKDAY_MEAN)), 0.0)


def _day_factors(seconds: Rates, seed: int, *, purpose: str, day_s: float, spread: float) -> Rates:
    """How much busier than usual each day is, in a straight line from the beginning of one to that of the next."""
    days = int(seconds[-1] // day_s) + 2
    factors = 1.0 + spread * np.clip(generator(seed, purpose).standard_normal(days), -3.0, 3.0)
    return np.maximum(np.interp(seconds / day_s, np.arange(days) + 0.0, factors), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Daily:
    """A day that returns: a peak in the late morning, a higher one in the evening, a quiet night."""

    name: ClassVar[str] = "daily"
    mean_per_s: float
    """Mean rate over a usual day."""
    day_s: float = 86400.0
    """Length of a day; half an hour shows a day quickly."""
    night_share: float = 0.2
    """The rate of the quietest minute over that of the busiest."""
    start_hour: float = 0.0
    """The hour of the day, 0 to 24, at which the run begins."""
    day_spread: float = 0.05
    """Standard deviation from one day to another, as a share."""
    noise_share: float = 0.05
    """Standard deviation of the noise from second to second, as a share."""

    def __post_init__(self) -> None:
        _require_season(self)

    def rates_per_s(self, duration_s: int, seed: int) -> Rates:
        seconds = seconds_of(duration_s, seed)
        hours = (self.start_hour + 24.0 * seconds / self.day_s) % 24.0
        return _vary(self, self.mean_per_s * _level(_weekday_activity(hours), night_share=self.night_share), seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weekly:
    """Five working days and a weekend that is quieter and later."""

    name: ClassVar[str] = "weekly"
    mean_per_s: float
    """Mean rate over a usual working day."""
    day_s: float = 86400.0
    """Length of a day; a week is seven of them."""
    night_share: float = 0.2
    """The rate of the quietest minute of a working day over that of its busiest."""
    weekend_share: float = 0.6
    """How busy a weekend is: a factor on its rates."""
    start_day: int = 0
    """The day on which the run begins: 0 is Monday, 6 is Sunday."""
    start_hour: float = 0.0
    """The hour of that day, 0 to 24."""
    day_spread: float = 0.05
    """Standard deviation from one day to another, as a share."""
    noise_share: float = 0.05
    """Standard deviation of the noise from second to second, as a share."""

    def __post_init__(self) -> None:
        _require_season(self)
        require_share("weekend_share", self.weekend_share)
        require(0 <= self.start_day <= 6, f"start_day must lie between 0 (Monday) and 6 (Sunday), not {self.start_day}")

    def rates_per_s(self, duration_s: int, seed: int) -> Rates:
        seconds = seconds_of(duration_s, seed)
        hours = (24.0 * self.start_day + self.start_hour + 24.0 * seconds / self.day_s) % 168.0
        # From Friday 23:00 to Saturday 01:00 the one turns into the other, and back on Sunday night: no jump.
        weekend = np.interp(hours, [0.0, 1.0, 119.0, 121.0, 167.0, 168.0], [0.5, 0.0, 0.0, 1.0, 1.0, 0.5])
        weekday_level = _level(_weekday_activity(hours % 24.0), night_share=self.night_share)
        weekend_level = self.weekend_share * _level(_weekend_activity(hours % 24.0), night_share=self.night_share)
        return _vary(self, self.mean_per_s * ((1.0 - weekend) * weekday_level + weekend * weekend_level), seed)


def _require_season(season: Daily | Weekly) -> None:
    require_rate("mean_per_s", season.mean_per_s)
    require_period("day", season.day_s)
    require_share("night_share", season.night_share)
    require_finite("start_hour", season.start_hour, least=0.0)
    require(season.start_hour <= 24.0, f"start_hour must be at most 24, not {season.start_hour:g}")
    require_share("day_spread", season.day_spread)
    require_share("noise_share", season.noise_share)


def _vary(season: Daily | Weekly, rates: Rates, seed: int) -> Rates:
    seconds = np.arange(len(rates), dtype=np.float64)
    days = _day_factors(seconds, seed, purpose=f"days of {season.name}", day_s=season.day_s, spread=season.day_spread)
    noise = noise_factors(len(rates), seed, purpose=f"noise of {season.name}", share=season.noise_share)
    return rates * days * noise
