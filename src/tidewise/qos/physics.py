"""What is known of a streaming job before anything was seen of it: usual values, and how far off each may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tidewise.core.checks import require, require_finite
from tidewise.qos.candidates import Candidates, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """A positive quantity before it was measured: its median, and the spread of its logarithm."""

    median: float
    log_sd: float
    """0.1 means about ten per cent either way; 2.3 a factor of ten."""

    def __post_init__(self) -> None:
        require_finite("median", self.median, above=0.0)
        require_finite("log_sd", self.log_sd, above=0.0)


_DOWNTIMES = {
    "executor-kill": Usual(median=3.0, log_sd=1.0),
    "driver-kill": Usual(median=25.0, log_sd=0.8),
    "out-of-memory": Usual(median=20.0, log_sd=0.8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Physics:
    """Priors and fixed quantities of all models of a job; the usual values are those of Spark's micro-batches."""

    micro_batch: bool = True
    """Records wait for the trigger. False: they flow (real-time mode, Flink), and the commit interval only decides
    what is replayed after a failure."""

    records_per_core_s: Usual = Usual(median=20_000.0, log_sd=2.3)
    """One core that runs one slot, alone."""
    cores_per_slot: Usual = Usual(median=1.0, log_sd=0.3)
    """How many cores one slot can keep busy; further ones lie idle."""
    slot_contention: Usual = Usual(median=0.1, log_sd=1.0)
    """What each slot beyond the first costs its executor: speed / (1 + slot_contention x (slots - 1))."""
    contention: Usual = Usual(median=0.005, log_sd=1.5)
    """Universal Scalability Law: what waits for something shared, per further core."""
    coherence: Usual = Usual(median=1e-5, log_sd=2.0)
    """Universal Scalability Law: what each pair of cores costs in talking to each other."""

    batch_overhead_s: Usual = Usual(median=0.8, log_sd=0.7)
    """What a micro-batch costs before its first record."""
    at_rest_s: Usual = Usual(median=0.1, log_sd=1.5)
    """Median from arrival to output with empty queues, wait for the trigger and batch not counted."""
    queueing_s: Usual = Usual(median=0.02, log_sd=1.0)
    """Times u / (1 - u) at utilisation u: queues that come and go."""
    p95_over_p50: Usual = Usual(median=1.2, log_sd=0.2)
    """Beyond what the wait for the trigger makes of it."""
    p99_over_p95: Usual = Usual(median=1.1, log_sd=0.1)
    overload_horizon_s: float = 600.0
    """For how long an overloaded job is taken to fall behind."""

    executor_base_mib: Usual = Usual(median=400.0, log_sd=0.4)
    """An executor without work."""
    slot_mib: Usual = Usual(median=120.0, log_sd=0.7)
    """Each task that runs."""
    state_skew: Usual = Usual(median=1.1, log_sd=0.2)
    """State on the fullest executor over an even share."""
    knee_share: float = 0.8
    """Share of memory above which collection takes time."""
    slowest_share: float = 0.3
    """The speed that is left just before memory is full."""

    settle_s: float = 60.0
    """After a start, a change or a failure the job warms up and catches up: what it shows so long is not its usual."""
    stretch_s: float = 60.0
    """So much of steady work at least makes one piece of evidence."""
    cold_share: float = 0.4
    """What a job lacks of its capacity when it has come up, at least: how long recoveries take hardly tells it."""
    downtimes: Mapping[str, Usual] = field(default_factory=lambda: dict(_DOWNTIMES))
    """Seconds without processing, by kind of failure."""
    other_downtime: Usual = Usual(median=30.0, log_sd=1.0)
    """The same for a kind that is not listed."""

    def __post_init__(self) -> None:
        require_finite("overload_horizon_s", self.overload_horizon_s, above=0.0)
        require_finite("settle_s", self.settle_s, least=0.0)
        require_finite("stretch_s", self.stretch_s, above=0.0)
        require(0.0 <= self.cold_share < 1.0, f"cold_share must lie at or above 0 and below 1: {self.cold_share:g}")
        require(0.0 < self.knee_share < 1.0, f"knee_share must lie between 0 and 1, not {self.knee_share:g}")
        require(0.0 < self.slowest_share <= 1.0, f"slowest_share must lie above 0 and up to 1: {self.slowest_share:g}")
        require(self.p95_over_p50.median >= 1.0, "p95_over_p50 must be at least 1")
        require(self.p99_over_p95.median >= 1.0, "p99_over_p95 must be at least 1")

    def speed(self, memory_share: Floats) -> Floats:
        """What is left of the capacity when memory fills: all of it up to the knee, then falling evenly."""
        over = np.clip((memory_share - self.knee_share) / (1.0 - self.knee_share), 0.0, 1.0)
        return 1.0 - over * (1.0 - self.slowest_share)


CONTINUOUS = Physics(
    micro_batch=False,
    records_per_core_s=Usual(median=10_000.0, log_sd=2.3),
    cores_per_slot=Usual(median=2.0, log_sd=0.5),
    at_rest_s=Usual(median=0.5, log_sd=1.5),
    cold_share=0.0,
    downtimes={"network-delay": Usual(median=30.0, log_sd=0.8), "out-of-memory": Usual(median=60.0, log_sd=0.8)},
)
"""Records that flow one by one: Flink, or Spark's real-time mode."""


def parameters(logs: Floats) -> Floats:
    """The parameters of a formula, one after the other, from their logarithms: one set of them, or a row for each."""
    return np.exp(logs.T)[..., np.newaxis]


def log_capacity(candidates: Candidates, logs: Floats) -> Floats:
    """Logarithm of records per second of each row, for the logarithms of the five parameters of capacity.

    Cores beyond what the slots can use lie idle, slots beyond the first share them at a price, and the Universal
    Scalability Law takes its part of all of them together. Where the law has more cores do less, the further ones are
    taken to lie idle: more never lowers a capacity here.
    """
    per_core, per_slot, slot_contention, contention, coherence = parameters(logs)
    cores = np.minimum(candidates.cores_per_executor, per_slot * candidates.slots_per_executor)
    most = np.maximum(1.0, np.sqrt(np.maximum(0.0, 1.0 - contention) / coherence))
    parallel = np.minimum(candidates.executors * cores, most)
    further = np.maximum(0.0, parallel - 1.0)
    return np.asarray(
        np.log(per_core * parallel)
        - np.log1p(slot_contention * (candidates.slots_per_executor - 1.0))
        - np.log1p(contention * further + coherence * parallel * further),
        dtype=np.float64,
    )
