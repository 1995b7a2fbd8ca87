"""What a configuration can do: capacity by slots with contention, and what memory leaves of it."""

from __future__ import annotations

from tidewise.core import Configuration
from tidewise.engines.simulator.profile import CapacityProfile, MemoryProfile


def capacity_per_s(profile: CapacityProfile, configuration: Configuration, executors: float) -> float:
    """Records per second at full speed with this many executors really there (a fraction: one is still warming up)."""
    if executors <= 0:
        return 0.0
    # Cores beyond what the slots can use lie idle, and slots beyond the first share them at a price.
    cores = min(configuration.cores_per_executor, profile.cores_per_slot * configuration.slots_per_executor)
    per_executor = cores / (1.0 + profile.slot_contention * (configuration.slots_per_executor - 1))
    parallel = executors * cores
    scaling = (
        1.0 + profile.contention * max(0.0, parallel - 1.0) + profile.coherence * parallel * max(0.0, parallel - 1.0)
    )
    return profile.records_per_core_s * executors * per_executor / scaling


def memory_share(profile: MemoryProfile, configuration: Configuration, executors: int, state_mib: float) -> float:
    """Memory used over memory given, on each of the executors that are there."""
    state = state_mib / max(1, executors)
    used = profile.executor_base_mib + profile.slot_mib * configuration.slots_per_executor + state
    return used / configuration.memory_mib_per_executor


def speed_under_pressure(profile: MemoryProfile, share: float) -> float:
    """What is left of the capacity when memory fills: all of it up to the knee, then falling evenly."""
    if share <= profile.knee_share:
        return 1.0
    over = min(1.0, (share - profile.knee_share) / (1.0 - profile.knee_share))
    return 1.0 - over * (1.0 - profile.slowest_share)
