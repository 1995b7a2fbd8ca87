"""The engine suite passes a right engine and finds every broken one."""

from __future__ import annotations

from tidewise.core import Configuration, Engine
from tidewise.testing import EngineConformance

from .fake_engine import FakeEngine
from .inner_run import assert_each_mutant_is_found, assert_each_test_can_fail, run_mutants


class TestFakeEngine(EngineConformance):
    report_wait_s = 30.0
    change_deadline_s = 60.0
    recovery_deadline_s = 90.0
    profile_deadline_s = 60.0

    def make_engine(self) -> Engine:
        return FakeEngine()

    def start_configuration(self) -> Configuration:
        return Configuration(executors=3)


def test_every_broken_engine_is_found() -> None:
    # All of them: what is lost in a failure shows only after one.
    outcomes = run_mutants("engine_mutants", all_tests=True)
    assert_each_mutant_is_found(outcomes)
    assert_each_test_can_fail(outcomes, EngineConformance)
