"""The commands as a user meets them: what they print, what they write, and what they say when something is wrong."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import Tidewise
from tests.experiments.plans import GOOD, write_plan
from tidewise import __version__
from tidewise.core import BadInputError
from tidewise.experiments import find_plan, load_run, shipped_plans
from tidewise.pipeline import context


@pytest.fixture
def cli(tidewise: Tidewise, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tidewise:
    monkeypatch.chdir(tmp_path)
    return tidewise


SHORT = GOOD.replace("seeds = [1, 2]", "seeds = [1]").replace('duration = "1h"', 'duration = "20min"')
SHORT = SHORT.replace('every = "30min"', 'every = "10min"')
HERE = ("--master", "none")


def test_help_teaches_by_example(cli: Tidewise) -> None:
    code, out, _ = cli("--help")
    assert code == 0
    for line in ("tidewise demo", "tidewise experiment plan.toml", "tidewise report"):
        assert line in out
    for command in ("demo", "experiment", "report", "policies", "loads"):
        code, out, _ = cli(command, "--help")
        assert code == 0
        assert f"tidewise {command}" in out


def test_the_help_fits_a_terminal_of_80_columns(cli: Tidewise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.strip() for line in cli("experiment", "--help")[1].splitlines()]
    assert "the same on real Spark, 18 hours in 20 minutes for each run" in lines
    assert "and what to write instead. The runs are spread over the cores of this machine," in lines


def test_the_version_is_told(cli: Tidewise) -> None:
    assert cli("--version") == (0, f"tidewise {__version__}\n", "")


def test_an_experiment_prints_its_table_and_writes_its_report(cli: Tidewise, tmp_path: Path) -> None:
    plan = write_plan(tmp_path, SHORT)
    code, out, err = cli("experiment", str(plan), "--out", "results", *HERE)
    assert code == 0
    assert "simulated with profile paper-cluster" in out
    assert "static" in out
    assert "reactive" in out
    assert "The load waves is generated (shape 'sine')." in err
    assert "1 of 2 runs have ended; on now: waves-reactive-1" in err
    assert (tmp_path / "results" / "small" / "report.html").stat().st_size > 1_000_000
    assert (tmp_path / "results" / "small" / "waves-reactive-1" / "run.json").exists()


def test_json_is_one_document_and_nothing_else(cli: Tidewise, tmp_path: Path) -> None:
    plan = write_plan(tmp_path, SHORT)
    code, out, err = cli("experiment", str(plan), "--json", *HERE)
    assert (code, err) == (0, "")
    told = json.loads(out)
    rows = {row["policy"]: row for row in told["runs"]}
    assert rows["static"]["core_over_static"] == 1.0
    assert rows["reactive"]["changes"].keys() <= {"in-place-rescale"}
    assert 0.0 <= rows["reactive"]["good_share"] <= 1.0
    assert rows["static"]["load_origin"] == "generated (shape 'sine')"


def test_a_report_of_any_runs(cli: Tidewise, tmp_path: Path) -> None:
    cli("experiment", str(write_plan(tmp_path, SHORT)), *HERE)
    code, out, _ = cli("report", "runs/small/waves-static-1", "--to", "one.html", "--title", "One <run>")
    assert code == 0
    assert "one.html" in out
    page = (tmp_path / "one.html").read_text(encoding="utf-8")
    assert "One &lt;run&gt;" in page


def test_policies_and_loads_are_listed_with_their_settings(cli: Tidewise) -> None:
    _, out, _ = cli("policies")
    assert "best-fixed" in out
    assert "target_cpu" in out
    assert "\n" not in "".join(
        setting["meaning"] for one in json.loads(cli("policies", "--json")[1]) for setting in one["settings"]
    )
    assert "None" not in out
    names = {policy["name"] for policy in json.loads(cli("policies", "--json")[1])}
    assert names >= {"static", "best-fixed", "reactive", "ds2"}
    _, out, _ = cli("loads")
    assert "regime-change" in out
    assert {load["name"] for load in json.loads(cli("loads", "--json")[1])} >= {"trace", "daily", "bursts"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("experiment", "missing.toml"), "there is no file missing.toml"),
        (("report", "nowhere"), "nowhere is not a folder"),
        (("report", "."), "there is no finished run in"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(cli: Tidewise, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = cli(*arguments)
    assert code == 2
    assert out == ""
    assert said in err
    assert err.startswith("tidewise: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("papre",), "there is no plan 'papre'; did you mean 'paper'"),
        (("plan.toml", "--load", "waves"), "--load waves: write the name of a load and its file"),
        (("plan.toml", "--load", "wave=x.csv"), "has no load 'wave'; did you mean 'waves'"),
        (("plan.toml", "--load", "waves=missing.csv"), "--load waves=missing.csv: "),
        (("plan.toml", "--load", "waves=a.csv", "--load", "waves=b.csv"), "--load names waves twice"),
        (("plan.toml", "--loads", "nowhere"), "nowhere is not a folder"),
        (("plan.toml", "--loads", "."), "holds none of the loads of the plan 'small': there is no waves_0.333333h.csv"),
        (("plan.toml", "--master", "locl[2]"), "there is no Spark master 'locl[2]'"),
    ],
)
def test_what_cannot_be_run_is_told_before_anything_is_started(
    cli: Tidewise, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    write_plan(tmp_path, SHORT)
    code, out, err = cli("experiment", *arguments)
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]
    assert not (tmp_path / "runs").exists()


def test_without_java_it_is_told_how_to_do_without(
    cli: Tidewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise BadInputError("Java 17 is not installed")

    monkeypatch.setattr(context, "find_java", missing)
    code, _, err = cli("experiment", str(write_plan(tmp_path, SHORT)))
    assert code == 2
    assert err.endswith("Java 17 is not installed; or do without Spark, one run after the other: --master none\n")


@pytest.mark.parametrize("how", [("--load", "waves=mine.csv"), ("--loads", "files")])
def test_a_load_can_be_read_from_a_file_instead(cli: Tidewise, tmp_path: Path, how: tuple[str, str]) -> None:
    write_plan(tmp_path, SHORT)
    (tmp_path / "files").mkdir()
    for name in ("mine.csv", "files/waves.csv"):
        (tmp_path / name).write_text("0,30000\n1200,30000\n")
    code, _, err = cli("experiment", "plan.toml", *how, *HERE)
    assert code == 0
    assert f"The load waves is read from {'mine' if how[0] == '--load' else 'waves'}.csv." in err
    run = load_run(tmp_path / "runs" / "small" / "waves-static-1")
    assert run.read_series().input_rate_per_s.mean() == pytest.approx(30_000, rel=0.01)


def test_a_name_means_the_shipped_plan_whatever_lies_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_plan(tmp_path).rename(tmp_path / "paper")
    assert find_plan("paper") == shipped_plans()["paper"]
    assert find_plan("./paper") == Path("paper")
    assert find_plan("paper.toml") == Path("paper.toml")


def test_a_bad_plan_leaves_nothing_behind(cli: Tidewise, tmp_path: Path) -> None:
    plan = write_plan(tmp_path, GOOD.replace('policy = "reactive"', 'policy = "reactiv"'))
    code, _, err = cli("experiment", str(plan), *HERE)
    assert code == 2
    assert "line 31" in err
    assert not (tmp_path / "runs").exists()


def test_an_impossible_second_load_leaves_nothing_behind(cli: Tidewise, tmp_path: Path) -> None:
    hard = '[[loads]]\nname = "hard"\nshape = "constant"\nrate_per_s = 9000000.0\n\n'
    plan = write_plan(tmp_path, SHORT.replace("[[policies]]", hard + "[[policies]]", 1))
    for _ in range(2):  # not "exists already" the second time
        code, out, err = cli("experiment", str(plan), *HERE)
        assert (code, out) == (2, "")
        assert err.splitlines()[-2] == "checking the plan"
        assert "no configuration can keep the promises on the load 'hard'" in err
        assert not (tmp_path / "runs").exists()


def test_an_experiment_never_writes_over_another(cli: Tidewise, tmp_path: Path) -> None:
    cli("experiment", str(write_plan(tmp_path, SHORT)), *HERE)
    code, _, err = cli("experiment", str(write_plan(tmp_path, SHORT.replace("40000.0", "41000.0"))), *HERE)
    assert code == 2
    assert "exists already" in err


def test_a_plan_run_again_keeps_what_is_complete(cli: Tidewise, tmp_path: Path) -> None:
    plan = write_plan(tmp_path, SHORT)
    _, first, _ = cli("experiment", str(plan), *HERE)
    shutil.rmtree(tmp_path / "runs" / "small" / "waves-reactive-1")
    _, _, err = cli("report", "runs/small")
    assert "careful: 1 of the 2 runs of the plan 'small' are here; missing: waves-reactive-1" in err
    code, again, _ = cli("experiment", str(plan), *HERE)
    assert (code, again) == (0, first)


@pytest.mark.parametrize("arguments", [("nonsense",), ("report",), ("report", "--nonsense", "x"), ("demo", "x")])
def test_wrong_words_are_one_sentence_too(cli: Tidewise, arguments: tuple[str, ...]) -> None:
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("tidewise: ")
    assert err.count("\n") == 1


def test_without_a_word_the_help_is_shown(cli: Tidewise) -> None:
    code, out, _ = cli()
    assert code == 0
    assert "tidewise demo" in out


def test_a_full_disk_for_the_output_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m tidewise.cli loads > /dev/full",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert done.stderr == "tidewise: the output cannot be written: No space left on device\n"


def test_stopping_it_is_one_sentence(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tidewise.cli", "demo", "--simulated"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever started the tests in the background has told them, and so their children, to ignore Ctrl-C.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 -- no threads here
    )
    assert process.stderr is not None
    process.stderr.readline()  # "checking the plan"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("tidewise: stopped")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            ("experiment", "plan.toml"),
            "stopped; complete runs are kept, and the same experiment goes on with the others",
        ),
        (("explain", "runs/mine"), "stopped; nothing was written"),
        (("whatif", "runs/mine"), "stopped; nothing was written, but for complete runs into the folder of --out"),
        (("advise", "runs/mine"), "stopped"),
    ],
)
def test_stopping_a_command_says_what_is_left_of_it(
    cli: Tidewise, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], told: str
) -> None:
    def stopped() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("tidewise.cli.app.run", stopped)
    assert cli(*command) == (130, "", f"tidewise: {told}\n")


def test_a_damaged_run_is_told_of(cli: Tidewise, tmp_path: Path) -> None:
    cli("experiment", str(write_plan(tmp_path, SHORT)), *HERE)
    damaged = tmp_path / "runs" / "small" / "waves-static-1" / "run.json"
    damaged.write_text(damaged.read_text(encoding="utf-8")[:100], encoding="utf-8")
    code, _, err = cli("report", "runs/small")
    assert code == 2
    assert "waves-static-1" in err


@pytest.mark.parametrize("content", [None, b"", b"no journal at all" * 1000], ids=["missing", "empty", "damaged"])
def test_a_run_whose_journal_cannot_be_read_is_reported_and_said_to_be(
    cli: Tidewise, tmp_path: Path, content: bytes | None
) -> None:
    cli("experiment", str(write_plan(tmp_path, SHORT)), *HERE)
    _, whole, err = cli("report", "runs/small")
    assert "journal" not in err
    journal = tmp_path / "runs" / "small" / "waves-static-1" / "journal.sqlite"
    journal.unlink()
    if content is not None:
        journal.write_bytes(content)
    code, out, err = cli("report", "runs/small")
    assert (code, out) == (0, whole)
    assert (
        "careful: Of waves-static-1 there is no journal, or it is damaged. All figures here come from run.json" in err
    )


def test_reading_only_the_beginning_of_the_output_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m tidewise.cli policies | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout.startswith("tidewise")
