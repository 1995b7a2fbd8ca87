"""The simulator keeps every promise that engines make, in both of its modes."""

from __future__ import annotations

import numpy as np

from tidewise.core import Configuration, Engine
from tidewise.engines.simulator import Simulator, load_profile
from tidewise.testing import EngineConformance


class TestContinuousSimulator(EngineConformance):
    def make_engine(self) -> Engine:
        return Simulator(profile=load_profile("paper-cluster"), rates_per_s=np.full(20_000, 20_000.0), seed=1)

    def start_configuration(self) -> Configuration:
        return Configuration(executors=12, memory_mib_per_executor=4096, commit_interval_s=10.0)


class TestMicroBatchSimulator(EngineConformance):
    def make_engine(self) -> Engine:
        return Simulator(profile=load_profile("spark-local"), rates_per_s=np.full(20_000, 100_000.0), seed=1)

    def start_configuration(self) -> Configuration:
        return Configuration(executors=12, memory_mib_per_executor=1024, commit_interval_s=1.0, state_partitions=8)

    def fault(self, engine: Engine) -> str | None:
        assert "driver-kill" in engine.faults
        return "driver-kill"  # one executor of twelve that is down for a second or two is not felt
