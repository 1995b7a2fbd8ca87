"""The comparison as a whole, in short: it is kept, goes on, and tells what could not be run."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest
from bench.policies import Wanted, add_options, measure, wanted_of

from tidewise.core import BadInputError, Configuration
from tidewise.experiments.bound import Bound
from tidewise.experiments.bound_path import Stage


@pytest.fixture(autouse=True)
def _own_python_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")  # what is put there is for the workers of this benchmark


def wanted(*given: str) -> Wanted:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return wanted_of(parser.parse_args(given))


def test_only_all_of_it_is_written_to_the_page() -> None:
    assert wanted().is_whole
    assert wanted("--seeds", "7", "5", "3", "--keep", "x").is_whole
    for less in (["--seeds", "4"], ["--hours", "2"], ["--bound"], ["--loads", "ysb"], ["--policies", "ds2"]):
        assert not wanted(*less).is_whole
    assert not wanted("--worlds", "spark-local").is_whole


def test_the_last_number_of_seeds_is_for_all_other_loads() -> None:
    assert wanted("--seeds", "3").seeds == (3, 3, 3)
    assert wanted("--seeds", "5", "1").seeds == (5, 1, 1)
    assert wanted("--seeds", "5", "3", "1").options == " --seeds 5 3 1"
    with pytest.raises(BadInputError, match="one to three"):
        wanted("--seeds", "1", "2", "3", "4")


def test_what_is_not_there_is_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no world 'spark-locl'; did you mean"):
        wanted("--worlds", "spark-locl")
    with pytest.raises(BadInputError, match="no load 'sines'"):
        measure(None, Wanted(loads=("sines",), keep=tmp_path, master="none"))
    with pytest.raises(BadInputError, match="no policy 'ds3'"):
        measure(None, Wanted(loads=("sine",), policies=("ds3",), hours=0.1, keep=tmp_path, master="none"))
    assert not list(tmp_path.rglob("run.json"))


BRIEF = Wanted(
    worlds=("spark-local",), loads=("constant",), policies=("reactive",), seeds=(1, 1, 1), hours=0.1, master="none"
)

BOUND = Bound(
    objective="cores",
    at_least=1.0,
    core_hours=1.1,
    gib_hours=2.0,
    money=0.1,
    bad_s=3.0,
    keeps_quality=True,
    stages=(Stage(requested_at_s=0.0, configuration=Configuration(executors=1), mechanism=None),),
)


def rows(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("|")]


def runs(folder: Path) -> dict[str, int]:
    return {file.parent.name: file.stat().st_ino for file in folder.rglob("run.json")}


def test_what_has_ended_is_kept_and_only_what_is_missing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr("bench.policies._tell", told.append)
    monkeypatch.setattr("bench.policies_runs.hindsight_bound", lambda **_: BOUND)
    brief = replace(BRIEF, keep=tmp_path)
    first = measure(None, brief)
    kept = runs(tmp_path)
    assert set(kept) == {"constant-static-1", "constant-reactive-1"}
    assert [sentence for sentence in told if "on now" in sentence]
    told.clear()
    assert rows(measure(None, brief)) == rows(first)
    assert not [sentence for sentence in told if "on now" in sentence]
    measure(None, replace(brief, policies=("ds2",), seeds=(2, 2, 2), bound=()))
    more = {"constant-static-2", "constant-ds2-1", "constant-ds2-2"}
    assert set(runs(tmp_path)) == {*kept, *more}
    assert {name: runs(tmp_path)[name] for name in kept} == kept
    assert len(list(tmp_path.rglob("bound-*.json"))) == 1


def test_a_policy_whose_code_has_changed_is_run_again(tmp_path: Path) -> None:
    brief = replace(BRIEF, bound=(), keep=tmp_path)
    measure(None, brief)
    marks = [file.parent / "mark" for file in tmp_path.rglob("run.json")]
    for mark in marks:
        mark.touch()
    measure(None, replace(brief, again=("reactive",)))
    assert {mark.parent.name for mark in marks if mark.exists()} == {"constant-static-1"}
    assert set(runs(tmp_path)) == {"constant-static-1", "constant-reactive-1"}


def test_a_promise_that_no_fixed_configuration_keeps_is_told_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.policies_plans.keepable", lambda *_: {"latency_p95": "1s", "good_share": 0.999})
    page = measure(None, replace(BRIEF, policies=("best-fixed", "reactive"), bound=(), keep=tmp_path))
    assert "no configuration keeps the promises on the load 'constant'" in page
    assert set(runs(tmp_path)) == {"constant-static-1", "constant-reactive-1"}
