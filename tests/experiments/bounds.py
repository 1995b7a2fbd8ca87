"""Sequences of configurations run in the simulator, for the bound to be held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.engines.simulator.parts import change
from tidewise.core import Censored, Configuration, Mechanism, TemporaryError, total
from tidewise.engines.simulator import Simulator, SimulatorProfile
from tidewise.experiments.fixed_run import series_of
from tidewise.experiments.measures import bad_seconds, recoveries_of
from tidewise.experiments.record import FaultRecord
from tidewise.workload import Rates

Wish = tuple[int, Configuration, Mechanism]
"""From which second on, what, and how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a sequence took and gave."""

    core_h: float
    memory_gib_h: float
    bad_s: int
    recovery_s: float | None
    """The longest; None: nothing failed, or somebody stopped looking too early."""


def run_sequence(
    profile: SimulatorProfile,
    rates: Rates,
    start: Configuration,
    wishes: Sequence[Wish] = (),
    *,
    faults: Sequence[FaultRecord] = (),
    limit_s: float,
    seed: int = 1,
    p95: bool = False,
    deployed_for: Mechanism | None = None,
) -> Ran:
    """Run it; a wish that comes while a change is on is not heard, and one for what is there already is none."""
    simulator = Simulator(profile=profile, rates_per_s=rates, seed=seed, report_every_s=15, deployed_for=deployed_for)
    job = simulator.launch(start)
    happenings: list[tuple[float, int, Wish | FaultRecord]] = [(float(wish[0]), 1, wish) for wish in wishes]
    happenings += [(fault.at_s, 0, fault) for fault in faults]
    for at_s, _, what in sorted(happenings, key=lambda one: one[:2]):
        simulator.clock.wait_until(at_s)
        if isinstance(what, FaultRecord):
            job.inject(what.kind)
            continue
        if what[1] == job.observed():
            continue
        try:
            job.change(change(f"at-{at_s}", start, what[1], what[2]))
        except TemporaryError:
            continue
    simulator.clock.wait_until(float(len(rates)))
    series = series_of(job.series())
    latency = series.latency_p95_s if p95 else series.latency_p50_s
    bad = bad_seconds(series, latency, limit_s)
    took = [recovery.took_s for recovery in recoveries_of(faults, series)]
    known = [one for one in took if not isinstance(one, Censored)]
    used = total(job.meter())
    return Ran(
        core_h=used.core_s / 3600,
        memory_gib_h=used.memory_mib_s / 1024 / 3600,
        bad_s=int(bad.sum()),
        recovery_s=max(known) if took and len(known) == len(took) else None,
    )


def uneven(seed: int, seconds: int, *, mean_per_s: float, noise: float = 0.1) -> Rates:
    """A load that wanders between nothing and twice its mean, a level a minute."""
    random = np.random.default_rng(seed)
    levels = random.uniform(0.2, 1.8, seconds // 60 + 1) * mean_per_s
    smooth = np.interp(np.arange(seconds), np.arange(levels.size) * 60, levels)
    return np.asarray(smooth * np.exp(noise * random.standard_normal(seconds)), dtype=np.float64)
