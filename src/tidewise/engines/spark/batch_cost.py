"""What a batch costs before its first record: told from how the durations of batches grow with their rows."""

from __future__ import annotations

from collections import deque
from itertools import combinations
from statistics import median, median_high, median_low

_KEPT = 30
_FEWEST = 6
_SPREAD = 0.3
"""Of the median rows: a smallest and a largest third of the batches that are closer together than this say nothing of
what an empty one would take. Thirds, because a single batch is large when the one before it was slow."""
_FAR_APART = 0.2
"""Of the largest batch: how far two batches are apart whose durations are compared."""
_LARGEST_SHARE = 0.95
"""Of the shortest batch: no batch with rows is all fixed cost."""


class BatchCost:
    """The fixed cost of a batch, fitted to the last batches of one configuration.

    A line through durations over rows by medians (Theil and Sen), which a few slow batches do not move. Without enough
    difference in rows: the last line that was found, as most of the fixed cost is the driver's and stays when
    executors come or go; before the first one, the phases of the batch besides `addBatch`. Batches of a job that has
    just come up are left out: at first they are large, because there is something to catch up with, and slow, because
    nothing is compiled yet, and the one would be taken for the cause of the other.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[float, float]] = deque(maxlen=_KEPT)  # rows, seconds
        self._warm: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._fitted_s: float | None = None

    def learn(self, rows: float, duration_s: float, *, is_warm: bool = True) -> None:
        """Take a batch in; one without rows tells nothing of those that have some."""
        if rows <= 0.0 or duration_s <= 0.0:
            return
        self._batches.append((rows, duration_s))
        if is_warm:
            self._warm.append((rows, duration_s))
            fitted_s = self._fit()
            self._fitted_s = self._fitted_s if fitted_s is None else fitted_s

    def forget_batches(self) -> None:
        """Begin anew, because batches take another time from now on."""
        self._batches.clear()
        self._warm.clear()

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
        """Duration of a batch without rows; None where it cannot be told."""
        rows = sorted(batch_rows for batch_rows, _ in self._warm)
        third = len(rows) // 3
        if len(rows) < _FEWEST or median_low(rows[-third:]) - median_high(rows[:third]) < _SPREAD * median(rows):
            return None
        apart = _FAR_APART * rows[-1]
        slopes = [
            (second_s - first_s) / (second - first)
            for (first, first_s), (second, second_s) in combinations(self._warm, 2)
            if abs(second - first) >= apart
        ]
        # Batches that get no slower with their rows cost next to nothing for each of them.
        slope = max(0.0, median(slopes)) if slopes else 0.0
        return max(0.0, median(duration_s - slope * batch_rows for batch_rows, duration_s in self._warm))
