"""`tidewise advise job.toml` on real Spark: the job runs as it was started, whatever the policy wants."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidewise.experiments.record import load_run
from tidewise.host.processes import find

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.soak]  # a whole life of a real job, about a minute

JOB = f"""\
name = "copy"
command = [{json.dumps(sys.executable)}, "-m", "tidewise.jobs.copy"]
arguments = [
  "--schedule", "schedule.json", "--checkpoint", "cp", "--sink", "files", "--out", "out", "--trigger", "1 second",
]

[cluster]
workers = 1
memory = "3GiB"

[space]
executors = "1..2"
memory_per_executor = "1GiB"
commit_interval = "1s"

[start]
executors = 1

[promises]
latency_p95 = "30s"

[prices]
currency = "EUR"

[control]
report_every = "1s"
decide_every = "2s"

[policy]
policy = "static"
executors = 2
"""


def tidewise(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidewise.cli", *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def test_a_job_is_advised_on_and_never_changed(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB, encoding="utf-8")
    schedule = {"began_unix_s": time.time(), "step_s": 1.0, "rates_per_s": [500.0], "after": "hold"}
    (tmp_path / "schedule.json").write_text(json.dumps(schedule), encoding="utf-8")
    done = tidewise("advise", "job.toml", "--for", "15s", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    # Told while it runs, and once.
    assert done.stderr.count("It would change executors 1 → 2, live.") == 1
    assert "It would have changed the job once: executors 1 → 2" in done.stdout
    assert "EUR an hour more" in done.stdout
    run = load_run(tmp_path / "runs" / "copy-advice" / "copy-static-1")
    assert run.record.changes == ()
    assert set(run.read_series().executors.tolist()) == {1}
    told = tidewise("explain", run.folder, "--at", "10s", folder=tmp_path)
    assert "The guard advice-only stopped it" in told.stdout
    assert not find(lambda argv: any(str(tmp_path) in word for word in argv))
