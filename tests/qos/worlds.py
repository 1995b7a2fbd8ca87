"""Small spaces, arbitrary and simulated evidence: what the tests of the models share."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tidewise.core import ChangeCost, Configuration, ConfigurationSpace, Mechanism, Observation
from tidewise.engines.simulator import Simulator, load_profile
from tidewise.qos import CONTINUOUS, Candidates, Floats, JobModel, Physics

CHANGES = (ChangeCost(mechanism=Mechanism.LIVE, gap_s=0.5), ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=30.0))
SPACE = ConfigurationSpace(
    executors=(1, 2, 4, 8),
    slots_per_executor=(1, 2),
    cores_per_executor=(0.5, 1.0, 2.0),
    memory_mib_per_executor=(1024, 2048),
    commit_interval_s=(0.0, 10.0),
    changes=CHANGES,
)
TABLE = Candidates.of(SPACE)
RESOURCE_AXES = (0, 2, 3)
"""Executors, cores and memory, in the shape of the space."""


def on_grid(values: Floats) -> Floats:
    """The rows of `TABLE` in the shape of the space."""
    return values.reshape(4, 2, 3, 2, 2)


def never_falls_with_resources(values: Floats) -> bool:
    return all(bool((np.diff(on_grid(values), axis=axis) >= -1e-9).all()) for axis in RESOURCE_AXES)


configurations = st.integers(0, len(TABLE) - 1).map(lambda row: TABLE[row])
rates = st.floats(1.0, 1e6)
evidence = st.lists(st.tuples(configurations, rates, st.floats(1e-3, 1e4), st.floats(0.02, 1.0)), max_size=12)
"""Configuration, rate, latency and utilisation that need not fit together at all."""


def taught(seen: list[tuple[Configuration, float, float, float]], *, micro_batch: bool) -> JobModel:
    """A model that was taught whatever was drawn."""
    model = JobModel(physics=Physics() if micro_batch else CONTINUOUS, changes=CHANGES)
    for configuration, rate, latency_s, busy in seen:
        model.capacity.learn(configuration, rate / busy, at_least=busy < 0.2)
        model.latency.learn(
            configuration,
            rate,
            p50_s=latency_s,
            p95_s=2 * latency_s,
            p99_s=None,
            busy_share=busy if busy > 0.1 else None,
        )
        model.memory.learn(configuration, rate, memory_share=busy, state_mib=latency_s)
    return model


def observed(
    configuration: Configuration, rate_per_s: float, *, seed: int, profile: str = "spark-local", seconds: int = 300
) -> list[Observation]:
    """The reports of a simulated job at a noisy rate."""
    noise = np.random.default_rng(seed).standard_normal(seconds)
    simulator = Simulator(
        profile=load_profile(profile), rates_per_s=np.maximum(0.0, rate_per_s * (1.0 + 0.1 * noise)), seed=seed
    )
    job = simulator.launch(configuration)
    simulator.clock.wait_until(float(seconds))
    return list(job.reports())
