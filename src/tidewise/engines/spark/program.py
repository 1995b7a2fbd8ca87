"""What the user runs, and the Spark settings that a configuration means for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidewise.core import BadInputError, Configuration
from tidewise.core.checks import require, require_finite

_NEVER_S = 1_000_000
_LEAST_OVERHEAD_MIB = 256
_LEAST_HEAP_MIB = 472
"""Spark refuses to start an executor with less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkProgram:
    """A PySpark program, unmodified, and what may be done with it."""

    command: tuple[str, ...]
    """The interpreter, the program and its arguments."""
    folder: Path
    """Where it is started."""
    environment: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark settings of the job file; those that Tidewise needs win over them."""
    most_executors: int = 64
    """The most that will ever be asked for: Spark takes its ceiling at the start only."""
    handover: bool = False
    """Whether the program's top-level code may run a second time, beside itself."""
    standby: bool = False
    """Whether a second application waits, warm, for the first one's driver to die."""
    replayable_sources: tuple[str, ...] = ()
    launch_deadline_s: float = 180.0
    """From the start of the program to its first committed batch."""
    warm_batches: int = 3
    """How many batches a successor has to finish on its scratch checkpoint before it takes over."""
    driver_cores: float = 1.0
    driver_memory_mib: int = 1024
    """What a driver is charged with."""
    restarts_most: int = 5
    restarts_within_s: float = 600.0
    """A driver that dies more often than this is not started again."""

    def __post_init__(self) -> None:
        require(len(self.command) > 0, "a program needs a command")
        require_finite("launch_deadline_s", self.launch_deadline_s, above=0.0)

    def check(self) -> None:
        """BadInputError where the program is not there."""
        for part in self.command[1:]:
            if part.endswith(".py"):
                path = self.folder / part
                if not path.is_file():
                    raise BadInputError(f"there is no program {path}; correct `program` in the job file")
                return

    def process_environment(self) -> dict[str, str]:
        """What the driver's process sees; Python workers use the interpreter of the program."""
        python = self.command[0] if "python" in Path(self.command[0]).name else sys.executable
        return {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, **os.environ, **self.environment}


def heap_mib(memory_mib: int) -> int:
    """The part of an executor's memory that its JVM's heap gets; Python workers and buffers live in the rest."""
    return memory_mib - overhead_mib(memory_mib)


def overhead_mib(memory_mib: int) -> int:
    """The rest."""
    return max(_LEAST_OVERHEAD_MIB, memory_mib // 5)


def check_memory(memory_mib: int) -> None:
    """BadInputError for executors that Spark would refuse to start."""
    if heap_mib(memory_mib) < _LEAST_HEAP_MIB:
        least = _LEAST_HEAP_MIB + _LEAST_OVERHEAD_MIB
        raise BadInputError(f"an executor needs at least {least} MiB of memory, not {memory_mib} MiB")


def spark_conf(program: SparkProgram, configuration: Configuration) -> dict[str, str]:
    """The settings of an application in this configuration, besides those of its cluster."""
    never = f"{_NEVER_S}s"
    count = configuration.executors
    conf = {
        **program.conf,
        **dict(configuration.settings),
        "spark.executor.cores": str(configuration.slots_per_executor),
        "spark.executor.memory": f"{heap_mib(configuration.memory_mib_per_executor)}m",
        "spark.executor.memoryOverhead": f"{overhead_mib(configuration.memory_mib_per_executor)}m",
        "spark.executor.processTreeMetrics.enabled": "true",
        # The ceiling cannot be raised later, and a request above it is taken and forgotten.
        "spark.cores.max": str(max(program.most_executors, count) * configuration.slots_per_executor),
        # Spark's own allocation starts the right number, and is kept from ever changing it.
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": never,
        "spark.dynamicAllocation.initialExecutors": str(count),
        "spark.dynamicAllocation.minExecutors": str(count),
        "spark.dynamicAllocation.executorIdleTimeout": never,
        "spark.dynamicAllocation.cachedExecutorIdleTimeout": never,
        "spark.dynamicAllocation.schedulerBacklogTimeout": never,
        # Executors that leave hand their blocks on; this is read at the start only.
        "spark.decommission.enabled": "true",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.shuffleBlocks.enabled": "true",
        "spark.storage.decommission.rddBlocks.enabled": "true",
        # An executor leaves when a round of handing on began after its last task; by default rounds are 30 s apart.
        "spark.storage.decommission.replicationReattemptInterval": "1s",
    }
    if configuration.state_partitions is not None:
        conf["spark.sql.shuffle.partitions"] = str(configuration.state_partitions)
    return conf
