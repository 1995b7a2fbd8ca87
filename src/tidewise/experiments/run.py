"""Runs a plan: each policy on each load with each seed, every run a folder of its own."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tidewise import __version__
from tidewise.control import Durability, Loop, Runner, RunnerSettings, SqliteJournal
from tidewise.core import BadInputError, FaultInjected
from tidewise.engines.simulator import Simulator
from tidewise.experiments.claim import CLAIM_FILE, claimed
from tidewise.experiments.comparison import run_name
from tidewise.experiments.experiment import Experiment, Trial, changes_the_job, deployed_for
from tidewise.experiments.fixed_run import series_of
from tidewise.experiments.ledger import Ledger
from tidewise.experiments.plan import PolicyTable
from tidewise.experiments.record import (
    JOURNAL_FILE,
    PARTIAL_SUFFIX,
    Run,
    RunRecord,
    begin_run,
    finish_run,
    load_run,
)
from tidewise.forecast import Naive


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an experiment is."""

    run: str | None
    """Which one is on; None: the plan is being checked, and nothing has been written yet."""
    done_runs: int
    total_runs: int
    run_share: float
    """Of the run that is on."""

    @property
    def sentence(self) -> str:
        if self.run is None:
            return "checking the plan"
        return f"run {self.done_runs + 1} of {self.total_runs}: {self.run}"


def run_experiment(
    experiment: Experiment, home: Path, *, created: str, progress: Callable[[Progress], None] | None = None
) -> list[Run]:
    """Run everything into the folder `home`, where each run appears when it is complete.

    Promises that no configuration can keep on one of the loads are found before the first run: nothing is written.
    Where the same plan was stopped in this folder earlier, its complete runs are kept, and it goes on with the others.
    """
    kept = _runs_of_the_same_plan(experiment, home)
    runs: list[Run] = []

    def tell(run: str | None, now_s: float) -> None:
        if progress is not None:
            share = min(1.0, now_s / experiment.duration_s)
            progress(Progress(run=run, done_runs=len(runs), total_runs=experiment.run_count, run_share=share))

    tell(None, 0.0)
    trials = list(experiment.trials())
    with claimed(home):
        for trial in trials:
            for table in experiment.plan.policies:
                name = run_name(trial.load, table.label, trial.seed)
                tell(name, 0.0)
                runs.append(
                    kept.get(name)
                    or _run(
                        experiment=experiment,
                        trial=trial,
                        table=table,
                        folder=home / name,
                        created=created,
                        progress=partial(tell, name),
                    )
                )
    return runs


def _runs_of_the_same_plan(experiment: Experiment, home: Path) -> dict[str, Run]:
    """What an earlier try has finished; BadInputError where the folder holds anything but tries of this very plan."""
    if not home.exists():
        return {}
    taken = f"{home} exists already and is not a try of this plan; remove it, or choose another folder with --out"
    if not home.is_dir():
        raise BadInputError(taken)
    kept: dict[str, Run] = {}
    for path in home.iterdir():
        if not path.is_dir() or path.name.endswith(PARTIAL_SUFFIX):
            continue
        run = load_run(path)
        versions = (run.record.versions.get("tidewise"), run.record.versions.get("profile"))
        if run.record.plan != experiment.plan.resolved() or versions != (__version__, experiment.profile.digest):
            raise BadInputError(taken)
        kept[run.record.name] = run
    strangers = {path.name for path in home.iterdir() if not path.is_dir()} - {CLAIM_FILE}
    if strangers and not kept:
        raise BadInputError(taken)
    return kept


def _run(
    *,
    experiment: Experiment,
    trial: Trial,
    table: PolicyTable,
    folder: Path,
    created: str,
    progress: Callable[[float], None],
) -> Run:
    policy = experiment.policy(table, trial)
    # A job that nobody ever changes needs no controller, and so does not pay for one.
    controlled = changes_the_job(policy)
    start = experiment.start_of(policy)
    report_every_s = int(experiment.plan.control.report_every)
    simulator = Simulator(
        profile=experiment.profile,
        rates_per_s=trial.rates_per_s,
        seed=trial.seed,
        report_every_s=report_every_s,
        controlled=controlled,
        deployed_for=deployed_for(policy, experiment.space),
    )
    job = simulator.launch(start)
    work = begin_run(folder)
    # An experiment can be run again; only a job in production needs its journal to outlive the power supply.
    with SqliteJournal(work / JOURNAL_FILE, durability=Durability.PROCESS) as journal:
        ledger = Ledger(journal)
        loop = Loop(
            run=folder.name,
            policy=policy,
            space=experiment.space,
            promises=experiment.promises,
            prices=experiment.prices,
            forecaster=Naive() if controlled else None,
            settings=experiment.plan.control.loop_settings(),
            guard_settings=experiment.plan.control.guard_settings(),
        )
        runner = Runner(
            job=job,
            loop=loop,
            journal=ledger,
            clock=simulator.clock,
            settings=RunnerSettings(poll_every_s=float(report_every_s)),
            progress=progress,
        )
        for fault in trial.faults:
            runner.run(fault.at_s)
            job.inject(fault.kind)
            runner.record(FaultInjected(at_s=fault.at_s, fault=fault.kind))
        runner.run(float(experiment.duration_s))
        runner.finish("the load has ended")
        ledger.settle(job.change_outcome)
        job.stop()
    # Nobody writes this journal any more: what kept others from it goes, so that a run is three files.
    (work / f"{JOURNAL_FILE}.lock").unlink(missing_ok=True)
    record = RunRecord(
        name=folder.name,
        engine="simulator",
        profile=experiment.profile.name,
        load=trial.load,
        policy=table.label,
        seed=trial.seed,
        duration_s=float(experiment.duration_s),
        start=start,
        promises=experiment.promises,
        prices=experiment.prices,
        faults=trial.faults,
        changes=ledger.changes(),
        meter=job.meter(),
        versions={
            "tidewise": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "profile": experiment.profile.digest,
            "load": trial.load_digest,
        },
        plan=experiment.plan.resolved(),
        complete=True,
        failed_decisions=ledger.failed_decisions,
        created=created,
    )
    return finish_run(work, record, series_of(job.series(), ledger.forecast_per_s(experiment.duration_s)))
