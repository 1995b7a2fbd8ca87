"""Small problems with a known answer, for the tests of this room."""

from __future__ import annotations

import numpy as np

from tidewise.core import ChangeCost, ConfigurationSpace, Mechanism, Prices
from tidewise.qos import Belief, Candidates, Floats
from tidewise.qos.model import Outlook

PRICES = Prices(core_hour=0.04, gib_hour=0.005)
SPACE = ConfigurationSpace(
    executors=tuple(range(1, 13)),
    cores_per_executor=(1.0, 2.0),
    memory_mib_per_executor=(1024, 2048),
    commit_interval_s=(1.0, 5.0, 20.0),
    changes=(ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=30.0),),
)


def table() -> Candidates:
    return Candidates.of(SPACE)


def truth(candidates: Candidates, rate_per_s: float) -> tuple[Floats, Floats]:
    """Latency and recovery of a job with contention, whose commits cost and whose replay costs too."""
    capacity = 4000.0 * candidates.total_cores / (1.0 + 0.03 * (candidates.total_cores - 1.0))
    capacity = capacity * (1.0 - 0.2 / np.maximum(candidates.commit_interval_s, 1.0))
    busy = np.minimum(rate_per_s / capacity, 0.97)
    recovery = 30.0 + (30.0 + candidates.commit_interval_s) * busy / (1.0 - busy)
    return 0.5 + busy / (1.0 - busy), recovery


def outlook_of(
    candidates: Candidates,
    *,
    latency_s: Floats,
    recovery_s: Floats,
    log_sd: float,
    noise: float = 0.0,
    out_of_memory: float = 0.0,
) -> Outlook:
    latency, recovery = Belief.of(latency_s, log_sd), Belief.of(recovery_s, log_sd)
    count = len(candidates)
    return Outlook(
        latency_p50=latency,
        latency_p95=latency,
        latency_p99=latency,
        latency_noise=np.full(count, noise),
        recovery=recovery,
        recovery_noise=np.full(count, noise),
        capacity=Belief.of(np.ones(count), log_sd),
        overload_probability=np.zeros(count),
        out_of_memory_probability=np.full(count, out_of_memory),
        cost_per_hour=candidates.cost_per_hour(PRICES),
    )
