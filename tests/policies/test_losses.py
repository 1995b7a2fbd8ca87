"""Executors that were lost are counted and timed; those that were given back are not."""

from __future__ import annotations

import pytest

from tidewise.core import Configuration, JobStatus
from tidewise.policies.losses import Losses
from tidewise.testing.situations import report, situation_of

DAY_S = 86_400.0
FOUR = Configuration(executors=4)


def losses() -> Losses:
    return Losses(losses_per_day=2.0)


def looked(follower: Losses, executors: list[int], *, meant: int = 4, from_s: float = 0.0) -> float:
    """A look every ten seconds at a job of so many executors; when the last was."""
    for number, count in enumerate(executors):
        history = [report(time_s=from_s + 10.0 * number, window_s=10.0, executors=count)]
        follower.look(situation_of(history, intended=Configuration(executors=meant)))
    return from_s + 10.0 * (len(executors) - 1)


def test_before_any_was_lost_the_usual_is_expected() -> None:
    assert losses().per_s == pytest.approx(2.0 / DAY_S)
    assert losses().replaced_s(12.0) == 12.0


def test_a_loss_is_counted_once_and_timed_until_it_is_replaced() -> None:
    follower = losses()
    looked(follower, [4, 4, 3, 3, 3, 4, 4])
    once = follower.per_s
    assert once > 1.9 * losses().per_s
    assert follower.replaced_s(12.0) == pytest.approx(35.0)  # noticed in the middle of a report
    looked(follower, [4, 3, 4], from_s=70.0)
    assert follower.per_s > 1.4 * once
    assert 15.0 < follower.replaced_s(12.0) < 35.0


def test_executors_that_were_given_back_are_not_lost() -> None:
    follower = losses()
    looked(follower, [4, 4])
    shrinking = situation_of(
        [report(time_s=20.0, window_s=10.0, executors=3)], intended=FOUR, requested=Configuration(executors=2)
    )
    follower.look(shrinking)
    looked(follower, [2, 2, 2], meant=2, from_s=30.0)
    assert follower.per_s <= losses().per_s


def test_a_report_from_before_the_last_change_ended_tells_nothing() -> None:
    follower = losses()
    history = [report(time_s=20.0, window_s=10.0, executors=3)]
    follower.look(situation_of(history, now_s=22.0, intended=FOUR, last_change_finished_at_s=18.0))
    assert follower.per_s == losses().per_s


def test_a_job_that_gathers_its_executors_after_a_failure_has_lost_none() -> None:
    follower = losses()
    down = report(time_s=10.0, window_s=10.0, executors=1, status=JobStatus.DOWN)
    follower.look(situation_of([down], intended=FOUR))
    follower.look(situation_of([down, report(time_s=20.0, window_s=10.0, executors=2)], intended=FOUR))
    assert follower.per_s <= losses().per_s


def test_where_there_is_only_one_an_outage_may_be_its_loss() -> None:
    follower = losses()
    only = Configuration(executors=1)
    for time_s in (10.0, 20.0, 30.0, 40.0):
        down = report(time_s=time_s, window_s=10.0, executors=1, status=JobStatus.DOWN)
        follower.look(situation_of([down], intended=only))
    looked(follower, [1, 1], meant=1, from_s=50.0)
    assert 1.3 * losses().per_s < follower.per_s < 1.6 * losses().per_s
    assert follower.replaced_s(5.0) == pytest.approx(40.0)


def test_silence_is_not_watched() -> None:
    follower = losses()
    looked(follower, [4, 4])
    looked(follower, [4], from_s=30 * DAY_S)
    assert follower.per_s > 0.99 * losses().per_s
