"""`tidewise run` and its companions: refusals in a sentence, and one whole life of a real job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Tidewise
from tests.experiments.jobs import GOOD, write_job
from tidewise.experiments.record import load_run
from tidewise.host.processes import ProcessIdentity, find

pytestmark = pytest.mark.xdist_group("spark")

TIDEWISE = [sys.executable, "-m", "tidewise.cli"]


def in_a_process(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TIDEWISE, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=180, check=False
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_check_tells_what_would_be_done_and_starts_nothing(tidewise: Tidewise, here: Path) -> None:
    write_job(here)
    code, out, err = tidewise("run", "job.toml", "--check")
    assert code == 0, err
    assert "cores or memory: handover" in out
    assert not (here / "runs").exists()
    _, out, _ = tidewise("run", "job.toml", "--check", "--json")
    assert json.loads(out)["name"] == "small"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "job.toml", "--policy", "nobody"], "no policy 'nobody'"),
        (["run", "job.toml", "--for", "10"], "unit"),
        (["run", "job.toml", "--for", "0s"], "no time at all"),
        (["run", "gone.toml"], "there is no file"),
        (["status", "nowhere"], "no job is under control in nowhere"),
        (["chaos", "nowhere", "kill-driver"], "no job is under control in nowhere"),
        (["stop", "nowhere"], "no job is under control in nowhere"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_exit_code_2(
    tidewise: Tidewise, here: Path, words: list[str], sentence: str
) -> None:
    write_job(here)
    code, _, err = tidewise(*words)
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1


def test_models_that_are_not_there_are_told_before_anything_starts(tidewise: Tidewise, here: Path) -> None:
    write_job(here, GOOD + '\n[telemetry]\nmodels = "tables"\n')
    code, _, err = tidewise("run", "job.toml", "--for", "1m")
    assert code == 2
    assert f"job.toml, line 39: there is no folder {here / 'tables'}; name the one" in err
    assert err.count("\n") == 1
    assert not (here / "runs").exists()


def test_a_master_that_does_not_answer_is_told(tidewise: Tidewise, here: Path) -> None:
    write_job(here, GOOD.replace("workers = 1", 'master = "spark://127.0.0.1:1"'))
    code, _, err = tidewise("run", "job.toml", "--check")
    assert code == 2
    assert "spark://127.0.0.1:1" in err


JOB = f"""\
name = "copy"
command = [{json.dumps(sys.executable)}, "-m", "tidewise.jobs.copy"]
arguments = [
  "--schedule", "schedule.json", "--checkpoint", "cp", "--sink", "files", "--out", "out", "--trigger", "1 second",
]
checkpoint = "cp"

[cluster]
workers = 1
memory = "2GiB"

[space]
executors = 1
memory_per_executor = "1GiB"
commit_interval = "1s"

[promises]
latency_p95 = "30s"

[control]
report_every = "1s"
decide_every = "5s"

[policy]
policy = "static"

[telemetry]
to = "rows"
"""


def wait_for(condition: Callable[[], object], within_s: float = 180.0) -> None:
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.2)


def test_a_job_outlives_its_controller_and_nothing_outlives_its_end(tidewise: Tidewise, here: Path) -> None:
    (here / "job.toml").write_text(JOB, encoding="utf-8")
    schedule = {"began_unix_s": time.time(), "step_s": 1.0, "rates_per_s": [500.0], "after": "hold"}
    (here / "schedule.json").write_text(json.dumps(schedule), encoding="utf-8")
    home = here / "home"
    with (here / "out.json").open("wb") as out, (here / "errors").open("wb") as errors:
        run = subprocess.Popen(
            [*TIDEWISE, "run", "job.toml", "--home", str(home), "--json"], cwd=here, stdout=out, stderr=errors
        )
    try:
        _live_through_it(run, home, here, tidewise)
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGINT)
            run.send_signal(signal.SIGINT)
            run.wait(timeout=180)


def _live_through_it(run: subprocess.Popen[bytes], home: Path, folder: Path, tidewise: Tidewise) -> None:
    def controller() -> int | None:
        path = home / "controller.json"
        return json.loads(path.read_text(encoding="utf-8"))["process"]["pid"] if path.exists() else None

    def reported() -> bool:
        assert run.poll() is None, (folder / "errors").read_text(encoding="utf-8")
        journal = home / "copy-static-1.partial" / "journal.sqlite"
        return journal.exists() and controller() is not None

    wait_for(reported)
    first = controller()
    assert first is not None
    told = json.loads((home / "job" / "job.json").read_text(encoding="utf-8"))
    driver = ProcessIdentity.from_dict(told["applications"][0]["process"])
    second = in_a_process("run", "job.toml", "--home", home, folder=folder)
    assert second.returncode == 2
    assert "under control already" in second.stderr
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: controller() not in (None, first))
    assert driver.is_alive()
    # To ask in this process takes no second; what controls the job is in processes of its own.
    wait_for(lambda: '"dropped_as_too_late": 0' in tidewise("status", str(home), "--json")[1])
    assert "0 dropped as too late" in tidewise("status", str(home))[1]
    time.sleep(3.0)
    run.send_signal(signal.SIGINT)
    assert run.wait(timeout=180) == 0, (folder / "errors").read_text(encoding="utf-8")
    assert not driver.is_alive()
    left = find(lambda argv: any(str(folder) in word for word in argv))
    assert not left
    assert json.loads((folder / "out.json").read_text(encoding="utf-8"))["restarts"] == 1
    record = load_run(home / "copy-static-1").record
    assert record.audits
    assert all(audit.clean for audit in record.audits)
    lines = [line for file in (folder / "rows").glob("*.jsonl") for line in file.read_text("utf-8").splitlines()]
    told_rows = Counter((row["run"], row["line"]) for row in map(json.loads, lines))
    assert {name.rpartition("-")[0] for name, _ in told_rows} == {"copy-static-1"}
    assert set(told_rows.values()) == {1}, "a row was told twice"
    _, out, err = tidewise("telemetry", "ship", str(home / "copy-static-1"), "--to", "rows")
    assert "Nothing new was told" in out, err
    code, out, err = tidewise("verify", "cp", "--sink", "out")
    assert code == 0, out + err
    code, out, err = tidewise("report", str(home), "--to", "page.html")
    assert code == 0, err
    assert "measured on a real engine (spark)" in out
    again = in_a_process("run", "job.toml", "--home", home, folder=folder)
    assert again.returncode == 2
    assert "has ended" in again.stderr
