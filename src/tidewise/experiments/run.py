"""Runs a plan: each policy on each load with each seed, every run a folder of its own."""

from __future__ import annotations

import platform
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tidewise import __version__
from tidewise.control import Durability, Loop, Runner, RunnerSettings, SqliteJournal
from tidewise.core import BadInputError, FaultInjected, PermanentError
from tidewise.engines.simulator import Simulator
from tidewise.experiments.claim import claimed, read_token
from tidewise.experiments.comparison import run_name
from tidewise.experiments.experiment import Experiment, Ground, Trial, changes_the_job, deployed_for, forecaster_of
from tidewise.experiments.fixed_run import series_of
from tidewise.experiments.ledger import Ledger
from tidewise.experiments.plan import Plan, PolicyTable
from tidewise.experiments.record import (
    JOURNAL_FILE,
    Run,
    RunRecord,
    begin_run,
    clear_partial,
    finish_run,
    is_partial,
    load_run,
)
from tidewise.experiments.spreading import Spreader, in_this_process
from tidewise.experiments.tries import earlier_runs, refuse_a_file
from tidewise.host.threads import on_one_thread


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey:
    """Which run of a plan."""

    load: str
    policy: str
    """As it is called in reports."""
    seed: int

    @property
    def name(self) -> str:
        return run_name(self.load, self.policy, self.seed)


def run_keys(plan: Plan) -> list[RunKey]:
    """Every run of a plan, in its order."""
    return [
        RunKey(load=load.name, policy=policy.label, seed=seed)
        for policy in plan.policies
        for load in plan.loads
        for seed in plan.seeds
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an experiment is."""

    done: int
    """Runs that have ended, those of an earlier try included; while the plan is checked, checks."""
    total: int
    on: tuple[str, ...] = ()
    """The runs that are on now."""
    checking: bool = False
    """Whether the plan is still being checked: nothing has been written yet."""

    @property
    def sentence(self) -> str:
        if self.checking:
            return "checking the plan"
        on = f"; on now: {', '.join(self.on)}" if self.on else ""
        return f"{self.done} of {self.total} runs have ended{on}"


def run_experiment(
    experiment: Experiment,
    home: Path,
    *,
    created: str,
    spread: Spreader = in_this_process,
    progress: Callable[[Progress], None] | None = None,
) -> list[Run]:
    """Run everything into the folder `home`, where each run appears when it is complete; in the order of the plan.

    `spread` computes the runs, each for itself: what comes of them does not depend on it. Promises that no
    configuration can keep on one of the loads are found before the first run: nothing is written. Where the same plan
    was stopped in this folder earlier, its complete runs are kept, and it goes on with the others.
    """
    home = home.absolute()
    keys = run_keys(experiment.plan)
    refuse_a_file(home)
    with claimed(home) as token:
        # Not earlier: whoever had the folder until now may have completed some more.
        kept = earlier_runs(home, plan=experiment.plan.resolved(), is_same=partial(_is_same, experiment))
        missing = [key for key in keys if key.name not in kept]

        def tell(done: int, on: Sequence[RunKey]) -> None:
            if progress is not None:
                names = tuple(key.name for key in on)
                progress(Progress(done=len(kept) + done, total=len(keys), on=names))

        if missing:
            _check(experiment, spread, progress)
            for key in missing:
                clear_partial(home / key.name)
            tell(0, ())
            spread(
                partial(_run_into, experiment, home, token, created),
                missing,
                called=lambda key: key.name,
                is_on=lambda key: is_partial(home / key.name),
                progress=tell,
            )
        tell(len(missing), ())
        return [kept.get(key.name) or load_run(home / key.name) for key in keys]


def _check(experiment: Experiment, spread: Spreader, progress: Callable[[Progress], None] | None) -> None:
    """BadInputError where no configuration could keep the promises on one of the loads, with one of the seeds."""
    trials = [(load.name, seed) for load in experiment.plan.loads for seed in experiment.plan.seeds]

    def tell(done: int, _on: Sequence[tuple[str, int]]) -> None:
        if progress is not None:
            progress(Progress(done=done, total=len(trials), checking=True))

    tell(0, ())
    found = spread(
        partial(_impossible, experiment),
        trials,
        called=lambda trial: f"the check of {trial[0]} with seed {trial[1]}",
        is_on=lambda _: False,
        progress=tell,
    )
    for sentence in found:
        if sentence is not None:
            raise BadInputError(sentence)


@on_one_thread
def _impossible(experiment: Experiment, trial: tuple[str, int]) -> str | None:
    """What is wrong with the promises on a load with a seed: told, because an error would end as one of Spark."""
    try:
        experiment.check(*trial)
    except BadInputError as error:
        return str(error)
    return None


@on_one_thread
def _run_into(experiment: Experiment, home: Path, token: str, created: str, key: RunKey) -> None:
    """One run of the plan, wherever this is computed; with one thread, so that no last bit depends on the machine."""
    if read_token(home) != token:
        raise PermanentError(
            f"{socket.gethostname()} does not see the folder {home}: give a folder with --out that all workers share"
        )
    table = next(policy for policy in experiment.plan.policies if policy.label == key.policy)
    _run(experiment=experiment, trial=experiment.trial(key.load, key.seed), table=table, home=home, created=created)


def _is_same(experiment: Experiment, run: Run) -> bool:
    """Whether this run of the plan would come out the same today; another Python or numpy makes no other run."""
    today = _versions(experiment.ground(run.record.load))
    return all(run.record.versions.get(name) == today[name] for name in ("tidewise", "profile", "load"))


def _versions(ground: Ground) -> dict[str, str]:
    return {
        "tidewise": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "profile": ground.profile.digest,
        "load": ground.load_digest,
    }


def _run(
    *,
    experiment: Experiment,
    trial: Trial,
    table: PolicyTable,
    home: Path,
    created: str,
) -> Run:
    ground = trial.ground
    folder = home / run_name(ground.table.name, table.label, trial.seed)
    policy = experiment.policy(table, trial)
    # A job that nobody ever changes needs no controller, and so does not pay for one.
    controlled = changes_the_job(policy)
    start = experiment.start_of(policy)
    report_every_s = int(experiment.plan.control.report_every)
    simulator = Simulator(
        profile=ground.profile,
        rates_per_s=trial.rates_per_s,
        seed=trial.seed,
        report_every_s=report_every_s,
        controlled=controlled,
        deployed_for=deployed_for(policy, ground.space),
    )
    job = simulator.launch(start)
    work = begin_run(folder)
    # An experiment can be run again; only a job in production needs its journal to outlive the power supply.
    with SqliteJournal(work / JOURNAL_FILE, durability=Durability.PROCESS) as journal:
        ledger = Ledger(journal)
        loop = Loop(
            run=folder.name,
            policy=policy,
            space=ground.space,
            promises=ground.promises,
            prices=experiment.prices,
            forecaster=forecaster_of(policy),
            settings=experiment.plan.control.loop_settings(),
            guard_settings=experiment.plan.control.guard_settings(),
        )
        runner = Runner(
            job=job,
            loop=loop,
            journal=ledger,
            clock=simulator.clock,
            settings=RunnerSettings(poll_every_s=float(report_every_s)),
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
        profile=ground.profile.name,
        load=ground.table.name,
        policy=table.label,
        seed=trial.seed,
        duration_s=float(experiment.duration_s),
        start=start,
        promises=ground.promises,
        prices=experiment.prices,
        faults=trial.faults,
        changes=ledger.changes(),
        meter=job.meter(),
        versions=_versions(ground),
        plan=experiment.plan.resolved(),
        complete=True,
        failed_decisions=ledger.failed_decisions,
        created=created,
    )
    return finish_run(work, record, series_of(job.series(), ledger.forecast_per_s(experiment.duration_s)))
