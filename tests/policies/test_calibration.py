"""Margins widen when expectations were too narrow, and come back when they are right again."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tidewise.policies.calibration import Calibration


def checked(spread: float, *, count: int = 400, claimed: float = 0.1, calibration: Calibration | None = None) -> float:
    """The widening after latencies that scatter so much around what was expected of them."""
    calibration = calibration or Calibration()
    for off in np.random.default_rng(5).normal(0.0, spread, count):
        calibration.check(actual_s=2.0 * math.exp(off), expected_s=2.0, log_sd=claimed)
    return calibration.widening


def test_expectations_that_are_as_good_as_they_claim_leave_the_margins_as_they_are() -> None:
    assert Calibration().widening == 1.0
    assert checked(0.1) == pytest.approx(1.0, abs=0.1)
    assert checked(0.02) == 1.0


@pytest.mark.parametrize("factor", [1.5, 2.0])
def test_what_is_wrong_by_a_factor_widens_them_by_it(factor: float) -> None:
    assert checked(0.1 * factor) == pytest.approx(factor, rel=0.15)


def test_a_few_surprises_are_not_believed_and_no_number_of_them_widens_without_end() -> None:
    assert checked(0.3, count=3) < 1.5
    assert checked(50.0) == 3.0


def test_they_come_back() -> None:
    calibration = Calibration()
    assert checked(0.3, calibration=calibration) > 2.0
    assert checked(0.05, count=1500, calibration=calibration) == pytest.approx(1.0, abs=0.05)


def test_what_comes_below_its_expectation_is_no_reason_for_wider_margins() -> None:
    calibration = Calibration()
    for _ in range(200):
        calibration.check(actual_s=0.5, expected_s=2.0, log_sd=0.1)
    assert calibration.widening == 1.0
