"""The control loop for longer than anybody waits for: thousands of random histories with crashes in them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.control.test_machine import ControlRoom


class LongControlRoom(ControlRoom):
    """The same rules and invariants as in the short test."""


LongControlRoom.TestCase.settings = settings(
    max_examples=1500,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLongControlRoom = pytest.mark.soak(LongControlRoom.TestCase)
