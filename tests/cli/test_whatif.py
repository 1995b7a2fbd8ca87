"""`tidewise whatif` as a user meets it: sentences and tables, one JSON document, a profile, or one sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Tidewise
from tests.experiments.recorded import record
from tidewise.control import SqliteJournal
from tidewise.core import Configuration, ControllerStarted
from tidewise.engines.simulator import load_profile
from tidewise.experiments import find_runs

QUICK = ("--profile", "spark-local", "--draws", "2")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("recorded"), duration="30min").folder


@pytest.fixture
def cli(tidewise: Tidewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tidewise:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: tidewise("whatif", *arguments)


@pytest.fixture
def partial(recorded: Path, tmp_path: Path) -> Path:
    """The same run, as if its controller had been killed."""
    folder = tmp_path / "killed.partial"
    folder.mkdir()
    shutil.copy(recorded / "journal.sqlite", folder)
    return folder


def test_sentences_come_first_and_tables_second_and_what_is_asked_for_is_kept(
    cli: Tidewise, recorded: Path, tmp_path: Path
) -> None:
    """One question for all that is told and kept, because each costs a fit."""
    policies = ("--policy", "static", "--policy", "reactive:target_cpu=0.6")
    code, out, err = cli(str(recorded), *QUICK, *policies, "--to", "mine.toml", "--out", "kept")
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 160
    told = " ".join(out.split())
    in_turn = (
        "The run waves-reactive-1 (reactive, simulated, 30 min) cost 0.",
        "static would have cost ",
        "% more",
        "reactive would have cost ",
        "The fit explains this run ",
        "Replayed as it was, the run comes to ",
        "Assumed as in the profile spark-local",
        "the same load and failures",
        "What the run shows",
    )
    places = [told.index(words) for words in in_turn]
    assert places == sorted(places)
    assert places[0] == 0
    assert err.startswith("fitting a profile to waves-reactive-1\n")
    assert "4 of 4 runs have ended" in err
    assert "The fitted profile: mine.toml" in out
    assert load_profile(str(tmp_path / "mine.toml")).name == "fitted"
    assert not list((tmp_path / "kept").rglob("journal.sqlite-*"))
    assert not list(recorded.glob("journal.sqlite-*"))
    runs = find_runs([tmp_path / "kept"])
    for policy in ("static", "reactive"):
        assert [run.record.load for run in runs if run.record.policy == policy] == ["fitted-1", "fitted-2"]
    # The failures of the run come when they came.
    original = json.loads((recorded / "run.json").read_text(encoding="utf-8"))
    assert [fault.at_s for fault in runs[0].record.faults] == [fault["at_s"] for fault in original["faults"]]


def test_json_is_one_document(cli: Tidewise, recorded: Path, tmp_path: Path) -> None:
    code, out, err = cli(
        str(recorded), *QUICK, "--policy", "static:executors=5", "--policy", "static", "--currency", "EUR", "--json"
    )
    assert code == 0, err
    assert err == ""
    document = json.loads(out)
    assert document["currency"] == "EUR"
    five, all_of_them = document["policies"]
    assert (five["policy"], all_of_them["policy"]) == ("static", "static-2")
    assert five["cost"]["median"] < all_of_them["cost"]["median"]
    assert five["cost"]["low"] <= five["cost"]["median"] <= five["cost"]["high"]
    assert five["saved"]["median"] == pytest.approx(document["actual"]["cost"] - five["cost"]["median"])
    assert document["trust"] in {"well", "roughly", "not"}
    assert set(document["second_half"]["errors"]) == {"latency p50", "latency p95", "backlog", "busy share"}
    assert document["calm"]["windows"] <= document["foretold"]["windows"] == document["second_half"]["windows"]
    assert document["profile"] is None
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_was_killed_is_enough(cli: Tidewise, partial: Path) -> None:
    code, out, err = cli(str(partial), "--draws", "1", "--policy", "static", "--latency-p95", "15s")
    assert code == 0, err
    assert "The run killed (reactive, on Spark, 30 min, as far as it was recorded) cost" in out
    assert "nothing was metered" in out


def test_its_promises_have_to_be_told(cli: Tidewise, partial: Path) -> None:
    code, out, err = cli(str(partial))
    assert (code, out) == (2, "")
    assert err.endswith("does not say what was promised, since it is not over; write it, as in --latency-p95 5s\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--policy", "ds3"), "there is no policy 'ds3'; did you mean 'ds2'?"),
        (("--policy", "ds2:target"), "write settings like ds2:target_utilisation=0.7"),
        (("--policy", "ds2:targett=1"), "targett"),
        (("--space", "executors"), "write a key and a value, as in --space executors=1..8"),
        (("--space", "executors=8..1"), "holds nothing"),
        (("--space", "size=8"), "a space has no size; it has executors"),
        (("--latency-p95", "5"), "--latency-p95: '5' has no unit"),
        (("--good-share", "1.5"), "the promises: good_share must lie between 0 and 1"),
        (("--core-hour", "-1"), "the prices: "),
        (("--profile", "spark-locl"), "there is no profile 'spark-locl'"),
        (("--to", "mine.json"), "the name of a profile has to end in .toml"),
        (("--to", "none/mine.toml"), "--to none/mine.toml: there is no folder none"),
        (("--draws", "0"), "--draws 0: write a number from 1 to 99"),
        (("--out", "full"), "--out full: full is not empty, and not what was made of waves-reactive-1 earlier"),
        (("--out", "full/file"), "--out full/file: full/file is a file; name a folder"),
        (("--out", "full/file/x"), "--out full/file/x: "),
        (("--out", "/proc/x"), "--out /proc/x: the folder cannot be made"),
    ],
)
def test_what_is_written_wrong_is_one_sentence_before_anything_is_fitted(
    cli: Tidewise, recorded: Path, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    code, out, err = cli(str(recorded), *(QUICK if "--profile" not in arguments else ()), *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("tidewise: ")
    assert told in err
    assert len(err.splitlines()) == 1


def test_no_such_run(cli: Tidewise) -> None:
    code, _, err = cli("runs/none")
    assert code == 2
    assert err.startswith("tidewise: there is no run runs/none; name a folder")


def test_a_folder_of_runs(cli: Tidewise, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, _, err = cli("empty")
    assert code == 2
    assert err == "tidewise: empty is not a run: it has no journal.sqlite\n"


def test_a_run_that_never_reported(cli: Tidewise, tmp_path: Path) -> None:
    folder = tmp_path / "silent.partial"
    folder.mkdir()
    with SqliteJournal(folder / "journal.sqlite") as journal:
        started = ControllerStarted(at_s=0.0, version="1", policy="static", configuration=Configuration(executors=1))
        journal.append([started])
    code, _, err = cli("silent")
    assert code == 2
    assert err == "tidewise: the journal of silent.partial holds no report of the job, so nothing can be fitted\n"


def test_a_run_that_is_too_short(cli: Tidewise, tmp_path: Path) -> None:
    run = record(tmp_path / "short", duration="90s")
    code, _, err = cli(str(run.folder))
    assert code == 2
    assert "which is too little: a fit needs 2 min and 20 reports" in err
    assert len(err.splitlines()) == 1


def test_a_run_of_another_version(cli: Tidewise, recorded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "newer"
    shutil.copytree(recorded, folder)
    content = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (folder / "run.json").write_text(json.dumps({**content, "format_version": 99}), encoding="utf-8")
    code, _, err = cli(str(folder))
    assert code == 2
    assert "has format 99, and this version of Tidewise reads format 1" in err
    assert len(err.splitlines()) == 1
