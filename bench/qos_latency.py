"""Whether latencies and their spreads come true on simulated jobs, and how long it takes to ask."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.page import table
from tidewise.core import Configuration, ConfigurationSpace, Observation, Prices
from tidewise.engines.simulator import Simulator, load_profile
from tidewise.engines.simulator.physics import capacity_per_s
from tidewise.engines.simulator.profile import SimulatorProfile
from tidewise.qos import CONTINUOUS, Candidates, Floats, GaussianProcess, JobModel, Physics

_WITHIN = 0.2
_COVERED = (0.85, 0.95)
_SEEDS = range(5)
_TRAIN, _TEST = 12, 40
_SECONDS, _SETTLED_S = 400, 100.0


def measure(_traces: Path | None) -> str:
    """Latency and spread, then time."""
    return "\n\n".join((_latency(), _speed()))


def _space(profile: SimulatorProfile) -> ConfigurationSpace:
    if profile.mode == "micro-batch":
        return ConfigurationSpace(
            executors=(1, 2, 3, 4, 6, 8, 12, 16, 24),
            slots_per_executor=(1, 2, 4),
            cores_per_executor=(1.0, 2.0),
            memory_mib_per_executor=(2048, 4096),
            commit_interval_s=(0.0, 2.0, 5.0, 10.0, 30.0),
            changes=profile.changes,
        )
    return ConfigurationSpace(
        executors=tuple(range(2, 25, 2)),
        slots_per_executor=(1, 2, 4),
        cores_per_executor=(1.0, 2.0, 3.0),
        memory_mib_per_executor=(1024, 2048, 4096),
        commit_interval_s=(10.0, 30.0, 60.0, 90.0),
        changes=profile.changes,
    )


def _bent(profile: SimulatorProfile) -> SimulatorProfile:
    """A world that is rougher than the formulas: more noise, dearer slots and cores that get into each other's way."""
    capacity = {"contention": 0.03, "coherence": 0.0006, "noise_share": 0.08, "slot_contention": 0.3}
    changed: dict[str, object] = {
        "name": f"{profile.name}, bent",
        "capacity": profile.capacity.model_copy(update=capacity),
        "latency": profile.latency.model_copy(update={"queueing_s": 0.2, "noise_share": 0.15}),
    }
    if profile.batch is not None:
        changed["batch"] = profile.batch.model_copy(update={"noise_share": 0.25})
    return profile.model_copy(update=changed)


def _observed(
    profile: SimulatorProfile, configuration: Configuration, rate_per_s: float, seed: int
) -> list[Observation]:
    noise = np.random.default_rng(seed).standard_normal(_SECONDS)
    simulator = Simulator(profile=profile, rates_per_s=np.maximum(0.0, rate_per_s * (1.0 + 0.1 * noise)), seed=seed)
    job = simulator.launch(configuration)
    simulator.clock.wait_until(float(_SECONDS))
    return list(job.reports())


@dataclass(frozen=True, slots=True)
class _Case:
    """One held-out configuration at one rate."""

    configuration: Configuration
    rate_per_s: float
    windows_s: Floats
    """p95 of every window."""


def _latency() -> str:
    rows = []
    for name in ("spark-local", "paper-cluster"):
        for profile in (load_profile(name), _bent(load_profile(name))):
            rows += _latency_of(profile)
    head = [
        "world (SIMULATED)",
        "model",
        "median error",
        "within 20 %",
        "90 % intervals cover",
        "85-95 %",
        "overload right",
    ]
    return (
        f"**Latency p95 where the job is not overloaded** (10-85 % of its capacity), of configurations and rates that "
        f"were not seen: {len(_SEEDS)} seeds, {_TRAIN} configurations at 2 rates for {_SECONDS} s to learn from and "
        f"{_TEST} to predict, in spaces of {len(_space(load_profile('spark-local')))} and "
        f"{len(_space(load_profile('paper-cluster')))}; loads with 10 % noise. The error is that of the median window; "
        "an interval is for single windows of 10 s. 'Bent' worlds are rougher than the formulas. Overload is asked at "
        "50-150 % of the true capacity, those within 5 % of it left out.\n\n" + table(head, rows)
    )


def _latency_of(profile: SimulatorProfile) -> list[list[str]]:
    found: dict[str, list[tuple[float, float, float]]] = {}
    for seed in _SEEDS:
        random = np.random.default_rng(seed)
        candidates = Candidates.of(_space(profile))
        model = JobModel(physics=Physics() if profile.batch is not None else CONTINUOUS, changes=profile.changes)
        prior = JobModel(physics=Physics() if profile.batch is not None else CONTINUOUS, changes=profile.changes)
        seen: list[_Case] = []
        for learnt, reports in _cases(profile, candidates, random, configurations=_TRAIN, rates=2):
            seen.append(learnt)
            for report in reports:
                model.learn(report)
        plain = _plain_latency(seen)
        for case, _ in _cases(profile, candidates, random, configurations=_TEST, rates=1):
            row = candidates.row_of(case.configuration)
            alone = Candidates.listing([case.configuration])
            for name, asked, table_, place in (
                ("tidewise", model, candidates, row or 0),
                ("the same, no order enforced", model, alone, 0),
                ("formula, nothing learnt", prior, alone, 0),
            ):
                belief = asked.outlook(table_, prices=Prices(), rate_per_s=case.rate_per_s).latency_p95
                middle, sd = float(belief.log_mean[place]), float(belief.log_sd[place])
                overload = math.nan
                if name == "tidewise":
                    overload = _overload_right(profile, asked, case.configuration, random)
                found.setdefault(name, []).append((*_judged(case, middle, sd), overload))
            middle, sd = plain(case)
            found.setdefault("Gaussian process without physics", []).append((*_judged(case, middle, sd), math.nan))
    rows = []
    for name, judged in found.items():
        error, covered, right = (np.array(column) for column in zip(*judged, strict=True))
        inside = "yes" if _COVERED[0] <= covered.mean() <= _COVERED[1] else "NO"
        rows.append(
            [
                profile.name,
                name,
                f"{np.median(error):.1%}",
                f"{(error <= _WITHIN).mean():.0%}",
                f"{covered.mean():.1%}",
                inside,
                "" if np.isnan(right).all() else f"{np.nanmean(right):.1%}",
            ]
        )
    return rows


def _cases(
    profile: SimulatorProfile,
    candidates: Candidates,
    random: np.random.Generator,
    *,
    configurations: int,
    rates: int,
) -> list[tuple[_Case, list[Observation]]]:
    cases: list[tuple[_Case, list[Observation]]] = []
    while len(cases) < configurations * rates:
        configuration = candidates[int(random.integers(len(candidates)))]
        memory = profile.memory
        if memory.executor_base_mib + memory.slot_mib * configuration.slots_per_executor + 200 > (
            0.75 * configuration.memory_mib_per_executor
        ):
            continue
        capacity = capacity_per_s(profile.capacity, configuration, configuration.executors)
        for share in random.uniform(0.1, 0.85, rates):
            reports = _observed(profile, configuration, share * capacity, int(random.integers(1 << 30)))
            windows = [
                each.latency_p95_s for each in reports if each.time_s > _SETTLED_S and each.latency_p95_s is not None
            ]
            cases.append((_Case(configuration, share * capacity, np.array(windows)), reports))
    return cases


def _judged(case: _Case, log_mean: float, log_sd: float) -> tuple[float, float]:
    """Relative error of the median, and the share of windows within the 90 % interval."""
    off = np.abs(np.log(case.windows_s) - log_mean)
    return abs(math.exp(log_mean) / float(np.median(case.windows_s)) - 1.0), float((off <= 1.645 * log_sd).mean())


def _overload_right(
    profile: SimulatorProfile, model: JobModel, configuration: Configuration, random: np.random.Generator
) -> float:
    """Share of right answers, below and above the capacity."""
    capacity = capacity_per_s(profile.capacity, configuration, configuration.executors)
    alone = Candidates.listing([configuration])
    right = []
    for share in (random.uniform(0.5, 0.95), random.uniform(1.05, 1.5)):
        outlook = model.outlook(alone, prices=Prices(), rate_per_s=float(share) * capacity)
        right.append(float((outlook.overload_probability[0] > 0.5) == (share > 1.0)))
    return float(np.mean(right))


def _plain_latency(seen: list[_Case]) -> Callable[[_Case], tuple[float, float]]:
    """The same process on configuration and rate, with no formula under it."""

    def x(cases: list[_Case]) -> Floats:
        scaled = Candidates.listing([case.configuration for case in cases]).scaled
        rates = np.log2([case.rate_per_s / 1000.0 for case in cases]) / 10.0
        return np.column_stack((scaled, rates))

    logs = [np.log(case.windows_s) for case in seen]
    window_sd = float(np.sqrt(np.mean([each.var() for each in logs])))
    process = GaussianProcess.fit(x(seen), np.array([np.median(each) for each in logs]))

    def predict(case: _Case) -> tuple[float, float]:
        mean, sd = process.predict(x([case]))
        return float(mean[0]), math.hypot(float(sd[0]), window_sd)

    return predict


def _speed() -> str:
    profile = load_profile("spark-local")
    random = np.random.default_rng(0)
    space = ConfigurationSpace(
        executors=tuple(range(1, 25)),
        slots_per_executor=(1, 2, 4),
        cores_per_executor=(0.5, 1.0, 2.0, 3.0),
        memory_mib_per_executor=(1024, 1536, 2048, 4096, 8192),
        commit_interval_s=(0.0, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0),
        changes=profile.changes,
    )
    model = JobModel(changes=profile.changes)
    learning_s, reports = 0.0, 0
    for _, observed in _cases(profile, Candidates.of(_space(profile)), random, configurations=30, rates=2):
        begin = time.perf_counter()
        for report in observed:
            model.learn(report)
        learning_s += time.perf_counter() - begin
        reports += len(observed)
    candidates = Candidates.of(space)
    _ = candidates.lattice, candidates.scaled
    fresh_ms = _timed_ms(lambda: model.outlook(candidates, prices=Prices(), rate_per_s=100_000.0), 1)
    fitted_ms = _timed_ms(lambda: model.outlook(candidates, prices=Prices(), rate_per_s=120_000.0), 9)
    capacity = model.capacity.predict(candidates)
    load = 5.0 - capacity.log_mean
    parts = {
        "capacity": lambda: model.capacity.predict(candidates),
        "latency, three percentiles": lambda: model.latency.predict(candidates, load, capacity.log_sd),
        "memory": lambda: model.memory.out_of_memory_probability(candidates, 1e5),
    }
    rows = [
        ["whole outlook, after new reports (fits included)", f"{fresh_ms:.0f} ms"],
        ["whole outlook, fitted, another rate", f"{fitted_ms:.0f} ms"],
        *([f"of which {name}", f"{_timed_ms(part, 9):.0f} ms"] for name, part in parts.items()),
        ["learning, per report", f"{1e6 * learning_s / reports:.0f} us"],
    ]
    return f"**Time** for {len(candidates):,} candidates, a model of 30 configurations, recovery included:\n\n" + table(
        ["what", "at best"], rows
    )


def _timed_ms(call: Callable[[], object], times: int) -> float:
    """The shortest of several: whatever else the machine does can only lengthen it."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        taken.append(1000.0 * (time.perf_counter() - begin))
    return min(taken)
