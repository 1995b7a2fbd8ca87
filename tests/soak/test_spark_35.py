"""The agent on the oldest Spark that is supported: what it can do is found by trying, not by the version."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from pathlib import Path

import pytest

from tests.agent import test_driver
from tests.agent.drivers import LONG_S, Driver, driver, end, start
from tidewise.core import PermanentError
from tidewise.engines.spark.audit import audit
from tidewise.engines.spark.progress import parse_progress
from tidewise_agent.lease import Lease

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("spark")]

VERSION = "3.5.9"
_HOME = Path(__file__).parent.parent.parent / ".venv-3.5"
_PROGRAM = str(Path(__file__).with_name("counts_on_a_cluster.py"))
_INSTALL_WITHIN_S = 900.0
_SCALED = {
    # As the controller sets them at the start: a count that Spark keeps, and executors that can be asked to leave.
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": "1000000s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1000000s",
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    "spark.storage.decommission.replicationReattemptInterval": "1s",
}


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter with this Spark, in an environment of its own; installed once."""
    path, ready = _HOME / "bin" / "python", _HOME / f".ready-{VERSION}"
    if not ready.exists():
        venv.create(_HOME, clear=True, with_pip=True)
        # The project's own constraints ask for another Spark.
        environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
        command = [str(path), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"pyspark=={VERSION}"]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_INSTALL_WITHIN_S, check=False
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"Spark {VERSION} could not be installed within {_INSTALL_WITHIN_S:.0f} s")
        if done.returncode != 0:
            pytest.skip(f"Spark {VERSION} could not be installed: {(done.stderr.splitlines() or ['no reason'])[-1]}")
        ready.touch()
    return str(path)


def test_a_program_that_waits_for_one_query(tmp_path: Path, python: str) -> None:
    with driver("one_query.py", tmp_path, python=python) as one:
        hello = one.ear.wait_for("hello")
        assert hello["spark_version"] == VERSION
        its_id = one.wait_to_say("runs").split()[1]
        test_driver.check_a_restart_is_not_noticed(one)
        described = one.ask("describe")
        assert (described["can_drain"], described["can_repartition"]) == (True, False)
        test_driver.check_a_silent_controller_does_not_stop_it(one)
        one.cue("stop")
        assert one.wait_to_say("ended").split() == ["ended", its_id, "False", "True"]
        assert one.ear.wait_for("terminated")["by_program"] is True
        assert Lease(tmp_path / "checkpoint-files" / "_tidewise", application="another").claim() > 1
        test_driver.check_what_cannot_be_moved_runs(one)
        test_driver.check_another_session_is_seen(one, hello["spark_application"])
        one.cue("fail")
        assert one.wait_for_end() == 1
        assert one.ear.wait_for("ending")["failure"] == "RuntimeError: the program's own failure"


def test_a_program_that_waits_for_any_of_two_queries(tmp_path: Path, python: str) -> None:
    with driver("two_queries.py", tmp_path, python=python, commit_interval_s=0.2) as one:
        assert one.wait_to_say("waits") == "waits 2"
        for _ in range(2):
            for name in ("counted", "kept"):
                one.wait_for_commits(name, more=2)
            stopped = one.ask("drain", test_driver.MOVE)["queries"]
            assert not any(query["cut"] for query in stopped.values()), stopped
            one.ask("start", {"commit_interval_s": 0.5})
        one.wait_for_commits("kept", more=2)
        assert not any(line.startswith("one has ended") for line in one.told), "the program noticed a move"
        assert {path.read_text(encoding="utf-8") for path in (tmp_path / "workers").iterdir()} == {"False"}
        test_driver.check_a_fenced_owner_does_not_write(one)


def test_executors_join_and_leave_and_state_that_cannot_be_cut_anew_is_left_alone(tmp_path: Path, python: str) -> None:
    with driver(_PROGRAM, tmp_path, python=python, executors=1, conf=_SCALED, run="first") as one:
        one.wait_for_commits("checkpoint", more=3)
        check_executors_join_and_leave(one)
        check_reports_can_be_read(one)
        check_state_is_left_alone(one)
        assert one.process.poll() is None
    # The same program again, warming up beside nobody: its predecessor was killed.
    with driver(_PROGRAM, tmp_path, python=python, executors=1, conf=_SCALED, standby=True) as successor:
        successor.ear.wait_for("warm", count=3)
        before = successor.commits("checkpoint")[-1]
        successor.ask("stop-warm-up")
        assert successor.commits("checkpoint")[-1] == before, "the warm-up wrote the checkpoint"
        successor.ask("start")
        successor.wait_for_commits("checkpoint", more=3)
    written = [tuple(map(int, line.split())) for line in (tmp_path / "batches").read_text("utf-8").splitlines()]
    # The last batch of the one that was killed may have been written and not committed; it is the same again then.
    assert sorted(set(written)) == [(batch, 10 * (batch + 1)) for batch in range(written[-1][0] + 1)]
    assert len(written) - len(set(written)) <= 1
    found = audit(tmp_path / "checkpoint")
    assert found.clean, found.sentences()


def check_executors_join_and_leave(one: Driver) -> None:
    one.ear.wait_for("executors", lambda told: len(told["ids"]) == 1)
    one.ask("scale", {"executors": 2})
    one.ear.wait_for("executors", lambda told: len(told["ids"]) == 2)
    one.wait_for_commits("checkpoint", more=2)
    assert len(one.ask("scale", {"executors": 1})["leaving"]) == 1
    one.wait_until(lambda: len(one.ask("describe")["executors"]) == 1, "no executor has left")
    one.wait_for_commits("checkpoint", more=2)


def check_reports_can_be_read(one: Driver) -> None:
    worked = one.ear.wait_for("details", lambda told: any(each["completedTasks"] for each in told["executors"]))
    assert all(each["maxMemory"] > 0 and each["totalCores"] == 1 for each in worked["executors"])
    stage = one.ear.wait_for("stages", lambda message: bool(message["stages"]))["stages"][0]
    assert stage["tasks"] >= 1
    assert stage["run_ms"] >= 0
    progress = parse_progress(one.ear.wait_for("progress", count=3)["progress"])
    assert (progress.executed, progress.rows) == (True, 10)
    assert progress.state_rows == 3
    assert progress.state[0].partitions == 2


def check_state_is_left_alone(one: Driver) -> None:
    one.ask("drain", test_driver.MOVE)
    with pytest.raises(PermanentError, match=f"Spark {VERSION} cannot cut state anew"):
        one.ask("repartition", {"partitions": 4})
    one.ask("start")
    one.wait_for_commits("checkpoint", more=2)
    again = json.loads(one.ear.of_kind("progress")[-1]["progress"])
    assert again["stateOperators"][0]["numShufflePartitions"] == 2


@pytest.mark.parametrize("how", ["missing spec", "isolated"])
def test_a_program_without_its_agent_does_what_it_always_does(tmp_path: Path, python: str, how: str) -> None:
    process = start("finite.py", tmp_path, python=python, flags=("-I",) if how == "isolated" else ())
    try:
        said, _ = process.communicate(timeout=LONG_S)
    finally:
        end(process)
    assert said.splitlines() == ["batch 0 [1, 2]", "ended True None"], (tmp_path / "errors").read_text("utf-8")
    assert process.returncode == 0
