"""A tiny plan on real Spark from end to end: two policies, a failure in each run; stopped or killed, it goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.experiments.spark_plans import write_spark_plan
from tidewise.experiments import compare, find_runs, load_run
from tidewise.experiments.measures import summarise
from tidewise.host.processes import find

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("spark")]

_DEADLINE_S = 1200.0


def _command(folder: Path) -> list[str]:
    plan = write_spark_plan(folder)
    return [sys.executable, "-m", "tidewise.cli", "experiment", str(plan), "--out", str(folder / "runs")]


def _nothing_is_left(folder: Path) -> None:
    # What serves a JVM notices by itself that this has ended, and may take a moment.
    give_up_s = time.monotonic() + 30.0
    while (left := find(lambda argv: any(str(folder) in word for word in argv))) and time.monotonic() < give_up_s:
        time.sleep(0.2)
    assert left == ()


def test_two_policies_on_real_spark_with_a_failure_each(tmp_path: Path) -> None:
    done = subprocess.run(_command(tmp_path), capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "Run 2 of 2: waves-reactive-1." in done.stderr
    runs = find_runs([tmp_path / "runs"])
    assert {run.record.name for run in runs} == {"waves-static-1", "waves-reactive-1"}
    for run in runs:
        assert (run.record.engine, run.record.profile, run.record.duration_s) == ("spark", None, 75.0)
        assert [fault.kind for fault in run.record.faults] == ["kill-executor"]
        assert run.record.audits
        assert all(audit.clean for audit in run.record.audits)
        assert summarise(run.record, run.read_series(), None).all_in.cost > 0.0
    assert [aggregate.policy for aggregate in compare(runs)] == ["static", "reactive"]
    assert (tmp_path / "runs" / "tiny" / "report.html").stat().st_size > 1_000_000
    _nothing_is_left(tmp_path)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_plan_that_is_stopped_or_killed_goes_on(tmp_path: Path, how: signal.Signals) -> None:
    command, home = _command(tmp_path), tmp_path / "runs" / "tiny"
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        # The first line of the run itself, after those of its set-up.
        seen = next((line for line in process.stderr if line.startswith("00:00")), None)
        assert seen is not None
        time.sleep(15.0)
        os.kill(process.pid, how)
        _, rest = process.communicate(timeout=_DEADLINE_S)
    if how is signal.SIGINT:
        assert process.returncode == 130, rest
        assert "0 of 2 runs are complete" in rest
        cut = load_run(home / "waves-static-1")
        assert not cut.record.complete
        assert cut.record.duration_s == 75.0
        _nothing_is_left(tmp_path)
    else:
        assert (home / "waves-static-1.partial").is_dir()
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert [run.record.complete for run in find_runs([home])] == [True, True]
    _nothing_is_left(tmp_path)
