"""Runs the policies and the bounds, over all cores, and keeps what has ended.

One Spark job over the runs of all loads, not one experiment after the other: the runs of one load take from two seconds
to two minutes, and cores would wait at the end of each. Every run is an experiment of its own in its own folder, named
by all that it depends on: whatever else is asked for the next time, a run that has ended is found again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import JsonValue

from bench.policies_plans import OURS, Scene
from tidewise.core import BadInputError, Mechanism
from tidewise.experiments import Aggregate, Experiment, compare, run_experiment
from tidewise.experiments.bound import Quality, hindsight_bound
from tidewise.experiments.comparison import BASELINE_POLICY, run_name
from tidewise.experiments.experiment import Ground
from tidewise.experiments.measures import Summary
from tidewise.experiments.plan import Plan
from tidewise.experiments.record import JOURNAL_FILE, is_partial, load_run
from tidewise.experiments.spreading import Spreader
from tidewise.host.threads import on_one_thread
from tidewise.host.whole_files import write_whole

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Tell = Callable[[str], None]


class OneRun(Experiment):
    """A plan cut down to one policy and one seed."""

    def __init__(self, path: Path, *, policy: str, seed: int) -> None:
        super().__init__(path)
        self.plan = one_of(self.plan, policy, seed)

    def check(self, load: str, seed: int) -> None:
        """Nothing: that no configuration could keep the promises is a result here, and best-fixed finds it."""


def one_of(plan: Plan, policy: str, seed: int) -> Plan:
    """The plan with this policy and this seed alone."""
    table = next(one for one in plan.policies if one.label == policy)
    return plan.model_copy(update={"policies": (table,), "seeds": (seed,)})


def digest_of(plan: Plan, ground: Ground, *more: JsonValue) -> str:
    """Names all that the runs of a plan with one load depend on, but for the code."""
    parts = [plan.resolved(), ground.profile.digest, ground.load_digest, *more]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:10]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of the comparison."""

    scene: Scene
    policy: str
    seed: int
    home: Path
    """The folder of its experiment."""

    @property
    def name(self) -> str:
        return f"{self.scene.world.name} {run_name(self.scene.load, self.policy, self.seed)}"

    @property
    def folder(self) -> Path:
        """Where it lies when it has ended."""
        return self.home / run_name(self.scene.load, self.policy, self.seed)


def cells_of(scene: Scene, policies: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """The runs of these policies with these seeds, each with its folder beside the plan."""
    experiment = Experiment(scene.plan)
    ground = experiment.ground(scene.load)
    cells = []
    for policy in policies:
        for seed in seeds:
            digest = digest_of(one_of(experiment.plan, policy, seed), ground)
            home = scene.plan.parent / f"{policy}-{seed}-{digest}"
            cells.append(Cell(scene=scene, policy=policy, seed=seed, home=home))
    return cells


def run_cells(cells: Sequence[Cell], *, spread: Spreader, again: Sequence[str], tell: Tell) -> dict[str, str]:
    """Run what has not ended yet, and say by name why some could not be run.

    `again`: policies whose kept runs are dropped.
    """
    for cell in cells:
        if cell.policy in again:
            shutil.rmtree(cell.home, ignore_errors=True)
    left = [cell for cell in cells if not cell.folder.is_dir()]
    created = datetime.now(UTC).date().isoformat()
    answers = _spread(
        spread,
        partial(_run, created),
        left,
        called=lambda cell: cell.name,
        is_on=lambda cell: is_partial(cell.folder),
        tell=tell,
        before=len(cells) - len(left),
        what="runs",
    )
    return {cell.name: why for cell, why in zip(left, answers, strict=True) if why is not None}


def _run(created: str, cell: Cell) -> str | None:
    """One run, wherever this is computed; what the plan makes impossible is told, and no end of all the others."""
    try:
        experiment = OneRun(cell.scene.plan, policy=cell.policy, seed=cell.seed)
        run_experiment(experiment, cell.home, created=created)
        if cell.policy != OURS:
            # Nobody asks the others for their reasons, and a day of them is six times as large as all the rest.
            (cell.folder / JOURNAL_FILE).unlink(missing_ok=True)
    except BadInputError as error:
        return str(error)
    return None


def figures_of(cells: Sequence[Cell]) -> tuple[Aggregate, ...]:
    """The runs of one load that have ended, beside each other; none where there is no static run to hold them to."""
    runs = [load_run(cell.folder) for cell in cells if cell.folder.is_dir()]
    seeds = {run.record.seed for run in runs if run.record.policy == BASELINE_POLICY}
    return compare([run for run in runs if run.record.seed in seeds])


# The bound --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The hindsight bound of one load with one seed."""

    at_least_core_h: float
    """No sequence of this quality takes less, driver and controller included."""
    reached_core_h: float
    """What the cheapest sequence takes that was found."""
    gib_h: float
    cost: float
    bad_s: float
    allowed_s: float
    """Bad seconds that the quality leaves."""
    changes: int
    keeps_quality: bool
    achieved_core_h: float | None = None
    """What the cheapest sequence takes that was seen to keep quality and promises in the simulator; None: none was
    found, or asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTask:
    """A bound that is to be found."""

    scene: Scene
    seed: int
    quality: Quality
    achieve: bool
    """Whether a sequence that can be done is looked for as well."""
    file: Path

    @property
    def name(self) -> str:
        return f"{self.scene.world.name} {run_name(self.scene.load, 'bound', self.seed)}"


def quality_of(scene: Scene, static: Summary) -> Quality | None:
    """What the goal allows: so many points fewer good seconds than static; None: it had no output."""
    if static.good_limit_s is None:
        return None
    allowed = 1.0 - static.good_share + scene.world.goals.points / 100
    return Quality(bad_s=round(allowed * static.seconds, 3), limit_s=static.good_limit_s)


def bound_task(scene: Scene, static: Summary) -> BoundTask | None:
    """The bound at what the goal allows, and how near one can come to it; None: static had no output.

    How near takes minutes more, and is asked on the cluster as it is alone; not where executors join and leave:
    no sequence that was found there comes near what policies do.
    """
    quality = quality_of(scene, static)
    if quality is None:
        return None
    seed, achieve = static.record.seed, scene.world.mechanisms == (Mechanism.REDEPLOY,) and not scene.varied
    experiment = OneRun(scene.plan, policy=BASELINE_POLICY, seed=seed)
    key = digest_of(experiment.plan, experiment.ground(scene.load), asdict(quality), achieve)
    file = scene.plan.parent / f"bound-{seed}-{key}.json"
    return BoundTask(scene=scene, seed=seed, quality=quality, achieve=achieve, file=file)


def find_bounds(
    tasks: Sequence[BoundTask], *, spread: Spreader, again: bool, tell: Tell
) -> Mapping[tuple[str, str, int], Known]:
    """All bounds by world, load and seed; those that are known are kept, unless all are asked for again."""
    _make_files(_find, tasks, spread=spread, again=again, tell=tell, what="bounds")
    return {
        (task.scene.world.name, task.scene.load, task.seed): Known(**json.loads(task.file.read_text(encoding="utf-8")))
        for task in tasks
    }


@on_one_thread
def _find(task: BoundTask) -> None:
    experiment = OneRun(task.scene.plan, policy=BASELINE_POLICY, seed=task.seed)
    trial = experiment.trial(task.scene.load, task.seed)
    found = hindsight_bound(
        profile=trial.ground.profile,
        rates_per_s=trial.rates_per_s,
        faults=trial.faults,
        space=trial.ground.space,
        promises=trial.ground.promises,
        prices=experiment.prices,
        start=experiment.start,
        quality=task.quality,
        seed=task.seed,
        mechanisms=task.scene.world.mechanisms,
        decide_every_s=experiment.plan.control.decide_every,
        achieve=task.achieve,
    )
    known = Known(
        at_least_core_h=found.at_least,
        reached_core_h=found.core_hours,
        gib_h=found.gib_hours,
        cost=found.money,
        bad_s=found.bad_s,
        allowed_s=task.quality.bad_s,
        changes=found.changes,
        keeps_quality=found.keeps_quality,
        achieved_core_h=None if found.achieved is None else found.achieved.core_hours,
    )
    write_whole(task.file, [json.dumps(asdict(known))])


# The best configuration of all seeds ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedTask:
    """The cheapest constant configuration that keeps the promises whenever the failures come: with every seed."""

    scene: Scene
    seeds: tuple[int, ...]
    file: Path

    @property
    def name(self) -> str:
        return f"{self.scene.world.name} {self.scene.load} best-fixed of {len(self.seeds)} seeds"


def fixed_task(scene: Scene, seeds: Sequence[int]) -> FixedTask:
    """Kept by all that it depends on."""
    experiment = Experiment(scene.plan)
    key = digest_of(experiment.plan, experiment.ground(scene.load), list(seeds))
    return FixedTask(scene=scene, seeds=tuple(seeds), file=scene.plan.parent / f"fixed-{key}.json")


def find_fixed(tasks: Sequence[FixedTask], *, spread: Spreader, tell: Tell) -> Mapping[tuple[str, str], float | None]:
    """Its cores, by world and load; None where no configuration keeps the promises with every seed."""
    _make_files(_find_fixed, tasks, spread=spread, again=False, tell=tell, what="constants")
    return {
        (task.scene.world.name, task.scene.load): json.loads(task.file.read_text(encoding="utf-8")) for task in tasks
    }


@on_one_thread
def _find_fixed(task: FixedTask) -> None:
    experiment = Experiment(task.scene.plan)
    every = [experiment.trial(task.scene.load, seed).hindsight for seed in task.seeds]
    cheapest = [one.cheapest() for one in every]
    best: float | None = None
    if None not in cheapest:
        per_hour = experiment.prices.per_hour
        least = max(per_hour(one) for one in cheapest if one is not None)
        space = experiment.ground(task.scene.load).space
        able = sorted((one for one in space if per_hour(one) >= least), key=per_hour)
        best = next((one.total_cores for one in able if all(hindsight.keeps(one) for hindsight in every)), None)
    write_whole(task.file, [json.dumps(best)])


class _Filed(Protocol):
    """A task whose answer is a file."""

    @property
    def name(self) -> str: ...
    @property
    def file(self) -> Path: ...


Filed = TypeVar("Filed", bound=_Filed)


def _make_files(
    work: Callable[[Filed], None], tasks: Sequence[Filed], *, spread: Spreader, again: bool, tell: Tell, what: str
) -> None:
    """Do what has no file yet, or all of it again."""
    left = [task for task in tasks if again or not task.file.is_file()]
    _spread(
        spread,
        work,
        left,
        called=lambda task: task.name,
        is_on=lambda _: False,
        tell=tell,
        before=len(tasks) - len(left),
        what=what,
    )


def _spread(
    spread: Spreader,
    work: Callable[[Task], Answer],
    tasks: Sequence[Task],
    *,
    called: Callable[[Task], str],
    is_on: Callable[[Task], bool],
    tell: Tell,
    before: int,
    what: str,
) -> list[Answer]:
    """All answers, telling how far it is whenever that has changed."""
    last = ""

    def progress(done: int, on: Sequence[Task]) -> None:
        nonlocal last
        now = f"; on now: {', '.join(map(called, on))}" if on else ""
        sentence = f"{before + done} of {before + len(tasks)} {what} have ended{now}"
        if sentence != last:
            tell(sentence)
            last = sentence

    if not tasks:
        return []
    return spread(work, tasks, called=called, is_on=is_on, progress=progress)
