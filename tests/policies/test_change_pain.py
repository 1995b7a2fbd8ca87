"""What a change brings in late seconds is counted from the reports after it, and from those of changes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tidewise.core import Configuration, JobStatus, Observation, Promises
from tidewise.policies.change_pain import ChangePain
from tidewise.testing.situations import report

PROMISES = Promises(latency_p95_s=5.0, good_share=0.9)


def reports(windows: Sequence[tuple[int, bool]], *, first_s: float = 10.0) -> list[Observation]:
    """Executors, and whether the promise was broken, every ten seconds."""
    return [
        replace(
            report(time_s=first_s + 10.0 * place, window_s=10.0, latency_s=4.0 if late else 0.5),
            configuration=Configuration(executors=count),
        )
        for place, (count, late) in enumerate(windows)
    ]


def pain(*histories: Sequence[Observation]) -> float:
    follower = ChangePain()
    for observation in (each for history in histories for each in history):
        follower.learn(observation)
    return follower.late_s(PROMISES)


CALM, AFTER = [(4, False)] * 3, [(2, True), (2, True), (2, False)]


def test_late_seconds_after_a_change_are_its_own() -> None:
    assert pain(reports(CALM)) == 0.0
    assert pain(reports([*CALM, *AFTER])) == pytest.approx(0.3 * 20.0)
    assert pain(reports([*CALM, (2, False), (2, False), (2, False)])) == 0.0


def test_a_change_is_watched_for_half_a_minute() -> None:
    follower, told = ChangePain(), []
    for observation in reports([*CALM, *[(2, False)] * 4]):
        follower.learn(observation)
        told.append(follower.is_watching)
    assert told == [False, False, False, True, True, False, False]


def test_the_last_few_changes_count_most() -> None:
    once = reports([*CALM, *AFTER])
    again = reports([*[(2, False)] * 3, (4, True), (4, True), (4, False)], first_s=100.0)
    assert pain(once, again) == pytest.approx(0.7 * 6.0 + 6.0)


def test_what_was_late_before_or_failed_after_is_not_the_changes_doing() -> None:
    assert pain(reports([(4, True), *AFTER])) == 0.0
    broken = reports([*CALM, *AFTER])
    broken[4] = replace(broken[4], status=JobStatus.DOWN)
    assert pain(broken) == 0.0


def test_what_is_late_because_of_a_failure_that_no_report_saw_is_not_of_the_change_that_followed_it() -> None:
    follower = ChangePain()
    for observation in reports([*CALM, (9, True)]):
        follower.learn(observation)
    follower.felt()
    assert not follower.is_watching
    for observation in reports([(9, True)] * 4, first_s=50.0):
        follower.learn(observation)
    assert follower.late_s(PROMISES) == 0.0
