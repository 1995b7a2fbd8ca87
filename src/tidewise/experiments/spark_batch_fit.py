"""Explains the batches of a measured Spark job: how long they take, what CPU they use, how late their output is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from tidewise.core import BadInputError
from tidewise.engines.simulator.latency import Floats
from tidewise.engines.simulator.profile import LatencyProfile, WarmUp
from tidewise.experiments.spark_measurement import AfterStart, Circumstances, Stretch

_FEWEST_BATCHES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFit:
    """Duration of a batch = fixed_s + rows / capacity, and the spread around it."""

    fixed_s: float
    records_per_core_s: float
    contention: float
    spread: float
    """Standard deviation of the logarithm."""
    explained: float
    """Share of the variance of the logarithm of the durations."""
    batches: int

    def capacity_per_s(self, cores: float) -> float:
        return self.records_per_core_s * cores / (1.0 + self.contention * max(0.0, cores - 1.0))

    def duration_s(self, rows: float, cores: float, speed: float = 1.0) -> float:
        return self.fixed_s + rows / (self.capacity_per_s(cores) * speed)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuFit:
    """CPU of the executors = idle + batches x fixed + rows x per record."""

    idle_share: float
    fixed_cpu_s: float
    cpu_s_per_record: float
    explained: float


def fit_batches(stretches: Sequence[Stretch], cores_per_executor: float) -> BatchFit:
    """Least squares on the logarithms of the durations, in which a batch that was disturbed weighs little."""
    points = [
        (float(batch.rows), batch.duration_s, stretch.executors * cores_per_executor)
        for stretch in stretches
        for batch in stretch.batches
        if batch.rows > 0 and batch.duration_s > 0.0
    ]
    if len(points) < _FEWEST_BATCHES:
        raise BadInputError(f"the measurement has {len(points)} batches with rows; a fit needs {_FEWEST_BATCHES}")
    rows, durations, cores = np.array(points).T
    beyond = np.maximum(0.0, cores - 1.0)

    def missed(parameters: Floats) -> Floats:
        fixed_s, per_record_s = np.exp(parameters[:2])
        model = fixed_s + rows * per_record_s * (1.0 + parameters[2] * beyond) / cores
        return np.asarray(np.log(durations / model))

    slope = float(np.median(durations * cores / rows)) / 2
    found = optimize.least_squares(
        missed,
        np.array([math.log(float(durations.min())), math.log(slope), 0.05]),
        bounds=([-6.0, -20.0, 0.0], [3.0, 0.0, 10.0]),
        loss="soft_l1",
        f_scale=0.2,
    )
    left = missed(found.x)
    total = np.log(durations) - np.log(durations).mean()
    return BatchFit(
        fixed_s=math.exp(found.x[0]),
        records_per_core_s=math.exp(-found.x[1]),
        contention=float(found.x[2]),
        spread=float(left.std()),
        explained=1.0 - float((left**2).sum() / (total**2).sum()),
        batches=len(points),
    )


def fit_cpu(stretches: Sequence[Stretch], cores_per_executor: float) -> CpuFit:
    """Idle from the stretches without records, the rest by least squares that cannot become negative."""
    silent = [one for one in stretches if one.rate_per_s == 0.0]
    idle = float(np.median([cpu_share(one, cores_per_executor) for one in silent])) if silent else 0.0
    busy = [one for one in stretches if one.rate_per_s > 0.0 and one.batches]
    used = np.array([one.executors_cpu_s for one in busy])
    above = used - np.array([idle * one.executors * cores_per_executor * one.seconds for one in busy])
    parts = np.array([(len(one.batches), sum(batch.rows for batch in one.batches)) for one in busy], dtype=np.float64)
    (fixed, per_record), _ = optimize.nnls(parts, np.maximum(0.0, above))
    left = above - parts @ np.array([fixed, per_record])
    return CpuFit(
        idle_share=idle,
        fixed_cpu_s=float(fixed),
        cpu_s_per_record=float(per_record),
        explained=1.0 - float((left**2).sum() / ((above - above.mean()) ** 2).sum()),
    )


def cpu_share(stretch: Stretch, cores_per_executor: float) -> float:
    """CPU that the executors used over what they were given."""
    return stretch.executors_cpu_s / (stretch.executors * cores_per_executor * stretch.seconds)


def fit_latency(stretches: Sequence[Stretch], told: Circumstances, batch: BatchFit) -> LatencyProfile:
    """What is left of the latencies beyond the wait for the batch and the batch, where the job kept up."""
    extra: list[tuple[float, float, float]] = []
    for one in stretches:
        if not one.batches or one.latency_p50_s is None or one.latency_p95_s is None or one.latency_p99_s is None:
            continue
        if one.rate_per_s > 0.9 * batch.capacity_per_s(one.executors * told.cores_per_executor):
            continue
        took_s = float(np.median([each.duration_s for each in one.batches]))
        cycle_s = max(told.commit_interval_s, took_s)
        wanted = ((one.latency_p50_s, 0.5), (one.latency_p95_s, 0.95), (one.latency_p99_s, 0.99))
        p50, p95, p99 = (latency_s - took_s - share * cycle_s for latency_s, share in wanted)
        extra.append((p50, p95, p99))
    if not extra:
        raise BadInputError("the job kept up with no rate that was measured: measure again, on a quieter machine")
    middle, second, third = (float(value) for value in np.median(np.array(extra), axis=0))
    at_rest_s = max(0.01, middle)
    spread = float(np.median(np.abs(np.array(extra)[:, 0] - middle))) / at_rest_s
    return LatencyProfile(
        at_rest_s=neat(at_rest_s),
        p95_over_p50=neat(max(1.0, second / at_rest_s)),
        p99_over_p50=neat(max(1.0, second / at_rest_s, third / at_rest_s)),
        noise_share=neat(min(0.5, spread)),
    )


def gap_s(no_commit_s: float, *, rate_per_s: float, batch_s: float, fit: BatchFit, cores: float, speed: float) -> float:
    """The gap after which the first commit comes this late: gap + a batch of what has arrived since the last began."""
    per_s = rate_per_s / (fit.capacity_per_s(cores) * speed)
    return max(0.0, (no_commit_s - fit.fixed_s - per_s * batch_s) / (1.0 + per_s))


def fit_warm_up(batches: Sequence[AfterStart], cores_per_executor: float, fit: BatchFit) -> WarmUp:
    """The ramp after a cold start that explains best how long its first batches took."""
    points: list[tuple[float, float, float, float]] = []
    first_s = 0.0
    for one in batches:
        if one.since_first_commit_s == 0.0:
            first_s = one.duration_s  # and it is left out: the gap of the restart has been made to fit it
        elif one.rows > 0:
            middle_s = one.since_first_commit_s + first_s - one.duration_s / 2
            points.append((middle_s, one.rows, one.duration_s, one.executors * cores_per_executor))
    if not points:
        return WarmUp()

    def missed(share: float, duration_s: float) -> float:
        total = 0.0
        for since_s, rows, took_s, total_cores in points:
            speed = min(1.0, share + (1.0 - share) * since_s / duration_s)
            total += abs(math.log(took_s / fit.duration_s(rows, total_cores, speed)))
        return total

    tried = [
        (missed(share / 20, float(length)), share / 20, float(length))
        for share in range(2, 21)
        for length in range(5, 65, 5)
    ]
    _, share, duration_s = min(tried)
    return WarmUp(share=share, duration_s=duration_s) if share < 1.0 else WarmUp()


def neat(value: float, digits: int = 3) -> float:
    """No more digits than the measurement bears."""
    return float(f"{value:.{digits}g}")
