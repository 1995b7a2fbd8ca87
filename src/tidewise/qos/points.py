"""What was seen, summarised: a bounded number of points, each a configuration near one rate, with running means."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tidewise.core import Configuration
from tidewise.qos.candidates import Candidates, Floats
from tidewise.qos.saved import configuration_from, configuration_plain

_MEMORY = 60.0
"""A mean follows what is new as if it rested on at most this many windows: a job that slowly drifts is followed."""
_BUCKETS_PER_DOUBLING = 2.0
"""Rates closer than this are the same."""
_LARGEST, _LARGEST_LOG = 1e15, 750.0
"""Beyond what any quantity can be, and beyond the logarithm of any number at all."""


@dataclass(slots=True)
class Point:
    """Running mean and variance of each quantity; its weight is the number of windows behind it, up to a limit."""

    configuration: Configuration
    weights: list[float]
    means: list[float]
    variances: list[float]
    seen: int
    """Number of the latest window that counted, for telling old from new."""

    def take(self, values: Sequence[float | None], number: int) -> None:
        """Let one window count."""
        self.seen = number
        for column, value in enumerate(values):
            if value is None:
                continue
            weight = self.weights[column] = min(_MEMORY, self.weights[column] + 1.0)
            off = value - self.means[column]
            self.means[column] += off / weight
            self.variances[column] += (off * (value - self.means[column]) - self.variances[column]) / weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The points as arrays, one row each; a quantity that was never seen at a point has weight 0."""

    candidates: Candidates
    weights: Floats
    means: Floats
    variances: Floats

    def within_sd(self, column: int, *, usual: float, worth: float = 8.0) -> float:
        """Spread of a single window around the mean of its point, over all points; `usual` counts as some windows."""
        weights = np.maximum(0.0, self.weights[:, column] - 1.0)
        squares = float((weights * self.variances[:, column]).sum())
        return math.sqrt((worth * usual**2 + squares) / (worth + float(weights.sum())))


@dataclass(slots=True)
class Points:
    """A bounded set of points; where it is full, the configuration with the most gives up its oldest."""

    columns: int
    limit: int = 128
    logarithms: int = 1
    """So many of the columns, the first ones, hold logarithms."""
    always: tuple[int, ...] = (0,)
    """The columns that every window shows."""
    _points: dict[tuple[Configuration, int], Point] = field(default_factory=dict)
    _count: int = 0

    def __len__(self) -> int:
        return len(self._points)

    @property
    def count(self) -> int:
        """How many windows were taken in since the last clearing."""
        return self._count

    def point(self, configuration: Configuration, rate_per_s: float) -> Point | None:
        """What was seen of a configuration near a rate."""
        return self._points.get((configuration, _bucket(rate_per_s)))

    def take(self, configuration: Configuration, rate_per_s: float, values: Sequence[float | None]) -> None:
        """Let one window count: the quantities it shows, None where it does not show one."""
        self._count += 1
        bucket = _bucket(rate_per_s)
        point = self._points.get((configuration, bucket))
        if point is None:
            if len(self._points) >= self.limit:
                self._drop()
            zeros = [0.0] * self.columns
            point = Point(configuration, list(zeros), list(zeros), list(zeros), 0)
            self._points[configuration, bucket] = point
        point.take(values, self._count)

    def shift(self, column: int, by: float, *, until: float, worth: float) -> None:
        """Add to a quantity wherever it was not seen after window `until`; it counts as so many windows at most."""
        for point in self._points.values():
            if point.weights[column] > 0.0 and point.seen <= until:
                point.means[column] += by
                point.weights[column] = min(worth, point.weights[column])

    def _drop(self) -> None:
        numbers: dict[Configuration, int] = {}
        for configuration, _ in self._points:
            numbers[configuration] = numbers.get(configuration, 0) + 1
        most = max(numbers.values())
        oldest = min((key for key in self._points if numbers[key[0]] == most), key=lambda key: self._points[key].seen)
        del self._points[oldest]

    def clear(self) -> None:
        """Forget everything."""
        self._points.clear()
        self._count = 0

    def table(self) -> Table | None:
        """All points; None where there is none."""
        if not self._points:
            return None
        points = list(self._points.values())
        return Table(
            candidates=Candidates.listing([point.configuration for point in points]),
            weights=np.array([point.weights for point in points]),
            means=np.array([point.means for point in points]),
            variances=np.array([point.variances for point in points]),
        )

    def save(self) -> dict[str, object]:
        """Plain data."""
        return {
            "count": self._count,
            "points": [
                {
                    "configuration": configuration_plain(point.configuration),
                    "bucket": bucket,
                    "weights": list(point.weights),
                    "means": list(point.means),
                    "variances": list(point.variances),
                    "seen": point.seen,
                }
                for (_, bucket), point in self._points.items()
            ],
        }

    def load(self, saved: Mapping[str, object]) -> None:
        """Take the place of what was saved; for what is damaged, the errors of plain Python."""
        count = int(saved["count"])  # type: ignore[call-overload]  # a TypeError is what damage should give
        points: dict[tuple[Configuration, int], Point] = {}
        for plain in saved["points"]:  # type: ignore[attr-defined]  # as above
            configuration = configuration_from(plain["configuration"])
            point = Point(
                configuration,
                _numbers(plain["weights"], self.columns, least=0.0, most=_MEMORY),
                [
                    *_numbers(
                        plain["means"][: self.logarithms], self.logarithms, least=-_LARGEST_LOG, most=_LARGEST_LOG
                    ),
                    *_numbers(
                        plain["means"][self.logarithms :], self.columns - self.logarithms, least=0.0, most=_LARGEST
                    ),
                ],
                _numbers(plain["variances"], self.columns, least=0.0, most=_LARGEST**2),
                int(plain["seen"]),
            )
            if any(point.weights[column] < 1.0 for column in self.always):
                raise ValueError(f"a point that no window stands behind: weights {point.weights!r}")
            points[configuration, int(plain["bucket"])] = point
        if len(points) > self.limit:
            raise ValueError(f"{len(points)} points where at most {self.limit} are kept")
        self._points, self._count = points, count


def _bucket(rate_per_s: float) -> int:
    return round(_BUCKETS_PER_DOUBLING * math.log2(max(1.0, rate_per_s)))


def _numbers(values: Sequence[object], count: int, *, least: float, most: float) -> list[float]:
    numbers = [float(value) for value in values]  # type: ignore[arg-type]  # a TypeError is what damage should give
    if len(numbers) != count or not all(least <= number <= most for number in numbers):
        raise ValueError(f"expected {count} numbers between {least:g} and {most:g}, not {values!r}")
    return numbers
