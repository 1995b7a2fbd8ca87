"""What nothing else beats: the configurations of which no other is cheaper, faster and sooner recovered at once."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from tidewise.core import BadInputError
from tidewise.qos import Floats

Rows = npt.NDArray[np.int64]


def front_rows(*objectives: Floats) -> Rows:
    """The rows that no other row beats, by the first objective ascending; each objective is to be small.

    One row beats another when it is at least as good in everything and better in something: equal rows stay together.
    Two or three objectives.
    """
    if len(objectives) not in {2, 3}:
        raise BadInputError(f"a front is drawn of two or three objectives, not of {len(objectives)}")
    if len({len(values) for values in objectives}) != 1:
        raise BadInputError("the objectives of a front need one number per configuration each")
    points = np.column_stack(objectives)
    if np.isnan(points).any():
        raise BadInputError("a front cannot be drawn of objectives that are NaN: leave those configurations out")
    if len(points) == 0:
        return np.empty(0, dtype=np.int64)
    order = np.lexsort(points.T[::-1])
    ordered = points[order]
    repeats = np.concatenate([[False], (ordered[1:] == ordered[:-1]).all(axis=1)])
    distinct = ordered[~repeats]
    unbeaten = _unbeaten_pairs(distinct) if distinct.shape[1] == 2 else _unbeaten_triples(distinct)
    rows: Rows = order[unbeaten[np.cumsum(~repeats) - 1]]
    return rows


def _unbeaten_pairs(distinct: Floats) -> npt.NDArray[np.bool_]:
    lowest_before = np.minimum.accumulate(distinct[:, 1])
    return np.concatenate([[True], distinct[1:, 1] < lowest_before[:-1]])


def _unbeaten_triples(distinct: Floats) -> npt.NDArray[np.bool_]:
    """In the order of the first objective, a row is beaten by what came before or not at all."""
    unbeaten = np.zeros(len(distinct), dtype=np.bool_)
    # The stairs of the other two so far: second objective ascending, third descending.
    seconds: list[float] = []
    thirds: list[float] = []
    for row, (_, second, third) in enumerate(distinct.tolist()):
        place = bisect_left(seconds, second)
        level = seconds[place] == second if place < len(seconds) else False
        if (level and thirds[place] <= third) or (place > 0 and thirds[place - 1] <= third):
            continue
        unbeaten[row] = True
        end = place
        while end < len(seconds) and thirds[end] >= third:
            end += 1
        seconds[place:end] = [second]
        thirds[place:end] = [third]
    return unbeaten


def hypervolume(cost: Floats, value: Floats, *, cost_limit: float, value_limit: float) -> float:
    """The area that the points beat, up to both limits."""
    inside = (cost < cost_limit) & (value < value_limit)
    cost, value = cost[inside], value[inside]
    rows = front_rows(cost, value)
    if len(rows) == 0:
        return 0.0
    ends = np.append(cost[rows][1:], cost_limit)
    return float(((ends - cost[rows]) * (value_limit - value[rows])).sum())
