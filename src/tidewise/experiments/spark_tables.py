"""What a plan says beyond the usual where its runs are on real Spark: the machine's cluster, and the job of a load."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tidewise.experiments.toml_file import Duration, Memory, Table


class SparkTable(Table):
    """A cluster on this machine, for each run anew, and the day that a run shows."""

    day: Duration | None = None
    """How long the day is that a run shows; loads are written in its time, and its costs are what is told. None: time
    is not compressed."""
    source: Literal["embedded", "kafka"] = "embedded"
    """Where records come from: from a source that needs no broker, or from a broker that is started for each run."""
    warm_up: Duration = 60.0
    """How long a job runs before it counts."""
    driver_cores: Annotated[float, Field(gt=0, le=64)] = 0.5
    driver_memory: Memory = 1024
    """What a driver is charged with."""
    slots: Annotated[int, Field(ge=1, le=1024)] | None = None
    """How many tasks the worker holds; by default as many as four jobs of the largest configuration."""
    memory: Memory | None = None
    """Of the worker; by default three quarters of the machine's."""


class JobOptions(Table):
    """What the program of a load is started with."""

    work: Annotated[int, Field(ge=0)] = 0
    """Rounds of SHA-256 over each record that counts, which stand for the work of a real job."""
    state_provider: Literal["rocksdb", "hdfs"] = "rocksdb"
    state_partitions: Annotated[int, Field(ge=1)] = 2
    """Where the space does not say."""
    query: str | None = None
    """Of nexmark and psm: which one."""

    def arguments(self) -> dict[str, object]:
        """As the programs of `tidewise.jobs` take them."""
        return {
            "--work": self.work,
            "--state-provider": self.state_provider,
            "--state-partitions": self.state_partitions,
            **({} if self.query is None else {"--query": self.query}),
        }
