"""Experiment plans: which policies on which loads with which faults, checked before anything runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, JsonValue

from tidewise.control import GuardSettings, LoopSettings
from tidewise.core import (
    BadInputError,
    ChangeCost,
    Configuration,
    ConfigurationSpace,
    InvalidValueError,
    Mechanism,
    Prices,
    Promises,
    format_memory,
)
from tidewise.core.readers import did_you_mean
from tidewise.experiments.record import PARTIAL_SUFFIX
from tidewise.experiments.spark_tables import JobOptions, SparkTable
from tidewise.experiments.toml_file import (
    Counts,
    Duration,
    Durations,
    Memories,
    Memory,
    Numbers,
    Table,
    TomlFile,
)
from tidewise.workload import Load, Noisy, Scaled, build_load

_Value = TypeVar("_Value")

LONGEST_NAME = 60
LONGEST_DURATION_S = 31 * 86_400.0
"""A second is a row in memory and on disk; a month of them is what fits."""
DEAREST = 1e6
"""Beyond this price, sums over a run stop being numbers that a person could check."""


def _fit_for_a_folder(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ValueError(f"{name!r} names a folder as well; use letters, digits, '.', '_' and '-' only")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"{name[:20] + '...'!r} names a folder as well; use at most {LONGEST_NAME} characters")
    if name.endswith(PARTIAL_SUFFIX):
        raise ValueError(f"{name!r} ends like the folder of a run that is on; leave {PARTIAL_SUFFIX!r} out")
    return name


Name = Annotated[str, AfterValidator(_fit_for_a_folder)]


class SpaceTable(Table):
    """The configurations a policy may choose from; each key takes a value, a list or a range."""

    executors: Counts
    slots_per_executor: Counts = (1,)
    cores_per_executor: Numbers = (1.0,)
    memory_per_executor: Memories = (1024,)
    commit_interval: Durations = (10.0,)
    state_partitions: Counts | None = None

    def space(self, changes: tuple[ChangeCost, ...]) -> ConfigurationSpace:
        return ConfigurationSpace(
            executors=self.executors,
            slots_per_executor=self.slots_per_executor,
            cores_per_executor=self.cores_per_executor,
            memory_mib_per_executor=self.memory_per_executor,
            commit_interval_s=self.commit_interval,
            state_partitions=self.state_partitions if self.state_partitions is not None else (None,),
            changes=changes,
        )


class ConfigurationTable(Table):
    """One configuration; what is left out is the largest of the space."""

    executors: int | None = None
    slots_per_executor: int | None = None
    cores_per_executor: float | None = None
    memory_per_executor: Memory | None = None
    commit_interval: Duration | None = None
    state_partitions: int | None = None

    def configuration(self, space: ConfigurationSpace) -> Configuration:
        largest = space.largest
        return Configuration(
            executors=_given(self.executors, largest.executors),
            slots_per_executor=_given(self.slots_per_executor, largest.slots_per_executor),
            cores_per_executor=_given(self.cores_per_executor, largest.cores_per_executor),
            memory_mib_per_executor=_given(self.memory_per_executor, largest.memory_mib_per_executor),
            commit_interval_s=_given(self.commit_interval, largest.commit_interval_s),
            state_partitions=_given(self.state_partitions, largest.state_partitions),
        )


def _given(value: _Value | None, otherwise: _Value) -> _Value:
    return otherwise if value is None else value


class PromisesTable(Table):
    """What has to be kept."""

    latency_p95: Duration | None = None
    good_share: float = 0.95
    recovery: Duration | None = None

    def promises(self) -> Promises:
        return Promises(latency_p95_s=self.latency_p95, good_share=self.good_share, recovery_s=self.recovery)


class PricesTable(Table):
    """What resources cost."""

    core_hour: float = 0.04
    gib_hour: float = 0.005
    currency: str = "USD"

    def prices(self) -> Prices:
        return Prices(core_hour=self.core_hour, gib_hour=self.gib_hour, currency=self.currency)


def _kinds(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    if not (isinstance(value, list | tuple) and value and all(isinstance(one, str) for one in value)):
        raise ValueError(f'{value!r} names no failure; write one in quotes, or several: ["kill-driver", "slow-cpu"]')
    return value


class FailuresTable(Table):
    """Failures on a schedule; the same for every policy of a seed."""

    kind: Annotated[tuple[str, ...], BeforeValidator(_kinds)]
    """One kind, or several, which take turns."""
    every: Duration
    first: Duration | None = None
    """Half an interval after the start, if not given."""
    jitter: Duration = 30.0
    """Each comes up to this much later, by chance of the seed, so that none keeps step with the decisions; at most
    `every`."""
    quiet_end: Duration = 300.0
    """Nothing is broken so shortly before the end of a run: its recovery could not be seen."""


class ControlTable(Table):
    """How often the job reports, how often a policy decides, and what the loop does on its own."""

    report_every: Duration = 10.0
    decide_every: Duration = 15.0
    roll_back: bool = True
    """Whether the loop takes back a change that breaks a promise; earlier systems did not."""
    forecast_horizon: Duration = 3600.0
    """How far policies are told the load to come."""
    forecast_step: Duration = 60.0
    forecast_every: Duration = 60.0
    """How old a forecast may be before another is made; 0s: one for each decision."""
    probation: Duration = 300.0
    """How long after its end a change is watched."""
    grace: Duration = 60.0
    """How much of that at least is not judged, and how long is not after a failure."""
    catch_up: Duration = 1800.0
    """A job whose backlog will be gone within this time is catching up, and not judged."""
    back_off: Duration = 300.0
    """How long the target of a change that went wrong is barred."""
    cooldown: Duration | None = None
    """Wait after any change; the guards' own waits by mechanism, if not given."""
    largest_step: int | None = None
    quota_cores: float | None = None
    quota_memory: Memory | None = None
    profile_cores: float | None = None
    """What all copies of the job together may take while a policy has them measured."""
    profile_memory: Memory | None = None
    profile_time: Duration | None = None
    """For how long altogether copies may be measured."""

    def loop_settings(self) -> LoopSettings:
        defaults = LoopSettings()
        return LoopSettings(
            decide_every_s=self.decide_every,
            forecast_horizon_s=self.forecast_horizon,
            forecast_step_s=self.forecast_step,
            forecast_every_s=self.forecast_every,
            probation_s=self.probation,
            grace_s=self.grace,
            catch_up_s=self.catch_up,
            back_off_s=self.back_off,
            broken_reports=defaults.broken_reports if self.roll_back else None,
        )

    def guard_settings(self) -> GuardSettings:
        defaults = GuardSettings()
        return GuardSettings(
            # Reports that come seldom are not stale before the next one is due.
            fresh_within_s=max(120.0, 3 * self.report_every),
            down_within_s=max(60.0, 2 * self.report_every),
            cooldown_s=defaults.cooldown_s if self.cooldown is None else dict.fromkeys(Mechanism, self.cooldown),
            largest_step_executors=self.largest_step,
            quota_cores=self.quota_cores,
            quota_memory_mib=self.quota_memory,
            profile_cores=self.profile_cores,
            profile_memory_mib=self.profile_memory,
            profile_time_s=self.profile_time,
        )


class LoadTable(Table):
    """A load: a shape by name, or a trace file; further keys are the shape's parameters."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name
    shape: str
    noise: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Spread of independent noise on each second, as a share of the rate."""
    scale: Annotated[float, Field(gt=0)] = 1.0
    """What all rates are multiplied by, also those of a file that is read instead."""
    profile: str | None = None
    """Of the job that this load is for, where it is not the plan's."""
    promises: PromisesTable | None = None
    """Of that job, where they are not the plan's."""
    job: str | None = None
    """On real Spark: the program of `tidewise.jobs` that this load is for."""
    options: JobOptions | None = None
    """What that program is started with."""
    peak_per_s: Annotated[float, Field(gt=0)] | None = None
    """On real Spark: what the highest second is brought to, and all others with it; as it is, if not given."""

    @property
    def origin(self) -> str:
        """Where its rates come from, in words."""
        return load_origin(self.model_dump(mode="json"))

    def load(self, folder: Path) -> Load:
        load = build_load(self.shape, self.__pydantic_extra__ or {}, folder=folder)
        if self.scale != 1.0:
            load = Scaled(load=load, factor=self.scale)
        return Noisy(load=load, share=self.noise) if self.noise > 0 else load


def load_origin(table: Mapping[str, JsonValue]) -> str:
    """Where the rates of a load come from, in words; `table`: as a plan keeps it."""
    is_read = table.get("shape") == "trace"
    origin = (
        f"read from {Path(str(table.get('file'))).name}" if is_read else f"generated (shape {table.get('shape')!r})"
    )
    scale = table.get("scale", 1.0)
    return origin if scale == 1.0 else f"{origin}, multiplied by {scale:g}"


class PolicyTable(Table):
    """A policy by name; further keys are its settings."""

    model_config = ConfigDict(extra="allow", frozen=True)

    policy: Name
    name: Name | None = None
    """How it is called in reports, where one policy runs with several settings."""

    @property
    def label(self) -> str:
        return self.name or self.policy

    @property
    def settings(self) -> dict[str, object]:
        return dict(self.__pydantic_extra__ or {})


class Plan(Table):
    """Policies x loads x seeds."""

    name: Name
    engine: Literal["simulator", "spark"] = "simulator"
    profile: str | None = None
    """A simulator profile: shipped, by name, or a file."""
    spark: SparkTable | None = None
    """For engine = "spark"."""
    duration: Duration
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (1,)
    space: SpaceTable
    start: ConfigurationTable = ConfigurationTable()
    """What static keeps and every other policy starts from."""
    promises: PromisesTable
    prices: PricesTable = PricesTable()
    control: ControlTable = ControlTable()
    failures: FailuresTable | None = None
    loads: Annotated[tuple[LoadTable, ...], Field(min_length=1)]
    policies: Annotated[tuple[PolicyTable, ...], Field(min_length=1)]

    @property
    def shown_s(self) -> float:
        """How long the time is that a run shows, which may be compressed."""
        return self.duration if self.spark is None or self.spark.day is None else self.spark.day

    def resolved(self) -> dict[str, JsonValue]:
        """The plan with every default filled in, as plain data."""
        plain: dict[str, JsonValue] = self.model_dump(mode="json")
        return plain


def with_files(plan: Plan, files: Mapping[str, Path]) -> Plan:
    """The plan with these loads read from files instead.

    BadInputError where it has no load of such a name, or one of the files cannot be its load.
    """
    names = [load.name for load in plan.loads]
    for name in files:
        if name not in names:
            raise BadInputError(f"the plan {plan.name!r} has no load {name!r}{did_you_mean(name, names)}")
    read = {load.name: _from_file(load, files[load.name]) for load in plan.loads if load.name in files}
    for name, load in read.items():
        # Here, and not where all loads are made: no line of the plan names this file.
        try:
            load.load(files[name].parent).rates_per_s(int(plan.shown_s), plan.seeds[0])
        except (BadInputError, InvalidValueError) as error:
            raise BadInputError(f"--load {name}={files[name]}: {error}") from error
    return plan.model_copy(update={"loads": tuple(read.get(load.name, load) for load in plan.loads)})


def _from_file(load: LoadTable, file: Path) -> LoadTable:
    """The same load for the same job, with the rates in this file."""
    trace = LoadTable.model_validate({"name": load.name, "shape": "trace", "file": str(file.absolute())})
    kept = {name: getattr(load, name) for name in LoadTable.model_fields if name not in {"name", "shape"}}
    return trace.model_copy(update=kept)


def files_in(folder: Path, plan: Plan) -> dict[str, Path]:
    """The traces in a folder for the loads of a plan: NAME.csv, or with the length of the plan, as in ysb_18h.csv."""
    if not folder.is_dir():
        raise BadInputError(f"{folder} is not a folder; name one that holds the loads as CSV files")
    hours = f"{plan.shown_s / 3600:g}h"
    found = {}
    for load in plan.loads:
        paths = [folder / f"{load.name}.csv", folder / f"{load.name}_{hours}.csv"]
        there = [path for path in paths if path.is_file()]
        if len(there) > 1:
            raise BadInputError(
                f"{folder} holds both {there[0].name} and {there[1].name}; say which with --load {load.name}=FILE, "
                "or take one away"
            )
        if there:
            found[load.name] = there[0]
    if not found:
        wanted = " or ".join(f"{load.name}_{hours}.csv" for load in plan.loads)
        raise BadInputError(f"{folder} holds none of the loads of the plan {plan.name!r}: there is no {wanted}")
    return found


def read_plan(file: TomlFile) -> Plan:
    """The plan in this file; BadInputError for whatever is wrong with the file itself.

    What only shows when the parts are made (an unknown policy, a bad trace) is told by `Experiment`.
    """
    plan = file.read(Plan)
    for kind, names in (("loads", [load.name for load in plan.loads]), ("policies", [p.label for p in plan.policies])):
        for index, name in enumerate(names):
            if name in names[:index]:
                raise file.wrong((kind, index), f"two of the {kind} are called {name!r}; give one another name")
    _check_engine(file, plan)
    check_tables(file, promises=plan.promises, prices=plan.prices, control=plan.control)
    for index, load in enumerate(plan.loads):
        with file.at("loads", index, "promises"):
            if load.promises is not None:
                load.promises.promises()
    if not 60 <= plan.duration <= LONGEST_DURATION_S:
        raise file.wrong(("duration",), "duration must be from 60s to 31d")
    if len(set(plan.seeds)) < len(plan.seeds):
        raise file.wrong(("seeds",), "each seed can be run once; name it once")
    return plan


def _check_engine(file: TomlFile, plan: Plan) -> None:
    """Refuse what belongs to another engine than the plan's."""
    keys: tuple[str, ...] = ("profile",)
    why = "for the simulator, and real Spark behaves as it does: leave it out"
    if plan.engine == "simulator":
        keys = ("spark", "job", "options", "peak_per_s")
        why = 'for real Spark: write engine = "spark", or leave it out'
    for key in keys:
        if getattr(plan, key, None) is not None:
            raise file.wrong((key,), f"{key} is {why}")
        for index, load in enumerate(plan.loads):
            if getattr(load, key, None) is not None:
                raise file.wrong(("loads", index, key), f"{key} is {why}")


def check_tables(file: TomlFile, *, promises: PromisesTable, prices: PricesTable, control: ControlTable) -> None:
    """Refuse what is no promise, price or setting, would run for ever, or come out as no number."""
    for key, make in (
        ("promises", promises.promises),
        ("prices", prices.prices),
        ("control", control.loop_settings),
        ("control", control.guard_settings),
    ):
        try:
            make()
        except InvalidValueError as error:
            raise file.wrong((key,), f"{key}: {error}") from error
    if max(prices.core_hour, prices.gib_hour) > DEAREST:
        raise file.wrong(("prices",), f"prices must be at most {DEAREST:g}")
    if control.decide_every < 1:
        raise file.wrong(("control", "decide_every"), "decide_every must be at least 1s")
    if control.report_every < 1 or control.report_every != int(control.report_every):
        where = ("control", "report_every")
        raise file.wrong(where, "report_every must be a whole number of seconds, at least 1s")


def check_start(file: TomlFile, start: Configuration, space: ConfigurationSpace, control: ControlTable) -> None:
    """Refuse a start that is not in the space, or takes more than the quota."""
    with file.at("start"):
        if start not in space:
            raise BadInputError(f"{start} is not in the space; the nearest is {space.nearest(start)}")
    with file.at("control", "quota_cores"):
        if control.quota_cores is not None and start.total_cores > control.quota_cores:
            raise BadInputError(f"the start takes {start.total_cores:g} cores, and the quota is less; see [start]")
    with file.at("control", "quota_memory"):
        if control.quota_memory is not None and start.total_memory_mib > control.quota_memory:
            raise BadInputError(
                f"the start takes {format_memory(start.total_memory_mib)}, and the quota is less; see [start]"
            )
