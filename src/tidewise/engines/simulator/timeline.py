"""What is going to happen to a job, in order of time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

Happening = Callable[[float], None]
"""Called with the full second in which it is felt."""


class Timeline:
    """Future events; those of the same moment happen in the order in which they were announced."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Happening]] = []
        self._count = 0

    def at(self, time_s: float, happening: Happening) -> None:
        self._count += 1
        heapq.heappush(self._events, (time_s, self._count, happening))

    def next_second(self) -> float:
        """The first full second by which something has happened; infinite when nothing is to come."""
        return math.ceil(self._events[0][0]) if self._events else math.inf

    def happen(self, now_s: float) -> None:
        """Let everything happen that is due, what it brings about included."""
        while self._events and self._events[0][0] <= now_s:
            _, _, happening = heapq.heappop(self._events)
            happening(now_s)
