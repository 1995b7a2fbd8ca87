"""A job that nobody touches, simulated without a controller: for hindsight and for fitting, where speed counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidewise.core import Configuration, Meter
from tidewise.engines.simulator import Simulator, SimulatorProfile
from tidewise.experiments.plan import FailuresTable
from tidewise.experiments.record import FaultRecord
from tidewise.experiments.series import Series
from tidewise.workload import Rates


def fault_schedule(failures: FailuresTable | None, duration_s: int, seed: int) -> tuple[FaultRecord, ...]:
    """When what breaks, in order; the same for every policy of a seed, and nothing in the `quiet_end` of the run.

    As many for every seed: a failure is left out where its jitter might put it that late.
    """
    if failures is None:
        return ()
    random = np.random.default_rng([seed, 3])
    first_s = failures.every / 2 if failures.first is None else failures.first
    latest_s = duration_s - failures.quiet_end - failures.jitter
    count = max(0, int((latest_s - first_s) // failures.every) + 1)
    times = first_s + failures.every * np.arange(count) + random.uniform(0.0, failures.jitter, count)
    kinds = failures.kind
    return tuple(FaultRecord(at_s=float(time), kind=kinds[turn % len(kinds)]) for turn, time in enumerate(times))


def run_fixed(
    *,
    profile: SimulatorProfile,
    rates_per_s: Rates,
    seed: int,
    faults: Sequence[FaultRecord],
    configuration: Configuration,
) -> tuple[Series, Meter]:
    """Every second of the run, and what it used."""
    # Nobody reads reports here, so none is due before the end.
    simulator = Simulator(profile=profile, rates_per_s=rates_per_s, seed=seed, report_every_s=len(rates_per_s) + 1)
    job = simulator.launch(configuration)
    for fault in faults:
        simulator.clock.wait_until(fault.at_s)
        job.inject(fault.kind)
    simulator.clock.wait_until(float(len(rates_per_s)))
    return series_of(job.series()), job.meter()


def series_of(columns: dict[str, Rates], forecast_per_s: Rates | None = None) -> Series:
    """The columns of an engine as the series of a run."""
    nothing = np.full(len(columns["second"]), np.nan)
    return Series(
        second=columns["second"].astype(np.int64),
        input_rate_per_s=columns["input_rate_per_s"],
        processed_rate_per_s=columns["processed_rate_per_s"],
        backlog_records=columns["backlog_records"],
        latency_p50_s=columns["latency_p50_s"],
        latency_p95_s=columns["latency_p95_s"],
        latency_p99_s=columns["latency_p99_s"],
        up=columns["up"].astype(np.bool_),
        busy_share=columns["busy_share"],
        cpu_share=columns["cpu_share"],
        memory_share=columns["memory_share"],
        state_mib=columns["state_mib"],
        executors=columns["executors"].astype(np.int64),
        cores=columns["cores"],
        memory_mib=columns["memory_mib"],
        forecast_per_s=nothing if forecast_per_s is None else forecast_per_s,
    )
