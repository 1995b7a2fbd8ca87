"""Experiments: whole runs in folders, the same again with the same seed, nothing half-written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.experiments.plans import GOOD, write_plan
from tidewise.control import SqliteJournal
from tidewise.core import BadInputError, ChangeRequested, Decided, FaultInjected, PermanentError, Purpose, Reported
from tidewise.experiments import Experiment, Progress, compare, find_runs, run_experiment
from tidewise.experiments import run as run_module

DATE = "2026-11-15"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiment")
    run_experiment(Experiment(write_plan(folder)), folder / "runs", created=DATE)
    return folder / "runs"


def test_every_policy_runs_on_every_load_with_every_seed(home: Path) -> None:
    runs = find_runs([home])
    names = {run.folder.name for run in runs}
    assert names == {"waves-static-1", "waves-static-2", "waves-reactive-1", "waves-reactive-2"}
    assert all(run.record.complete for run in runs)


def test_a_run_folder_holds_plan_versions_journal_and_series(home: Path) -> None:
    folder = home / "waves-reactive-1"
    assert {path.name for path in folder.iterdir()} == {"run.json", "series.parquet", "journal.sqlite"}
    told = json.loads((folder / "run.json").read_text())
    assert told["plan"]["promises"]["latency_p95"] == 3.0
    assert set(told["versions"]) == {"tidewise", "python", "numpy", "profile"}


def test_the_journal_holds_every_step(home: Path) -> None:
    journal = SqliteJournal.open_readonly(home / "waves-reactive-1" / "journal.sqlite")
    events = list(journal.read())
    journal.close()
    assert sum(isinstance(event, Reported) for event in events) == 360
    decided = [event for event in events if isinstance(event, Decided)]
    assert len(decided) == 61  # at the start, and at the end of each minute
    assert all(event.decision.reason.sentence for event in decided)
    assert sum(isinstance(event, FaultInjected) for event in events) == 2
    requested = [event for event in events if isinstance(event, ChangeRequested)]
    run = next(run for run in find_runs([home]) if run.folder.name == "waves-reactive-1")
    assert len(run.record.changes) == len(requested) > 0


def test_a_job_that_nobody_changes_pays_for_no_controller(home: Path) -> None:
    for run in find_runs([home]):
        spent = run.record.meter[Purpose.CONTROLLER].core_s
        assert (spent == 0.0) == (run.record.policy == "static")


def test_the_forecast_is_shown_beside_the_load(home: Path) -> None:
    run = next(run for run in find_runs([home]) if run.record.policy == "reactive")
    series = run.read_series()
    known = ~np.isnan(series.forecast_per_s)
    assert known[1200:].all()
    assert not known[:600].any()


def test_the_same_seed_gives_the_same_run(home: Path, tmp_path: Path) -> None:
    again = run_experiment(Experiment(write_plan(tmp_path)), tmp_path / "again", created=DATE)
    before = {run.folder.name: run for run in find_runs([home])}
    for run in again:
        other = before[run.folder.name]
        assert run.record == other.record
        ours, theirs = run.read_series(), other.read_series()
        np.testing.assert_array_equal(ours.latency_p50_s, theirs.latency_p50_s)
        np.testing.assert_array_equal(ours.cores, theirs.cores)


def test_static_is_what_others_are_held_against(home: Path) -> None:
    aggregates = compare(find_runs([home]))
    assert [aggregate.policy for aggregate in aggregates] == ["static", "reactive"]
    static = aggregates[0].summaries[0].over_baseline
    assert static is not None
    assert static.core == 1.0


def test_best_fixed_is_the_cheapest_that_keeps_the_promises(tmp_path: Path) -> None:
    plan = GOOD.replace("seeds = [1, 2]", "seeds = [1]").replace('policy = "reactive"', 'policy = "best-fixed"')
    plan = plan.replace('target_cpu = 0.5\nmechanism = "in-place-rescale"\n', "")
    experiment = Experiment(write_plan(tmp_path, plan))
    trial = next(experiment.trials())
    best = trial.hindsight.cheapest()
    assert trial.hindsight.keeps(best)
    assert not trial.hindsight.keeps(best.with_executors(best.executors - 1))
    runs = run_experiment(experiment, tmp_path / "runs", created=DATE)
    fixed = next(run for run in runs if run.record.policy == "best-fixed")
    assert fixed.record.start == best
    assert fixed.record.changes == ()
    summaries = {aggregate.policy: aggregate.summaries[0] for aggregate in compare(runs)}
    assert summaries["best-fixed"].kept_promises
    assert summaries["best-fixed"].all_in.cost < summaries["static"].all_in.cost


def test_an_experiment_never_writes_over_another(home: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="exists already"):
        run_experiment(Experiment(write_plan(tmp_path)), home, created=DATE)


def test_progress_is_told_run_by_run(tmp_path: Path) -> None:
    seen: list[Progress] = []
    plan = GOOD.replace("seeds = [1, 2]", "seeds = [1]").replace('duration = "1h"', 'duration = "10min"')
    run_experiment(Experiment(write_plan(tmp_path, plan)), tmp_path / "runs", created=DATE, progress=seen.append)
    assert [(one.done_runs, one.total_runs) for one in (seen[0], seen[-1])] == [(0, 2), (1, 2)]
    assert seen[-1].run_share == 1.0


def test_a_full_disk_leaves_no_run_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise PermanentError("the run could not be written: No space left on device; nothing was kept")

    monkeypatch.setattr(run_module, "finish_run", full)
    with pytest.raises(PermanentError, match="No space left"):
        run_experiment(Experiment(write_plan(tmp_path)), tmp_path / "runs", created=DATE)
    with pytest.raises(BadInputError, match="no finished run"):
        find_runs([tmp_path / "runs"])
