"""Every policy beside tidewise, static, best-fixed and the hindsight bound: in two worlds, on many loads."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.policies_informed import informed_cores
from bench.policies_loads import DAY_S
from bench.policies_plans import MAIN, OURS, WORLDS, Scene, World, make_scene, scene_names
from bench.policies_runs import (
    Cell,
    Known,
    bound_task,
    cells_of,
    figures_of,
    find_bounds,
    find_fixed,
    fixed_task,
    quality_of,
    run_cells,
)
from bench.policies_tables import Result, goals_table, loads_table, policies_table, result_of
from tidewise.core import BadInputError, Mechanism
from tidewise.core.readers import did_you_mean
from tidewise.experiments import Aggregate, Experiment, spread_over
from tidewise.experiments.comparison import BASELINE_POLICY
from tidewise.experiments.measures import Summary
from tidewise.policies import BestFixed

NAME = "policies"
_SEEDS = (5, 5, 2)
"""For ysb, for each of its variations, and for each other load."""
_VARIED_BOUND = 1
"""The bound of a variation is reckoned for this seed alone: it takes minutes."""
_BOUND = "bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be run; the defaults are all of it."""

    worlds: tuple[str, ...] = ()
    """Empty: all, as in the next two."""
    loads: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    seeds: tuple[int, int, int] = _SEEDS
    """So many for ysb, for each of its variations, and for each other load."""
    hours: float | None = None
    elsewhere: tuple[str, ...] = ()
    """The policies of every load but ysb; none: as for ysb."""
    bound: tuple[str, ...] | None = None
    """The loads for which hindsight is reckoned; None: all."""
    keep: Path | None = None
    again: tuple[str, ...] = ()
    master: str = "local[*]"
    page: bool = False
    """Whether what comes of it is written down though something was left out."""

    @property
    def options(self) -> str:
        """What has to be said on the command line to get the same figures."""
        named = (
            ("worlds", self.worlds),
            ("loads", self.loads),
            ("policies", self.policies),
            ("elsewhere", self.elsewhere),
        )
        words = [f"--{name} {' '.join(chosen)}" for name, chosen in named if chosen]
        words += [" ".join(("--seeds", *map(str, self.seeds)))] if self.seeds != _SEEDS else []
        words += [f"--hours {self.hours:g}"] if self.hours is not None else []
        words += [" ".join(("--bound", *self.bound))] if self.bound is not None else []
        return "".join(f" {word}" for word in words)

    @property
    def is_whole(self) -> bool:
        """Whether what comes of it is the benchmark, and no trial."""
        chosen = self.worlds or self.loads or self.policies or self.elsewhere
        narrowed = chosen or self.hours is not None or self.bound is not None
        return not narrowed and self.seeds[0] >= _SEEDS[0]


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be said on the command line of this benchmark alone."""
    group = parser.add_argument_group(NAME, "of that benchmark alone; the page is written when nothing was left out")
    group.add_argument("--worlds", nargs="+", default=[], help=f"some of: {', '.join(one.name for one in WORLDS)}")
    group.add_argument("--loads", nargs="+", default=[], help="some of its loads and variations (ysb-capacity-0.8)")
    group.add_argument("--policies", nargs="+", default=[], help="some of its policies; static is always run")
    group.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=list(_SEEDS),
        help=f"how many for {MAIN}, for each of its variations, and for each other load",
    )
    group.add_argument("--hours", type=float, default=None, help="shorter runs, for a trial (default: 18)")
    group.add_argument("--elsewhere", nargs="+", default=[], help="the policies of every load but ysb (default: all)")
    group.add_argument(
        "--bound", nargs="*", default=None, help="the loads with the hindsight bound, which takes long (default: all)"
    )
    group.add_argument("--keep", type=Path, default=None, help="a folder that keeps what has ended (all: 12 GB)")
    group.add_argument(
        "--again", nargs="+", default=[], help=f"policies (or {_BOUND}) whose kept runs are run again: the code changed"
    )
    group.add_argument("--page", action="store_true", help="write the page though something is left out; it says what")
    group.add_argument("--master", default="local[*]", help="the Spark that runs it; none: one run after the other")


def wanted_of(options: argparse.Namespace) -> Wanted:
    """The options as they were given."""
    seeds = options.seeds
    if not 1 <= len(seeds) <= len(_SEEDS) or min(seeds) < 1:
        raise BadInputError("--seeds takes one to three numbers: for ysb, for its variations, and for each other load")
    known = [world.name for world in WORLDS]
    for name in options.worlds:
        if name not in known:
            raise BadInputError(f"--worlds: there is no world {name!r}{did_you_mean(name, known)}")
    return Wanted(
        worlds=tuple(options.worlds),
        loads=tuple(options.loads),
        policies=tuple(options.policies),
        seeds=(seeds[0], seeds[min(1, len(seeds) - 1)], seeds[-1]),
        hours=options.hours,
        elsewhere=tuple(options.elsewhere),
        bound=None if options.bound is None else tuple(options.bound),
        keep=options.keep,
        again=tuple(options.again),
        master=options.master,
        page=options.page,
    )


def measure(traces: Path | None, wanted: Wanted = Wanted()) -> str:  # noqa: B008 - frozen
    """Run what has not ended yet, and answer the tables."""
    began_s = time.monotonic()
    _let_workers_import_this()
    with _kept(wanted.keep) as folder, spread_over(wanted.master) as spread:
        scenes = _scenes(wanted, traces, folder)
        cells = {scene.plan: _cells(scene, wanted) for scene in scenes}
        every = [cell for some in cells.values() for cell in some]
        failed = run_cells(every, spread=spread, again=wanted.again, tell=_tell)
        figures = {scene.plan: figures_of(cells[scene.plan]) for scene in scenes}
        tasks = [
            task
            for scene in scenes
            if wanted.bound is None or scene.load in wanted.bound
            for one in _statics(figures[scene.plan])
            if not scene.varied or one.record.seed == _VARIED_BOUND
            if (task := bound_task(scene, one))
        ]
        bounds = find_bounds(tasks, spread=spread, again=_BOUND in wanted.again, tell=_tell) if tasks else {}
        constants = [
            fixed_task(scene, seeds)
            for scene in scenes
            if len(seeds := _fixed_seeds(figures[scene.plan])) > 1 and scene.load == MAIN
        ]
        fixed = find_fixed(constants, spread=spread, tell=_tell)
        by_scene: dict[tuple[str, str], dict[int, Known]] = defaultdict(dict)
        for (world, load, seed), known in bounds.items():
            by_scene[world, load][seed] = known
        places = {scene.plan: (scene.world.name, scene.load) for scene in scenes}
        results = [
            result_of(
                scene,
                figures[scene.plan],
                by_scene[places[scene.plan]],
                fixed_cores=fixed.get(places[scene.plan]),
                informed_cores=_informed(scene, figures[scene.plan]),
            )
            for scene in scenes
        ]
    wall_s = time.monotonic() - began_s
    return "\n\n".join(
        filter(None, [_preface(wanted, len(every), wall_s), *_sections(results), _failures(failed), _REASONS])
    )


def _let_workers_import_this() -> None:
    """Spark's workers look these functions up by their names, wherever they are started."""
    root = str(Path(__file__).parent.parent)
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in given:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, *given]))


@contextmanager
def _kept(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder.absolute()
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


def _tell(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()


def _scenes(wanted: Wanted, traces: Path | None, folder: Path) -> list[Scene]:
    worlds = [world for world in WORLDS if not wanted.worlds or world.name in wanted.worlds]
    names = {world.name: scene_names(world, traces) for world in worlds}
    known = list(dict.fromkeys(name for some in names.values() for name in some))
    for load in wanted.loads:
        if load not in known:
            raise BadInputError(f"--loads: there is no load {load!r}{did_you_mean(load, known)}")
    _tell("making the plans")
    return [
        make_scene(world, name, traces=traces, hours=wanted.hours, folder=folder)
        for world in worlds
        for name in names[world.name]
        if not wanted.loads or name in wanted.loads
    ]


def _cells(scene: Scene, wanted: Wanted) -> list[Cell]:
    """The runs of one load, the longest first, so that no core waits for it in the end."""
    some = wanted.policies if scene.load == MAIN else wanted.elsewhere or wanted.policies
    for policy in some:
        if policy not in scene.policies:
            raise BadInputError(f"there is no policy {policy!r}{did_you_mean(policy, scene.policies)}")
    chosen = [one for one in scene.policies if not some or one in {*some, BASELINE_POLICY}]
    ordered = sorted(chosen, key=lambda policy: policy != OURS)
    many, of_a_variation, few = wanted.seeds
    seeds = many if scene.load == MAIN else of_a_variation if scene.varied else few
    return cells_of(scene, ordered, range(1, 1 + seeds))


def _statics(aggregates: Sequence[Aggregate]) -> Iterator[Summary]:
    for one in aggregates:
        if one.policy == BASELINE_POLICY:
            yield from one.summaries


def _fixed_seeds(aggregates: Sequence[Aggregate]) -> list[int]:
    """Those for which hindsight has found a constant."""
    return [one.record.seed for each in aggregates if each.policy == BestFixed.name for one in each.summaries]


def _informed(scene: Scene, aggregates: Sequence[Aggregate]) -> float | None:
    """Where executors can join a job that catches up, being ready is no matter of how many there are before."""
    if scene.load != MAIN or scene.world.mechanisms != (Mechanism.REDEPLOY,):
        return None
    allowed = {one.record.seed: quality_of(scene, one) for one in _statics(aggregates)}
    qualities = {seed: quality for seed, quality in allowed.items() if quality is not None}
    return informed_cores(Experiment(scene.plan), scene.load, qualities) if qualities else None


# The page ---------------------------------------------------------------------------------------------------------


def _preface(wanted: Wanted, runs: int, wall_s: float) -> str:
    hours = DAY_S / 3600 if wanted.hours is None else wanted.hours
    return (
        f"SIMULATED, all of it: {runs} runs of {hours:g} h, with {wanted.seeds[0]} seeds for `{MAIN}`, "
        f"{wanted.seeds[1]} for each of its variations (hindsight: seed {_VARIED_BOUND}) and {wanted.seeds[2]} for "
        f"every other load ({wall_s:.0f} s; runs that were kept are not in that time). Everything is counted: drivers, "
        "double running, profiling and the controller; what executors took alone stands in brackets. Good seconds: "
        "median latency within twice that of static, changes and failures included. The hindsight bound knows the load "
        "and the failures; it is the least that core-hours can be at the share of good seconds that the goal allows, "
        "with the mechanisms that tidewise may use. 'No worse quality': as many good seconds (to 0.05 points) and no "
        "more recoveries over 180 s; best-fixed and the bound are no rivals, as they know what is to come. Means over "
        "the seeds, least to most in brackets; `≥`: cut off. All loads but "
        f"`{MAIN}` and `tsw` are brought to the peak of `{MAIN}`."
    )


_REASONS = """\
What falls short in `paper-cluster`, and why. Every change there is a redeployment, which stops the job for some 54 s \
and costs about as much as two core-hours; a failure stops it for 27 s in the median, twice as long one time in 25. \
Hindsight and best-fixed know when each failure comes and how long it lasts, and are as small as just these failures \
allow; whoever does not know has to be able to get over one at any second. *Hindsight, as it can be done* is the \
cheapest sequence that was found to keep quality and promises in the simulator, with the load and the failures known: \
the best that is possible lies between the bound and this. *Load known, failures not known* is what it takes at least \
with the load known to the second to expect half a recovery over 180 s in all of them; it is reckoned, and errs to \
the good: a job is warm at once, and moved the moment it is up again after a failure that was long. What tidewise \
takes beyond these is for not knowing the load: a quiet hour has to be worth two changes before it is foreseen to be \
one, so that the job stays as large as it is through most of them. *Best-fixed, the same with every seed* is the best \
constant that keeps the promises whenever failures come.

Variations are held to the goals of the cluster as it is, also where that is slower."""


def _sections(results: Sequence[Result]) -> Iterator[str]:
    of = {world.name: [result for result in results if result.scene.world is world] for world in WORLDS}
    worlds = [world for world in WORLDS if any(result.ours is not None for result in of[world.name])]
    for world in worlds:
        yield f"**Goals in `{world.name}`**"
        yield goals_table(world, of[world.name])
    for world in WORLDS:
        yield from _world(world, of[world.name])
    yield "**The loads**"
    words = {result.scene.load: result.scene.words for result in results}
    yield "\n".join(f"- `{load}`: {told}" for load, told in words.items())
    below = [run for result in results for run in result.below]
    if below:
        yield f"**Below the bound though no worse, so the bound is wrong there**: {'; '.join(below)}"


def _world(world: World, results: Sequence[Result]) -> Iterator[str]:
    main = [result for result in results if result.scene.load == MAIN]
    ours = [result for result in results if result.ours is not None]
    varied = [result for result in ours if result.scene.varied]
    plain = [result for result in ours if not result.scene.varied]
    for result in main:
        yield f"**`{world.name}`, `{MAIN}`**"
        yield policies_table(result)
    if plain:
        yield f"**`{world.name}`: tidewise beside the best other policy, load by load**"
        yield loads_table(plain)
    if varied:
        yield f"**`{world.name}`: `{MAIN}` on clusters that differ from what anybody was told**"
        yield loads_table(varied)


def _failures(failed: Mapping[str, str]) -> str:
    if not failed:
        return ""
    return "**Not run**\n\n" + "\n".join(f"- {name}: {why}" for name, why in failed.items())
