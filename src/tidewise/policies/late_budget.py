"""What a late second costs: more the more of them there were lately, so that no more come than were promised away."""

from __future__ import annotations

import math
from collections import deque

from tidewise.core import Observation, Promises

_AIM = 0.8
"""The part of the promised-away seconds that is aimed at."""
_USUAL_PRICE = 0.165
"""What using up all of them costs at the usual price, in what the job is worth."""
_LEAST_PRICE = 2.0
"""However many of them were promised away, being late all the time must cost more than what would end it."""
_STEEP = 2.0
"""By which power of e the price goes up from none of them used to all."""
_REPORTS = 20_000
_MOST = 2.5
"""So many times the aim and more are all the same."""


class LateBudget:
    """Follows how many seconds were late.

    What was promised is only known when a price is asked for, so reports are kept until then: what is said depends on
    them alone, not on when it was asked before.
    """

    def __init__(self, *, memory_s: float) -> None:
        """`memory_s`: how long a late second is remembered."""
        self._memory_s = memory_s
        self._new: deque[Observation] = deque(maxlen=_REPORTS)
        self._kept: deque[Observation] = deque(maxlen=_REPORTS)
        self._promises: Promises | None = None
        self._late_s = 0.0
        self._watched_s = 0.0

    def learn(self, observation: Observation) -> None:
        """Take one report in."""
        self._new.append(observation)

    def used(self, promises: Promises) -> float:
        """Late seconds of the last hours, in those that are aimed at; about half before anything was seen."""
        self._count(promises)
        aim = _AIM * (1.0 - promises.good_share)
        unseen_s = max(0.0, self._memory_s - self._watched_s)
        return (self._late_s + 0.5 * aim * unseen_s) / (aim * (self._watched_s + unseen_s))

    def price(self, promises: Promises) -> float:
        """What a late second costs, in seconds of what the job is worth."""
        usual = _USUAL_PRICE / (1.0 - promises.good_share) * math.exp(_STEEP * (min(self.used(promises), _MOST) - 1.0))
        return max(_LEAST_PRICE, usual)

    def _count(self, promises: Promises) -> None:
        if promises != self._promises:
            self._promises = promises
            self._new, self._kept = deque([*self._kept, *self._new], maxlen=_REPORTS), deque(maxlen=_REPORTS)
            self._late_s = self._watched_s = 0.0
        while self._new:
            seen = self._new.popleft()
            stays = math.exp(-seen.window_s / self._memory_s)
            self._watched_s = stays * self._watched_s + seen.window_s
            self._late_s = stays * self._late_s + (seen.window_s if promises.broken_by(seen) else 0.0)
            self._kept.append(seen)
