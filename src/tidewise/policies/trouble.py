"""How often a job fails, how long it stays down, and since when it works again: from its reports alone."""

from __future__ import annotations

import math
from collections import deque

from tidewise.core import Configuration, JobStatus, Observation
from tidewise.policies.frequency import Frequency

_FADING = 0.7
_KEPT_S = 900.0
_SAME_WINDOWS = 2.0
"""What comes within so many reports of each other is one failure."""


class Trouble:
    """Follows a job through its failures."""

    def __init__(self, *, usual_down_s: float, failures_per_day: float) -> None:
        self._usual_down_s = usual_down_s
        self._failures = Frequency(usual_per_day=failures_per_day)
        self._down_since_s: float | None = None
        self._up_since_s = -math.inf
        self._failed_at_s: float | None = None
        self._felt_at_s = -math.inf
        self._executors: deque[tuple[float, int]] = deque()

    def learn(self, observation: Observation) -> None:
        """Take one report in."""
        self._failures.watched(observation.window_s)
        self._executors.append((observation.time_s, observation.configuration.executors))
        while self._executors[0][0] < observation.time_s - _KEPT_S:
            self._executors.popleft()
        if observation.status is JobStatus.DOWN:
            if self._down_since_s is None:
                self._down_since_s = observation.time_s - 0.5 * observation.window_s
                # What was felt in the report just before is the beginning of the same.
                if self._down_since_s - self._felt_at_s > _SAME_WINDOWS * observation.window_s:
                    self._failures.happened()
                self._failed_at_s = self._down_since_s
        elif self._down_since_s is not None:
            was_down_s = observation.time_s - 0.5 * observation.window_s - self._down_since_s
            self._usual_down_s = _FADING * self._usual_down_s + (1.0 - _FADING) * max(1.0, was_down_s)
            self._down_since_s = None
            self._up_since_s = observation.time_s - 0.5 * observation.window_s

    def felt(self, at_s: float) -> None:
        """It has failed and come up again before a report could tell that it was down: as cold as after any failure."""
        self._failed_at_s = self._felt_at_s = at_s
        self._up_since_s = max(self._up_since_s, at_s)
        self._failures.happened()

    @property
    def failures_per_s(self) -> float:
        """How many failures are to be expected."""
        return self._failures.per_s

    def down_left_s(self, latest: Observation) -> float:
        """How much longer a job that is down will be."""
        since_s = latest.time_s if self._down_since_s is None else self._down_since_s
        return max(0.25 * self._usual_down_s, self._usual_down_s - (latest.time_s - since_s))

    def failed_s(self, now_s: float) -> float | None:
        """How long ago it failed; None: long ago, or never."""
        ago_s = None if self._failed_at_s is None else now_s - self._failed_at_s
        return ago_s if ago_s is not None and ago_s < _KEPT_S else None

    def works_s(self, now_s: float) -> float:
        """For how long the job has worked since it was down; 0 while it is, endless where it never was."""
        return 0.0 if self._down_since_s is not None else now_s - self._up_since_s

    def most_executors_since(self, time_s: float, configuration: Configuration) -> int:
        """The most executors that ran since then."""
        seen = [count for at_s, count in self._executors if at_s >= time_s]
        return max([configuration.executors, *seen])
