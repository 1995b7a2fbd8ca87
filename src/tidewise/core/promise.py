"""What was promised about a job."""

from __future__ import annotations

from dataclasses import dataclass

from tidewise.core.checks import require, require_finite
from tidewise.core.observation import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """The latency and the recovery time to keep; at least one of them."""

    latency_p95_s: float | None = None
    """A second is within it where 95 % of the records that arrive are output within this time."""
    good_share: float = 0.95
    """Share of ALL seconds that have to be within the promised latency, those of failures and changes included."""
    recovery_s: float | None = None
    """From any single failure until the latency is back where it was."""

    def __post_init__(self) -> None:
        require(
            self.latency_p95_s is not None or self.recovery_s is not None,
            "promise something: latency_p95, recovery, or both",
        )
        if self.latency_p95_s is not None:
            require_finite("latency_p95_s", self.latency_p95_s, above=0.0)
        if self.recovery_s is not None:
            require_finite("recovery_s", self.recovery_s, above=0.0)
        require(0.0 < self.good_share < 1.0, f"good_share must lie between 0 and 1, not {self.good_share:g}")

    def broken_by(self, observation: Observation) -> bool:
        """Whether the latency promise does not hold in this window; one without output breaks it, unless it is idle."""
        if self.latency_p95_s is None:
            return False
        if observation.latency_p95_s is None:
            return not observation.is_idle
        return observation.latency_p95_s > self.latency_p95_s
