"""Fits the simulator profile `spark-local` to a measurement of a real Spark job, made by `measure_spark_local`.

Pure: the same measurement gives the same profile. Two stretches of the measurement are left out of the fit and compared
with what the profile makes of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import optimize

from tidewise.core import BadInputError, Mechanism, OperatorKind, TidewiseError
from tidewise.engines.simulator import SimulatorProfile
from tidewise.engines.simulator.profile import (
    OUT_OF_MEMORY,
    BatchProfile,
    CapacityProfile,
    FailureProfile,
    FixedResources,
    LiveProfile,
    MechanismProfile,
    MemoryProfile,
    OperatorProfile,
    ProfilingProfile,
    WarmUp,
)
from tidewise.engines.simulator.profile_file import profile_to_toml
from tidewise.experiments.spark_batch_fit import (
    BatchFit,
    fit_batches,
    fit_cpu,
    fit_latency,
    fit_warm_up,
    gap_s,
    neat,
)
from tidewise.experiments.spark_fit_check import Comparison, compare, kept, with_room
from tidewise.experiments.spark_measurement import Change, Fault, SparkMeasurement, read_measurement

# Not measured: kept from single trials, or assumed.
_SLOT_CONTENTION = 0.05
_LEAST_CONTENTION = 0.005
"""Of executors on machines of their own; what one machine shows of it is taken where it is more."""
_HANDOVER_S_PER_GIB, _REDEPLOY_S_PER_GIB, _REPARTITION_S_PER_GIB = 1.0, 2.0, 20.0
_OUT_OF_MEMORY_S = 20.0
_HANDOVER_GAP_S, _HANDOVER_PREPARATION_S = 1.6, 27.0
"""Of a job with little to do; where two applications want more than the machine has, a handover may never get warm."""
_FEWEST_FOR_SPREAD = 3
_SPREAD = 0.2
"""Of whatever was measured too seldom to tell its spread."""
_OPERATORS = (
    OperatorProfile(name="views", kind=OperatorKind.CONTINUOUS, work_share=0.8),
    OperatorProfile(name="counts", kind=OperatorKind.WINDOW, work_share=0.2, records_share=0.01),
)
"""The two stages of a batch: before the shuffle, where views are counted already, and after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of the profile, and how far the measurement bears it out."""

    name: str
    value: str
    borne_out: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFit:
    """The profile, what bears its figures out, and what it makes of what was left out."""

    profile: SimulatorProfile
    figures: tuple[Figure, ...]
    comparisons: tuple[Comparison, ...]


class _Times:
    """The times of changes and faults, as the simulator needs them."""

    def __init__(self, measured: SparkMeasurement, fit: BatchFit, warm_up: WarmUp) -> None:
        self._measured = measured
        self._fit = fit
        self._warm_up = warm_up
        self._cores = measured.circumstances.cores_per_executor
        self._interval_s = measured.circumstances.commit_interval_s

    def changes(self, mechanism: Mechanism) -> list[Change]:
        """Those that were made; BadInputError where there was none, though a handover may fail on a small machine."""
        made = [one for one in self._measured.changes if one.mechanism is mechanism and not one.failure]
        if not made and mechanism is not Mechanism.HANDOVER:
            raise BadInputError(f"no {mechanism} was measured, or none succeeded: measure again, with more --seconds")
        return made

    def faults(self, kind: str) -> list[Fault]:
        """All of this kind; BadInputError where there was none."""
        found = [one for one in self._measured.faults if one.kind == kind]
        if not found:
            raise BadInputError(f"no {kind} was measured: measure again, with more --seconds")
        return found

    def gaps(self, mechanism: Mechanism) -> list[float]:
        speed = self._warm_up.share if mechanism is Mechanism.REDEPLOY else 1.0
        return [
            gap_s(
                one.no_commit_s,
                rate_per_s=one.rate_per_s,
                batch_s=one.batch_s,
                fit=self._fit,
                cores=one.executors_after * self._cores,
                speed=speed,
            )
            for one in self.changes(mechanism)
        ]

    def driver_downtimes(self) -> list[float]:
        return [
            gap_s(
                one.committed_s - (one.noticed_s or 0.0),
                rate_per_s=one.rate_per_s,
                batch_s=one.batch_s,
                fit=self._fit,
                cores=one.executors * self._cores,
                speed=self._warm_up.share,
            )
            for one in self.faults("kill-driver")
        ]

    def executor_downtimes(self) -> list[float]:
        """Of a batch that is begun anew by the executors that are left; it dies, on average, in the middle."""
        return [
            gap_s(
                one.no_commit_s - max(self._interval_s, one.batch_s) / 2,
                rate_per_s=one.rate_per_s,
                batch_s=one.batch_s,
                fit=self._fit,
                cores=max(1, one.executors - 1) * self._cores,
                speed=1.0,
            )
            for one in self.faults("kill-executor")
        ]


def fit_spark_local(measured: SparkMeasurement) -> SparkFit:
    """The whole profile, and how well it stands."""
    told, used = measured.circumstances, kept(measured)
    cores, roomy = told.cores_per_executor, with_room(used, told)
    batch, cpu = fit_batches(roomy, cores), fit_cpu(used, cores)
    warm_up = fit_warm_up(measured.after_start, cores, batch)
    times = _Times(measured, batch, warm_up)
    live = times.changes(Mechanism.LIVE)
    joins = [one.took_s for one in live if one.executors_after > one.executors_before]
    leaves = [one.took_s for one in live if one.executors_after < one.executors_before]
    gaps = {
        mechanism: times.gaps(mechanism)
        for mechanism in (Mechanism.QUERY_RESTART, Mechanism.HANDOVER, Mechanism.REDEPLOY, Mechanism.REPARTITION)
    }
    warming = [one.prepared_s for one in times.changes(Mechanism.HANDOVER)]
    noticed = [one.noticed_s for one in times.faults("kill-driver") if one.noticed_s is not None]
    down, broken = times.driver_downtimes(), times.executor_downtimes()
    driver = [one.driver_cpu_s / one.seconds for one in measured.stretches]
    controller = [one.controller_cpu_s / one.seconds for one in measured.stretches]
    sizes = measured.sizes
    state = _state(measured)
    profile = SimulatorProfile(
        name="spark-local",
        description="A YSB-like micro-batch job on Spark 4.3: executors join and leave while it runs",
        mode="micro-batch",
        capacity=CapacityProfile(
            records_per_core_s=neat(batch.records_per_core_s),
            slot_contention=_SLOT_CONTENTION,
            contention=max(_LEAST_CONTENTION, neat(batch.contention)),
            idle_cpu_share=neat(cpu.idle_share),
            cpu_s_per_record=neat(cpu.cpu_s_per_record),
        ),
        latency=fit_latency(roomy, told, batch),
        batch=BatchProfile(
            fixed_s=neat(batch.fixed_s), fixed_cpu_s=neat(cpu.fixed_cpu_s), noise_share=neat(batch.spread)
        ),
        memory=MemoryProfile(
            executor_base_mib=neat(_middle(sizes.executor_jvm_mib)),
            slot_mib=neat(_middle(sizes.executor_python_mib)),
            state_base_mib=state[0],
            state_mib_per_record_per_s=state[1],
        ),
        live=LiveProfile(
            start_s=neat(_middle(joins)), start_spread_share=_spread(joins), leave_s=neat(_middle(leaves))
        ),
        mechanisms={
            Mechanism.LIVE: MechanismProfile(gap_s=0.0),
            Mechanism.QUERY_RESTART: _mechanism(gaps[Mechanism.QUERY_RESTART]),
            Mechanism.HANDOVER: _mechanism(
                gaps[Mechanism.HANDOVER] or [_HANDOVER_GAP_S],
                per_gib_s=_HANDOVER_S_PER_GIB,
                preparation_s=neat(_middle(warming or [_HANDOVER_PREPARATION_S])),
                runs_double=True,
            ),
            Mechanism.REDEPLOY: _mechanism(gaps[Mechanism.REDEPLOY], per_gib_s=_REDEPLOY_S_PER_GIB, warm_up=warm_up),
            Mechanism.REPARTITION: _mechanism(gaps[Mechanism.REPARTITION], per_gib_s=_REPARTITION_S_PER_GIB),
        },
        failures={
            "executor-kill": FailureProfile(
                downtime_s=neat(_middle(broken)), downtime_spread_share=_spread(broken), executors_lost=1
            ),
            "driver-kill": FailureProfile(
                detection_s=neat(_middle(noticed)),
                serving_share=0.0,
                downtime_s=neat(_middle(down)),
                downtime_spread_share=_spread(down),
                warm_up=warm_up,
            ),
            OUT_OF_MEMORY: FailureProfile(downtime_s=_OUT_OF_MEMORY_S, downtime_spread_share=_SPREAD, executors_lost=1),
        },
        driver=FixedResources(cores=neat(max(driver)), memory_mib=neat(max(sizes.driver_mib))),
        controller=FixedResources(cores=neat(_middle(controller)), memory_mib=neat(sizes.controller_mib)),
        operators=_OPERATORS,
        profiling=ProfilingProfile(deploy_s=neat(_middle(gaps[Mechanism.REDEPLOY]))),
    )
    figures = (
        Figure(
            name="duration of a batch",
            value=f"{batch.fixed_s:.2f} s + rows / ({batch.records_per_core_s:.0f}/s per core)",
            borne_out=f"{batch.batches} batches, explains {batch.explained:.0%}, spread {batch.spread:.0%}",
        ),
        Figure(
            name="contention of executors",
            value=f"{batch.contention:.3f}",
            borne_out=f"up to {max(one.executors for one in roomy)} executors; at least {_LEAST_CONTENTION} is assumed",
        ),
        Figure(
            name="CPU of executors",
            value=f"{cpu.fixed_cpu_s:.2f} s a batch + {cpu.cpu_s_per_record * 1e6:.1f} us a record",
            borne_out=f"{len(used)} stretches, explains {cpu.explained:.0%}",
        ),
        _figure("an executor joins", joins),
        _figure("an executor leaves", leaves),
        *(_figure(f"gap of {mechanism}", values) for mechanism, values in gaps.items()),
        _figure("preparation of handover", warming),
        _figure("down after driver-kill", down),
        _figure("down after executor-kill", broken),
        Figure(
            name="warming up",
            value=f"from {warm_up.share:.0%} in {warm_up.duration_s:.0f} s",
            borne_out=f"{len(measured.after_start)} batches after cold starts",
        ),
        _figure("cores of the driver", driver, unit=""),
        _figure("cores of the controller", controller, unit=""),
    )
    return SparkFit(profile=profile, figures=figures, comparisons=tuple(compare(profile, measured)))


def _mechanism(
    gaps: Sequence[float],
    *,
    per_gib_s: float = 0.0,
    preparation_s: float = 0.0,
    runs_double: bool = False,
    warm_up: WarmUp | None = None,
) -> MechanismProfile:
    return MechanismProfile(
        gap_s=neat(_middle(gaps)),
        gap_spread_share=_spread(gaps),
        gap_s_per_state_gib=per_gib_s,
        preparation_s=preparation_s,
        runs_double=runs_double,
        warm_up=warm_up or WarmUp(),
    )


def _state(measured: SparkMeasurement) -> tuple[float, float]:
    """State of the whole job: what there always is, and what comes with each record per second."""
    known = [(1.0, one.rate_per_s, one.state_mib) for one in measured.stretches if one.state_mib is not None]
    if not known:
        return 0.0, 0.0
    table = np.array(known)
    (base, per_rate), _ = optimize.nnls(table[:, :2], table[:, 2])
    return neat(float(base)), neat(float(per_rate))


def _middle(values: Sequence[float]) -> float:
    return float(np.median(values)) if len(values) else 0.0


def _spread(values: Sequence[float]) -> float:
    """Standard deviation of the logarithm."""
    positive = [value for value in values if value > 0.0]
    if len(positive) < _FEWEST_FOR_SPREAD:
        return _SPREAD
    return min(1.0, neat(float(np.log(positive).std(ddof=1)), digits=2))


def _figure(name: str, values: Sequence[float], unit: str = " s") -> Figure:
    if not values:
        return Figure(name=name, value="assumed", borne_out="was not measured, or did not succeed")
    said = "1 time" if len(values) == 1 else f"{len(values)} times, {min(values):.2f} to {max(values):.2f}"
    return Figure(name=name, value=f"{_middle(values):.2f}{unit}", borne_out=said)


def preface(measured: SparkMeasurement) -> str:
    """Where the numbers come from, for the head of the profile."""
    told = measured.circumstances
    low, high = min(told.load_averages), max(told.load_averages)
    handed_over = any(one.mechanism is Mechanism.HANDOVER and not one.failure for one in measured.changes)
    handover = "" if handed_over else ", and the handover, which did not succeed in it"
    machine = f"{told.machine_cores} cores (load average {low:.0f} to {high:.0f})"
    return f"""\
A YSB-like job (views per campaign and window) on Spark standalone, on one machine.
Written by: python -m tidewise.experiments.fit_spark_local MEASUREMENT.json --to THIS_FILE
Fitted on a measurement of {told.date}: Spark {told.pyspark}, {machine}, executors of {told.cores_per_executor:g} cores.
Stretches in which the executors wanted more cores than the machine has are left out: executors have their cores here.
Not in that measurement, and so assumed: contention of slots and of executors on many machines, the effect of the size
of the state on a gap, what happens when memory is full and how slow an executor becomes before, how the work on a
record divides among the stages, and the spread of what was seen less than three
times{handover}.
The noise of capacity and of batches cannot be told apart: all of it is the batches'."""


def table_of(fit: SparkFit) -> str:
    """What bears the figures out, and the comparison, for a person."""
    lines = ["fitted", *(f"  {one.name:<28}{one.value:<44}{one.borne_out}" for one in fit.figures)]
    lines += ["left out of the fit" + " " * 45 + "measured   simulated"]
    lines += [f"  {one.name:<60}{one.measured:>10.4g}{one.simulated:>12.4g}" for one in fit.comparisons]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fit, print how well it fits, and write the profile."""
    parser = argparse.ArgumentParser(prog="python -m tidewise.experiments.fit_spark_local", description=__doc__)
    parser.add_argument("measurement", type=Path, help="what measure_spark_local wrote")
    parser.add_argument("--to", type=Path, default=None, help="the profile file to write (default: standard output)")
    options = parser.parse_args()
    try:
        measured = read_measurement(options.measurement)
        fit = fit_spark_local(measured)
    except TidewiseError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    sys.stderr.write(table_of(fit))
    text = profile_to_toml(fit.profile, preface=preface(measured))
    if options.to is None:
        sys.stdout.write(text)
    else:
        options.to.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
