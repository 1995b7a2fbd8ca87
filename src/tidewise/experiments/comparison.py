"""Runs side by side: every run against the static one, gathered over seeds; what tables and reports are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidewise.core import Censored, Measured
from tidewise.experiments.measures import Baseline, Summary, at_least_s, baseline_of, summarise
from tidewise.experiments.record import Run, RunRecord

BASELINE_POLICY = "static"


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
    """Its name; with its digest where another load of the same name is among the runs."""
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

    def spread(self, figure: Callable[[Summary], Measured | None]) -> Spread | None:
        return spread_of(figure(summary) for summary in self.summaries)


def compare(runs: Iterable[Run]) -> tuple[Aggregate, ...]:
    """Every run against the static one on the same load and seed, gathered by scenario and policy, static first.

    Loads of one name that are not the same load (two plans may call theirs alike) are scenarios of their own.
    """
    given = list(runs)
    digests: dict[str, set[str]] = {}
    for run in given:
        digests.setdefault(run.record.load, set()).add(_load_digest(run.record))

    def scenario_of(record: RunRecord) -> Scenario:
        unique = len(digests[record.load]) == 1
        load = record.load if unique else f"{record.load} (load {_load_digest(record)})"
        return Scenario(load=load, engine=record.engine, profile=record.profile or "")

    ordered = sorted(given, key=lambda run: (scenario_of(run.record), _policy_order(run.record), run.record.seed))
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


def _load_digest(record: RunRecord) -> str:
    return record.versions.get("load", "without digest")


def _policy_order(record: RunRecord) -> tuple[bool, str]:
    return record.policy != BASELINE_POLICY, record.policy
