"""What a load is like over a day: the most that ever came, the level that it comes back to, and how soon."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from tidewise.core import JobStatus, Observation
from tidewise.search.horizon import Habits

_RECENT_S = 30.0
_DAY_S = 86_400.0
_BLOCKS_OF_TAIL = 9.0
"""A block is so short that this many follow each other in what a plan looks at beyond its forecast."""
_APART = 3
"""In blocks: what is left of a level is looked at after so many."""
_FEWEST = 15
"""Blocks: before that nothing is a habit."""
_LEAST_KEPT, _MOST_KEPT = 0.05, 0.98
_ABOVE, _KNOWN_AFTER_S = 1.1, 4 * 3600.0


class LoadHabits:
    """Follows the highest half minute of every few minutes, for a day."""

    def __init__(self, *, tail_s: float) -> None:
        """`tail_s`: how far beyond its forecast a plan looks."""
        self._block_s = max(_RECENT_S, tail_s / _BLOCKS_OF_TAIL)
        self._recent: deque[Observation] = deque()
        self._highest: dict[int, float] = {}
        self._watched_s = 0.0

    def learn(self, observation: Observation) -> None:
        """Take one report in."""
        self._watched_s += observation.window_s
        if observation.status is not JobStatus.RUNNING:
            return  # what arrives is only guessed while nobody counts
        self._recent.append(observation)
        while self._recent[0].time_s <= observation.time_s - _RECENT_S:
            self._recent.popleft()
        # Reports of a job that is behind count by leaps: not the highest of them is what arrived, but their mean.
        block, rate = int(observation.time_s // self._block_s), mean_rate(self._recent)
        self._highest[block] = max(rate, self._highest.get(block, 0.0))
        while next(iter(self._highest)) <= block - _DAY_S / self._block_s:
            del self._highest[next(iter(self._highest))]

    @property
    def highest_per_s(self) -> float:
        """The most that arrived within half a minute of the last day; endless before the first."""
        return max(self._highest.values(), default=math.inf)

    @property
    def ceiling_per_s(self) -> float:
        """More than this is not expected far ahead: a little more than the most of a day, much more after few hours."""
        return self.highest_per_s * (_ABOVE + max(0.0, 1.0 - self._watched_s / _KNOWN_AFTER_S))

    @property
    def habits(self) -> Habits | None:
        """What the load does for hours; None where too little was seen of it.

        What is left of a level after a while is how much two times that far apart have in common. The shorter it was
        watched for what that takes, the less is known of the usual level.
        """
        logs = {block: math.log(rate) for block, rate in self._highest.items() if rate > 0.0}
        if len(logs) < _FEWEST:
            return None
        mean = sum(logs.values()) / len(logs)
        variance = sum((value - mean) ** 2 for value in logs.values()) / len(logs)
        pairs = [
            (value - mean) * (logs[block + _APART] - mean) for block, value in logs.items() if block + _APART in logs
        ]
        if variance <= 0.0 or not pairs:
            return None
        kept = min(_MOST_KEPT, max(_LEAST_KEPT, sum(pairs) / len(pairs) / variance))
        lasts_s = -_APART * self._block_s / math.log(kept)
        seen = len(logs) * self._block_s / (2.0 * lasts_s)
        return Habits(log_mean=mean, log_sd=math.sqrt(variance * (1.0 + 1.0 / seen)), lasts_s=lasts_s)


def mean_rate(windows: Sequence[Observation]) -> float:
    """What arrived in these windows, per second."""
    return sum(each.load_per_s * each.window_s for each in windows) / sum(each.window_s for each in windows)
