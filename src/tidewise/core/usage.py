"""What was used and has to be paid for, by what it was used for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tidewise.core.checks import require_finite


class Purpose(StrEnum):
    """What resources were spent on."""

    EXECUTORS = "executors"
    """The job itself, executors that are still starting included."""
    DRIVER = "driver"
    DOUBLE_RUNNING = "double-running"
    """A second application beside the first during a handover."""
    PROFILING = "profiling"
    CONTROLLER = "controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """An amount of CPU and memory over time."""

    core_s: float = 0.0
    memory_mib_s: float = 0.0

    def __post_init__(self) -> None:
        require_finite("core_s", self.core_s, least=0.0)
        require_finite("memory_mib_s", self.memory_mib_s, least=0.0)

    def __add__(self, other: Usage) -> Usage:
        return Usage(core_s=self.core_s + other.core_s, memory_mib_s=self.memory_mib_s + other.memory_mib_s)


Meter = Mapping[Purpose, Usage]
"""Everything spent so far; a purpose that is missing has cost nothing."""


def total(meter: Meter) -> Usage:
    """The sum over all purposes."""
    result = Usage()
    for usage in meter.values():
        result = result + usage
    return result
