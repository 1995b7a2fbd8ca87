"""Downtimes told from broken copies and from reports."""

from __future__ import annotations

import pytest

from tidewise.core import Censored, JobStatus, Measured
from tidewise.policies.downtime import BrokenCopy, SeenDown, downtime_s
from tidewise.testing.situations import report


def copy(took_s: Measured, *, rate: float = 500.0) -> BrokenCopy:
    return BrokenCopy(took_s=took_s, rate_per_s=rate, capacity_per_s=1000.0, commit_interval_s=10.0)


def test_the_catching_up_is_taken_off() -> None:
    # D + 500 x (10 + D) / 500 = 2 D + 10
    assert copy(110.0).downtime_s() == pytest.approx(50.0)


def test_a_failure_that_was_not_felt_has_no_downtime() -> None:
    assert copy(0.0).downtime_s() == 0.0


def test_a_copy_that_could_never_catch_up_tells_nothing() -> None:
    assert copy(Censored(at_least=360.0), rate=1000.0).downtime_s() is None


def test_the_usual_downtime_is_the_median() -> None:
    assert downtime_s([copy(110.0), copy(90.0), copy(910.0)], None) == pytest.approx(50.0)
    assert downtime_s([], None) is None


def test_copies_that_did_not_recover_are_lower_bounds_only() -> None:
    low, high = copy(Censored(at_least=30.0)), copy(Censored(at_least=310.0))
    assert downtime_s([copy(110.0), low], None) == pytest.approx(50.0)
    # At least 150 s beside 50 s: half-way.
    assert downtime_s([copy(110.0), high], None) == pytest.approx(100.0)
    assert downtime_s([high], None) == pytest.approx(150.0)


def test_what_reports_show_is_a_lower_bound_too() -> None:
    assert downtime_s([copy(110.0)], 30.0) == pytest.approx(50.0)
    assert downtime_s([copy(110.0)], 70.0) == pytest.approx(70.0)
    assert downtime_s([], 30.0) == 30.0


def test_reports_in_a_row_are_one_downtime() -> None:
    seen = SeenDown()
    states = "RRDDRRDRCR"
    for number, state in enumerate(states):
        status = {"R": JobStatus.RUNNING, "D": JobStatus.DOWN, "C": JobStatus.CHANGING}[state]
        seen.learn(report(time_s=15.0 * (number + 1), window_s=15.0, status=status))
    assert seen.usual_s == pytest.approx(22.5)  # the median of 30 and 15


def test_a_downtime_that_is_on_is_not_counted_yet() -> None:
    seen = SeenDown()
    seen.learn(report(time_s=15.0, window_s=15.0, status=JobStatus.DOWN))
    assert seen.usual_s is None
