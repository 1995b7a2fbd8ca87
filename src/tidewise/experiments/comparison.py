"""Runs side by side: every run against the static one, gathered over seeds; what tables and reports are made of."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from tidewise.core import BadInputError, Censored, Measured, at_least_s
from tidewise.experiments.measures import Baseline, Summary, baseline_of, summarise
from tidewise.experiments.record import Run, RunRecord

BASELINE_POLICY = "static"

_LISTS = ("loads", "policies", "seeds")
"""What the runs of a plan are made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A figure over several seeds."""

    mean: float
    least: float
    most: float
    censored: bool = False
    """Whether the true values may be larger."""


def spread_of(values: Iterable[Measured | None]) -> Spread | None:
    """None as soon as one value is not known: a mean over fewer seeds would be another figure."""
    found = list(values)
    numbers = [at_least_s(value) for value in found if value is not None]
    if not numbers or len(numbers) < len(found):
        return None
    return Spread(
        mean=math.fsum(numbers) / len(numbers),
        least=min(numbers),
        most=max(numbers),
        censored=any(isinstance(value, Censored) for value in found),
    )


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Scenario:
    """What runs must have in common to be compared."""

    load: str
    """Its name; with a number where runs of the same name differ in load, length, promises, prices or failures."""
    engine: str
    profile: str
    """Empty: a real engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """One policy in one scenario, over its seeds."""

    scenario: Scenario
    policy: str
    summaries: tuple[Summary, ...]
    """In order of seed; never empty."""

    @property
    def kept_promises(self) -> bool:
        """Whether every promise held, with every seed."""
        return all(summary.kept_promises for summary in self.summaries)

    def spread(self, figure: Callable[[Summary], Measured | None]) -> Spread | None:
        return spread_of(figure(summary) for summary in self.summaries)


def compare(runs: Iterable[Run]) -> tuple[Aggregate, ...]:
    """Every run against the static one on the same load and seed, gathered by scenario and policy, static first.

    Runs that only share the name of their load (another load, length, promise, price, failure or profile) are
    scenarios of their own. The same run twice is refused: it would count double.
    """
    given = list(runs)
    grounds: dict[str, list[str]] = {}
    for run in given:
        seen = grounds.setdefault(run.record.load, [])
        if _ground(run.record) not in seen:
            seen.append(_ground(run.record))

    def scenario_of(record: RunRecord) -> Scenario:
        number = grounds[record.load].index(_ground(record)) + 1
        load = record.load if len(grounds[record.load]) == 1 else f"{record.load} (setting {number})"
        return Scenario(load=load, engine=record.engine, profile=record.profile or "")

    ordered = sorted(given, key=lambda run: (scenario_of(run.record), _policy_order(run.record), run.record.seed))
    _refuse_twice(ordered, scenario_of)
    baselines: dict[tuple[Scenario, int], Baseline] = {}
    gathered: dict[tuple[Scenario, str], list[Summary]] = {}
    for run in ordered:
        series = run.read_series()
        scenario = scenario_of(run.record)
        if run.record.policy == BASELINE_POLICY:
            baselines.setdefault((scenario, run.record.seed), baseline_of(run.record, series))
        summary = summarise(run.record, series, baselines.get((scenario, run.record.seed)))
        gathered.setdefault((scenario, run.record.policy), []).append(summary)
    return tuple(
        Aggregate(scenario=scenario, policy=policy, summaries=tuple(summaries))
        for (scenario, policy), summaries in gathered.items()
    )


def by_scenario(aggregates: Iterable[Aggregate]) -> list[tuple[Aggregate, ...]]:
    """What can stand in one table: the policies of each scenario, in the order of `compare`."""
    return [tuple(members) for _, members in itertools.groupby(aggregates, key=lambda one: one.scenario)]


def missing_runs(runs: Iterable[Run]) -> tuple[str, ...]:
    """One sentence for each plan of which only some runs are here: it was stopped, or some were left out.

    A plan that has got more policies, loads or seeds between two tries is one plan.
    """
    plans: dict[str, tuple[str, set[str], set[str]]] = {}
    for run in runs:
        plan = run.record.plan
        key = json.dumps({key: value for key, value in plan.items() if key not in _LISTS}, sort_keys=True)
        _, wanted, found = plans.setdefault(key, (str(plan.get("name", "?")), set(), set()))
        wanted.update(_names_in(plan))
        found.add(run.record.name)
    return tuple(
        f"{len(wanted & found)} of the {len(wanted)} runs of the plan {name!r} are here; "
        f"missing: {', '.join(sorted(wanted - found)[:5])}{', ...' if len(wanted - found) > 5 else ''}"
        for name, wanted, found in plans.values()
        if wanted - found
    )


def run_name(load: str, policy: str, seed: int) -> str:
    """How the run of a policy on a load with a seed is called, in its plan's folder."""
    return f"{load}-{policy}-{seed}"


def _names_in(plan: Mapping[str, JsonValue]) -> Iterator[str]:
    loads, policies, seeds = (plan.get(key) for key in _LISTS)
    if not (isinstance(loads, list) and isinstance(policies, list) and isinstance(seeds, list)):
        return
    for load, policy, seed in itertools.product(loads, policies, seeds):
        if isinstance(load, dict) and isinstance(policy, dict) and isinstance(seed, int):
            yield run_name(str(load.get("name")), str(policy.get("name") or policy.get("policy")), seed)


def _ground(record: RunRecord) -> str:
    """All that two runs must share so that their figures can stand side by side, but for policy and seed."""
    parts = [
        record.engine,
        record.profile,
        record.versions.get("profile"),
        record.versions.get("load"),
        record.duration_s,
        dataclasses.asdict(record.promises),
        dataclasses.asdict(record.prices),
        record.plan.get("failures"),
    ]
    return json.dumps(parts, sort_keys=True)


def _refuse_twice(runs: Iterable[Run], scenario_of: Callable[[RunRecord], Scenario]) -> None:
    seen: dict[tuple[Scenario, str, int], Run] = {}
    for run in runs:
        key = (scenario_of(run.record), run.record.policy, run.record.seed)
        if key in seen:
            raise BadInputError(
                f"{seen[key].folder} and {run.folder} are the same run (policy, load and seed); leave one out"
            )
        seen[key] = run


def _policy_order(record: RunRecord) -> tuple[bool, str]:
    return record.policy != BASELINE_POLICY, record.policy
