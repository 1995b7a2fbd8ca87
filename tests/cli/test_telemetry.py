"""`tidewise telemetry ship` as a user calls it: one sentence in the end, and refusals in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import typer

from tests.cli.conftest import Invoke
from tests.engines.spark.event_log_lines import a_steady_job
from tests.experiments.jobs import GOOD, write_job
from tests.experiments.journals import BEGAN_S, a_run, write_journal
from tests.experiments.shipping import a_home, end_run
from tidewise.cli import live
from tidewise.cli.telemetry import telemetry_commands
from tidewise.core import BadInputError, ControllerStopped
from tidewise.experiments.controller import Home
from tidewise.experiments.job_file import JobFile

ENDED = ControllerStopped(at_s=BEGAN_S + 601.0, reason="it was stopped")


@pytest.fixture
def call(invoke: Callable[[typer.Typer], Invoke]) -> Invoke:
    app = typer.Typer()
    app.add_typer(telemetry_commands, name="telemetry")

    @app.command("other", hidden=True)
    def other() -> None:
        """So that there is a choice."""

    of = invoke(app)
    return lambda *arguments: of("telemetry", "ship", *arguments)


def test_a_run_is_told_to_a_folder_in_one_sentence_and_not_again(call: Invoke, tmp_path: Path) -> None:
    a_home(tmp_path / "home", [*a_run(), ENDED])
    assert call("home", "--to", "rows") == f"60 reports, 1 change, 1 recovery told to {tmp_path / 'rows'}.\n"
    assert call("home", "--to", "rows", "--follow") == f"Nothing new was told to {tmp_path / 'rows'}.\n"
    told = json.loads(call("home", "--to", "others", "--json"))
    assert told["rows"] == {"report": 60, "change": 1, "recovery": 1, "forecast_error": 0}
    assert (told["waiting"], told["problems"]) == (0, [])


def test_several_runs_logs_and_folders_of_runs_may_be_named(call: Invoke, tmp_path: Path) -> None:
    a_home(tmp_path / "home", [*a_run(), ENDED])
    (tmp_path / "app-1").write_text("".join(a_steady_job(seconds=300)), encoding="utf-8")
    write_job(tmp_path)
    told = json.loads(call("home/small-reactive-1", "app-1", "--to", "rows", "--json"))
    assert told["rows"]["report"] > 80
    assert list((tmp_path / "runs" / "telemetry").glob("told-*.json"))
    told = json.loads(call("app-1", "--job-file", "job.toml", "--to", "others", "--json"))
    (path,) = (tmp_path / "others").iterdir()
    assert json.loads(path.read_text(encoding="utf-8").splitlines()[0])["promised_latency_p95_s"] == 3.0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nothing", "--to", "rows"), "there is no nothing; name a run"),
        (("home", "--to", "kafka://x"), "names no broker"),
        (("home", "home", "--to", "rows"), "is named twice"),
        (("home", "--job-file", "job.toml", "--to", "rows"), "--job-file is for event logs and Prometheus"),
        (("job.toml", "--to", "rows"), "job.toml, line"),
        (("missing.toml", "--to", "rows"), "there is no file missing.toml"),
    ],
)
def test_what_cannot_be_told_is_refused_in_a_sentence(
    call: Invoke, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    a_home(tmp_path / "home", [*a_run(), ENDED])
    write_job(tmp_path)
    with pytest.raises(BadInputError, match=sentence):
        call(*arguments)


def test_a_run_that_says_too_little_yet_is_a_problem(call: Invoke, tmp_path: Path) -> None:
    write_journal(tmp_path / "a-b-1.partial", a_run())
    with pytest.raises(AssertionError, match="can be told when it is over"):
        call("a-b-1", "--to", "rows")


def test_a_job_file_has_its_run_told_while_it_is_supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = JobFile(write_job(tmp_path, GOOD + '\n[telemetry]\nto = "rows"\n'))
    home = Home.of(file, tmp_path / "home")
    cleared: list[str] = []

    class Controlled:
        restarts = 0

        def __init__(self, _command: Sequence[str]) -> None:
            pass

        def run(self) -> int:
            end_run(a_home(home.folder, [*a_run(), ENDED]))
            return 0

    monkeypatch.setattr(live, "Supervisor", Controlled)
    monkeypatch.setattr(live, "clear", lambda *_: cleared.append("once"))
    monkeypatch.setattr(live, "_log_to", lambda _: None)
    ended = live.supervise_job(file, home, duration_s=None, policy=None, quiet=True)
    assert ended.run.folder == home.run_folder
    assert cleared == ["once"]
    (path,) = (tmp_path / "rows").iterdir()
    assert len(path.read_text(encoding="utf-8").splitlines()) == 62
