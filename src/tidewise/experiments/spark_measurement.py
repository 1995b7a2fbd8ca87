"""What was measured of a real Spark job, as a file between measuring it and fitting a simulator profile to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tidewise.core import BadInputError, Mechanism

_Count = Annotated[int, Field(ge=0)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Circumstances(_Part):
    """On what, with what and in which company it was measured."""

    date: str
    python: str
    pyspark: str
    machine_cores: _Count
    load_averages: tuple[_Amount, ...]
    """Of one minute, at the beginning of each part; what is measured is in it."""
    seconds: _Amount
    """How long it all took."""
    work: _Count
    """Rounds of SHA-256 for each view."""
    read_tasks: _Count
    cores_per_executor: _Amount
    memory_mib_per_executor: _Count
    commit_interval_s: _Amount


class Batch(_Part):
    """One batch of a steady stretch."""

    rows: _Count
    duration_s: _Amount


class Stretch(_Part):
    """A few seconds of a constant rate on a number of executors that has settled."""

    executors: _Count
    rate_per_s: _Amount
    seconds: _Count
    batches: tuple[Batch, ...]
    """Those that were committed in it."""
    executors_cpu_s: _Amount
    driver_cpu_s: _Amount
    controller_cpu_s: _Amount
    machine_cpu_s: _Amount
    """All CPU used on the machine, by whomever."""
    latency_p50_s: _Amount | None
    """Median of the reports in it, as the other percentiles."""
    latency_p95_s: _Amount | None
    latency_p99_s: _Amount | None
    state_mib: _Amount | None


class Change(_Part):
    """One change of a running job."""

    mechanism: Mechanism
    executors_before: _Count
    executors_after: _Count
    rate_per_s: _Amount
    took_s: _Amount
    """From the request to its outcome."""
    prepared_s: _Amount
    """From the request to the last commit before the gap; 0 for live changes."""
    no_commit_s: _Amount
    """From that commit to the first one after; 0 for live changes."""
    batch_s: _Amount
    """How long batches took before, at the median."""
    failure: str = ""
    """Why it could not be made; empty: it was made."""


class Fault(_Part):
    """One thing that was broken on purpose."""

    kind: Literal["kill-executor", "kill-driver"]
    executors: _Count
    rate_per_s: _Amount
    noticed_s: _Amount | None
    """From the fault until somebody did something about it; None where nobody has to."""
    committed_s: _Amount
    """From the fault to the first commit after it."""
    no_commit_s: _Amount
    """The longest time between two commits around it."""
    whole_s: _Amount | None
    """From the fault until all executors were back; None: they were not while it was watched."""
    batch_s: _Amount
    """How long batches took before, at the median."""


class AfterStart(_Part):
    """A batch of an application that has been started cold."""

    since_first_commit_s: _Amount
    executors: _Count
    rows: _Count
    duration_s: _Amount


class Sizes(_Part):
    """Resident memory, in MiB."""

    executor_jvm_mib: tuple[_Amount, ...]
    executor_python_mib: tuple[_Amount, ...]
    """All Python processes of one executor."""
    driver_mib: tuple[_Amount, ...]
    controller_mib: _Amount


class SparkMeasurement(_Part):
    """All of it."""

    format: Literal[1] = 1
    circumstances: Circumstances
    stretches: tuple[Stretch, ...]
    """In the order in which they were measured: those of one number of executors follow each other without a break."""
    changes: tuple[Change, ...]
    faults: tuple[Fault, ...]
    after_start: tuple[AfterStart, ...]
    sizes: Sizes

    def write(self, path: Path) -> None:
        path.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read_measurement(path: Path) -> SparkMeasurement:
    """The measurement in this file; BadInputError where it is something else."""
    try:
        return SparkMeasurement.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} cannot be read: {error}; measure it with measure_spark_local") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "its beginning"
        raise BadInputError(f"{path} is not a measurement of Spark, at {where}: {first['msg']}") from error
