"""More of a resource never makes a prediction worse: whatever the data say, predictions are bent to keep to that."""

from __future__ import annotations

import math

import numpy as np

from tidewise.qos.candidates import RESOURCES, Candidates, Floats

_BLOCK_ROWS = 512


def increasing(candidates: Candidates, values: Floats) -> Floats:
    """The mid-envelope of the values: never falling with more executors, cores or memory, all else the same.

    Each row becomes the mean of the highest value among those that have no more than it, and the lowest among those
    that have no less. Values that keep to the order already stay as they are, and where one set of values lies below
    another, so do their envelopes.
    """
    return 0.5 * (highest_of_less(candidates, values) + lowest_of_more(candidates, values))


def decreasing(candidates: Candidates, values: Floats) -> Floats:
    """The same for what never rises with more of a resource, as latency."""
    return -increasing(candidates, -values)


def highest_of_less(candidates: Candidates, values: Floats) -> Floats:
    """The highest value among the rows that have no more of any resource: what a row can be relied on for at least."""
    return _highest(candidates, values, of_more=False)


def lowest_of_more(candidates: Candidates, values: Floats) -> Floats:
    """The lowest value among the rows that have no less of any resource: what a row can reach at most."""
    return -_highest(candidates, -values, of_more=True)


def _highest(candidates: Candidates, values: Floats, *, of_more: bool) -> Floats:
    lattice = candidates.lattice
    if lattice is None:
        return _by_pairs(candidates, values, of_more=of_more)
    cells = np.full(math.prod(lattice.shape), -np.inf)
    if lattice.is_full:
        cells[lattice.cells] = values
    else:
        # Rows may be equal.
        np.maximum.at(cells, lattice.cells, values)
    grid = cells.reshape(lattice.shape)
    for axis in range(len(RESOURCES)):
        if lattice.shape[axis] > 1:
            along = np.flip(grid, axis=axis) if of_more else grid
            np.maximum.accumulate(along, axis=axis, out=along)
    found: Floats = cells[lattice.cells]
    return found


def _by_pairs(candidates: Candidates, values: Floats, *, of_more: bool) -> Floats:
    """The highest of less (or of more) for a listing whose values span too large a grid, every row against all."""
    resources = [getattr(candidates, name) for name in RESOURCES]
    groups = candidates.group_numbers
    result = np.empty_like(values)
    for start in range(0, len(values), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        counts = groups[rows, np.newaxis] == groups
        for column in resources:
            counts &= (column >= column[rows, np.newaxis]) if of_more else (column <= column[rows, np.newaxis])
        result[rows] = np.where(counts, values, -np.inf).max(axis=1)
    return result
