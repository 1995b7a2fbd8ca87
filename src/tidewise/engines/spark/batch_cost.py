"""What of a batch is work on its records: told from how the durations of batches grow with their rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, median_high, median_low

_RECENT = 30
_KEPT = 240
"""A batch is off by a quarter for no reason that anybody could tell: what its rows cost shows in hundreds of them."""
_FEWEST = 6
_SPREAD = 0.3
"""Of the median rows: a smallest and a largest third of the batches that are closer together than this say nothing of
what an empty one would take. Thirds, because a single batch is large when the one before it was slow."""
_ROUNDS = 4
_USUAL_ERROR = 1.5
"""In median errors: what is further from the line than this counts as if it were this far."""
_LARGEST_SHARE = 0.95
"""Of the shortest batch: no batch with rows is all fixed cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """Durations over the rows for each executor."""

    fixed_s: float
    per_row_s: float


class BatchCost:
    """How long batches take for their rows and for nothing, fitted to the last hundreds of one kind of executors.

    A line through durations over rows for each executor, from which single slow batches are kept away. Without enough
    difference in rows: the last line that was found, as most of the fixed cost is the driver's; before the first one,
    the phases of the batch besides `addBatch` are its fixed cost. Batches of a job that has just come up are left out:
    at first they are large, because there is something to catch up with, and slow, because nothing is compiled yet,
    and the one would be taken for the cause of the other.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=_RECENT)  # durations
        self._warm: deque[tuple[float, float]] = deque(maxlen=_KEPT)  # rows for each executor, seconds
        self._line: _Line | None = None

    def learn(self, rows: float, duration_s: float, *, executors: int = 1, is_warm: bool = True) -> None:
        """Take a batch in; one without rows tells nothing of those that have some."""
        if rows <= 0.0 or duration_s <= 0.0:
            return
        self._recent.append(duration_s)
        if is_warm:
            self._warm.append((rows / executors, duration_s))
            self._line = _fit(self._warm) or self._line

    def forget_durations(self) -> None:
        """Batches take another time from now on, because there are more executors or fewer."""
        self._recent.clear()

    def forget_rows(self) -> None:
        """So does every row, because the executors are of another kind."""
        self._recent.clear()
        self._warm.clear()

    def fixed_s(self, *, outside_s: float) -> float:
        """The fixed cost of a batch whose phases besides `addBatch` took this long."""
        wanted_s = outside_s if self._line is None else self._line.fixed_s
        return min(wanted_s, _LARGEST_SHARE * min(self._recent, default=0.0))

    def work_s(self, rows: float, duration_s: float, *, outside_s: float, executors: int = 1) -> float:
        """How much of the batch was work on its rows.

        One that took longer than the line says was slower in all that it did.
        """
        if rows <= 0.0:
            return 0.0
        if self._line is None:
            return duration_s - self.fixed_s(outside_s=outside_s)
        work_s = self._line.per_row_s * rows / executors
        share = max(1.0 - _LARGEST_SHARE, work_s / (self._line.fixed_s + work_s))
        return duration_s * share

    @property
    def usual_duration_s(self) -> float:
        """The median of the last batches; 0 before the first."""
        return median(self._recent) if self._recent else 0.0


def _fit(batches: Sequence[tuple[float, float]]) -> _Line | None:
    """None where nothing can be told."""
    ordered = sorted(batches)
    third = len(ordered) // 3
    few, many = [rows for rows, _ in ordered[:third]], [rows for rows, _ in ordered[-third:]]
    if len(ordered) < _FEWEST or median_low(many) - median_high(few) < _SPREAD * ordered[len(ordered) // 2][0]:
        return None
    apart = median(many) - median(few)
    slope = (median(took_s for _, took_s in ordered[-third:]) - median(took_s for _, took_s in ordered[:third])) / apart
    fixed_s = median(took_s - slope * rows for rows, took_s in ordered)
    for _ in range(_ROUNDS):
        fixed_s, slope = _closer(ordered, fixed_s, slope)
    if slope <= 0.0:
        # Batches that get no slower with their rows cost next to nothing for each of them.
        return _Line(fixed_s=median(took_s for _, took_s in ordered), per_row_s=0.0)
    if fixed_s <= 0.0:
        return _Line(fixed_s=0.0, per_row_s=median(took_s / rows for rows, took_s in ordered))
    return _Line(fixed_s=fixed_s, per_row_s=slope)


def _closer(batches: Sequence[tuple[float, float]], fixed_s: float, slope: float) -> tuple[float, float]:
    """The line of least squares, what is far from the one before counting less."""
    errors_s = [abs(took_s - fixed_s - slope * rows) for rows, took_s in batches]
    usual_s = _USUAL_ERROR * median(errors_s)
    weights = [1.0 if error_s <= usual_s else usual_s / error_s for error_s in errors_s]
    total = sum(weights)
    if usual_s <= 0.0 or total <= 0.0:
        return fixed_s, slope  # most lie on it
    rows_mean = sum(weight * rows for weight, (rows, _) in zip(weights, batches, strict=True)) / total
    took_mean_s = sum(weight * took_s for weight, (_, took_s) in zip(weights, batches, strict=True)) / total
    spread = sum(weight * (rows - rows_mean) ** 2 for weight, (rows, _) in zip(weights, batches, strict=True))
    if spread <= 0.0:
        return fixed_s, slope
    together = sum(
        weight * (rows - rows_mean) * (took_s - took_mean_s)
        for weight, (rows, took_s) in zip(weights, batches, strict=True)
    )
    slope = together / spread
    return took_mean_s - slope * rows_mean, slope
