"""The fixed cost of batches, found again where it is known."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.engines.spark.batch_cost import BatchCost


def test_the_fixed_cost_is_found_among_slow_batches() -> None:
    chance = random.Random(3)  # noqa: S311 - a repeatable test, no secret
    cost = BatchCost()
    for number in range(60):
        rows = chance.uniform(500, 1500)
        slow = 4.0 if number % 10 == 0 else chance.uniform(0.97, 1.03)
        cost.learn(rows, (0.4 + rows / 1000) * slow)
    assert cost.fixed_s(outside_s=0.05) == pytest.approx(0.4, rel=0.15)


def test_batches_of_one_size_tell_nothing() -> None:
    cost = BatchCost()
    for rows in (1000, 1010, 990, 1005, 1100, 1000):
        cost.learn(rows, rows / 1000)
    assert cost.fixed_s(outside_s=0.2) == 0.2


def test_batches_that_get_no_slower_with_their_rows_are_nearly_all_fixed_cost() -> None:
    cost = BatchCost()
    for rows in (1000, 2000, 3000, 4000, 5000, 6000):
        cost.learn(rows, 2.0 - rows / 100_000)
    assert cost.fixed_s(outside_s=0.2) == pytest.approx(0.95 * 1.94)
    assert cost.work_s(3000, 2.0, outside_s=0.2) == pytest.approx(0.1)


def test_one_large_batch_after_a_slow_one_tells_nothing() -> None:
    cost = BatchCost()
    for rows in (1000, 1010, 990, 3000, 1005, 1100, 1000, 1020):
        cost.learn(rows, rows / 1000)
    assert cost.fixed_s(outside_s=0.2) == 0.2


def test_a_job_that_warms_up_does_not_seem_to_work_on_its_rows() -> None:
    cost = BatchCost()
    # At first there is something to catch up with, and nothing is compiled: large batches are slow.
    for number in range(20):
        cost.learn(4500 - 120 * number, 3.0 - 0.08 * number, is_warm=False)
    assert cost.fixed_s(outside_s=0.3) == 0.3
    assert cost.usual_duration_s > 2.0
    for number in range(30):
        cost.learn(2100 + 100 * number, 1.0 + 0.02 * number)
    assert cost.fixed_s(outside_s=0.3) == pytest.approx(0.58, rel=0.1)


def test_a_cost_of_nothing_is_a_cost() -> None:
    cost = BatchCost()
    for rows in (1000, 2000, 3000, 4000, 5000, 6000):
        cost.learn(rows, rows / 1000)
    assert cost.fixed_s(outside_s=0.2) == pytest.approx(0.0, abs=1e-9)


def test_what_was_found_outlives_the_batches_but_not_the_shortest_new_one() -> None:
    cost = BatchCost()
    for rows in (1000, 2000, 3000, 4000, 5000, 6000):
        cost.learn(rows, 0.5 + rows / 1000)
    cost.forget_rows()
    cost.learn(1000, 0.4)
    assert cost.fixed_s(outside_s=0.1) == pytest.approx(0.38)
    assert cost.usual_duration_s == 0.4


def test_more_executors_share_the_rows() -> None:
    cost = BatchCost()
    for executors in (4, 4, 4, 2, 2, 2, 1, 1, 1):
        cost.learn(1000, 0.5 + 1.0 / executors, executors=executors)
        cost.forget_durations()
    cost.learn(2000, 1.0, executors=4)
    assert cost.work_s(2000, 1.0, executors=4, outside_s=0.1) == pytest.approx(0.5)
    assert cost.usual_duration_s == 1.0


def test_a_batch_that_took_longer_was_slower_in_all_that_it_did() -> None:
    cost = BatchCost()
    for rows in (1000, 2000, 3000, 4000, 5000, 6000):
        cost.learn(rows, 1.0 + rows / 1000)
    assert cost.work_s(3000, 4.0, outside_s=0.1) == pytest.approx(3.0)
    assert cost.work_s(3000, 8.0, outside_s=0.1) == pytest.approx(6.0)
    assert cost.work_s(0, 8.0, outside_s=0.1) == 0.0


@given(
    batches=st.lists(st.tuples(st.integers(0, 10**9), st.floats(0.0, 1e5)), max_size=40),
    outside_s=st.floats(0.0, 1e5),
)
def test_no_batch_is_all_fixed_cost(batches: list[tuple[int, float]], outside_s: float) -> None:
    cost = BatchCost()
    for rows, duration_s in batches:
        cost.learn(rows, duration_s)
    for rows, duration_s in batches:
        assert 0.0 <= cost.work_s(rows, duration_s, outside_s=min(outside_s, duration_s)) <= duration_s
    kept = [duration_s for rows, duration_s in batches if rows > 0 and duration_s > 0.0][-30:]
    assert 0.0 <= cost.fixed_s(outside_s=outside_s) <= 0.95 * min(kept, default=0.0)
