"""A test run inside a test: what a conformance suite says of mutants that it has to find."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass
class Outcomes:
    """Which tests of which class passed and failed; a pytest plug-in."""

    all_tests: bool
    """Whether to run the whole suite on each mutant, or only the test that has to notice."""
    passed: dict[str, set[str]] = field(default_factory=dict)
    failed: dict[str, set[str]] = field(default_factory=dict)
    breaks: dict[str, str] = field(default_factory=dict)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if isinstance(item, pytest.Function) and item.cls is not None:
                self.breaks[item.cls.__name__] = item.cls.breaks
        if not self.all_tests:
            items[:] = [item for item in items if item.name.partition("[")[0] == item.cls.breaks]  # type: ignore[attr-defined]  # all are methods

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        _, owner, test = report.nodeid.split("::")
        if report.failed or report.when == "call":
            outcomes = self.failed if report.failed else self.passed
            outcomes.setdefault(owner, set()).add(test.partition("[")[0])


def run_mutants(module: str, *, all_tests: bool = False) -> Outcomes:
    """Run the classes of a module of mutants that lies beside this file."""
    outcomes = Outcomes(all_tests=all_tests)
    path = Path(__file__).parent / f"{module}.py"
    pytest.main(
        [str(path), "-q", "--no-header", "--tb=no", "--no-summary", "-p", "no:cacheprovider"], plugins=[outcomes]
    )
    return outcomes


def assert_each_mutant_is_found(outcomes: Outcomes) -> None:
    assert outcomes.breaks, "no mutant was run"
    survivors = {
        owner: broken for owner, broken in outcomes.breaks.items() if broken not in outcomes.failed.get(owner, set())
    }
    assert not survivors, f"the suite did not notice: {survivors}"


def assert_each_test_can_fail(outcomes: Outcomes, suite: type) -> None:
    tests = {name for name in dir(suite) if name.startswith("test_")}
    unproven = tests - set(outcomes.breaks.values())
    assert not unproven, f"no mutant shows that these can fail: {unproven}"
