"""The cluster's commands as a user meets them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from tests.cli.conftest import Invoke
from tidewise.cli.cluster import cluster_commands
from tidewise.core import BadInputError
from tidewise.engines.spark.cluster import LocalCluster

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def run(invoke: Callable[[typer.Typer], Invoke]) -> Invoke:
    return invoke(cluster_commands)


def test_a_cluster_is_started_shown_and_stopped(run: Invoke) -> None:
    try:
        told = run("up", "--workers", "1", "--slots", "2", "--memory-mib", "1024")
        assert "Master:         spark://127.0.0.1:" in told
        assert "Workers:        1 of 1 alive" in told
        assert "2 of 2 slots, 1,024 of 1,024 MiB" in told
        assert "CPU:            " in told
        assert "tidewise cluster down --folder runs/cluster" in told
        shown = json.loads(run("status", "--json"))
        assert shown["master_url"] in told
        assert shown["ui_url"] in told
        assert (shown["workers_alive"], shown["slots_free"]) == (1, 2)
        assert shown["cpu_is_limited"] is (shown["cpu_reason"] is None)
        with pytest.raises(BadInputError, match=r"runs in .* already"):
            run("up")
        cluster = LocalCluster.find(Path("runs/cluster"))
        assert cluster is not None
        cluster.master_process.kill()
        with pytest.raises(BadInputError, match="does not run any more"):
            run("status")
        assert json.loads(run("down", "--json")) == {"folder": "runs/cluster", "was_running": False}
        assert not any(process.is_alive() for process in cluster.worker_processes)
    finally:
        left = LocalCluster.find(Path("runs/cluster"))
        if left is not None:
            left.down()


@pytest.mark.parametrize("command", ["down", "status"])
def test_where_there_is_none_a_sentence_says_so(run: Invoke, command: str) -> None:
    with pytest.raises(BadInputError, match="there is no cluster in runs/x: start one"):
        run(command, "--folder", "runs/x")


def test_help_teaches_by_example(run: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tidewise"])
    for command in ("up", "down", "status"):
        assert f"tidewise cluster {command}" in run(command, "--help")
