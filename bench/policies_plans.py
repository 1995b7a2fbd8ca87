"""The worlds in which the policies are compared, and the plan for each load: the shipped one with another load."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from bench.policies_loads import DAY_S, Offered, drawn, generated, peak_of, planned, recorded
from tidewise.core import Mechanism, Promises
from tidewise.engines.simulator import SimulatorProfile, load_profile
from tidewise.engines.simulator.profile_file import profile_to_toml
from tidewise.experiments import Experiment, find_plan
from tidewise.experiments.plan import read_plan
from tidewise.experiments.toml_file import TomlFile, to_toml

OURS = "tidewise"
MAIN = "ysb"
_PROMISE_STEP = 0.005
"""Promises are brought to a multiple of this: lowered where nobody could keep them, ..."""
_ROOM = 0.005
"""... so that so much is left to what static keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """What tidewise is to reach with ysb, everything counted; None: nothing is asked."""

    points: float
    """So much may the share of good seconds be below that of static, in points."""
    core_share: float | None = None
    """Of static."""
    gib_share: float
    over_bound: float = 1.25
    """Core-hours over those of the hindsight bound."""
    over_fixed: float | None = None
    """Core-hours over those of best-fixed."""
    changes: float | None = None
    recovery_s: float = 180.0
    cheapest: bool = False
    """Whether it is to be cheaper than every other policy at no worse quality, on every load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A simulated cluster with a job, and what is asked there."""

    name: str
    """That of its profile."""
    plan: str
    mechanisms: tuple[Mechanism, ...] | None
    """Those that tidewise may use, and so the bound; None: all."""
    goals: Goals
    everywhere: bool
    """Whether something is asked on every load, and not on those of its plan only."""


WORLDS = (
    World(
        name="paper-cluster",
        plan="paper",
        mechanisms=(Mechanism.REDEPLOY,),
        goals=Goals(points=2.5, gib_share=0.15, over_fixed=0.95, changes=15),
        everywhere=False,
    ),
    World(
        name="spark-local",
        plan="paper-spark",
        mechanisms=None,
        goals=Goals(points=0.5, core_share=0.45, gib_share=0.25, cheapest=True),
        everywhere=True,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """The same job on a cluster that differs from what its profile says; no policy knows."""

    name: str
    words: str
    capacity: float = 1.0
    """A factor."""
    downtime_s: float | None = None
    """Median downtime of the failures; None: that of the profile."""

    def of(self, profile: SimulatorProfile, kinds: Sequence[str]) -> SimulatorProfile:
        """The profile with this difference; `kinds`: the failures that are injected."""
        whole = profile.model_dump(mode="json")
        whole["name"] = f"{profile.name}-{self.name}"
        whole["capacity"]["records_per_core_s"] *= self.capacity
        # A record costs as much more CPU as a core does fewer of them.
        whole["capacity"]["cpu_s_per_record"] /= self.capacity
        for kind in kinds if self.downtime_s is not None else ():
            whole["failures"][kind]["downtime_s"] = self.downtime_s
        return SimulatorProfile.model_validate(whole)


VARIATIONS = (
    Variation(name="capacity-0.8", words="capacity x0.8", capacity=0.8),
    Variation(name="capacity-1.2", words="capacity x1.2", capacity=1.2),
    *(Variation(name=f"downtime-{s}s", words=f"failure downtimes of {s} s", downtime_s=float(s)) for s in (5, 23, 40)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One load in one world, with its plan on disk."""

    world: World
    load: str
    words: str
    varied: bool
    """Whether the cluster is not as its profile says."""
    plan: Path
    policies: tuple[str, ...]
    """Those that the plan has, by their labels."""


def offered(world: World, traces: Path | None) -> list[Offered]:
    """Every load of this world, ysb first."""
    of_the_plan = planned(shipped_plan(world)["loads"], traces)
    if not world.everywhere:
        return of_the_plan
    every_s = read_plan(TomlFile(find_plan(world.plan))).control.decide_every
    return [*of_the_plan, *recorded(traces), *generated(every_s), *drawn()]


def shipped_plan(world: World) -> dict[str, Any]:
    """The plan of this world as it is written."""
    return tomllib.loads(find_plan(world.plan).read_text(encoding="utf-8"))


def scene_names(world: World, traces: Path | None) -> list[str]:
    """What can be run in this world: its loads, and the variations of ysb."""
    return [*(load.name for load in offered(world, traces)), *(f"{MAIN}-{one.name}" for one in VARIATIONS)]


def make_scene(world: World, name: str, *, traces: Path | None, hours: float | None, folder: Path) -> Scene:
    """The plan of this load in a folder of its own below this one; a varied profile lies beside it."""
    loads = {load.name: load for load in offered(world, traces)}
    variation = next((one for one in VARIATIONS if name == f"{MAIN}-{one.name}"), None)
    load = loads[name if variation is None else MAIN]
    table = {**load.scaled(peak_of(loads[MAIN].table)), "name": name}
    home = folder / world.name / name
    home.mkdir(parents=True, exist_ok=True)
    shipped = shipped_plan(world)
    if variation is not None:
        kinds = shipped["failures"]["kind"]
        profile = variation.of(load_profile(world.name), [kinds] if isinstance(kinds, str) else kinds)
        preface = f"{world.name} with {variation.words}."
        (home / "profile.toml").write_text(profile_to_toml(profile, preface=preface), encoding="utf-8")
        table["profile"] = "profile.toml"
    plan = compose(shipped, load=table, hours=hours)
    path = home / "plan.toml"
    path.write_text(to_toml(plan), encoding="utf-8")
    words = load.words if variation is None else variation.words
    experiment = Experiment(path)
    promises, why = keepable(experiment, name), "static keeps no more"
    if promises is None and variation is not None:
        plain = home / "plain.toml"
        as_it_is = {key: value for key, value in table.items() if key != "profile"}
        plain.write_text(to_toml(compose(shipped, load=as_it_is, hours=hours)), encoding="utf-8")
        promises, why = as_far_below_static(experiment, Experiment(plain), name), "static keeps that much more"
    if promises is not None:
        path.write_text(to_toml({**plan, "loads": [{**table, "promises": promises}]}), encoding="utf-8")
        words += f"; promised are {100 * float(str(promises['good_share'])):g} %, as {why}"
    policies = tuple(one.label for one in read_plan(TomlFile(path)).policies)
    return Scene(world=world, load=name, words=words, varied=variation is not None, plan=path, policies=policies)


def compose(
    shipped: Mapping[str, JsonValue], *, load: Mapping[str, JsonValue], hours: float | None
) -> dict[str, JsonValue]:
    """The shipped plan with this load alone."""
    return {
        **shipped,
        "name": f"{shipped['name']}-policies",
        "seeds": [1],
        "duration": f"{DAY_S if hours is None else round(3600 * hours)}s",
        "loads": [dict(load)],
    }


def keepable(experiment: Experiment, load: str) -> dict[str, JsonValue] | None:
    """Promises that static could keep on this load; None where it keeps those of the plan."""
    share = _static_share(experiment, load)
    if share >= experiment.ground(load).promises.good_share:
        return None
    return _with_share(experiment.ground(load).promises, share - _ROOM)


def as_far_below_static(varied: Experiment, plain: Experiment, load: str) -> dict[str, JsonValue] | None:
    """Promises that ask as much of a variation as those of the plan ask of the cluster as it is; None: those do.

    What tidewise is held to is what static keeps, and a policy knows of that by what is promised alone: where static
    keeps more, more has to be promised.
    """
    promised = plain.ground(load).promises
    room = _static_share(plain, load) - promised.good_share
    higher = _with_share(promised, _static_share(varied, load) - room)
    return higher if higher is not None and float(str(higher["good_share"])) > promised.good_share else None


def _static_share(experiment: Experiment, load: str) -> float:
    share, _ = experiment.trial(load, 1).hindsight.verdict(experiment.start)
    return share


def _with_share(promised: Promises, most: float) -> dict[str, JsonValue] | None:
    """What is promised, with a share of at most so much; None where there is no latency to be kept in it."""
    if promised.latency_p95_s is None:
        return None
    share = round(math.floor(most / _PROMISE_STEP) * _PROMISE_STEP, 6)
    table: dict[str, JsonValue] = {"latency_p95": f"{promised.latency_p95_s:g}s", "good_share": share}
    return table if promised.recovery_s is None else {**table, "recovery": f"{promised.recovery_s:g}s"}
