"""Counts every core-second and MiB-second, by what it was spent on."""

from __future__ import annotations

from tidewise.core import Configuration, Meter, Purpose, Usage
from tidewise.engines.simulator.profile import FixedResources


class ResourceMeter:
    """Running sums; `reading` is the meter as the ports know it."""

    def __init__(self) -> None:
        self._core_s = dict.fromkeys(Purpose, 0.0)
        self._memory_mib_s = dict.fromkeys(Purpose, 0.0)

    def add(self, purpose: Purpose, cores: float, memory_mib: float, seconds: float) -> None:
        self._core_s[purpose] += cores * seconds
        self._memory_mib_s[purpose] += memory_mib * seconds

    def add_fixed(self, purpose: Purpose, resources: FixedResources, seconds: float) -> None:
        self.add(purpose, resources.cores, resources.memory_mib, seconds)

    def add_executors(self, purpose: Purpose, configuration: Configuration, seconds: float) -> None:
        self.add(purpose, configuration.total_cores, configuration.total_memory_mib, seconds)

    def reading(self) -> Meter:
        return {
            purpose: Usage(core_s=self._core_s[purpose], memory_mib_s=self._memory_mib_s[purpose])
            for purpose in Purpose
        }
