"""Conformance suites: what engines, policies and forecasters have to keep, as tests that anybody's can inherit."""

import pytest

# Before they are imported, so that a failed assertion shows its values in other people's builds as well.
pytest.register_assert_rewrite(
    "tidewise.testing.engine_changes",
    "tidewise.testing.engine_operation",
    "tidewise.testing.engine_reports",
    "tidewise.testing.engine_suite",
    "tidewise.testing.forecasters",
    "tidewise.testing.policies",
)

from tidewise.testing.engines import EngineConformance  # noqa: E402 - after the registration above
from tidewise.testing.forecasters import ForecasterConformance  # noqa: E402 - the same
from tidewise.testing.policies import PolicyConformance  # noqa: E402 - the same

__all__ = ["EngineConformance", "ForecasterConformance", "PolicyConformance"]
