"""Compares a fitted profile with what was measured and left out of the fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tidewise.core import Configuration
from tidewise.engines.simulator import Simulator, SimulatorProfile
from tidewise.engines.simulator.physics import capacity_per_s
from tidewise.experiments.spark_batch_fit import cpu_share
from tidewise.experiments.spark_measurement import Circumstances, SparkMeasurement, Stretch

HELD_OUT = ((2, 2), (3, 3))
"""Executors, and which of the rates on them: one that is kept up with and one that is not."""
BEYOND = (4, 3)
"""The same for more executors than the machine had cores for: what the profile leaves out on purpose."""
_SEEDS = (1, 2, 3, 4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Something that was measured and left out of the fit, beside what the profile makes of it."""

    name: str
    measured: float
    simulated: float


def blocks(measured: SparkMeasurement) -> dict[int, list[Stretch]]:
    """The stretches by their number of executors, in their order."""
    found: dict[int, list[Stretch]] = {}
    for stretch in measured.stretches:
        found.setdefault(stretch.executors, []).append(stretch)
    return found


def kept(measured: SparkMeasurement) -> list[Stretch]:
    """The stretches to fit on."""
    return [
        stretch
        for executors, row in blocks(measured).items()
        for place, stretch in enumerate(row)
        if (executors, place) not in HELD_OUT
    ]


def with_room(stretches: Sequence[Stretch], told: Circumstances) -> list[Stretch]:
    """Those in which the machine could give all executors their cores, and the driver what it used besides.

    A profile is about executors that have their cores; what the others are short of is the machine's, not the job's.
    """
    return [
        one
        for one in stretches
        if one.executors * told.cores_per_executor + one.driver_cpu_s / one.seconds <= told.machine_cores
    ]


def compare(profile: SimulatorProfile, measured: SparkMeasurement) -> Iterator[Comparison]:
    """What was left out, beside the middle of a few simulations of the same row of rates."""
    told = measured.circumstances
    for executors, place in (*HELD_OUT, BEYOND):
        row = blocks(measured).get(executors, [])
        if place >= len(row):
            continue
        stretch = row[place]
        configuration = Configuration(
            executors=executors,
            cores_per_executor=told.cores_per_executor,
            memory_mib_per_executor=told.memory_mib_per_executor,
            commit_interval_s=told.commit_interval_s,
        )
        begins_s = sum(one.seconds for one in row[:place])
        simulated = _simulated(profile, row, configuration, begins_s, begins_s + stretch.seconds)
        done = sum(batch.rows for batch in stretch.batches) / stretch.seconds
        seen = (
            ("processed/s", done),
            ("latency p50, s", stretch.latency_p50_s),
            ("latency p95, s", stretch.latency_p95_s),
            ("CPU share", cpu_share(stretch, told.cores_per_executor)),
        )
        limit = capacity_per_s(profile.capacity, configuration, executors)
        name = f"{executors} executors, {stretch.rate_per_s:.0f}/s ({stretch.rate_per_s / limit:.0%} of capacity)"
        for (what, found), made in zip(seen, simulated, strict=True):
            if found is not None:
                yield Comparison(name=f"{name}: {what}", measured=found, simulated=made)


def _simulated(
    profile: SimulatorProfile, row: Sequence[Stretch], configuration: Configuration, begins_s: float, ends_s: float
) -> tuple[float, ...]:
    """Processed per second, latency p50 and p95 and CPU share between two times of the row."""
    rates = np.concatenate([np.full(one.seconds, one.rate_per_s) for one in row])
    found = []
    for seed in _SEEDS:
        simulator = Simulator(profile=profile, rates_per_s=rates, seed=seed, report_every_s=1)
        job = simulator.launch(configuration)
        simulator.clock.wait_until(float(len(rates)))
        reports = [report for report in job.reports() if begins_s < report.time_s <= ends_s]
        columns = [
            [report.processed_rate_per_s for report in reports],
            [report.latency_p50_s for report in reports if report.latency_p50_s is not None],
            [report.latency_p95_s for report in reports if report.latency_p95_s is not None],
            [report.cpu_share for report in reports if report.cpu_share is not None],
        ]
        middle = [float(np.mean(columns[0])), *(float(np.median(column or [math.nan])) for column in columns[1:3])]
        found.append((*middle, float(np.mean(columns[3] or [math.nan]))))
    return tuple(float(value) for value in np.median(np.array(found), axis=0))
