"""The experiment of the earlier systems: its plans, its look-alike loads, and the published figures beside it."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from pydantic import JsonValue

from tests.experiments.plans import GOOD, write_plan
from tidewise.core import BadInputError, Mechanism, PermanentError, Prices, Promises
from tidewise.engines.simulator import load_profile
from tidewise.experiments import (
    Experiment,
    Progress,
    compare,
    find_plan,
    find_runs,
    missing_runs,
    run_experiment,
    spread_over,
)
from tidewise.experiments.comparison import Spread as SpreadOverSeeds
from tidewise.experiments.fit_paper_cluster import NETWORK_DELAY, static_figures
from tidewise.experiments.fit_paper_cluster_tsw import fit_tsw, interval_line, make_profile, tsw_loads
from tidewise.experiments.measures import configurations_of
from tidewise.experiments.plan import read_plan
from tidewise.experiments.published import START, Beside, Range, beside, published, published_job, set_up_alike
from tidewise.experiments.record import RunRecord
from tidewise.experiments.run import run_keys
from tidewise.experiments.toml_file import TomlFile

DATE = "2026-11-16"
A_RECORD = RunRecord(
    name="ysb-reactive-1",
    engine="simulator",
    profile="paper-cluster",
    load="ysb",
    policy="reactive",
    seed=1,
    duration_s=64_800.0,
    start=START,
    promises=Promises(latency_p95_s=3.0),
    prices=Prices(),
    faults=(),
    meter={},
    versions={},
    plan={},
    complete=True,
    created=DATE,
)
Task = TypeVar("Task")
Answer = TypeVar("Answer")


@pytest.mark.parametrize("name", ["paper", "paper-spark"])
def test_a_shipped_plan_is_the_experiment_that_was_published_and_ours_beside_it(name: str) -> None:
    experiment = Experiment(find_plan(name))
    assert len(run_keys(experiment.plan)) == 2 * 9 * 3
    assert [policy.label for policy in experiment.plan.policies] == [
        "tidewise",
        "static",
        "best-fixed",
        "reactive",
        "ds2",
        "rescaler",
        "tidalscale",
        "phoebe",
        "demeter",
    ]
    trial = experiment.trial("ysb", 1)
    assert len(trial.faults) == 23
    assert experiment.start.total_cores == 24.0
    assert experiment.start.total_memory_mib == 24 * 4096
    assert len(trial.ground.space) >= 24 * 4 * 3 * 4


def test_each_job_of_the_paper_has_its_profile() -> None:
    experiment = Experiment(find_plan("paper"))
    assert [experiment.ground(load).profile.name for load in ("ysb", "tsw")] == ["paper-cluster", "paper-cluster-tsw"]


@pytest.mark.parametrize(
    ("load", "least", "mean", "most", "peaks"),
    [("ysb", 17_600, 42_800, 87_700, 7), ("tsw", 30_000, 55_000, 113_000, 6)],
)
def test_the_look_alikes_are_like_the_released_loads(
    *, load: str, least: float, mean: float, most: float, peaks: int
) -> None:
    experiment = Experiment(find_plan("paper"))
    noisy = experiment.ground(load).load
    smooth = noisy.load.rates_per_s(64_800, 1)  # type: ignore[attr-defined]  # noise lies on it
    assert (smooth.min(), smooth.max()) == (least, most)
    assert smooth.mean() == pytest.approx(mean, rel=0.01)
    minutes = smooth.reshape(-1, 60).mean(axis=1)
    assert (minutes[10:] / minutes[:-10]).max() <= 1.53
    rises = np.sign(np.diff(minutes[np.concatenate(([True], np.diff(minutes) != 0))]))
    tops = np.flatnonzero((rises[:-1] > 0) & (rises[1:] < 0))
    assert len(tops) == peaks


TWO_JOBS = GOOD.replace(
    "[[policies]]",
    '[[loads]]\nname = "other"\nshape = "constant"\nrate_per_s = 30000.0\nprofile = "paper-cluster-tsw"\n'
    'promises = { latency_p95 = "4s", good_share = 0.8 }\n\n[[policies]]',
    1,
)


def test_two_jobs_stand_in_one_plan(tmp_path: Path) -> None:
    short = TWO_JOBS.replace("seeds = [1, 2]", "seeds = [1]").replace('duration = "1h"', 'duration = "20min"')
    experiment = Experiment(write_plan(tmp_path, short))
    runs = {run.record.name: run.record for run in run_experiment(experiment, tmp_path / "runs", created=DATE)}
    assert runs["waves-static-1"].profile == "paper-cluster"
    assert runs["waves-static-1"].promises.latency_p95_s == 3.0
    assert runs["other-static-1"].profile == "paper-cluster-tsw"
    assert runs["other-static-1"].promises.latency_p95_s == 4.0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('profile = "paper-cluster-tsw"', 'profile = "paper-cluster-tws"', "line 32: there is no profile"),
        ('profile = "paper-cluster-tsw"', 'profile = "spark-local"', "spark-local knows no failure 'network-delay'"),
        ("good_share = 0.8", "good_share = 1.8", "line 3.: good_share"),
        ('latency_p95 = "4s"', 'latency = "4s"', "unknown key 'latency'"),
    ],
)
def test_a_job_of_its_own_is_checked_like_the_plans(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in TWO_JOBS
    with pytest.raises(BadInputError, match=said):
        Experiment(write_plan(tmp_path, TWO_JOBS.replace(old, new)))


def test_a_policy_says_what_the_space_lacks_before_anything_runs(tmp_path: Path) -> None:
    few = GOOD.replace('executors = "1..24"', "executors = 24").replace('policy = "reactive"', 'policy = "phoebe"')
    few = few.replace("target_cpu = 0.5\n", "")
    with pytest.raises(BadInputError, match="line 31: policy 'phoebe' cannot work here: "):
        Experiment(write_plan(tmp_path, few))


def test_a_budget_for_profiles_reaches_the_guards(tmp_path: Path) -> None:
    table = '[control]\nprofile_cores = 8.0\nprofile_memory = "16GiB"\nprofile_time = "2h"\n\n[failures]'
    guards = Experiment(write_plan(tmp_path, GOOD.replace("[failures]", table))).plan.control.guard_settings()
    assert (guards.profile_cores, guards.profile_memory_mib, guards.profile_time_s) == (8.0, 16_384, 7200.0)


def test_the_profile_of_tsw_is_what_its_fit_makes() -> None:
    loads = tsw_loads(None)
    shipped = load_profile("paper-cluster-tsw")
    fitted = fit_tsw(load_profile("paper-cluster"), {seed: loads[seed] for seed in (1, 2, 3)})
    assert fitted.digest == shipped.digest
    found, static = static_figures(shipped, loads), published("TSW", "static")
    assert found.good_share == pytest.approx(static.good_share.middle, abs=0.002)
    assert found.recovery_mean_s == pytest.approx(static.recovery_mean_s.middle, rel=0.05)
    assert found.recovery_max_s == pytest.approx(static.recovery_max_s, rel=0.15)


def test_recovery_by_checkpoint_interval_agrees_without_having_been_fitted() -> None:
    failure = load_profile("paper-cluster-tsw").failures[NETWORK_DELAY]
    assert interval_line().downtime_s(failure.detection_s) == pytest.approx(failure.downtime_s, rel=0.15)


def test_tsw_differs_from_ysb_in_what_was_published_only() -> None:
    ysb = load_profile("paper-cluster")
    tsw = make_profile(ysb, detection_s=1.0, downtime_s=2.0, spread_share=0.3)
    assert tsw.capacity.records_per_core_s == pytest.approx(4 / 3 * ysb.capacity.records_per_core_s, rel=0.001)
    assert tsw.mechanisms[Mechanism.IN_PLACE_RESCALE] == ysb.mechanisms[Mechanism.IN_PLACE_RESCALE]
    assert tsw.mechanisms[Mechanism.REDEPLOY].gap_s > ysb.mechanisms[Mechanism.REDEPLOY].gap_s
    assert (tsw.memory, tsw.latency) == (ysb.memory, ysb.latency)


def test_a_misfit_is_to_the_nearest_end_of_what_was_published() -> None:
    ours = SpreadOverSeeds(mean=0.5, least=0.5, most=0.5)
    above = Beside(figure="x", unit="ratio", ours=ours, theirs=Range(least=0.3, most=0.4), close_within=0.1)
    assert above.misfit == pytest.approx(0.25)
    assert above.is_close is False
    inside = dataclasses.replace(above, theirs=Range(least=0.3, most=0.6))
    assert (inside.misfit, inside.is_close) == (0.0, True)
    share = dataclasses.replace(above, unit="share", close_within=0.2)
    assert share.misfit == pytest.approx(0.1)
    assert share.is_close
    assert dataclasses.replace(above, theirs=Range(least=0.0, most=0.0)).misfit is None
    assert dataclasses.replace(above, ours=None).is_close is None


def test_only_runs_like_the_published_stand_beside_them(tmp_path: Path) -> None:
    plan = GOOD.replace("seeds = [1, 2]", "seeds = [1]").replace('every = "30min"', 'every = "2700s"')
    runs = run_experiment(Experiment(write_plan(tmp_path, plan)), tmp_path / "runs", created=DATE)
    assert all(published_job(run.record) is None for run in runs)  # an hour is no day
    assert all(beside(aggregate) == [] for aggregate in compare(runs))
    record = dataclasses.replace(runs[0].record, duration_s=64_800.0)
    assert published_job(record) == "YSB"
    versions = {**record.versions, "profile": load_profile("paper-cluster-tsw").digest}
    assert published_job(dataclasses.replace(record, profile="paper-cluster-tsw", versions=versions)) == "TSW"
    unlike: list[dict[str, Any]] = [
        {"profile": "spark-local"},
        {"versions": versions},  # a file of one's own with the shipped one's name
        {"start": record.start.with_executors(12)},
        {"plan": {**record.plan, "failures": {**_failures(record), "kind": ["driver-kill"]}}},
        {"plan": {**record.plan, "failures": {**_failures(record), "every": 600.0}}},
        {"plan": {**record.plan, "failures": None}},
    ]
    assert [published_job(dataclasses.replace(record, **one)) for one in unlike] == [None] * len(unlike)


def _failures(record: RunRecord) -> dict[str, JsonValue]:
    failures = record.plan["failures"]
    assert isinstance(failures, dict)
    return failures


def test_the_shipped_plan_starts_where_the_published_runs_did() -> None:
    assert Experiment(find_plan("paper")).start == START


def test_only_the_policies_of_the_shipped_plan_have_goals() -> None:
    paper = read_plan(TomlFile(find_plan("paper"))).resolved()

    def is_alike(**other: JsonValue) -> bool:
        return set_up_alike(dataclasses.replace(A_RECORD, plan={**paper, **other}))

    assert is_alike()
    assert is_alike(seeds=[7])
    assert not is_alike(policies=[{"policy": "reactive", "name": None, "target_cpu": 0.9}])
    assert not is_alike(policies=[{"policy": "ds2", "name": "reactive"}])
    assert not is_alike(control={})


def test_what_ran_when_follows_from_the_changes(tmp_path: Path) -> None:
    plan = GOOD.replace("seeds = [1, 2]", "seeds = [1]")
    runs = run_experiment(Experiment(write_plan(tmp_path, plan)), tmp_path / "runs", created=DATE)
    reactive = next(run for run in runs if run.record.policy == "reactive")
    held = configurations_of(reactive.record)
    assert held[0] == (0.0, reactive.record.start)
    executors = reactive.read_series().executors
    assert len(held) > 2
    for since_s, configuration in held:
        assert executors[int(since_s) + 1] in {configuration.executors, configuration.executors - 1}


def test_a_worker_that_sees_another_folder_says_so(tmp_path: Path) -> None:
    def elsewhere(
        work: Callable[[Task], Answer], tasks: Sequence[Task], *, is_on: Callable[[Task], bool], **_: object
    ) -> list[Answer]:
        """As on a machine that has not this folder, but one of the same name."""
        if not is_on(tasks[0]) and (tmp_path / "runs" / ".running").exists():
            (tmp_path / "runs" / ".running").write_text("of another experiment")
        return [work(task) for task in tasks]

    with pytest.raises(PermanentError, match=r"does not see the folder .*runs: give a folder with --out that all"):
        run_experiment(Experiment(write_plan(tmp_path)), tmp_path / "runs", created=DATE, spread=elsewhere)
    assert not list((tmp_path / "runs").glob("*"))


@pytest.mark.xdist_group("spark")
def test_on_spark_the_runs_are_those_of_this_process(tmp_path: Path) -> None:
    experiment = Experiment(write_plan(tmp_path))
    here = run_experiment(experiment, tmp_path / "here", created=DATE)
    seen: list[Progress] = []
    with spread_over("local[2]") as spread:
        spark = run_experiment(experiment, tmp_path / "spark", created=DATE, spread=spread, progress=seen.append)
    assert [run.record for run in spark] == [run.record for run in here]
    for ours, theirs in zip(spark, here, strict=True):
        for file in ("latency_p50_s", "cores", "backlog_records"):
            np.testing.assert_array_equal(getattr(ours.read_series(), file), getattr(theirs.read_series(), file))
    assert seen[-1].sentence == "4 of 4 runs have ended"
    assert [one.done for one in seen if not one.checking] == sorted(one.done for one in seen if not one.checking)


@pytest.mark.soak
@pytest.mark.xdist_group("spark")
def test_on_spark_an_impossible_promise_leaves_nothing_behind(tmp_path: Path) -> None:
    impossible = GOOD.replace('latency_p95 = "3s"', 'latency_p95 = "100ms"')
    with spread_over("local[2]") as spread, pytest.raises(BadInputError, match="line 20: no configuration can keep"):
        run_experiment(Experiment(write_plan(tmp_path, impossible)), tmp_path / "runs", created=DATE, spread=spread)
    assert not (tmp_path / "runs").exists()


LONG = GOOD.replace('duration = "1h"', 'duration = "24h"').replace("seeds = [1, 2]", "seeds = [1, 2, 3, 4]")


@pytest.mark.soak  # two experiments each, killed and gone on with: 50 s each on two cores
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("victim", ["all of it", "the workers"])
def test_killed_in_the_middle_it_goes_on_with_what_is_missing(tmp_path: Path, victim: str) -> None:
    plan, home = write_plan(tmp_path, LONG), tmp_path / "runs" / "small"
    command = [sys.executable, "-m", "tidewise.cli", "experiment", str(plan), "--master", "local[2]", "--json"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        wait_for(lambda: any(home.glob("*/run.json")) and any(home.glob("*.partial")), within_s=120.0)
        if victim == "the workers":
            for pid in workers_in(process.pid):  # some of them may be idle
                os.kill(pid, signal.SIGKILL)
            _, told = process.communicate(timeout=120)
            assert process.returncode == 2
            assert told.startswith("tidewise: Spark gave the sweep up: ")
            assert told.count("\n") == 1
    finally:
        process.kill()
        process.communicate(timeout=30)
    # Whatever computed a run dies with it: what is partial stays so.
    wait_for(lambda: not in_session(process.pid), within_s=60.0)
    whole = {run.folder.name: run for run in find_runs([home])}
    assert 0 < len(whole) < 8
    assert len(missing_runs(whole.values())) == 1
    runs = run_experiment(Experiment(plan), home, created=DATE)
    assert len(runs) == 8
    assert missing_runs(runs) == ()
    assert not list(home.glob("*.partial"))
    again = run_experiment(Experiment(plan), tmp_path / "undisturbed", created=DATE)
    assert [run.record.meter for run in runs] == [run.record.meter for run in again]


def wait_for(condition: object, *, within_s: float) -> None:
    assert callable(condition)
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s, "it did not come about in time"
        time.sleep(0.1)


def in_session(session: int) -> dict[int, int]:
    """The processes of this session that are left, each with its parent."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found[int(path.parent.name)] = int(fields[1])
    return found


def workers_in(session: int) -> list[int]:
    """The Python workers of Spark: children of the process that forks them."""
    parents = in_session(session)
    forks = [pid for pid in parents if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return [pid for pid in forks if parents[pid] in forks]
