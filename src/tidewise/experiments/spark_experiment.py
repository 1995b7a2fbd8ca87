"""Runs a plan on real Spark: one run after the other, each on a cluster of its own, which is gone when it has ended."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tidewise import __version__
from tidewise.control import SystemClock
from tidewise.core import TidewiseError
from tidewise.engines.spark.book import Book
from tidewise.engines.spark.cluster import LocalCluster
from tidewise.engines.spark.engine import SparkEngine
from tidewise.engines.spark.program import SparkProgram
from tidewise.experiments.claim import claimed
from tidewise.experiments.job_check import cpu_reason
from tidewise.experiments.live import LiveSetting, Observer
from tidewise.experiments.record import Run, clear_partial
from tidewise.experiments.run import RunKey, run_keys
from tidewise.experiments.signals import asked_to_stop
from tidewise.experiments.spark_plan import SparkExperiment
from tidewise.experiments.spark_run import Measured, Say, SparkRun, check_spark, stop
from tidewise.experiments.tries import earlier_runs, refuse_a_file
from tidewise.kafka.broker import LocalBroker
from tidewise.kafka.jars import resolve, spark_connector

_LOG = logging.getLogger(__name__)

JOBS = "jobs"
"""In the folder of the plan: what belongs to the jobs of its runs, logs and checkpoints."""
_CLUSTER, _KAFKA, _JOB = "cluster", "kafka", "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a plan."""

    runs: tuple[Run, ...]
    """Those that are complete, in the order of the plan."""
    total: int
    """How many runs the plan has."""
    stopped: bool
    """Whether somebody ended it early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Which run it is."""

    key: RunKey
    number: int
    total: int


Watcher = Callable[[Turn], AbstractContextManager[Observer]]


def run_on_spark(
    experiment: SparkExperiment, home: Path, *, created: str, say: Say, warn: Say, watch: Watcher
) -> Outcome:
    """Run what is missing into the folder `home`, where each run appears when it has ended.

    Runs that an earlier try has completed are kept; one that was cut short, failed or was killed is done again. Ctrl-C
    ends the run that is on in order: it is written as incomplete, and the same call goes on there. A run that fails is
    told by `warn`, as is everything that makes a difference to the figures, and the others are run.
    """
    check_spark()
    home = home.absolute()
    keys = run_keys(experiment.plan)
    versions = {load.name: experiment.versions(load.name) for load in experiment.plan.loads}

    def is_same(run: Run) -> bool:
        today = {"tidewise": __version__, **versions[run.record.load]}
        return all(run.record.versions.get(name) == value for name, value in today.items())

    stopped = False
    refuse_a_file(home)
    with claimed(home), asked_to_stop(_interrupt):
        found = earlier_runs(home, plan=experiment.plan.resolved(), is_same=is_same, beside=(JOBS,))
        runs = {name: run for name, run in found.items() if run.record.complete}
        note = experiment.cpu_note(cpu_reason()) if len(runs) < len(keys) else None
        if note is not None:
            warn(f"Careful: {note}")
        for load in experiment.plan.loads:
            say(f"The load {load.name} is {load.origin}.")
        for number, key in enumerate(keys, start=1):
            if key.name in runs:
                continue
            turn = Turn(key=key, number=number, total=len(keys))
            _clear(home, key)
            say(f"Run {number} of {len(keys)}: {key.name}.")
            try:
                measured = measure_run(experiment, home, turn, created=created, say=say, watch=watch)
            except TidewiseError as error:
                _LOG.exception("%s failed", key.name)
                warn(f"{key.name} failed, and does not count: {error}; the same command does it again.")
                continue
            _tell_of(measured, say, warn)
            if measured.run.record.complete:
                runs[key.name] = measured.run
            if measured.stopped:
                stopped = True
                break
    complete = tuple(runs[key.name] for key in keys if key.name in runs)
    return Outcome(runs=complete, total=len(keys), stopped=stopped)


def measure_run(
    experiment: SparkExperiment, home: Path, turn: Turn, *, created: str, say: Say, watch: Watcher
) -> Measured:
    """One run, on a cluster (and with a broker) of its own."""
    key, folder = turn.key, home / JOBS / turn.key.name
    with ExitStack() as stack:
        broker = None
        if experiment.table.source == "kafka":
            resolve(spark_connector(), tell=say)
            broker = LocalBroker.up(folder / _KAFKA, tell=say)
            # What it holds can be sent again at any time, and is large.
            stack.callback(shutil.rmtree, folder / _KAFKA, ignore_errors=True)
            stack.callback(stop, broker)
        say("Starting a Spark master and a worker on 127.0.0.1 ...")
        cluster = LocalCluster.up(
            folder / _CLUSTER,
            workers=1,
            slots_per_worker=experiment.slots,
            memory_mib_per_worker=experiment.table.memory,
        )
        stack.callback(stop, cluster)
        trial, ground = experiment.trial(key.load, key.seed), experiment.ground(key.load)
        policy, control = experiment.policy(key.policy), experiment.plan.control
        run = SparkRun(
            folder=folder / _JOB,
            cluster=cluster,
            broker=broker,
            program=ground.program,
            setting=LiveSetting(
                folder=home / key.name,
                load=key.load,
                label=key.policy,
                policy=policy,
                space=experiment.space,
                start=experiment.start_of(policy),
                promises=ground.promises,
                prices=experiment.prices,
                created=created,
                settings=control.loop_settings(),
                guard_settings=control.guard_settings(),
                duration_s=float(experiment.duration_s),
                must_last=True,
                faults=trial.faults,
                seed=key.seed,
                versions=experiment.versions(key.load),
                plan=experiment.plan.resolved(),
            ),
            rates_per_s=trial.rates_per_s,
            warm_up_s=experiment.table.warm_up,
            report_every_s=control.report_every,
        )
        return run.run(say, lambda: watch(turn))


def _tell_of(measured: Measured, say: Say, warn: Say) -> None:
    record = measured.run.record
    for sentence in measured.told:
        say(sentence)
    if measured.problem is not None:
        warn(f"{record.name}: {measured.problem}")
    if not record.complete:
        why = "was cut short" if measured.problem is None else "had another load than it was to have"
        warn(f"{record.name} {why}, and does not count; the same command does it again.")


def _clear(home: Path, key: RunKey) -> None:
    """Remove what an earlier try of a run has left, and end what may still run of it."""
    clear_partial(home / key.name)
    if (home / key.name).exists():
        shutil.rmtree(home / key.name)
    folder = home / JOBS / key.name
    cluster, broker = LocalCluster.find(folder / _CLUSTER), LocalBroker.find(folder / _KAFKA)
    engine = folder / _JOB / "engine"
    if cluster is not None and Book.exists(engine):
        nobody = SparkProgram(command=("-",), folder=folder)
        SparkEngine(program=nobody, cluster=cluster, home=engine, clock=SystemClock()).clear()
    for left in (cluster, broker):
        if left is not None:
            left.down()
    if folder.exists():
        shutil.rmtree(folder)


def _interrupt() -> NoReturn:
    """Whoever ends this program in another way than Ctrl-C means the same."""
    raise KeyboardInterrupt
