"""Predictions of recoveries beside those of simpler ways, each made before the failure it is about."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tidewise.core import Censored, Forecast, Measured
from tidewise.qos import Belief

PHOEBE_DOWNTIME_S = 100.0
"""The middle of what Phoebe had set by hand."""
GOAL_S = 15.0
_NOT_FELT_S = 1.0
"""Recoveries are measured to the second: below one, all are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One failure: what was foretold by each way, and how long it took."""

    kind: str
    took_s: float
    foretold_s: dict[str, float]
    low_s: float
    high_s: float

    @property
    def covered(self) -> bool:
        return max(self.low_s, _NOT_FELT_S) <= max(self.took_s, _NOT_FELT_S) <= max(self.high_s, _NOT_FELT_S)


@dataclass(slots=True)
class Scores:
    """Failures in the order in which they came; the simpler ways learn from the same ones."""

    scored: list[Scored] = field(default_factory=list)
    _past_s: dict[str, list[float]] = field(default_factory=dict)

    def add(
        self, kind: str, took: Measured, belief: Belief, *, rate_per_s: float, capacity_per_s: float, replay_s: float
    ) -> None:
        """Score what was foretold, then let the simpler ways see how it ended; before the first of a kind they know
        nothing, so none is scored. A recovery that was cut off has no error, and they cannot use it.
        """
        if isinstance(took, Censored):
            return
        past = self._past_s.setdefault(kind, [])
        if past:
            foretold = {
                "Tidewise": float(belief.median[0]),
                "Phoebe: 100 s + its sum": phoebe_s(rate_per_s, capacity_per_s, replay_s),
                "mean of the past": float(np.mean(past)),
                "the last": past[-1],
            }
            low_s, high_s = float(belief.quantile(0.05)[0]), float(belief.quantile(0.95)[0])
            self.scored.append(Scored(kind=kind, took_s=took, foretold_s=foretold, low_s=low_s, high_s=high_s))
        past.append(took)

    def row(self, name: str) -> list[str]:
        """A line of the table: mean absolute errors, and how often the interval held."""
        return score_row(name, self.scored)


HEAD = [
    "",
    "failures",
    "mean recovery",
    "Tidewise",
    "Phoebe: 100 s + sum",
    "mean of past",
    "last",
    "90 % interval held",
]


def score_row(name: str, scored: list[Scored]) -> list[str]:
    """Mean absolute errors of the ways, and how often the interval held."""
    took_s = np.array([one.took_s for one in scored])
    errors = [
        f"{np.abs(np.array([one.foretold_s[way] for one in scored]) - took_s).mean():.1f} s"
        for way in scored[0].foretold_s
    ]
    held = np.mean([one.covered for one in scored])
    return [name, str(len(scored)), f"{took_s.mean():.0f} s", *errors, f"{held:.0%}"]


def phoebe_s(rate_per_s: float, capacity_per_s: float, replay_s: float) -> float:
    """A downtime set by hand, and T(i+1) = arrivals during T(i) / capacity until that is below a second."""
    share = rate_per_s / capacity_per_s
    step_s = (PHOEBE_DOWNTIME_S + replay_s) * share
    total_s = PHOEBE_DOWNTIME_S
    while step_s >= 1.0 and total_s < 3600.0:
        total_s += step_s
        step_s *= share
    return total_s


def flat(rate_per_s: float, *, spread: float = 0.05) -> Forecast:
    """A load that stays as it is, more or less."""
    shares = (1.0 - 1.645 * spread, 1.0, 1.0 + 1.645 * spread)
    paths = tuple((rate_per_s * share,) for share in shares)
    return Forecast(made_at_s=0.0, step_s=600.0, levels=(0.05, 0.5, 0.95), paths_per_s=paths, model="flat")
