"""What a recovery that would take too long costs where the job can be moved once more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.search.rescue import Rescue, too_long

loads = st.floats(0.05, 0.99)
waits = st.floats(1.0, 300.0)
RESCUE = Rescue(stops_s=54.0, shows_s=15.0, held_s=120.0)


def in_vain(rescue: Rescue, load: float, there: float, *, limit_s: float) -> float:
    return float(rescue.in_vain(np.array(load), np.array(there), limit_s=limit_s))


def least(log_rate: float, capacity: list[float], cost: list[float], *, broken: float, change: float) -> list[float]:
    found = RESCUE.least_cost(
        np.array([log_rate]),
        np.log(capacity),
        np.array(cost),
        limit_s=160.0,
        broken_cost=broken,
        change_cost=change,
    )
    assert found.shape == (len(capacity), 1)
    return [float(one) for one in found[:, 0]]


@given(load=loads, there=loads, stops_s=waits, limit_s=waits, more_s=st.floats(0.0, 100.0))
def test_a_change_that_takes_longer_is_in_vain_more_often(
    load: float, there: float, stops_s: float, limit_s: float, more_s: float
) -> None:
    quick = Rescue(stops_s=stops_s, shows_s=15.0, held_s=60.0)
    slow = Rescue(stops_s=stops_s + more_s, shows_s=15.0, held_s=60.0)
    assert in_vain(quick, load, there, limit_s=limit_s) <= in_vain(slow, load, there, limit_s=limit_s)


@given(load=loads, there=loads, less=st.floats(0.1, 1.0))
def test_what_catches_up_faster_is_in_vain_less_often(load: float, there: float, less: float) -> None:
    assert in_vain(RESCUE, load, less * there, limit_s=160.0) <= in_vain(RESCUE, load, there, limit_s=160.0)


def test_an_idle_job_was_down_for_nearly_all_of_the_time_and_a_full_one_catches_up() -> None:
    assert in_vain(RESCUE, 0.3, 0.06, limit_s=160.0) == pytest.approx(1.0)
    assert in_vain(RESCUE, 0.9, 0.06, limit_s=160.0) < 0.1


@given(
    log_rate=st.floats(2.0, 8.0),
    rows=st.lists(st.tuples(st.floats(10.0, 1e5), st.floats(0.01, 10.0)), min_size=1, max_size=6),
    broken=st.floats(0.0, 1e4),
    change=st.floats(0.0, 1e4),
)
def test_nobody_pays_more_than_for_the_promise_that_is_broken(
    log_rate: float, rows: list[tuple[float, float]], broken: float, change: float
) -> None:
    capacity, cost = [one for one, _ in rows], [one for _, one in rows]
    assert all(0.0 <= one <= broken for one in least(log_rate, capacity, cost, broken=broken, change=change))


def test_with_nothing_larger_to_move_to_the_promise_is_broken() -> None:
    assert least(np.log(90.0), [100.0], [1.0], broken=5000.0, change=1.0) == [5000.0]


def test_a_full_job_is_rescued_by_the_cheapest_that_is_large_enough() -> None:
    full, _, _ = least(np.log(90.0), [100.0, 2000.0, 2000.0], [1.0, 9.0, 4.0], broken=5000.0, change=10.0)
    alone, _ = least(np.log(90.0), [100.0, 2000.0], [1.0, 4.0], broken=5000.0, change=10.0)
    assert full == alone < 0.2 * 5000.0


@given(takes_s=waits, left_s=waits, more_s=st.floats(0.0, 100.0))
def test_the_more_time_is_left_the_less_is_too_long(takes_s: float, left_s: float, more_s: float) -> None:
    assert too_long(np.array(takes_s), left_s + more_s) <= too_long(np.array(takes_s), left_s)
    assert too_long(np.array(takes_s), takes_s) == pytest.approx(0.5)
