"""Jobs to search in, whose truth is known at every configuration and rate: made from physics, or from real profiles."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.interpolate import RBFInterpolator

from tidewise.core import ChangeCost, ConfigurationSpace, Mechanism, Prices, Promises
from tidewise.qos import Candidates

Floats = npt.NDArray[np.float64]
Truth = Callable[[float], tuple[Floats, Floats]]
"""Latency (p95) and recovery of every candidate at a rate, in seconds, free of noise."""

PAST_LOADS, PAST_PROFILES = 15, 20
_CHANGES = (ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=30.0),)
_SMOOTHING = 0.1
"""Profiles of the same configuration differ: what lies between them need not go through each."""
_WORST_LATENCY_S, _WORST_RECOVERY_S = 120.0, 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """One job: its configurations, what it would do in each, what is promised, and the rate to search at."""

    name: str
    candidates: Candidates
    truth: Truth
    promises: Promises
    rate_per_s: float
    noise: float
    """Spread of the log of a measurement."""

    def past_rates(self) -> Floats:
        """The loads that were profiled before: above and below this one, none of them the same."""
        return np.asarray(self.rate_per_s * np.geomspace(0.4, 1.6, PAST_LOADS + 1)[np.arange(PAST_LOADS + 1) != 10])


def generated(name: str, seed: int) -> Surface:
    """One of `GENERATED`; each seed is a job of that kind with its own speed, overhead and load."""
    return GENERATED[name](np.random.default_rng(seed))


def _scaling(rng: np.random.Generator) -> Surface:
    """Many executors get into each other's way: past about 14 of them capacity falls again."""
    space = _space(executors=24, slots=(1, 2, 4), cores=(1.0, 2.0, 4.0), memory=(1024, 2048), intervals=(1, 5, 10))
    job = _Job(records_per_core_s=9_000 * _vary(rng), coherence=0.0008 * _vary(rng), state_mib_per_record_s=0.005)
    return _surface("scaling", space, job, rate=90_000 * _vary(rng), latency=8.0, recovery=120.0, noise=0.08)


def _memory(rng: np.random.Generator) -> Surface:
    """A state that has to fit: below its size the collector takes most of the time."""
    space = _space(
        executors=24,
        slots=(1, 2, 4),
        cores=(1.0, 2.0, 3.0),
        memory=(1024, 2048, 3072, 4096, 6144),
        intervals=(1, 5, 10),
    )
    job = _Job(records_per_core_s=6_000 * _vary(rng), state_mib_per_record_s=0.25 * _vary(rng), cliff=9.0)
    return _surface("memory cliff", space, job, rate=60_000 * _vary(rng), latency=8.0, recovery=150.0, noise=0.08)


def _interval(rng: np.random.Generator) -> Surface:
    """Each batch costs much by itself: a short interval overloads the job, a long one makes it late to recover."""
    space = _space(
        executors=24, slots=(1, 2, 3, 4), cores=(1.0, 2.0, 3.0), memory=(1024, 2048, 3072, 4096),
        intervals=(1, 2, 4, 6, 10, 15, 20, 30, 60),
    )  # fmt: skip
    job = _Job(records_per_core_s=5_000 * _vary(rng), overhead_s=2.0 * _vary(rng), state_mib_per_record_s=0.03)
    return _surface("interval", space, job, rate=45_000 * _vary(rng), latency=20.0, recovery=150.0, noise=0.08)


def _interaction(rng: np.random.Generator) -> Surface:
    """Slots help only with the cores for them, and every measurement is noisy."""
    space = _space(
        executors=20, slots=(1, 2, 3, 4, 6), cores=(0.5, 1.0, 2.0, 4.0), memory=(1024, 2048, 4096), intervals=(1, 5)
    )
    job = _Job(records_per_core_s=7_000 * _vary(rng), crowding=0.5 * _vary(rng), state_mib_per_record_s=0.06)
    return _surface("interaction, noisy", space, job, rate=60_000 * _vary(rng), latency=6.0, recovery=150.0, noise=0.25)


GENERATED: dict[str, Callable[[np.random.Generator], Surface]] = {
    "scaling": _scaling,
    "memory cliff": _memory,
    "interval": _interval,
    "interaction, noisy": _interaction,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What a job does with what it is given; deliberately richer than the formulas of the models that learn it."""

    records_per_core_s: float
    contention: float = 0.01
    coherence: float = 0.0001
    crowding: float = 0.15
    """Share lost per slot beyond the cores."""
    state_mib_per_record_s: float
    cliff: float = 4.0
    """How much slower a job is whose state does not fit."""
    overhead_s: float = 0.25

    def outcome(self, table: Candidates, rate: float) -> tuple[Floats, Floats]:
        slots, cores = table.slots_per_executor, table.cores_per_executor
        useful = (slots**-3.0 + (1.1 * cores) ** -3.0) ** (-1.0 / 3.0)
        useful = useful / (1.0 + self.crowding * np.maximum(0.0, slots / cores - 1.0))
        units = table.executors * useful
        capacity = self.records_per_core_s * units
        capacity /= 1.0 + self.contention * (units - 1.0) + self.coherence * units * table.executors
        state = self.state_mib_per_record_s * rate
        pressure = state / (table.executors * 0.6 * (table.memory_mib_per_executor - 300.0))
        capacity /= 1.0 + self.cliff / (1.0 + np.exp(-(pressure - 1.0) / 0.06))
        interval = table.commit_interval_s
        batch = self.overhead_s + rate * interval / capacity
        busy = batch / interval
        late = 0.5 * interval + batch + 0.3 * busy / np.maximum(1.0 - busy, 0.03) + 200.0 * np.maximum(0.0, busy - 1.0)
        spare = np.maximum(1.0 - busy, 0.02)
        recovery = 25.0 + (25.0 + 1.5 * interval) * busy / spare
        return np.minimum(late, _WORST_LATENCY_S), np.minimum(recovery, _WORST_RECOVERY_S)


def _surface(
    name: str, table: Candidates, job: _Job, *, rate: float, latency: float, recovery: float, noise: float
) -> Surface:
    return Surface(
        name=name,
        candidates=table,
        truth=lambda rate_per_s: job.outcome(table, rate_per_s),
        promises=Promises(latency_p95_s=latency, recovery_s=recovery),
        rate_per_s=rate,
        noise=noise,
    )


def _space(
    *,
    executors: int,
    slots: tuple[int, ...],
    cores: tuple[float, ...],
    memory: tuple[int, ...],
    intervals: tuple[float, ...],
) -> Candidates:
    return Candidates.of(
        ConfigurationSpace(
            executors=tuple(range(1, executors + 1)),
            slots_per_executor=slots,
            cores_per_executor=cores,
            memory_mib_per_executor=memory,
            commit_interval_s=tuple(float(interval) for interval in intervals),
            changes=_CHANGES,
        )
    )


def _vary(rng: np.random.Generator) -> float:
    return float(np.exp(0.12 * rng.standard_normal()))


def real(profiles: Path, seed: int) -> Surface:
    """What lies between 177 profiles of a real job: a smooth interpolation of them over configuration and rate."""
    with profiles.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    slots = np.array([float(row["slots_per_worker"]) for row in rows])
    workers = np.ceil(np.array([float(row["parallelism"]) for row in rows]) / slots)
    cores, memory, interval, rate, latency = (
        np.array([float(row[name]) for row in rows])
        for name in (
            "cpu_per_worker", "memory_mb_per_worker", "checkpoint_interval_ms", "events_per_s", "latency_ms",
        )
    )  # fmt: skip
    recovery = np.array([float(row["recovery_s"] or "nan") for row in rows])
    x = _inputs(executors=workers, slots=slots, cores=cores, memory=memory, interval_s=interval / 1000.0, rate=rate)
    known = np.isfinite(recovery)
    # Not a Gaussian process: the truth is to be of no kind that one of the methods learns with.
    late = RBFInterpolator(x, np.log(latency / 1000.0), kernel="linear", smoothing=_SMOOTHING)
    slow = RBFInterpolator(x[known], np.log(recovery[known]), kernel="linear", smoothing=_SMOOTHING)
    space = ConfigurationSpace(
        executors=tuple(range(1, 25)),
        slots_per_executor=(1, 2, 3, 4),
        cores_per_executor=(1.0, 2.0, 3.0),
        memory_mib_per_executor=(1024, 2048, 3072, 4096),
        commit_interval_s=(10.0, 30.0, 50.0, 70.0, 90.0),
        changes=_CHANGES,
    )
    table = Candidates.of(space, keep=lambda configuration: 4 <= configuration.total_slots <= 24)

    def truth(rate_per_s: float) -> tuple[Floats, Floats]:
        x = _inputs(
            executors=table.executors,
            slots=table.slots_per_executor,
            cores=table.cores_per_executor,
            memory=table.memory_mib_per_executor,
            interval_s=table.commit_interval_s,
            rate=np.full(len(table), rate_per_s),
        )
        # Beyond the profiles a trend would go on; nothing was ever faster or slower than what was measured.
        return (
            np.clip(np.exp(late(x)), latency.min() / 1000.0, latency.max() / 1000.0),
            np.clip(np.exp(slow(x)), recovery[known].min(), recovery[known].max()),
        )

    return Surface(
        name="real profiles",
        candidates=table,
        truth=truth,
        promises=Promises(latency_p95_s=2.1 * float(latency.min()) / 1000.0, recovery_s=180.0),
        rate_per_s=float(np.random.default_rng(seed).uniform(20_000.0, 45_000.0)),
        noise=0.05,
    )


def _inputs(
    *, executors: Floats, slots: Floats, cores: Floats, memory: Floats, interval_s: Floats, rate: Floats
) -> Floats:
    """About 0..1 each; the rate per slot is what overloads a job, so it has a dimension of its own."""
    return np.stack(
        [
            np.log(rate / (executors * slots)) / 4.0,
            np.log(rate) / 3.0,
            slots / 4.0,
            cores / 3.0,
            memory / 4096.0,
            interval_s / 90.0,
        ],
        axis=1,
    )


def profile(
    surface: Surface, rows: npt.NDArray[np.int64], rate: float, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """What profiling these rows measures: the truth, with noise."""
    latency, recovery = surface.truth(rate)
    jitter = np.exp(surface.noise * rng.standard_normal((2, len(rows))))
    return latency[rows] * jitter[0], recovery[rows] * jitter[1]


PRICES = Prices()
