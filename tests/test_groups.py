"""What shares a Spark or a broker is run by one worker: spread over all of them, it would be started in each."""

from __future__ import annotations

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one process")
@pytest.mark.xdist_group("jobs")
def test_a_group_is_known_to_those_who_share_the_work_out(request: pytest.FixtureRequest) -> None:
    assert request.node.nodeid.endswith("@jobs"), "this pytest and pytest-xdist do not go together: see pyproject.toml"
