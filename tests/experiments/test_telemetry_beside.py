"""Rows that are told while a run is on: the run never waits for the place, and never hears of it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.experiments.jobs import GOOD, write_job
from tests.experiments.journals import BEGAN_S, a_run
from tests.experiments.shipping import RUN, Place, a_home, end_run
from tidewise.core import BadInputError, ControllerStopped
from tidewise.experiments import telemetry_beside, telemetry_ship
from tidewise.experiments.controller import Home
from tidewise.experiments.job_file import JobFile
from tidewise.experiments.telemetry_beside import told_beside
from tidewise.experiments.telemetry_target import Target

ENDED = ControllerStopped(at_s=BEGAN_S + 601.0, reason="it was stopped")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_beside, "_POLL_S", 0.05)
    monkeypatch.setattr(telemetry_ship, "_POLL_S", 0.05)


def home_in(folder: Path) -> Home:
    return Home(folder=folder, run_folder=folder / RUN)


def lines_in(folder: Path) -> int:
    files = list(folder.glob("*.jsonl")) if folder.exists() else []
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def test_a_run_that_comes_goes_on_and_ends_is_told_to_the_last_row(tmp_path: Path) -> None:
    told: list[str] = []
    with told_beside(home_in(tmp_path / "home"), Target(folder=tmp_path / "rows"), tell=told.append):
        time.sleep(0.2)
        run = a_home(tmp_path / "home", [*a_run(), ENDED])
        end_run(run)
    assert told == []
    assert lines_in(tmp_path / "rows") == 62
    assert all(thread.name != "telemetry" for thread in threading.enumerate())


def test_a_run_that_was_cut_off_is_told_as_far_as_it_came(tmp_path: Path) -> None:
    told: list[str] = []
    a_home(tmp_path / "home", a_run())
    with (
        pytest.raises(ZeroDivisionError),
        told_beside(home_in(tmp_path / "home"), Target(folder=tmp_path / "rows"), tell=told.append),
    ):
        raise ZeroDivisionError
    assert told == []
    assert lines_in(tmp_path / "rows") == 62


def test_without_a_place_or_a_run_nothing_happens(tmp_path: Path) -> None:
    told: list[str] = []
    with told_beside(home_in(tmp_path / "home"), None, tell=told.append):
        assert all(thread.name != "telemetry" for thread in threading.enumerate())
    with told_beside(home_in(tmp_path / "home"), Target(folder=tmp_path / "rows"), tell=told.append):
        pass
    assert told == []


def test_a_place_that_is_away_is_a_sentence_with_the_command_for_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place()
    place.away = 1000
    monkeypatch.setattr(telemetry_beside, "_LAST_S", 0.0)
    monkeypatch.setattr(Target, "open", lambda _: place)
    told: list[str] = []
    run = a_home(tmp_path / "home", [*a_run(), ENDED])
    target = Target.parse("kafka://127.0.0.1:1/metrics")
    with told_beside(home_in(tmp_path / "home"), target, tell=told.append):
        pass
    (sentence,) = told
    assert sentence == (
        f"not all rows of {run} were told: nobody is there; for the rest: "
        f"tidewise telemetry ship {run} --to kafka://127.0.0.1:1/metrics"
    )


def test_a_job_file_names_a_place_beside_itself(tmp_path: Path) -> None:
    file = JobFile(write_job(tmp_path, GOOD + '\n[telemetry]\nto = "rows"\nprogram = "2.1"\n'))
    assert file.telemetry == Target(folder=tmp_path / "rows")
    assert file.resolved()["telemetry"] == {"to": "rows", "program": "2.1", "models": None}
    assert JobFile(write_job(tmp_path)).telemetry is None


def test_a_place_that_is_none_is_told_with_its_line(tmp_path: Path) -> None:
    path = write_job(tmp_path, GOOD + '\n[telemetry]\nto = "kafka://nowhere"\n')
    with pytest.raises(BadInputError, match=r"job.toml, line \d+: 'kafka://nowhere' names no broker"):
        JobFile(path)
