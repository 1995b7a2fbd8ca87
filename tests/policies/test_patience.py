"""What was added is kept for a while, and longer after it was missed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tidewise.core import Configuration, JobStatus, Observation
from tidewise.policies.patience import Patience
from tidewise.testing.situations import report


def reports(counts: Sequence[int], *, first_s: float = 10.0) -> list[Observation]:
    return [
        replace(report(time_s=first_s + 10.0 * place, window_s=10.0), configuration=Configuration(executors=count))
        for place, count in enumerate(counts)
    ]


def patience(history: Sequence[Observation]) -> Patience:
    follower = Patience(settle_s=60.0)
    for observation in history:
        follower.learn(observation)
    return follower


def test_what_was_added_is_kept_for_two_minutes() -> None:
    follower = patience(reports([2, 2, 4]))
    assert follower.left_s(30.0, 1.0) == 120.0
    assert follower.left_s(100.0, 1.0) == 50.0
    assert follower.left_s(150.0, 1.0) == 0.0
    assert patience(reports([4, 4, 2])).left_s(30.0, 1.0) == 0.0


def test_what_is_missed_soon_after_it_was_given_back_is_kept_twice_as_long_the_next_time() -> None:
    once = patience(reports([4, 2, 4]))
    twice = patience(reports([4, 2, 4, 2, 4]))
    assert once.left_s(30.0, 1.0) == pytest.approx(240.0, rel=0.01)
    assert twice.left_s(50.0, 1.0) == pytest.approx(480.0, rel=0.01)
    assert patience(reports([4, 2] * 50)).left_s(990.0, 1.0) <= 1800.0


def test_after_quiet_hours_it_is_as_short_as_ever() -> None:
    follower = patience(reports([4, 2, 4, 2, 4]))
    for observation in reports([4] * 1500 + [5], first_s=60.0):
        follower.learn(observation)
    assert follower.left_s(60.0 + 15_000.0, 1.0) == pytest.approx(120.0, rel=0.01)


def test_what_joins_after_a_failure_may_leave_at_once() -> None:
    history = reports([2, 2, 4])
    history[1] = replace(history[1], status=JobStatus.DOWN)
    assert patience(history).left_s(30.0, 1.0) == 0.0


def test_what_a_failure_needed_beyond_what_was_added_is_given_back_and_not_missed() -> None:
    history = reports([2, 2, 4, 4, 9, 9])
    history[3] = replace(history[3], status=JobStatus.DOWN)
    follower = patience(history)
    assert follower.left_s(60.0, 4.0) == 0.0
    assert follower.left_s(60.0, 3.0) == 90.0
    for observation in reports([4, 5], first_s=200.0):
        follower.learn(observation)
    assert follower.left_s(210.0, 4.0) == 120.0


def test_what_joins_after_a_failure_that_no_report_saw_is_neither_kept_nor_missed() -> None:
    follower = patience(reports([4, 4, 2]))
    follower.felt(30.0)
    for observation in reports([9, 9], first_s=40.0):
        follower.learn(observation)
    assert follower.left_s(50.0, 2.0) == 0.0
    for observation in reports([4, 6], first_s=400.0):
        follower.learn(observation)
    assert follower.left_s(410.0, 1.0) == pytest.approx(120.0)
