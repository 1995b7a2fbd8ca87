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


def test_since_when_there_is_more() -> None:
    arrivals = Arrivals()
    for at_s, position in ((0.0, 100.0), (10.0, 200.0), (20.0, 200.0), (30.0, 500.0)):
        arrivals.tell(at_s, position)
    assert arrivals.passed_s(150.0) == (5.0, True)
    assert arrivals.passed_s(200.0) == (20.0, True), "nothing came between 10 and 20"
    assert arrivals.passed_s(350.0) == (25.0, True)
    assert arrivals.passed_s(99.0) == (0.0, False), "it was there before anything was told"
    assert arrivals.passed_s(500.0) is None


_STEPS = st.lists(st.tuples(st.floats(0.1, 50.0), st.integers(0, 10**6), st.floats(0.0, 1.0)), min_size=1, max_size=300)


@given(steps=_STEPS)
def test_however_long_the_backlog_its_age_is_known_and_little_is_kept(steps: list[tuple[float, int, float]]) -> None:
    arrivals = Arrivals()
    now_s, position, committed = 0.0, 0, 0.0
    arrivals.tell(now_s, position)
    told = [(now_s, position)]
    for after_s, records, share in steps:
        now_s, position = now_s + after_s, position + records
        committed += share * (position - committed) * 0.5
        arrivals.tell(now_s, position)
        arrivals.forget_before(committed)
        told.append((now_s, position))
        assert len(arrivals._points) <= 64
    passed = arrivals.passed_s(committed)
    if passed is None:
        assert committed >= position
        return
    since_s, is_known = passed
    assert is_known
    # Not before the last moment at which there was no more, up to what thinning makes of moments long past.
    least_s = max(at_s for at_s, there in told if there <= committed)
    most_s = min(at_s for at_s, there in told if there > committed)
    if len(told) <= 64:
        assert least_s <= since_s + 1e-6
        assert since_s <= most_s + 1e-6
    assert 0.0 <= since_s <= now_s
