"""Experiments: whole runs in folders, the same again with the same seed, nothing half-written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.experiments.plans import GOOD, write_plan
from tidewise.control import SqliteJournal
from tidewise.core import (
    BadInputError,
    ChangeCost,
    ChangeExpired,
    ChangeFinished,
    ChangeOutcome,
    ChangeRequest,
    ChangeRequested,
    ChangeStatus,
    Configuration,
    ConfigurationSpace,
    Decided,
    Decision,
    FaultInjected,
    JournalEvent,
    Mechanism,
    Origin,
    PermanentError,
    Policy,
    Purpose,
    Reason,
    Reported,
    Situation,
)
from tidewise.experiments import Experiment, Progress, compare, find_runs, missing_runs, run_experiment
from tidewise.experiments import run as run_module
from tidewise.experiments.claim import claimed
from tidewise.experiments.experiment import deployed_for
from tidewise.experiments.ledger import Ledger
from tidewise.policies import BestFixed, Reactive, Static
from tidewise.report import warnings

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
    assert set(told["versions"]) == {"tidewise", "python", "numpy", "profile", "load"}


def test_the_journal_holds_every_step(home: Path) -> None:
    journal = SqliteJournal.open_readonly(home / "waves-reactive-1" / "journal.sqlite")
    events = list(journal.read())
    journal.close()
    assert sum(isinstance(event, Reported) for event in events) == 360
    decided = [event for event in events if isinstance(event, Decided)]
    assert len(decided) == 241  # at the start, and every quarter of a minute
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
    trial = experiment.trial("waves", 1)
    best = trial.hindsight.cheapest()
    assert best is not None
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
    other = write_plan(tmp_path, GOOD.replace("40000.0", "41000.0"))
    with pytest.raises(BadInputError, match="exists already and is not a try of this plan"):
        run_experiment(Experiment(other), home, created=DATE)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(BadInputError, match="exists already"):
        run_experiment(Experiment(other), tmp_path / "mine", created=DATE)


def test_a_plan_that_was_stopped_goes_on_with_the_runs_that_are_missing(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(home, folder)
    shutil.rmtree(folder / "waves-reactive-2")
    (folder / "waves-reactive-2.partial").mkdir()
    (folder / "waves-reactive-2.partial" / "journal.sqlite").write_bytes(b"half of it")
    before = (folder / "waves-static-1" / "run.json").stat().st_mtime_ns
    assert len(missing_runs(find_runs([folder]))) == 1
    runs = run_experiment(Experiment(write_plan(tmp_path)), folder, created=DATE)
    assert len(runs) == 4
    assert missing_runs(find_runs([folder])) == ()
    assert (folder / "waves-static-1" / "run.json").stat().st_mtime_ns == before
    assert not (folder / "waves-reactive-2.partial").exists()


def test_a_folder_of_something_else_is_not_called_a_damaged_run(tmp_path: Path) -> None:
    (tmp_path / "mine" / "holidays").mkdir(parents=True)
    with pytest.raises(BadInputError, match=r"mine exists already and is not a try of this plan \(.*no run\.json"):
        run_experiment(Experiment(write_plan(tmp_path)), tmp_path / "mine", created=DATE)
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInputError, match="file exists already and is not a try of this plan;"):
        run_experiment(Experiment(write_plan(tmp_path)), tmp_path / "file", created=DATE)
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["holidays"]


def test_where_nothing_is_missing_nothing_is_computed(home: Path, tmp_path: Path) -> None:
    def unwanted(*_: object, **__: object) -> list[Any]:
        raise AssertionError

    seen: list[Progress] = []
    experiment = Experiment(write_plan(tmp_path))
    runs = run_experiment(experiment, home, created=DATE, spread=unwanted, progress=seen.append)
    assert len(runs) == 4
    assert [one.sentence for one in seen] == ["4 of 4 runs have ended"]


def test_what_another_has_completed_meanwhile_is_kept(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(home, folder)
    (folder / "waves-reactive-2").rename(tmp_path / "away")

    @contextmanager
    def late(of: Path) -> Iterator[str]:
        (tmp_path / "away").rename(of / "waves-reactive-2")  # until now the folder was another's
        with claimed(of) as token:
            yield token

    monkeypatch.setattr(run_module, "claimed", late)
    before = (tmp_path / "away" / "run.json").stat().st_mtime_ns
    run_experiment(Experiment(write_plan(tmp_path)), folder, created=DATE)
    assert (folder / "waves-reactive-2" / "run.json").stat().st_mtime_ns == before


def test_two_experiments_cannot_write_into_one_folder(tmp_path: Path) -> None:
    experiment = Experiment(write_plan(tmp_path))
    with claimed(tmp_path / "runs"), pytest.raises(BadInputError, match="another experiment is writing"):
        run_experiment(experiment, tmp_path / "runs", created=DATE)


def test_static_at_a_size_of_its_own_starts_there(tmp_path: Path) -> None:
    plan = GOOD.replace("seeds = [1, 2]", "seeds = [1]").replace(
        'policy = "reactive"\ntarget_cpu = 0.5\nmechanism = "in-place-rescale"\n',
        'policy = "static"\nname = "static-9"\nexecutors = 9\n',
    )
    runs = run_experiment(Experiment(write_plan(tmp_path, plan)), tmp_path / "runs", created=DATE)
    nine = next(run for run in runs if run.record.policy == "static-9")
    assert nine.record.start.executors == 9
    assert nine.record.changes == ()


def test_decisions_that_failed_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: Reactive, _situation: Situation) -> Decision:
        raise ZeroDivisionError

    monkeypatch.setattr(Reactive, "decide", broken)
    plan = GOOD.replace("seeds = [1, 2]", "seeds = [1]")
    runs = run_experiment(Experiment(write_plan(tmp_path, plan)), tmp_path / "runs", created=DATE)
    reactive = next(run for run in runs if run.record.policy == "reactive")
    assert reactive.record.failed_decisions >= 59
    assert any("failed" in sentence for sentence in warnings(runs))


def test_progress_is_told_run_by_run(tmp_path: Path) -> None:
    seen: list[Progress] = []
    plan = GOOD.replace("seeds = [1, 2]", "seeds = [1]").replace('duration = "1h"', 'duration = "10min"')
    run_experiment(Experiment(write_plan(tmp_path, plan)), tmp_path / "runs", created=DATE, progress=seen.append)
    sentences = list(dict.fromkeys(one.sentence for one in seen))
    assert sentences == [
        "checking the plan",
        "0 of 2 runs have ended",
        "0 of 2 runs have ended; on now: waves-static-1",
        "1 of 2 runs have ended; on now: waves-reactive-1",
        "2 of 2 runs have ended",
    ]


def test_a_load_that_is_impossible_is_found_before_anything_is_written(tmp_path: Path) -> None:
    hard = '[[loads]]\nname = "hard"\nshape = "constant"\nrate_per_s = 9000000.0\n\n[[policies]]\npolicy = "static"\n'
    plan = GOOD.replace('[[policies]]\npolicy = "static"\n', hard).replace('duration = "1h"', 'duration = "20min"')
    experiment = Experiment(write_plan(tmp_path, plan))
    with pytest.raises(BadInputError, match="line 28: no configuration can keep the promises on the load 'hard'"):
        run_experiment(experiment, tmp_path / "runs", created=DATE)
    assert not (tmp_path / "runs").exists()


TWICE_REACTIVE = (
    GOOD.replace("seeds = [1, 2]", "seeds = [1]")
    + """
[[policies]]
name = "unnamed"
policy = "reactive"
target_cpu = 0.5
"""
)


def test_a_mechanism_makes_no_difference_by_being_named(tmp_path: Path) -> None:
    runs = run_experiment(Experiment(write_plan(tmp_path, TWICE_REACTIVE)), tmp_path / "runs", created=DATE)
    named, unnamed = (run for run in runs if run.record.policy != "static")
    assert {change.mechanism for change in unnamed.record.changes} == {Mechanism.IN_PLACE_RESCALE}
    np.testing.assert_array_equal(named.read_series().latency_p50_s, unnamed.read_series().latency_p50_s)


@pytest.mark.parametrize(
    ("policy", "mechanism"),
    [
        (Reactive(), Mechanism.HANDOVER),
        (Reactive(mechanism=Mechanism.REDEPLOY), Mechanism.REDEPLOY),
        (Static(), None),
        (Static(mechanism=Mechanism.REDEPLOY), None),
        (BestFixed(configuration=Configuration(executors=1)), None),
    ],
)
def test_a_job_is_deployed_for_what_will_change_its_executors(policy: Policy, mechanism: Mechanism | None) -> None:
    offered = (Mechanism.QUERY_RESTART, Mechanism.HANDOVER, Mechanism.REDEPLOY)
    space = ConfigurationSpace(
        executors=(1, 2), changes=tuple(ChangeCost(mechanism=mechanism, gap_s=1.0) for mechanism in offered)
    )
    assert deployed_for(policy, space) is mechanism


CHANGE = ChangeRequest(
    request_id="a",
    origin=Origin.POLICY,
    source=Configuration(executors=1),
    target=Configuration(executors=2),
    mechanism=Mechanism.REDEPLOY,
    requested_at_s=100.0,
    deadline_s=200.0,
    reason=Reason(code="x", sentence="The load rises."),
)
EXPIRED = ChangeExpired(at_s=200.0, request_id="a", configuration=CHANGE.source)
LATE = ChangeOutcome(
    request_id="a", status=ChangeStatus.APPLIED, finished_at_s=260.0, configuration=CHANGE.target, gap_s=55.0
)


class Nowhere:
    """A journal that keeps nothing."""

    def append(self, events: Iterable[JournalEvent]) -> None:
        list(events)

    def read(self) -> Iterable[JournalEvent]:
        return ()

    def close(self) -> None:
        return None


@pytest.mark.parametrize("by_journal", [True, False])
def test_a_change_that_ended_after_its_deadline_failed_with_the_gap_it_really_had(by_journal: bool) -> None:
    ledger = Ledger(Nowhere())
    ledger.append([ChangeRequested(at_s=100.0, request=CHANGE), EXPIRED])
    (record,) = ledger.changes()
    assert (record.status, record.finished_at_s, record.gap_s) == (ChangeStatus.FAILED, 200.0, 0.0)
    if by_journal:
        ledger.append([ChangeFinished(at_s=270.0, outcome=LATE)])
    else:
        ledger.settle({"a": LATE}.get)
    (record,) = ledger.changes()
    assert (record.status, record.finished_at_s, record.gap_s) == (ChangeStatus.FAILED, 260.0, 55.0)


def test_a_full_disk_leaves_no_run_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise PermanentError("the run could not be written: No space left on device; nothing was kept")

    monkeypatch.setattr(run_module, "finish_run", full)
    with pytest.raises(PermanentError, match="No space left"):
        run_experiment(Experiment(write_plan(tmp_path)), tmp_path / "runs", created=DATE)
    with pytest.raises(BadInputError, match="no finished run"):
        find_runs([tmp_path / "runs"])


def test_a_plan_with_another_policy_and_seed_keeps_the_runs_that_it_had(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(home, folder)
    before = (folder / "waves-static-1" / "run.json").stat().st_mtime_ns
    more = GOOD.replace("seeds = [1, 2]", "seeds = [1, 2, 3]") + '\n[[policies]]\npolicy = "ds2"\n'
    runs = run_experiment(Experiment(write_plan(tmp_path, more)), folder, created=DATE)
    assert len(runs) == 9
    assert missing_runs(find_runs([folder])) == ()
    assert (folder / "waves-static-1" / "run.json").stat().st_mtime_ns == before
    with pytest.raises(BadInputError, match="exists already and is not a try of this plan"):
        run_experiment(Experiment(write_plan(tmp_path)), folder, created=DATE)  # ds2 is not in it
    other = more.replace("target_cpu = 0.5", "target_cpu = 0.6")
    with pytest.raises(BadInputError, match="exists already and is not a try of this plan"):
        run_experiment(Experiment(write_plan(tmp_path, other)), folder, created=DATE)
