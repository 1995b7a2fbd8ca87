"""How long failures keep a job from working: from copies that were broken, and from the reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from tidewise.core import Censored, JobStatus, Measured, Observation, at_least_s

_KEPT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenCopy:
    """What a copy did that was broken just before its next commit, at a steady rate."""

    took_s: Measured
    rate_per_s: float
    capacity_per_s: float
    commit_interval_s: float

    def downtime_s(self) -> float | None:
        """What it took less the catching up; None where it could never catch up, and so tells nothing.

        From took = D + rate x (interval + D) / (capacity - rate), the sum of Phoebe's recovery at a steady rate.
        """
        spare = self.capacity_per_s - self.rate_per_s
        if spare <= 0.0:
            return None
        took_s = at_least_s(self.took_s)
        replayed = self.rate_per_s * self.commit_interval_s
        return max(0.0, (took_s * spare - replayed) / self.capacity_per_s)


def downtime_s(copies: Iterable[BrokenCopy], seen_down_s: float | None) -> float | None:
    """The usual downtime; None where nothing is known.

    Copies that did not recover count only where they show that it takes longer than the others say. What reports have
    seen is a lower bound as well: the time until a failure is noticed is not in it.
    """
    told: list[float] = []
    bounds: list[float] = [] if seen_down_s is None else [seen_down_s]
    late: list[float] = []
    for copy in copies:
        down_s = copy.downtime_s()
        if down_s is not None:
            (late if isinstance(copy.took_s, Censored) else told).append(down_s)
    if told:
        usual_s = median(told)
        bounds.append(median([*told, *(bound_s for bound_s in late if bound_s > usual_s)]))
    else:
        bounds.extend(late)
    return max(bounds, default=None)


class SeenDown:
    """How long the job was down each time, as far as reports show it."""

    def __init__(self) -> None:
        self._ended_s: deque[float] = deque(maxlen=_KEPT)
        self._on_s = 0.0

    @property
    def usual_s(self) -> float | None:
        """The median of the latest; None where the job was never down."""
        return median(self._ended_s) if self._ended_s else None

    def learn(self, observation: Observation) -> None:
        if observation.status is JobStatus.DOWN:
            self._on_s += observation.window_s
        elif self._on_s > 0.0:
            self._ended_s.append(self._on_s)
            self._on_s = 0.0
