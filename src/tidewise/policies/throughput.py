"""What a job can process by its number of executors, from its reports and its profiles; for the policies that ask."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

from tidewise.core import Configuration, JobStatus, Observation, Parameter, ProfileMeasurement, ProfileOutcome

_EXECUTORS = frozenset({Parameter.EXECUTORS})
_KEPT = 256
"""As many configurations are remembered; those that have not run for longest are forgotten first."""
_MEMORY_S = 86_400.0
"""So much operation in a configuration counts; what was before fades."""
_LEAST_BUSY_SHARE = 0.01
_LEAST_PER_S = 1e-3
"""Below these a rate over a busy share is made of rounding."""
_LEAST_BUSY_S = 10.0
"""A configuration that was busy for less is not known yet."""


class Throughputs:
    """Processed over busy of every configuration that ran; bounded, and the same for the same reports."""

    def __init__(self) -> None:
        self._sums: dict[Configuration, tuple[float, float]] = {}

    def learn(self, observation: Observation) -> None:
        """Take one report in; those of a job that does not run, or does not say how busy it is, tell nothing."""
        busy = observation.busy_share
        if observation.status is not JobStatus.RUNNING or not _tells(observation.processed_rate_per_s, busy):
            return
        processed, busy_s = self._sums.pop(observation.configuration, (0.0, 0.0))
        left = math.exp(-observation.window_s / _MEMORY_S)
        self._sums[observation.configuration] = (
            left * processed + observation.window_s * observation.processed_rate_per_s,
            left * busy_s + observation.window_s * (busy or 0.0),
        )
        if len(self._sums) > _KEPT:
            del self._sums[next(iter(self._sums))]

    def by_executors(
        self, like: Configuration, copies: Sequence[ProfileMeasurement], *, measured_s: float
    ) -> Mapping[int, float]:
        """The most that can be processed per second by each number of executors known, all else as in `like`.

        `copies`: what was profiled like this; `measured_s`: how long each was measured, which is what it weighs.
        """
        sums = {
            configuration.executors: known
            for configuration, known in self._sums.items()
            if differs_in_executors_only(configuration, like)
        }
        for seen in copies:
            if _tells(seen.processed_rate_per_s, seen.busy_share):
                processed, busy_s = sums.get(seen.configuration.executors, (0.0, 0.0))
                processed += measured_s * seen.processed_rate_per_s
                sums[seen.configuration.executors] = (processed, busy_s + measured_s * (seen.busy_share or 0.0))
        known = sorted(sums.items())
        return {executors: processed / busy_s for executors, (processed, busy_s) in known if busy_s >= _LEAST_BUSY_S}


def profiled(like: Configuration, profiles: Sequence[ProfileOutcome]) -> list[ProfileMeasurement]:
    """What the copies that differ from this configuration in their executors only have shown."""
    return [
        seen
        for outcome in profiles
        for seen in outcome.measurements
        if differs_in_executors_only(seen.configuration, like)
    ]


@lru_cache(maxsize=4096)  # asked thousands of times of the same few
def differs_in_executors_only(one: Configuration, other: Configuration) -> bool:
    """Whether what is learnt of the one speaks for the other; so it does where they are the same."""
    return one.differs_from(other) <= _EXECUTORS


def _tells(processed_per_s: float, busy_share: float | None) -> bool:
    return busy_share is not None and busy_share >= _LEAST_BUSY_SHARE and processed_per_s >= _LEAST_PER_S
