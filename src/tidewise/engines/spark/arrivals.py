"""How many records have arrived by when: exact where Spark has said it, carried on from there at the last rate."""

from __future__ import annotations

from bisect import insort
from itertools import pairwise

_KEPT = 12
"""How many points decide the rate; more are kept of what has arrived and is not committed."""
_MOST = 64
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
        if len(self._points) > _MOST:
            # The older half by every second point: the longer ago, the less it matters when exactly.
            del self._points[1 : _MOST // 2 : 2]

    def forget_before(self, position: float) -> None:
        """It will not be asked any more when a record before this position arrived."""
        needed = self._points_until(position) - 1
        del self._points[: max(0, min(needed, len(self._points) - _KEPT))]

    @property
    def last_s(self) -> float:
        """When the last point was."""
        return self._points[-1][0] if self._points else 0.0

    @property
    def rate_per_s(self) -> float:
        """Arrivals per second over the last few points, the latest weighing most; 0 while unknown."""
        if not self._points or self._points[-1][2]:
            return 0.0
        arrived = seconds = 0.0
        for (from_s, before, _), (to_s, after, _) in pairwise(self._points[-_KEPT:]):
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

    def passed_s(self, position: float) -> tuple[float, bool] | None:
        """Since when there has been more than this, and whether that is known; False: at least since then.

        None where there is not more, as far as it has been told.
        """
        after = self._points_until(position)
        if after == len(self._points):
            return None
        to_s, more, _ = self._points[after]
        if after == 0:
            return to_s, False
        from_s, before, _ = self._points[after - 1]
        return from_s + (to_s - from_s) * (position - before) / (more - before), True

    def _points_until(self, position: float) -> int:
        """How many points there are up to the last one that is not beyond this position."""
        return next((n for n in range(len(self._points), 0, -1) if self._points[n - 1][1] <= position), 0)
