"""The forecaster suite finds every broken forecaster; that it passes right ones is shown in tests/forecast."""

from __future__ import annotations

from tidewise.testing import ForecasterConformance

from .inner_run import assert_each_mutant_is_found, assert_each_test_can_fail, run_mutants


def test_every_broken_forecaster_is_found() -> None:
    outcomes = run_mutants("forecaster_mutants")
    assert_each_mutant_is_found(outcomes)
    assert_each_test_can_fail(outcomes, ForecasterConformance)
