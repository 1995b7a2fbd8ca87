"""How many records have arrived by when: exact where Spark has said it, carried on from there at the last rate."""

from __future__ import annotations

from bisect import insort
from itertools import pairwise

_KEPT = 12
_FADE = 0.5
"""What the stretch between two points weighs against the next one, so that the last few decide the rate."""


class Arrivals:
    """The position of the newest record over time.

    Points come from the starts of triggers, in any order. Between two of them the line is straight; after the last one
    it goes on at the rate of the last few, because records arrive while a batch runs and while the job is down. After
    a trigger that found nothing it stays level: the next records make a batch, which says how many they are.
    """

    def __init__(self) -> None:
        self._points: list[tuple[float, float, bool]] = []  # time, position, whether the trigger found nothing

    def tell(self, at_s: float, position: float, *, idle: bool = False) -> None:
        """So many records had arrived at this time."""
        insort(self._points, (at_s, position, idle))
        del self._points[:-_KEPT]

    @property
    def rate_per_s(self) -> float:
        """Arrivals per second over the last few points, the latest weighing most; 0 while unknown."""
        if not self._points or self._points[-1][2]:
            return 0.0
        arrived = seconds = 0.0
        for (from_s, before, _), (to_s, after, _) in pairwise(self._points):
            arrived = _FADE * arrived + max(0.0, after - before)
            seconds = _FADE * seconds + (to_s - from_s)
        # Points a blink apart say what has arrived, but not how fast.
        return arrived / max(seconds, 0.05) if arrived > 0.0 else 0.0

    def position(self, at_s: float) -> float | None:
        """Where the newest record stood, as far as it is known; None before the first point is told."""
        if not self._points:
            return None
        last_s, last, _ = self._points[-1]
        if at_s >= last_s:
            return last + self.rate_per_s * (at_s - last_s)
        for (from_s, before, _), (to_s, after, _) in pairwise(self._points):
            if from_s <= at_s < to_s:
                return before + (after - before) * (at_s - from_s) / (to_s - from_s)
        return self._points[0][1]
