"""`tidewise advise` as a user calls it: sentences first, money in their currency, and refusals in one sentence."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.cli.conftest import Tidewise
from tests.engines.spark.event_log_lines import a_steady_job
from tests.experiments.jobs import GOOD, write_job
from tests.experiments.journals import BEGAN_S, config, report, write_journal
from tests.experiments.recorded import PLAN
from tests.experiments.test_live import FakeJob, setting
from tidewise.cli.advice_words import CAVEAT, Watched
from tidewise.control import GuardSettings, SystemClock
from tidewise.core import ControllerStarted
from tidewise.experiments import Experiment, run_experiment
from tidewise.experiments.advise_terms import terms_of_job
from tidewise.experiments.job_file import JobFile
from tidewise.experiments.live import LiveRun

LOG = ("--event-log", "app-1")
OPTIONS = ("--executors", "1..8", "--latency-p95", "5s", "--policy", "reactive")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of a program with too many executors, a job file, and the home of a run that is on."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app-1").write_text("".join(a_steady_job(seconds=1200, executors=8)), encoding="utf-8")
    write_job(tmp_path, GOOD.replace('executors = "1..4"', 'executors = "1..8"') + '\n[prices]\ncurrency = "EUR"\n')
    started = ControllerStarted(at_s=BEGAN_S, version="1", policy="static", configuration=config(4))
    reports = [report(float(at_s), busy_share=0.1) for at_s in range(10, 1200, 10)]
    write_journal(tmp_path / "home" / "small-reactive-1.partial", [started, *reports])
    write_job(tmp_path / "home")
    (tmp_path / "plan.toml").write_text(PLAN.format(policy="static", executors=4, duration="10min"), encoding="utf-8")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "journal.sqlite").touch()
    return tmp_path


def test_a_log_is_advised_on_in_sentences_and_then_in_a_table(tidewise: Tidewise) -> None:
    code, out, err = tidewise("advise", *LOG, *OPTIONS, "--currency", "CHF", "--core-hour", "0.1")
    assert (code, err) == (0, "")
    assert "It would change executors 8 → " in out
    assert "Why: " in out
    assert "That would save" in out
    assert "CHF an hour" in out
    assert "a month if it went on like this" in " ".join(out.split())
    assert CAVEAT in " ".join(out.split())
    assert out.index("Careful: nothing was changed.") < out.index("CHF/month")


def test_a_document_is_all_that_a_program_reads(tidewise: Tidewise) -> None:
    code, out, _ = tidewise("advise", *LOG, *OPTIONS, "--json")
    told = json.loads(out)
    assert code == 0
    assert told["policy"] == "reactive"
    assert told["saving_per_month"] == pytest.approx(730 * told["saving_per_hour"])
    assert told["advice"][0]["executors"] < 8
    assert told["caveat"] == CAVEAT


def test_a_job_file_tells_what_a_log_does_not(tidewise: Tidewise) -> None:
    code, out, _ = tidewise("advise", *LOG, "--job", "job.toml")
    assert code == 0
    assert "the policy reactive was asked" in out
    assert "EUR" in out


def test_a_run_that_is_on_is_advised_on_and_not_touched(tidewise: Tidewise, folder: Path) -> None:
    before = (folder / "home" / "small-reactive-1.partial" / "journal.sqlite").read_bytes()
    code, out, err = tidewise("advise", "home", "--once", "--policy", "reactive")
    assert (code, err) == (0, "")
    assert "It would change executors 4 → " in out
    assert (folder / "home" / "small-reactive-1.partial" / "journal.sqlite").read_bytes() == before


@pytest.mark.parametrize("width", [80, 100, 120])
def test_of_a_run_that_is_over_the_summary_lists_the_advice(
    tidewise: Tidewise, folder: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    plan = PLAN.format(policy="static", executors=8, duration="10min").replace("known.toml", "spark-local")
    (folder / "plan.toml").write_text(plan, encoding="utf-8")
    (made,) = run_experiment(Experiment(folder / "plan.toml"), folder / "runs", created="2026-01-01")
    run = made.folder
    code, out, err = tidewise("advise", str(run), "--policy", "reactive:target_cpu=0.5")
    assert (code, err) == (0, "")
    *told, last = out.splitlines()
    assert told[0].startswith("Watched for ")
    assert not any(line.lstrip().startswith("Why: ") for line in told)
    assert any("executors 8 → " in line for line in told)
    assert last == f"Each with its reason: tidewise advise {run} --policy reactive:target_cpu=0.5 --json"
    assert "…" not in out
    assert max(map(len, told)) <= width


class _Controllers:
    """Stands for the processes that control a job: one that reports, and would be changed at once."""

    commands: list[list[str]]
    jobs: list[FakeJob]
    told: str

    def __init__(self) -> None:
        self.commands, self.jobs, self.restarts = [], [], 0

    def __call__(self, command: Sequence[str]) -> _Controllers:
        self.commands.append(list(command))
        return self

    def run(self) -> int:
        command = self.commands[-1]
        home, clock = Path(command[command.index("--home") + 1]), SystemClock(start_s=30.0)
        job = FakeJob(clock, rate_per_s=300.0)
        self.jobs.append(job)
        screen = io.StringIO()
        watched = Watched(terms_of_job(JobFile(Path("job.toml"))), Console(file=screen, width=200))
        guards = GuardSettings(advice_only="--advice-only" in command)
        made = replace(setting(home, duration_s=3.0, guard_settings=guards), folder=home / "small-reactive-1")
        LiveRun(job, made, clock=clock, observer=watched.see).run()
        self.told = screen.getvalue()
        return 0


def test_a_job_file_is_started_and_nothing_of_it_is_changed(
    tidewise: Tidewise, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controllers = _Controllers()
    monkeypatch.setattr("tidewise.cli.live.Supervisor", controllers)
    code, out, err = tidewise("advise", "job.toml", "--for", "3s")
    assert (code, err) == (0, "")
    (command,) = controllers.commands
    assert command[-3:] == ["--for", "3s", "--advice-only"]
    assert (folder / "runs" / "small-advice" / "small-reactive-1" / "run.json").exists()
    # It was asked several times, and wanted three executors each time.
    assert controllers.jobs[0].runs == config(1)
    assert controllers.jobs[0].outcomes == {}
    assert controllers.told.count("It would change executors 1 → 3, live.") == 1
    assert "It would have changed the job once: executors 1 → 3" in out
    assert "EUR an hour more" in out
    assert CAVEAT in " ".join(out.split())
    code, told, _ = tidewise("explain", "runs/small-advice", "--at", "2s")
    assert "The guard advice-only stopped it: Only advice was asked for" in told


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "name a job file, a run, or an event log"),
        (["home", *LOG], "one of them"),
        (["gone", "--once"], "there is no run gone"),
        (["gone.toml"], "there is no file gone.toml"),
        (["job.toml", "--once"], "--once is for what is only read"),
        (["home", "--home", "x"], "--home is for a job file"),
        (["home", "--trigger", "2s"], "--trigger is for an event log"),
        (["--event-log", "gone", *OPTIONS], "there is no event log gone"),
        ([*LOG], "write --executors 1..8 --latency-p95 5s, or --job job.toml"),
        ([*LOG, "--executors", "1..8"], "what it has to keep"),
        ([*LOG, "--job", "job.toml", "--currency", "EUR"], "--currency is in the job file already"),
        ([*LOG, "--executors", "many", "--latency-p95", "5s"], "--executors many"),
        ([*LOG, "--executors", "1..8", "--latency-p95", "5"], "has no unit"),
        ([*LOG, *OPTIONS, "--core-hour", "-1"], "core_hour"),
        ([*LOG, "--executors", "1..8", "--latency-p95", "5s", "--policy", "nobody"], "no policy 'nobody'"),
        ([*LOG, "--executors", "1..8", "--latency-p95", "5s", "--policy", "best-fixed"], "the load to come"),
        ([*LOG, *OPTIONS, "--for", "0s"], "no time at all"),
        (["home", "--for", "abc"], "--for: 'abc'"),
        (["home", "--policy", "reactive:foo=1"], "foo"),
        (["home", "--policy", "tidewise:payback=abc"], "payback"),
        (["home", "--policy", ":foo=1"], "--policy :foo=1"),
        (["job.toml", "--policy", "reactive:foo"], "write settings like ds2:target_utilisation=0.7"),
        ([*LOG, "--executors", "1..8", "--latency-p95", "5s", "--policy", "reactive:foo=1"], "foo"),
        (["plan.toml"], "plan.toml is the plan of an experiment; write a job file"),
        (["--event-log", "plan.toml", *OPTIONS], "plan.toml is not an event log"),
        (["empty"], "empty/journal.sqlite is empty"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_exit_code_2(tidewise: Tidewise, words: list[str], sentence: str) -> None:
    code, out, err = tidewise("advise", *words)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1
