"""Recoveries foretold before the failure: simulated jobs under way, and the released profiles run by run."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.page import table
from bench.recovery_score import GOAL_S, HEAD, Scored, Scores, flat, phoebe_s, score_row
from tidewise.core import Censored, Configuration, Forecast, Forecaster, JobStatus, Measured, Observation
from tidewise.engines.simulator import Simulator, SimulatorProfile, load_profile
from tidewise.engines.simulator.physics import capacity_per_s
from tidewise.experiments.fixed_run import series_of
from tidewise.experiments.measures import Recovery, recoveries_of
from tidewise.experiments.record import FaultRecord
from tidewise.forecast import make_forecaster
from tidewise.qos import Belief, Candidates
from tidewise.qos.capacity import Capacity
from tidewise.qos.physics import CONTINUOUS, Physics
from tidewise.qos.recovery import RecoveryModel
from tidewise.workload import Daily, Rates

_SEEDS = (1, 2, 3, 4, 5)
_RUNS = 5
_DURATION_S = 7200
_EVERY_S, _JITTER_S = 900, 300
_PEAK_UTILISATION = (0.35, 0.8)
"""The highest minute's load over capacity: from roomy to tight."""
_FORECASTER = "holt"
_BAD_OVER_LOWEST = 2.1
_CUT_OFF_S = 360.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    name: str
    physics: Physics
    executors: tuple[int, ...]
    intervals_s: tuple[float, ...]


_CLUSTERS = (
    _Cluster(name="paper-cluster", physics=CONTINUOUS, executors=(6, 12, 18, 24), intervals_s=(10.0, 30.0, 60.0)),
    _Cluster(name="spark-local", physics=Physics(), executors=(2, 4, 6, 8), intervals_s=(0.0, 1.0, 5.0, 10.0)),
)


def measure(traces: Path | None) -> str:
    """Simulated failures on both profiles, and the released profiles where they are given."""
    rows, everything = [], []
    luck_s: list[float] = []
    for cluster in _CLUSTERS:
        scored: list[Scored] = []
        for seed in _SEEDS:
            mind = _simulated(cluster, seed)
            scored += mind.scores.scored
            luck_s += mind.luck_s
        rows.append(score_row(f"`{cluster.name}`, all", scored))
        rows += [
            score_row(f"`{cluster.name}`, {kind}", [one for one in scored if one.kind == kind])
            for kind in sorted({one.kind for one in scored})
        ]
        everything += scored
    rows.append(score_row("all", everything))
    error_s = float(np.mean([abs(one.foretold_s["Tidewise"] - one.took_s) for one in everything]))
    verdict = "reached" if error_s <= GOAL_S else "MISSED"
    simulated = (
        f"SIMULATED, {len(_SEEDS)} seeds x {_RUNS} runs of {_DURATION_S / 3600:g} h for each profile: loads of a 6 h "
        f"day that fill {_PEAK_UTILISATION[0]:.0%} to {_PEAK_UTILISATION[1]:.0%} of the capacity at their peak, with "
        "10 % noise; configurations at random, a "
        f"failure every {_EVERY_S / 60:g} min of a kind at random. Every recovery is foretold before its failure, by "
        "models that have seen the reports and the failures before it: capacity from the busy share, the load from "
        f"`{_FORECASTER}`. Mean absolute error (the first failure of each kind and seed is not scored); Phoebe's, as "
        f"published, was 70 s. The goal of {GOAL_S:g} s is {verdict} with {error_s:.1f} s.\n\n"
        + table(HEAD, rows)
        + "\n\nWhat chance leaves to nobody's knowledge on `paper-cluster`, whose downtimes spread by 20 and 40 % and "
        "which replays anything up to a whole interval: whoever knew its true median downtimes, its true capacity and "
        f"the load to come would be {np.mean(luck_s):.1f} s off."
    )
    return "\n\n".join([simulated, _speed(), *([] if traces is None else [_released(traces / "ysb_profiles.csv")])])


class _Mind:
    """The models of one job, and how well they foretold."""

    def __init__(self, physics: Physics, profile: SimulatorProfile) -> None:
        self._profile = profile
        self.recovery = RecoveryModel(physics)
        self.capacity = Capacity(physics)
        self.scores = Scores()
        self.luck_s: list[float] = []
        """Errors of somebody who knows the cluster's own numbers; where records flow, a line says them all."""

    def take_in(self, reports: Sequence[Observation], forecaster: Forecaster) -> None:
        """What was reported since the last failure."""
        for report in reports:
            forecaster.learn(report)
        # What a job shows while it recovers is not its usual: only the five minutes before a failure count.
        for report in reports[-10:]:
            if report.status is JobStatus.RUNNING and report.true_rate_per_s is not None:
                self.capacity.learn(report.configuration, report.true_rate_per_s)

    def foretell(self, fault: FaultRecord, configuration: Configuration, forecast: Forecast) -> _Foretold:
        """How long a failure that comes now will take."""
        one = Candidates.listing([configuration])
        capacity = self.capacity.predict(one)
        return _Foretold(
            fault=fault,
            configuration=configuration,
            took=self.recovery.predict_kind(fault.kind, one, capacity, forecast, just_before_commit=False),
            capacity=capacity,
            rate_per_s=float(np.mean(forecast.path()[:6])),
        )

    def see(self, foretold: _Foretold, recovery: Recovery, rates_per_s: Rates) -> None:
        """How long it took, and what arrived meanwhile."""
        took = recovery.took_s
        first = int(foretold.fault.at_s)
        arrived_per_s = float(rates_per_s[first : first + max(60, int(recovery.at_least_s))].mean())
        if self._profile.mode == "continuous" and isinstance(took, float):
            self.luck_s.append(abs(self._known_s(foretold, arrived_per_s) - took))
        self.scores.add(
            foretold.fault.kind,
            took,
            foretold.took,
            rate_per_s=foretold.rate_per_s,
            capacity_per_s=float(foretold.capacity.median[0]),
            replay_s=foretold.configuration.commit_interval_s / 2,
        )
        self.recovery.learn(
            foretold.fault.kind,
            took,
            configuration=foretold.configuration,
            rate_per_s=arrived_per_s,
            capacity=foretold.capacity,
        )

    def _known_s(self, foretold: _Foretold, rate_per_s: float) -> float:
        kind, configuration = self._profile.failures[foretold.fault.kind], foretold.configuration
        share = rate_per_s / capacity_per_s(self._profile.capacity, configuration, configuration.executors)
        piled_s = kind.downtime_s + configuration.commit_interval_s / 2 - self._profile.latency.at_rest_s
        return kind.detection_s + kind.downtime_s + piled_s * share / (1.0 - share)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Foretold:
    fault: FaultRecord
    configuration: Configuration
    took: Belief
    capacity: Belief
    rate_per_s: float


def _simulated(cluster: _Cluster, seed: int) -> _Mind:
    profile = load_profile(cluster.name)
    mind = _Mind(cluster.physics, profile)
    random = np.random.default_rng([seed, 7])
    for run in range(_RUNS):
        configuration = Configuration(
            executors=int(random.choice(cluster.executors)),
            memory_mib_per_executor=4096,
            commit_interval_s=float(random.choice(cluster.intervals_s)),
        )
        most = capacity_per_s(profile.capacity, configuration, configuration.executors)
        load = Daily(
            mean_per_s=most,
            day_s=3.0 * _DURATION_S,
            night_share=0.4,
            start_hour=float(random.uniform(0.0, 24.0)),
            noise_share=0.1,
        )
        number = seed * 100 + run
        rates = load.rates_per_s(_DURATION_S, number)
        rates *= most * random.uniform(*_PEAK_UTILISATION) / rates.reshape(-1, 60).mean(axis=1).max()
        simulator = Simulator(profile=profile, rates_per_s=rates, seed=number, report_every_s=30)
        kinds = [str(random.choice(list(profile.failures))) for _ in range(_DURATION_S // _EVERY_S)]
        times = _EVERY_S * np.arange(len(kinds)) + _EVERY_S // 3 + random.integers(_JITTER_S, size=len(kinds))
        faults = [FaultRecord(at_s=float(at_s), kind=kind) for at_s, kind in zip(times, kinds, strict=True)]
        _follow(simulator, configuration, faults, mind)
    return mind


def _follow(simulator: Simulator, configuration: Configuration, faults: list[FaultRecord], mind: _Mind) -> None:
    """One run: learn from the reports, foretell each failure, break, see how long it took."""
    job, forecaster = simulator.launch(configuration), make_forecaster(_FORECASTER)
    foretold: _Foretold | None = None
    for number, fault in enumerate(faults):
        simulator.clock.wait_until(fault.at_s)
        mind.take_in(job.reports(), forecaster)
        if foretold is not None:
            series = series_of(job.series())
            mind.see(foretold, recoveries_of(faults[:number], series)[-1], series.input_rate_per_s)
        foretold = mind.foretell(fault, configuration, forecaster.forecast(horizon_s=600.0, step_s=30.0))
        job.inject(fault.kind)
    simulator.clock.wait_until(float(_DURATION_S))
    if foretold is not None:
        series = series_of(job.series())
        mind.see(foretold, recoveries_of(faults, series)[-1], series.input_rate_per_s)


def _speed() -> str:
    random = np.random.default_rng(1)
    space = [
        Configuration(executors=executors, commit_interval_s=float(interval), memory_mib_per_executor=memory)
        for executors in range(1, 26)
        for interval in range(20)
        for memory in range(1024, 1044)
    ]
    candidates = Candidates.listing(space)
    believed = Belief.of(9000.0 * candidates.executors * np.exp(0.1 * random.standard_normal(len(space))), 0.1)
    model = RecoveryModel(CONTINUOUS)
    forecast = flat(60_000.0)
    model.predict(candidates, believed, forecast)
    times_ms = []
    for _ in range(5):
        began = time.process_time()
        model.predict(candidates, believed, forecast)
        times_ms.append(1000.0 * (time.process_time() - began))
    return (
        f"Foretelling the worst of {len(model.kinds)} kinds for {len(space):,} configurations takes "
        f"{np.median(times_ms):.0f} ms of one core."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Profile:
    run: str
    configuration: Configuration
    rate_per_s: float
    overloaded: bool
    recovery: Measured | None


def _released(path: Path) -> str:
    profiles = _read(path)
    scored: list[Scored] = []
    right: list[bool] = []
    right_while_fine: list[bool] = []
    for run in sorted({one.run for one in profiles}):
        known = [one for one in profiles if one.run != run]
        asked = [one for one in profiles if one.run == run and one.recovery is not None]
        capacity, recovery = _learnt(known)
        usual_s = float(np.mean([one.recovery for one in known if isinstance(one.recovery, float)]))
        for one, belief, believed in _foretold(asked, capacity, recovery):
            cut_off = isinstance(one.recovery, Censored)
            said_never = bool(belief.median[0] > _CUT_OFF_S)
            right.append(said_never == cut_off)
            if not one.overloaded:
                right_while_fine.append(said_never == cut_off)
            if isinstance(one.recovery, float):
                foretold = {
                    "Tidewise": min(_CUT_OFF_S, float(belief.median[0])),
                    "Phoebe": min(_CUT_OFF_S, phoebe_s(one.rate_per_s, believed, one.configuration.commit_interval_s)),
                    "mean": usual_s,
                    "last": 0.0,
                }
                scored.append(
                    Scored(
                        kind="profile",
                        took_s=one.recovery,
                        foretold_s=foretold,
                        low_s=float(belief.quantile(0.05)[0]),
                        high_s=float(belief.quantile(0.95)[0]),
                    )
                )
    row = score_row("recovered", scored)
    row[6] = ""
    return (
        f"The released profiles, leaving one run of three out at a time ({len(right)} with a measured recovery; "
        "foretold at most the 360 s at which they were cut off). Whether a profile recovers within 360 s is told "
        f"rightly for {np.mean(right):.0%} of all, and for {np.mean(right_while_fine):.0%} of the "
        f"{len(right_while_fine)} that were not overloaded beforehand. Mean absolute error of those that did:\n\n"
        + table(HEAD, [row])
    )


def _learnt(known: list[_Profile]) -> tuple[Capacity, RecoveryModel]:
    capacity, recovery = Capacity(CONTINUOUS), RecoveryModel(CONTINUOUS)
    for one in known:
        # A bad profile processed what it could; a good one could have done more.
        capacity.learn(one.configuration, one.rate_per_s, at_least=not one.overloaded)
    fine = [one for one in known if one.recovery is not None and not one.overloaded]
    believed = capacity.predict(Candidates.listing([one.configuration for one in fine]))
    for row, one in enumerate(fine):
        assert one.recovery is not None
        recovery.learn(
            "profile",
            one.recovery,
            configuration=one.configuration,
            rate_per_s=one.rate_per_s,
            capacity=believed.at(slice(row, row + 1)),
            just_before_commit=True,
        )
    return capacity, recovery


def _foretold(
    asked: list[_Profile], capacity: Capacity, recovery: RecoveryModel
) -> Iterator[tuple[_Profile, Belief, float]]:
    for one in asked:
        row = Candidates.listing([one.configuration])
        believed = capacity.predict(row)
        forecast = flat(one.rate_per_s, spread=0.02)
        yield one, recovery.predict_kind("profile", row, believed, forecast), float(believed.median[0])


def _read(path: Path) -> list[_Profile]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    lowest_ms = min(float(row["latency_ms"]) for row in rows)
    return [
        _Profile(
            run=row["run"],
            configuration=Configuration(
                executors=-(-int(row["parallelism"]) // int(row["slots_per_worker"])),
                slots_per_executor=int(row["slots_per_worker"]),
                cores_per_executor=float(row["cpu_per_worker"]),
                memory_mib_per_executor=int(row["memory_mb_per_worker"]),
                commit_interval_s=float(row["checkpoint_interval_ms"]) / 1000.0,
            ),
            rate_per_s=float(row["events_per_s"]),
            overloaded=float(row["latency_ms"]) > _BAD_OVER_LOWEST * lowest_ms,
            recovery=_recovery(row["recovery_s"]),
        )
        for row in rows
    ]


def _recovery(text: str) -> Measured | None:
    if not text:
        return None
    return Censored(at_least=_CUT_OFF_S) if float(text) >= _CUT_OFF_S else float(text)
