"""The newest record over time: exact where it was told, carried on from there."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.engines.spark.arrivals import Arrivals


def test_nothing_is_known_before_the_first_point() -> None:
    arrivals = Arrivals()
    assert arrivals.position(5.0) is None
    assert arrivals.rate_per_s == 0.0


def test_between_points_and_after_them() -> None:
    arrivals = Arrivals()
    arrivals.tell(10.0, 1000.0)
    arrivals.tell(0.0, 0.0)
    assert arrivals.position(4.0) == pytest.approx(400.0)
    assert arrivals.position(10.0) == 1000.0
    assert arrivals.position(13.0) == pytest.approx(1300.0)
    assert arrivals.position(-5.0) == 0.0


def test_the_last_points_decide_the_rate() -> None:
    arrivals = Arrivals()
    for second in range(10):
        arrivals.tell(float(second), 100.0 * second)
    for second in range(4):
        arrivals.tell(10.0 + second, 1000.0 + 1000.0 * second)
    assert 800.0 < arrivals.rate_per_s < 1000.0


def test_after_a_trigger_that_found_nothing_it_stays_level() -> None:
    arrivals = Arrivals()
    arrivals.tell(0.0, 0.0)
    arrivals.tell(1.0, 100.0)
    arrivals.tell(3.0, 100.0, idle=True)
    assert arrivals.position(100.0) == 100.0


@given(steps=st.lists(st.tuples(st.floats(0.0, 50.0), st.floats(0.0, 1e6)), min_size=1, max_size=30))
def test_points_that_ascend_make_a_line_that_does(steps: list[tuple[float, float]]) -> None:
    arrivals = Arrivals()
    now_s, position = 0.0, 0.0
    for after_s, records in steps:
        now_s, position = now_s + after_s, position + records
        arrivals.tell(now_s, position)
    line = [arrivals.position(now_s * part / 20) or 0.0 for part in range(31)]
    assert all(later >= earlier - 1e-6 * position for earlier, later in pairwise(line))
