"""What a batch costs before its first record: told from how the durations of batches grow with their rows."""

from __future__ import annotations

from collections import deque
from itertools import combinations
from statistics import median

_KEPT = 30
_FEWEST = 5
_SPREAD = 0.5
"""Of the median rows: batches that are closer together than this say nothing of what an empty one would take."""
_FAR_APART = 0.2
"""Of the largest batch: how far two batches are apart whose durations are compared."""
_LARGEST_SHARE = 0.95
"""Of the shortest batch: no batch with rows is all fixed cost."""


class BatchCost:
    """The fixed cost of a batch, fitted to the last batches of one configuration.

    A line through durations over rows by medians (Theil and Sen), which a few slow batches do not move. Without enough
    difference in rows: the last line that was found, as most of the fixed cost is the driver's and stays when
    executors come or go; before the first one, the phases of the batch besides `addBatch`.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[float, float]] = deque(maxlen=_KEPT)  # rows, seconds
        self._fitted_s: float | None = None

    def learn(self, rows: float, duration_s: float) -> None:
        """Take a batch in; one without rows tells nothing of those that have some."""
        if rows > 0.0 and duration_s > 0.0:
            self._batches.append((rows, duration_s))
            fitted_s = self._fit()
            self._fitted_s = self._fitted_s if fitted_s is None else fitted_s

    def forget_batches(self) -> None:
        """Begin anew, because batches take another time from now on."""
        self._batches.clear()

    def fixed_s(self, *, outside_s: float) -> float:
        """The fixed cost of a batch whose phases besides `addBatch` took this long."""
        shortest_s = min((duration_s for _, duration_s in self._batches), default=0.0)
        wanted_s = outside_s if self._fitted_s is None else self._fitted_s
        return min(max(0.0, wanted_s), _LARGEST_SHARE * shortest_s)

    @property
    def usual_duration_s(self) -> float:
        """The median batch; 0 before the first."""
        return median(duration_s for _, duration_s in self._batches) if self._batches else 0.0

    def _fit(self) -> float | None:
        """Duration of a batch without rows; None where the line is flat, falls or cannot be told."""
        rows = [batch_rows for batch_rows, _ in self._batches]
        if len(rows) < _FEWEST or max(rows) - min(rows) < _SPREAD * median(rows):
            return None
        apart = _FAR_APART * max(rows)
        slopes = [
            (second_s - first_s) / (second - first)
            for (first, first_s), (second, second_s) in combinations(self._batches, 2)
            if abs(second - first) >= apart
        ]
        slope = median(slopes) if slopes else 0.0
        if slope <= 0.0:
            return None
        return max(0.0, median(duration_s - slope * batch_rows for batch_rows, duration_s in self._batches))
