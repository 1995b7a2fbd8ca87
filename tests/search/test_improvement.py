from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

from tidewise.search import hypervolume
from tidewise.search.improvement import Strips, expected_improvement

LIMITS = {"cost_limit": 3.0, "value_limit": 2.0}
POINTS = st.lists(st.tuples(st.floats(-1.0, 4.0), st.floats(-2.0, 3.0)), max_size=8)


def strips_of(points: list[tuple[float, float]]) -> Strips:
    cost, value = np.array(points, dtype=np.float64).reshape(len(points), 2).T
    return Strips.of(cost, value, **LIMITS)


def area(points: list[tuple[float, float]]) -> float:
    cost, value = np.array(points, dtype=np.float64).reshape(len(points), 2).T
    return hypervolume(cost, value, **LIMITS)


def test_one_dimension_agrees_with_sampling() -> None:
    draws = 0.3 + 0.8 * ndtri((np.arange(10_000) + 0.5) / 10_000)
    sampled = np.maximum(0.0, 0.5 - draws).mean()
    assert expected_improvement(np.array([0.3]), np.array([0.8]), 0.5)[0] == pytest.approx(sampled, rel=0.01)


@pytest.mark.parametrize("cost", [-0.5, 0.5, 1.0, 1.7, 2.9])
def test_the_closed_form_agrees_with_sampling(cost: float) -> None:
    front = [(0.5, 1.2), (1.0, 0.4), (2.0, -0.5), (1.5, 1.9), (2.5, 2.5)]
    draws = 0.2 + 0.7 * ndtri((np.arange(1000) + 0.5) / 1000)
    sampled = np.mean([area([*front, (cost, draw)]) - area(front) for draw in draws.tolist()])
    exact = strips_of(front).gain(np.array([cost]), np.array([0.2]), np.array([0.7]))[0]
    assert exact == pytest.approx(sampled, rel=0.01)


@given(POINTS, st.lists(st.tuples(st.floats(-1.0, 4.0), st.floats(-3.0, 3.0), st.floats(0.0, 2.0)), min_size=1))
def test_no_measurement_makes_the_front_worse(
    front: list[tuple[float, float]], candidates: list[tuple[float, float, float]]
) -> None:
    cost, mean, sd = np.array(candidates).T
    gain = strips_of(front).gain(cost, mean, sd)
    assert (gain >= 0.0).all()
    assert np.isfinite(gain).all()


@given(POINTS, st.floats(-1.0, 4.0), st.floats(-2.0, 3.0))
def test_what_is_certain_gains_exactly_what_it_adds(
    front: list[tuple[float, float]], cost: float, value: float
) -> None:
    gain = strips_of(front).gain(np.array([cost]), np.array([value]), np.zeros(1))[0]
    assert gain == pytest.approx(area([*front, (cost, value)]) - area(front), abs=1e-9)


def test_a_certain_point_that_is_beaten_gains_nothing() -> None:
    gain = strips_of([(1.0, 0.0)]).gain(np.array([1.0, 2.0]), np.array([0.0, 0.5]), np.zeros(2))
    assert gain.tolist() == [0.0, 0.0]
