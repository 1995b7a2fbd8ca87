"""A plan for real Spark made concrete: space, jobs, loads and policies, checked before anything is started."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from tidewise.core import (
    BadInputError,
    Configuration,
    ConfigurationSpace,
    Policy,
    Prices,
    Promises,
    format_duration,
    format_memory,
)
from tidewise.core.readers import did_you_mean
from tidewise.engines.spark.cluster import machine_memory_mib
from tidewise.engines.spark.engine import offered_changes
from tidewise.engines.spark.faults import Faults
from tidewise.engines.spark.program import check_memory
from tidewise.experiments.compressed import compressed_prices, compressed_rates
from tidewise.experiments.fixed_run import fault_schedule
from tidewise.experiments.plan import LoadTable, Plan, PolicyTable, check_start, read_plan, with_files
from tidewise.experiments.plan_checks import (
    check_failure_kinds,
    check_failure_times,
    check_label,
    check_policy,
    refuse_hindsight,
    start_of,
)
from tidewise.experiments.record import FaultRecord
from tidewise.experiments.spark_run import JobProgram
from tidewise.experiments.spark_tables import JobOptions, SparkTable
from tidewise.experiments.toml_file import TomlFile
from tidewise.jobs.measure_request import BENCHMARKS
from tidewise.jobs.records.kinds import KINDS
from tidewise.policies import make_policy
from tidewise.workload import Load, Rates

_JOBS_BESIDE = 4
"""By default the worker has slots for the job, a successor that warms up, and copies that are measured."""
_SLOW_CPU = "slow-cpu"


@dataclass(frozen=True, kw_only=True, eq=False)
class SparkTrial:
    """One load with one seed and its failures, the same for every policy."""

    rates_per_s: Rates
    """Second by second of the run."""
    faults: tuple[FaultRecord, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class SparkGround:
    """A load of the plan, and the job that it is offered to."""

    table: LoadTable
    load: Load
    program: JobProgram
    promises: Promises
    load_digest: str
    """Names these very rates, so that two loads of one name can be told apart."""


class SparkExperiment:
    """Everything a plan needs; building it finds what is wrong with the plan, with the line in its file."""

    def __init__(self, path: Path, *, files: Mapping[str, Path] | None = None) -> None:
        """`files`: traces to read instead of what the plan says, by the name of the load."""
        self._file = TomlFile(path)
        self.plan: Plan = with_files(read_plan(self._file), files or {})
        if self.plan.engine != "spark":
            raise self._file.wrong(("engine",), 'this plan is for the simulator; for real Spark write engine = "spark"')
        self.table: SparkTable = self.plan.spark or SparkTable()
        self._check_day()
        self.prices: Prices = compressed_prices(self.plan.prices.prices(), self.factor)
        partitions = self.plan.space.state_partitions
        with self._file.at("space"):
            changes = offered_changes(handover=True, repartitions=partitions is not None and len(partitions) > 1)
            self.space: ConfigurationSpace = self.plan.space.space(changes)
        self._check_room()
        with self._file.at("start"):
            self.start: Configuration = self.plan.start.configuration(self.space)
        check_start(self._file, self.start, self.space, self.plan.control)
        self._grounds = {
            table.name: self._ground(index, table, path.parent) for index, table in enumerate(self.plan.loads)
        }
        if self.plan.failures is not None:
            known = Faults.kinds(local=True, lines=False, supervised=False)
            check_failure_kinds(self._file, self.plan.failures, known=known, knows="real Spark on this machine")
            check_failure_times(self._file, self.plan.failures)
        for index, policy in enumerate(self.plan.policies):
            with self._file.at("policies", index):
                refuse_hindsight(policy)
                check_label(policy)
                check_policy(policy, space=self.space, start=self.start, offers="real Spark")

    @property
    def duration_s(self) -> int:
        return int(self.plan.duration)

    @property
    def factor(self) -> float:
        """How many seconds one second of a run shows."""
        return self.plan.shown_s / self.plan.duration

    @property
    def slots(self) -> int:
        """Of the worker."""
        return self.table.slots or _JOBS_BESIDE * self.space.largest.total_slots

    def ground(self, load: str) -> SparkGround:
        """The load of this name, with its job."""
        return self._grounds[load]

    def trial(self, load: str, seed: int) -> SparkTrial:
        """The load with everything that this seed makes of it."""
        ground = self._grounds[load]
        return SparkTrial(
            rates_per_s=self._rates_per_s(ground.table, ground.load, seed),
            faults=fault_schedule(self.plan.failures, self.duration_s, seed),
        )

    def policy(self, label: str) -> Policy:
        """A fresh one."""
        table = self._policy_table(label)
        return make_policy(table.policy, table.settings)

    def start_of(self, policy: Policy) -> Configuration:
        """What a run begins with: where a policy holds one configuration, that one."""
        return start_of(policy, self.start)

    def versions(self, load: str) -> dict[str, str]:
        """What, besides Tidewise itself, runs of a load must share to be compared."""
        return {"pyspark": version("pyspark"), "load": self._grounds[load].load_digest}

    def cpu_note(self, reason: str | None) -> str | None:
        """What to tell where CPU is not limited, for this reason; BadInputError where the plan rests on it."""
        if reason is None:
            return None
        with self._file.at("space", "cores_per_executor"):
            if len(self.space.cores_per_executor) > 1:
                raise BadInputError(f"several values make no difference here ({reason}); give one")
        with self._file.at("failures", "kind"):
            if self.plan.failures is not None and _SLOW_CPU in self.plan.failures.kind:
                raise BadInputError(f"{_SLOW_CPU} is not possible here ({reason}); leave it out")
        return f"{reason}: cores_per_executor is what is charged, not what an executor gets."

    def _policy_table(self, label: str) -> PolicyTable:
        return next(policy for policy in self.plan.policies if policy.label == label)

    def _check_day(self) -> None:
        plan = self.plan
        if plan.duration != int(plan.duration):
            raise self._file.wrong(("duration",), "duration must be a whole number of seconds")
        if plan.shown_s < plan.duration or plan.shown_s != int(plan.shown_s):
            raise self._file.wrong(
                ("spark", "day"),
                f"day is what a run of {format_duration(plan.duration)} shows: a whole number of seconds, and not less",
            )

    def _check_room(self) -> None:
        """BadInputError where the worker could not hold the largest configuration."""
        largest, table = self.space.largest, self.table
        with self._file.at("space", "memory_per_executor"):
            check_memory(self.space.memory_mib_per_executor[0])
            memory_mib = machine_memory_mib(1) if table.memory is None else table.memory
            if largest.total_memory_mib > memory_mib:
                raise BadInputError(
                    f"the largest configuration takes {format_memory(largest.total_memory_mib)}, and the worker has "
                    f"{format_memory(memory_mib)}; make the space smaller, or give the worker more (memory in [spark])"
                )
        with self._file.at("spark", "slots"):
            if largest.total_slots > self.slots:
                raise BadInputError(f"the largest configuration takes {largest.total_slots} slots; give as many")

    def _ground(self, index: int, table: LoadTable, folder: Path) -> SparkGround:
        program = self._program(index, table)
        with self._file.at("loads", index):
            load = table.load(folder)
            for seed in self.plan.seeds:
                if not np.any(self._rates_per_s(table, load, seed) > 0):
                    raise BadInputError(f"the load {table.name!r} is zero in every second")
            digest = hashlib.sha256(self._rates_per_s(table, load, 0).round(6).tobytes()).hexdigest()[:12]
        promises = (table.promises or self.plan.promises).promises()
        return SparkGround(table=table, load=load, program=program, promises=promises, load_digest=digest)

    def _program(self, index: int, table: LoadTable) -> JobProgram:
        options = table.options or JobOptions()
        if table.job is None:
            raise self._file.wrong(("loads", index), f"job is missing: which of {', '.join(KINDS)} the load is for")
        with self._file.at("loads", index, "job"):
            if table.job not in KINDS:
                raise BadInputError(f"there is no job {table.job!r}{did_you_mean(table.job, KINDS)}")
            if table.job == "tsw" and not _has_protobuf():
                raise BadInputError("tsw needs the package protobuf: pip install 'tidewise[spark]'")
        with self._file.at("loads", index, "options"):
            _check_query(table.job, options)
            if table.job == "tsw" and options.state_provider != "rocksdb":
                raise BadInputError('tsw keeps its state in RocksDB only: state_provider = "rocksdb"')
            if self.plan.space.state_partitions is not None and "state_partitions" in options.model_fields_set:
                raise BadInputError("state_partitions are said in [space] already; leave them out here")
        arguments = options.arguments()
        if self.plan.space.state_partitions is not None:
            del arguments["--state-partitions"]
        return JobProgram(
            job=table.job,
            options=arguments,
            driver_cores=self.table.driver_cores,
            driver_memory_mib=self.table.driver_memory,
            handover=True,
        )

    def _rates_per_s(self, table: LoadTable, load: Load, seed: int) -> Rates:
        rates = compressed_rates(load.rates_per_s(int(self.plan.shown_s), seed), self.duration_s)
        highest = float(rates.max())
        return rates if table.peak_per_s is None or highest <= 0 else rates * (table.peak_per_s / highest)


def _check_query(job: str, options: JobOptions) -> None:
    """BadInputError where a job of queries is not told a query that it can run, or another is told one."""
    if job not in BENCHMARKS:
        if options.query is not None:
            raise BadInputError(f"{job} has no queries; leave query out, or choose {' or '.join(BENCHMARKS)}")
        return
    from tidewise.jobs.measure import queries_of  # noqa: PLC0415 - plans for the simulator are read without PySpark

    queries = queries_of(job)
    if options.query is None:
        raise BadInputError(f'{job} needs the query that it is to answer, such as query = "{next(iter(queries))}"')
    if options.query not in queries:
        raise BadInputError(f"{job} has no query {options.query!r}{did_you_mean(options.query, queries)}")
    stores = queries[options.query].stores
    if stores and options.state_provider not in stores:
        raise BadInputError(f'{options.query} of {job} cannot keep its state so: state_provider = "{stores[0]}"')


def _has_protobuf() -> bool:
    # Looking for a part of a package that is missing altogether would be an error.
    return importlib.util.find_spec("google") is not None and importlib.util.find_spec("google.protobuf") is not None
