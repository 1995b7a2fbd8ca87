"""Simulator profiles with round numbers, so that a test can be checked by hand."""

from __future__ import annotations

import numpy as np

from tidewise.core import ChangeRequest, Configuration, Mechanism, Origin, Reason
from tidewise.engines.simulator import SimulatedJob, Simulator, SimulatorProfile
from tidewise.engines.simulator.latency import Floats


def continuous_profile(
    *, detection_s: float = 0.0, downtime_s: float = 20.0, replays: bool = True, noise_share: float = 0.0
) -> SimulatorProfile:
    """1,000 records/s per core, a second of latency at rest, no noise."""
    return SimulatorProfile.model_validate(
        {
            "name": "round-numbers",
            "description": "for tests",
            "mode": "continuous",
            "capacity": {"records_per_core_s": 1000.0, "cpu_s_per_record": 0.001, "noise_share": noise_share},
            "latency": {"at_rest_s": 1.0, "p95_over_p50": 1.5, "p99_over_p50": 2.0},
            "memory": {"executor_base_mib": 200.0, "slot_mib": 50.0, "state_base_mib": 50.0},
            "live": {"start_s": 15.0, "leave_s": 1.0},
            "mechanisms": {
                "live": {"gap_s": 0.0},
                "handover": {"gap_s": 2.0, "preparation_s": 25.0, "runs_double": True},
                "redeploy": {"gap_s": 40.0},
            },
            "failures": {
                "crash": {"detection_s": detection_s, "downtime_s": downtime_s, "replays": replays},
                "executor-kill": {"downtime_s": 2.0, "executors_lost": 1},
                "out-of-memory": {"downtime_s": 60.0},
            },
            "driver": {"cores": 1.0, "memory_mib": 512.0},
            "controller": {"cores": 0.1, "memory_mib": 100.0},
            "profiling": {"deploy_s": 30.0},
        }
    )


def batch_profile(*, fixed_s: float = 0.5) -> SimulatorProfile:
    """The same in micro-batches, each with a fixed cost; no latency besides."""
    whole = continuous_profile().model_dump(mode="json")
    whole |= {"mode": "micro-batch", "batch": {"fixed_s": fixed_s, "fixed_cpu_s": 0.2}, "latency": {"at_rest_s": 0.0}}
    return SimulatorProfile.model_validate(whole)


def run_to_end(
    profile: SimulatorProfile, rates: Floats, *, executors: int, memory_mib: int = 1024, commit_interval_s: float = 10.0
) -> SimulatedJob:
    simulator = Simulator(profile=profile, rates_per_s=np.asarray(rates, dtype=np.float64), seed=1)
    job = simulator.launch(
        Configuration(executors=executors, memory_mib_per_executor=memory_mib, commit_interval_s=commit_interval_s)
    )
    simulator.clock.wait_until(float(len(rates)))
    return job


def change(request_id: str, source: Configuration, target: Configuration, mechanism: Mechanism) -> ChangeRequest:
    return ChangeRequest(
        request_id=request_id,
        origin=Origin.POLICY,
        source=source,
        target=target,
        mechanism=mechanism,
        requested_at_s=0.0,
        deadline_s=1e6,
        reason=Reason(code="test", sentence="A test wants it."),
    )
