"""The recent past of a load in bounded memory: mean rates over any window of it, gaps left out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


class Arrivals:
    """Records that arrived, as running sums over time, of which the latest points are kept.

    Beside the records runs a sum of the seconds that reports speak for: a mean over a window with a gap is a mean over
    the rest of it.
    """

    def __init__(self, *, max_points: int, resolution_s: float = 1.0) -> None:
        """Keep this many points, and no two of them closer than the resolution."""
        self._max_points = max_points
        self._resolution_s = resolution_s
        self._times_s = np.zeros(2 * max_points)
        self._records = np.zeros(2 * max_points)
        self._covered_s = np.zeros(2 * max_points)
        self._count = 0
        self._highest_per_s = 0.0

    @property
    def start_s(self) -> float:
        return float(self._times_s[0])

    @property
    def end_s(self) -> float:
        return float(self._times_s[self._count - 1])

    @property
    def highest_per_s(self) -> float:
        """The highest rate seen, slowly forgotten."""
        return self._highest_per_s

    def add(self, *, end_s: float, window_s: float, rate_per_s: float) -> bool:
        """Take one window in; False where it does not end after all that are here."""
        if self._count > len(self._times_s) - 2:
            self._drop_oldest()
        if self._count == 0:
            self._append(end_s - window_s, 0.0, 0.0)
        last = self._count - 1
        last_s = float(self._times_s[last])
        if end_s <= last_s:
            return False
        start_s = end_s - window_s
        if start_s > last_s + 1e-9:
            self._append(start_s, float(self._records[last]), float(self._covered_s[last]))
            last, last_s = self._count - 1, start_s
        new_s = end_s - last_s  # less than the window where reports overlap
        records = float(self._records[last]) + new_s * rate_per_s
        covered_s = float(self._covered_s[last]) + new_s
        if last >= 1 and end_s - float(self._times_s[last - 1]) < self._resolution_s:
            self._times_s[last], self._records[last], self._covered_s[last] = end_s, records, covered_s
        else:
            self._append(end_s, records, covered_s)
        # One spike must not widen the forecasts of a whole week: half of it is forgotten in about an hour.
        self._highest_per_s = max(rate_per_s, self._highest_per_s * 0.5 ** (new_s / 3600.0))
        return True

    def sums(self, times_s: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Records that had arrived, and seconds that reports speak for, up to each of these times."""
        known_s = self._times_s[: self._count]
        records = np.interp(times_s, known_s, self._records[: self._count])
        return records, np.interp(times_s, known_s, self._covered_s[: self._count])

    def to_plain(self) -> dict[str, object]:
        """All of it as numbers and lists."""
        return {
            "times_s": self._times_s[: self._count].tolist(),
            "records": self._records[: self._count].tolist(),
            "covered_s": self._covered_s[: self._count].tolist(),
            "highest_per_s": self._highest_per_s,
        }

    def from_plain(self, plain: Mapping[str, object]) -> None:
        """Go on where `to_plain` stood; KeyError, TypeError or ValueError where it is something else."""
        names = ("times_s", "records", "covered_s")
        columns = [np.array(plain[name], dtype=np.float64)[-len(self._times_s) :] for name in names]
        highest_per_s = float(plain["highest_per_s"])  # type: ignore[arg-type]  # checked by trying
        if len({column.shape for column in columns}) != 1 or not all(np.isfinite(column).all() for column in columns):
            raise ValueError("times, records and covered seconds do not fit together")
        self._count = len(columns[0])
        for kept, column in zip((self._times_s, self._records, self._covered_s), columns, strict=True):
            kept[: self._count] = column
        self._highest_per_s = highest_per_s

    def _append(self, time_s: float, records: float, covered_s: float) -> None:
        self._times_s[self._count] = time_s
        self._records[self._count] = records
        self._covered_s[self._count] = covered_s
        self._count += 1

    def _drop_oldest(self) -> None:
        start = self._count - self._max_points
        for values in (self._times_s, self._records, self._covered_s):
            values[: self._max_points] = values[start : self._count]
        for sums in (self._records, self._covered_s):
            sums[: self._max_points] -= sums[0]  # they start anew, so that they stay exact for months
        self._count = self._max_points


def mean_rates_per_s(
    records: NDArray[np.float64], covered_s: NDArray[np.float64], *, span_s: float, least_share: float
) -> NDArray[np.float64]:
    """Mean rates of windows from their two differences of sums; NaN where less than this share of them is known."""
    known = covered_s > max(least_share * span_s, 1e-9)
    return np.where(known, records / np.where(known, covered_s, 1.0), np.nan)
