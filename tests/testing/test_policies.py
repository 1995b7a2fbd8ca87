"""The policy suite finds every broken policy; that it passes right ones is shown in tests/policies."""

from __future__ import annotations

from tidewise.testing import PolicyConformance

from .inner_run import assert_each_mutant_is_found, assert_each_test_can_fail, run_mutants


def test_every_broken_policy_is_found() -> None:
    outcomes = run_mutants("policy_mutants")
    assert_each_mutant_is_found(outcomes)
    assert_each_test_can_fail(outcomes, PolicyConformance)
