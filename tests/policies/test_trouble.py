"""Failures are counted, timed and remembered from reports alone."""

from __future__ import annotations

import math

import pytest

from tidewise.core import Configuration, JobStatus, Observation
from tidewise.policies.trouble import Trouble
from tidewise.testing.situations import report

DAY_S = 86_400.0


def trouble() -> Trouble:
    return Trouble(usual_down_s=25.0, failures_per_day=2.0)


def seen(time_s: float, status: JobStatus = JobStatus.RUNNING, *, executors: int = 4) -> Observation:
    return report(time_s=time_s, window_s=10.0, status=status, executors=executors)


def failed(follower: Trouble, *, at_s: float, windows: int) -> None:
    """Down for so many reports, and up again."""
    for window in range(windows):
        follower.learn(seen(at_s + 10.0 * window, JobStatus.DOWN))
    follower.learn(seen(at_s + 10.0 * windows))


def test_before_anything_failed_the_usual_is_expected() -> None:
    assert trouble().failures_per_s == pytest.approx(2.0 / DAY_S)
    assert trouble().works_s(0.0) == math.inf


def test_quiet_days_make_failures_less_likely_and_each_failure_more() -> None:
    quiet, unlucky = trouble(), trouble()
    for window in range(1, 8641):
        quiet.learn(seen(10.0 * window))
    assert quiet.failures_per_s < 0.4 * trouble().failures_per_s
    failed(unlucky, at_s=10.0, windows=3)
    one = unlucky.failures_per_s
    assert one > 1.5 * trouble().failures_per_s
    failed(unlucky, at_s=100.0, windows=3)
    assert unlucky.failures_per_s > one


def test_a_failure_counts_once_however_long_it_lasts() -> None:
    short, long = trouble(), trouble()
    failed(short, at_s=10.0, windows=1)
    failed(long, at_s=10.0, windows=6)
    assert long.failures_per_s == pytest.approx(short.failures_per_s, rel=0.01)


def test_a_failure_that_was_over_before_it_showed_counts_and_tells_nothing_of_downtimes() -> None:
    short, unseen = trouble(), trouble()
    failed(short, at_s=10.0, windows=1)
    for time_s in (10.0, 20.0):
        unseen.learn(seen(time_s))
    unseen.felt(10.0)
    assert unseen.failures_per_s == pytest.approx(short.failures_per_s)
    assert unseen.failed_s(30.0) == 20.0
    assert unseen.works_s(30.0) == 20.0
    down = seen(40.0, JobStatus.DOWN)
    assert unseen.down_left_s(down) == trouble().down_left_s(down)


def test_what_is_left_of_a_failure_shrinks_but_never_to_nothing() -> None:
    follower = trouble()
    left = []
    for window in range(10):
        latest = seen(100.0 + 10.0 * window, JobStatus.DOWN)
        follower.learn(latest)
        left.append(follower.down_left_s(latest))
    # It began half a window before the first report of it.
    assert left[:2] == pytest.approx([20.0, 10.0])
    assert left[-1] == pytest.approx(0.25 * 25.0)
    assert left == sorted(left, reverse=True)


def test_long_failures_teach_to_expect_long_ones() -> None:
    follower = trouble()
    for failure in range(8):
        failed(follower, at_s=1000.0 * (failure + 1), windows=12)
    latest = seen(20_000.0, JobStatus.DOWN)
    follower.learn(latest)
    assert follower.down_left_s(latest) == pytest.approx(115.0, abs=10.0)


def test_a_job_works_since_it_was_last_down() -> None:
    follower = trouble()
    follower.learn(seen(100.0))
    assert follower.works_s(100.0) == math.inf
    follower.learn(seen(110.0, JobStatus.DOWN))
    assert follower.works_s(110.0) == 0.0
    follower.learn(seen(120.0))
    assert follower.works_s(120.0) == pytest.approx(5.0)
    assert follower.works_s(180.0) == pytest.approx(65.0)


def test_the_most_executors_are_those_since_then() -> None:
    follower = trouble()
    for time_s, executors in ((10.0, 9), (20.0, 4), (30.0, 7), (40.0, 5)):
        follower.learn(seen(time_s, executors=executors))
    assert follower.most_executors_since(15.0, Configuration(executors=4)) == 7
    assert follower.most_executors_since(0.0, Configuration(executors=4)) == 9
    assert follower.most_executors_since(15.0, Configuration(executors=12)) == 12
    follower.learn(seen(5000.0))
    assert follower.most_executors_since(0.0, Configuration(executors=2)) == 4


def test_how_long_ago_it_failed_is_forgotten_after_a_quarter_of_an_hour() -> None:
    follower = trouble()
    assert follower.failed_s(100.0) is None
    failed(follower, at_s=100.0, windows=3)
    assert follower.failed_s(200.0) == pytest.approx(105.0)
    assert follower.failed_s(1100.0) is None


def test_a_failure_that_was_felt_just_before_the_job_was_seen_to_be_down_counts_once() -> None:
    once, twice = trouble(), trouble()
    for follower, felt_at_s in ((once, 10.0), (twice, 10.0)):
        follower.learn(seen(10.0))
        follower.felt(felt_at_s)
    failed(once, at_s=20.0, windows=3)
    failed(twice, at_s=120.0, windows=3)
    assert once.failures_per_s < 0.8 * twice.failures_per_s
    assert once.failed_s(60.0) == twice.failed_s(160.0)
