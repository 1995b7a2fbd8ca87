"""What the policy tidewise expects of the near future, as its reasons tell it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tidewise.core import Evidence
from tidewise.qos import Floats
from tidewise.search.horizon import Horizon
from tidewise.search.odds import Odds

LOOK_AHEAD_S = 600.0
"""What is told about the future is about so much of it."""
_TOLD_FROM = 1.15
"""How much wider than usual margins have to be for that to be said."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expectations:
    """What is told of the near future."""

    odds: Odds
    slower: float
    late_used: float
    widening: float
    rate_per_s: float
    log_rates: Floats
    chances: Floats
    middle: float
    high: float

    @classmethod
    def over(
        cls, odds: Odds, horizon: Horizon, *, slower: float, late_used: float, widening: float, rate_per_s: float
    ) -> Expectations:
        """Of the first minutes of a horizon."""
        steps = max(1, int(np.searchsorted(np.cumsum(horizon.lengths_s), LOOK_AHEAD_S)))
        ahead = horizon.log_rates[:steps]
        return cls(
            odds=odds,
            slower=slower,
            late_used=late_used,
            widening=widening,
            rate_per_s=rate_per_s,
            log_rates=ahead,
            chances=horizon.chances,
            middle=float(ahead[:, horizon.middle].max()),
            high=float(ahead[:, -1].max()),
        )

    @property
    def rate_high_per_s(self) -> float:
        return math.exp(self.high)

    @property
    def doubt(self) -> str:
        """What is said where margins are wider than usual."""
        if self.widening < _TOLD_FROM:
            return ""
        return f" Its margins are {self.widening:.2g} times as wide as usual: latencies were higher than it expected."

    def of(self, row: int, running: int) -> Evidence:
        """Of a row, instead of the one that runs."""
        odds, both = self.odds, np.array([self.middle, self.high])
        latency = odds.latency_s(both)[row]
        recovery = odds.recovery_s(both)[row]
        late = odds.late(self.log_rates)[row] @ self.chances
        cost, before = (3600.0 * float(odds.cost_per_s[one]) for one in (row, running))
        return {
            "rate_per_s": self.rate_per_s,
            "expected_rate_per_s": math.exp(self.middle),
            "expected_rate_high_per_s": self.rate_high_per_s,
            "look_ahead_s": LOOK_AHEAD_S,
            "expected_latency_p95_s": float(latency[0]),
            "expected_latency_p95_high_s": float(latency[1]),
            "expected_recovery_s": float(recovery[0]),
            "expected_recovery_high_s": float(recovery[1]),
            "keeps_probability": float(1.0 - late.max()),
            "cost_per_hour": cost,
            "cost_per_hour_before": before,
            "saving_per_hour": before - cost,
            "slower": self.slower,
            "late_seconds_used": self.late_used,
            "calibration": self.widening,
        }
