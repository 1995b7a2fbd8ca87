"""How long what was added is kept: the longer, the sooner it was missed after it had been given back."""

from __future__ import annotations

import math

from tidewise.core import JobStatus, Observation

_SHORTEST, _LONGEST = 2.0, 30.0
"""How long additions are kept, in times to settle."""
_MISSED = 2.0
"""What is added within so many times as long after something was taken away had better been kept."""
_FORGOTTEN_S = 3600.0
"""After this long half of the impatience that was regretted is forgotten."""


class Patience:
    """Follows what the job was given and what was taken from it.

    A load that comes and goes faster than any forecast can follow would have executors come and go with it: whoever has
    just given some back and needs them again keeps them twice as long the next time.
    """

    def __init__(self, *, settle_s: float) -> None:
        """`settle_s`: how long a change takes to settle."""
        self._shortest_s = _SHORTEST * settle_s
        self._longest_s = _LONGEST * settle_s
        self._keep_s = self._shortest_s
        self._last: Observation | None = None
        self._added_at_s = -math.inf
        self._added_to_cores = 0.0
        self._taken_at_s = -math.inf
        self._is_lent = False
        self._failed_at_s = -math.inf

    def learn(self, observation: Observation) -> None:
        """Take one report in."""
        now_s = observation.time_s
        if observation.status is not JobStatus.RUNNING:
            self._failed_at_s = now_s
            return
        last, self._last = self._last, observation
        if last is None:
            return
        passed_s = now_s - last.time_s
        self._keep_s = max(self._shortest_s, self._keep_s * 0.5 ** (passed_s / _FORGOTTEN_S))
        cores, before = observation.configuration.total_cores, last.configuration.total_cores
        if cores > before:
            if now_s - self._failed_at_s <= self._shortest_s:
                # What is added to catch up after a failure is given back when that is done, and not missed then.
                self._added_to_cores = self._added_to_cores if self._is_lent else before
                self._is_lent = True
                return
            if now_s - self._taken_at_s < _MISSED * self._keep_s:
                self._keep_s = min(self._longest_s, 2.0 * self._keep_s)
            self._added_at_s, self._added_to_cores, self._is_lent = now_s, cores, False
        elif cores < before and not (self._is_lent and cores >= self._added_to_cores):
            self._taken_at_s, self._is_lent = now_s, False

    def felt(self, at_s: float) -> None:
        """The job has failed and come up again before a report could tell that it was down."""
        self._failed_at_s = max(self._failed_at_s, at_s)

    def left_s(self, now_s: float, cores: float) -> float:
        """For how much longer the job is not brought down to so many cores.

        What it got beyond what was added, to catch up after a failure, is not kept.
        """
        return max(0.0, self._added_at_s + self._keep_s - now_s) if cores < self._added_to_cores else 0.0
