"""What the controller writes for an agent is what the agent reads, and nobody else can."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise_agent.spec import AgentSpec

SPECS = st.builds(
    AgentSpec,
    application=st.text(min_size=1),
    host=st.just("127.0.0.1"),
    port=st.integers(min_value=1, max_value=65535),
    token=st.text(min_size=1),
    state_folder=st.text(min_size=1),
    identity_file=st.text(min_size=1),
    standby=st.booleans(),
    commit_interval_s=st.none() | st.floats(min_value=0.0, max_value=1e6),
    conf=st.dictionaries(st.text(), st.text(), max_size=4),
    executors=st.none() | st.integers(min_value=1, max_value=100),
    gone=st.lists(st.text(), max_size=3).map(tuple),
    replayable_sources=st.lists(st.text(), max_size=3).map(tuple),
    copy=st.none() | st.text(min_size=1),
    ends_unix_s=st.none() | st.floats(min_value=0.0, max_value=1e12),
)


@given(spec=SPECS)
def test_it_comes_back_as_it_was(spec: AgentSpec, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "agent.json"
    spec.write(path)
    assert AgentSpec.read(path) == spec


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    spec = AgentSpec(application="a", host="h", port=1, token="secret", state_folder="s", identity_file="i")  # noqa: S106 -- made up
    before = os.umask(0)
    try:
        spec.write(tmp_path / "agent.json")
        assert (tmp_path / "agent.json").stat().st_mode & 0o777 == 0o600
        spec.write(tmp_path / "agent.json")  # in place of another
        assert (tmp_path / "agent.json").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
    assert [path.name for path in tmp_path.iterdir()] == ["agent.json"]
