"""The gap of each mechanism of change: how long a job gives no output, learnt from the changes that were made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from tidewise.core import ChangeCost, ChangeOutcome, ChangeStatus, Mechanism
from tidewise.core.checks import require, require_finite
from tidewise.qos.belief import Belief
from tidewise.qos.saved import FORMAT, check_format, damage_told

LEAST_GAP_S = 0.05
"""A change without a gap counts as this long: a logarithm needs something, and nobody notices it."""

_LEVEL_SD = 0.7
"""How far off the engine's own word for a gap may be, as a spread of its logarithm."""
_SPREAD, _SPREAD_WORTH = 0.3, 4.0
"""Spread of the logarithm from one change to the next before any was seen, and how many changes that is worth."""
_FAILED, _WENT = 0.1, 1.9
"""How many failed and good changes the usual chance of failure is worth: 5 %."""
_FADING = 0.98
"""What a change says counts this much less with every further one, so that an old cluster is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """Changes by one mechanism, summed up; later ones count more."""

    count: float = 0.0
    log_mean: float = 0.0
    squares: float = 0.0
    """Of the distances from that mean, weighted as the count."""
    failed: float = 0.0
    went: float = 0.0

    def __post_init__(self) -> None:
        for name in ("count", "squares", "failed", "went"):
            require_finite(name, getattr(self, name), least=0.0)
        require_finite("log_mean", self.log_mean)

    def with_gap(self, gap_s: float) -> _Seen:
        log_gap, kept = math.log(max(LEAST_GAP_S, gap_s)), _FADING * self.count
        mean = (kept * self.log_mean + log_gap) / (kept + 1.0)
        off = (log_gap - mean) * (log_gap - self.log_mean)
        return _Seen(
            count=kept + 1.0,
            log_mean=mean,
            squares=_FADING * self.squares + max(0.0, off),
            failed=_FADING * self.failed,
            went=_FADING * self.went + 1.0,
        )

    def with_failure(self) -> _Seen:
        return _Seen(
            count=self.count,
            log_mean=self.log_mean,
            squares=self.squares,
            failed=_FADING * self.failed + 1.0,
            went=_FADING * self.went,
        )

    def halved(self) -> _Seen:
        return _Seen(
            count=0.5 * self.count,
            log_mean=self.log_mean,
            squares=0.5 * self.squares,
            failed=0.5 * self.failed,
            went=0.5 * self.went,
        )


class GapModel:
    """Lognormal gaps, one mechanism at a time: what the engine says beforehand, then what was measured."""

    def __init__(self, changes: tuple[ChangeCost, ...]) -> None:
        self._usual = {cost.mechanism: max(LEAST_GAP_S, cost.gap_s) for cost in changes}
        self._seen: dict[Mechanism, _Seen] = {}

    def learn(self, mechanism: Mechanism, outcome: ChangeOutcome) -> None:
        """Take in how a change ended; one that failed tells of the chance of failing, and not of the gap."""
        self._require_known(mechanism)
        seen = self._seen.get(mechanism, _Seen())
        applied = outcome.status is ChangeStatus.APPLIED
        self._seen[mechanism] = seen.with_gap(outcome.gap_s) if applied else seen.with_failure()

    def widen(self) -> None:
        """Believe what was seen only half as firmly: the program has changed, the cluster has not."""
        self._seen = {mechanism: seen.halved() for mechanism, seen in self._seen.items()}

    def gap(self, mechanism: Mechanism) -> Belief:
        """Seconds without output of the next change by this mechanism, as one row."""
        self._require_known(mechanism)
        seen = self._seen.get(mechanism, _Seen())
        usual_log = math.log(self._usual[mechanism])
        worth = _SPREAD_WORTH + seen.count
        spread_2 = (_SPREAD_WORTH * _SPREAD**2 + seen.squares) / worth
        level_2 = 1.0 / (1.0 / _LEVEL_SD**2 + seen.count / spread_2)
        level = level_2 * (usual_log / _LEVEL_SD**2 + seen.count * seen.log_mean / spread_2)
        # The spread itself is an estimate, so the next gap lies a little further out (Student's t, by its variance).
        log_sd = math.sqrt(level_2 + spread_2 * worth / (worth - 2.0))
        return Belief(np.array([level]), np.array([log_sd]))

    def failure_probability(self, mechanism: Mechanism) -> float:
        """How likely the next change by this mechanism is to fail."""
        self._require_known(mechanism)
        seen = self._seen.get(mechanism, _Seen())
        return (_FAILED + seen.failed) / (_FAILED + _WENT + seen.failed + seen.went)

    def save(self) -> dict[str, object]:
        """All that was learnt, as plain data."""
        return {"format": FORMAT, "seen": {mechanism.value: asdict(seen) for mechanism, seen in self._seen.items()}}

    @classmethod
    def load(cls, changes: tuple[ChangeCost, ...], saved: Mapping[str, object]) -> GapModel:
        """The model as it was saved, without mechanisms that are offered no more; BadInputError for anything else."""
        check_format(saved)
        model = cls(changes)
        with damage_told():
            seen = saved["seen"]
            for name, sums in seen.items():  # type: ignore[attr-defined]  # what is no mapping is damage
                mechanism = Mechanism(name)
                if mechanism in model._usual:
                    model._seen[mechanism] = _Seen(**sums)
        return model

    def _require_known(self, mechanism: Mechanism) -> None:
        require(mechanism in self._usual, f"the engine offers no {mechanism}, so nothing is known of its gap")
