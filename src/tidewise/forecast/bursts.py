"""Bursts and changes of regime: told within two samples, because no model that learns from the past expects them."""

from __future__ import annotations

import math
from collections.abc import Mapping

_FOLLOWING = 0.6
"""Share of a surprise by which the expected level follows."""
_TURNING = 0.22
"""Share by which its trend does."""
_DAMPING = 0.95
_SPREAD_MEMORY = 0.03
_SPREAD_PER_DEVIATION = 1.2533
"""Standard deviation over mean absolute deviation of a normal distribution."""
_LEAST_SPREAD = 0.02
_WARM_UP = 12
_Z_LIMIT = 6.0
_Z_DOUBTED = 3.0
_CUSUM_SLACK = 1.0
_CUSUM_LIMIT = 7.5
_Z_COUNTED = 5.0
"""More than this a single sample does not add to the sum: alone, it has to pass the limit above."""

_STATE = (
    "level",
    "trend",
    "deviation",
    "up",
    "down",
    "doubted",
    "seen",
    "records",
    "covered_s",
    "floor_per_s",
    "usual_per_s",
)


class BurstDetector:
    """Watches one-step surprises of the logarithm of the rate: one beyond six spreads, or many on one side (CUSUM)."""

    def __init__(self, *, sample_s: float = 10.0) -> None:
        """Judge the mean of so many seconds, or each report where reports are longer."""
        self._sample_s = sample_s
        self._level = self._trend = self._deviation = self._up = self._down = self._doubted = 0.0
        self._seen = 0.0
        self._records = self._covered_s = 0.0
        self._usual_per_s = 0.0
        self._floor_per_s = 0.0
        self.alarm_s: float | None = None
        """When the latest burst was told, on the series' clock."""
        self.alarms = 0

    @property
    def level_per_s(self) -> float:
        """The rate expected now."""
        return max(0.0, math.exp(self._level) - self._floor_per_s) if self._seen else 0.0

    @property
    def spread(self) -> float:
        """Standard deviation of a usual surprise, as a share."""
        return max(_SPREAD_PER_DEVIATION * self._deviation, _LEAST_SPREAD)

    def add(self, *, end_s: float, window_s: float, rate_per_s: float) -> bool:
        """Take one report in; whether it told of a burst."""
        self._records += window_s * rate_per_s
        self._covered_s += window_s
        if self._covered_s < self._sample_s - 1e-9:
            return False
        rate = self._records / self._covered_s
        self._records = self._covered_s = 0.0
        if not self._is_burst(rate):
            return False
        self.alarm_s = end_s
        self.alarms += 1
        return True

    def _is_burst(self, rate: float) -> bool:
        if not self._seen:
            self._usual_per_s = rate
        self._usual_per_s += 0.05 * (rate - self._usual_per_s)
        if not self._seen or self._usual_per_s > 4.0 * self._floor_per_s / 0.05:
            self._floor_per_s = max(0.05 * self._usual_per_s, 1e-6)  # so that a zero is low and not minus infinity
            if self._seen:
                self._level = math.log(math.exp(self._level) + self._floor_per_s)
        value = math.log(rate + self._floor_per_s)
        self._seen += 1.0
        if self._seen == 1.0:
            self._level = value
            return False
        expected = self._level + _DAMPING * self._trend
        surprise = value - expected
        spread = self.spread
        z = surprise / spread
        warm = self._seen > _WARM_UP
        if warm:
            counted = max(-_Z_COUNTED, min(_Z_COUNTED, z))
            self._up = max(0.0, self._up + counted - _CUSUM_SLACK)
            self._down = max(0.0, self._down - counted - _CUSUM_SLACK)
        memory = max(_SPREAD_MEMORY, 1.0 / self._seen)
        bounded = min(abs(surprise), 3.0 * spread) if warm else abs(surprise)
        self._deviation += memory * (bounded - self._deviation)
        if warm and (abs(z) > _Z_LIMIT or max(self._up, self._down) > _CUSUM_LIMIT):
            self._level, self._trend = value, 0.0
            self._up = self._down = self._doubted = 0.0
            return True
        # A first strange sample is not followed: the second is judged by the same expectation.
        self._doubted = float(warm and abs(z) > _Z_DOUBTED and not self._doubted)
        followed = 0.0 if self._doubted else surprise
        self._level = expected + _FOLLOWING * followed
        self._trend = _DAMPING * self._trend + _TURNING * followed
        return False

    def to_plain(self) -> dict[str, object]:
        """All of it as numbers."""
        return {"alarm_s": self.alarm_s, "alarms": self.alarms, **{name: getattr(self, f"_{name}") for name in _STATE}}

    def from_plain(self, plain: Mapping[str, object]) -> None:
        """Go on where `to_plain` stood; KeyError, TypeError or ValueError where it is something else."""
        numbers = {name: float(plain[name]) for name in _STATE}  # type: ignore[arg-type]  # checked by trying
        alarm_s = plain["alarm_s"]
        self.alarms = int(plain["alarms"])  # type: ignore[call-overload]  # checked by trying
        self.alarm_s = None if alarm_s is None else float(alarm_s)  # type: ignore[arg-type]  # checked by trying
        for name, number in numbers.items():
            setattr(self, f"_{name}", number)
