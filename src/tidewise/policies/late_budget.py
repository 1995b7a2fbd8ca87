"""What a late second costs: more the more of them there were lately, so that no more come than were promised away."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tidewise.core import Observation, Promises

_AIM = 0.7
"""The part of the promised-away seconds that is aimed at."""
_USUAL_PRICE = 0.25
"""What using up all of them costs at the usual price, in what the job is worth."""
_MOST = 4.0
"""So many times the aim and more are all the same."""


class LateBudget:
    """Follows how many seconds were late."""

    def __init__(self, *, memory_s: float) -> None:
        """`memory_s`: how long a late second is remembered."""
        self._memory_s = memory_s
        self._seen_until_s = -math.inf
        self._late_s = 0.0
        self._watched_s = 0.0

    def learn(self, history: Sequence[Observation], promises: Promises) -> None:
        """Take in the reports that are new."""
        for seen in history:
            if seen.time_s <= self._seen_until_s:
                continue
            self._seen_until_s = seen.time_s
            stays = math.exp(-seen.window_s / self._memory_s)
            self._watched_s = stays * self._watched_s + seen.window_s
            self._late_s = stays * self._late_s + (seen.window_s if promises.broken_by(seen) else 0.0)

    def used(self, promises: Promises) -> float:
        """Late seconds of the last hours, in those that are aimed at; about half before anything was seen."""
        aim = _AIM * (1.0 - promises.good_share)
        unseen_s = max(0.0, self._memory_s - self._watched_s)
        return (self._late_s + 0.5 * aim * unseen_s) / (aim * (self._watched_s + unseen_s))

    def price(self, promises: Promises) -> float:
        """What a late second costs, in seconds of what the job is worth."""
        return _USUAL_PRICE / (1.0 - promises.good_share) * math.exp(min(self.used(promises), _MOST) - 1.0)
