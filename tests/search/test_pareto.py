from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import BadInputError
from tidewise.search import front_rows, hypervolume

SMALL = st.integers(0, 5).map(float)  # few values, so that there are ties


def beaten(points: list[tuple[float, ...]], row: int) -> bool:
    mine = points[row]
    return any(all(a <= b for a, b in zip(other, mine, strict=True)) and other != mine for other in points)


@pytest.mark.parametrize("objectives", [2, 3])
def test_the_front_is_that_of_brute_force(objectives: int) -> None:
    @given(st.lists(st.tuples(*[SMALL] * objectives), max_size=30))
    def check(points: list[tuple[float, ...]]) -> None:
        columns = np.array(points, dtype=np.float64).reshape(len(points), objectives).T
        rows = front_rows(*columns)
        assert sorted(rows.tolist()) == [row for row in range(len(points)) if not beaten(points, row)]
        assert (np.diff(columns[0][rows]) >= 0.0).all()

    check()


@given(st.lists(st.tuples(st.floats(0, 4), st.floats(0, 4)), max_size=12))
def test_the_hypervolume_is_the_area_counted_on_a_grid(points: list[tuple[float, float]]) -> None:
    cost, value = np.array(points, dtype=np.float64).reshape(len(points), 2).T
    steps = (np.arange(60) + 0.5) * 3.0 / 60
    covered = [any(c <= x and v <= y for c, v in points) for x in steps for y in steps]
    exact = hypervolume(cost, value, cost_limit=3.0, value_limit=3.0)
    assert exact == pytest.approx(9.0 * np.mean(covered), abs=0.05 * 6 + 1e-9)


def test_nan_and_unequal_lengths_are_refused() -> None:
    with pytest.raises(BadInputError, match="NaN"):
        front_rows(np.array([1.0, math.nan]), np.array([1.0, 2.0]))
    with pytest.raises(BadInputError, match="one number per configuration"):
        front_rows(np.array([1.0]), np.array([1.0, 2.0]))
    with pytest.raises(BadInputError, match="two or three"):
        front_rows(np.array([1.0]))


def test_ten_thousand_points_of_three_objectives() -> None:
    points = np.random.default_rng(0).random((3, 10_000))
    rows = front_rows(*points)
    front = points[:, rows]
    assert all((points <= front[:, [each]]).all(axis=0).sum() == 1 for each in range(len(rows)))
