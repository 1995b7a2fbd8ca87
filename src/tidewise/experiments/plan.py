"""Experiment plans: which policies on which loads with which faults, checked before anything runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, JsonValue

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
from tidewise.experiments.record import PARTIAL_SUFFIX
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
from tidewise.workload import Load, Noisy, build_load

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


class FailuresTable(Table):
    """Failures on a schedule; the same for every policy of a seed."""

    kind: str
    every: Duration
    first: Duration | None = None
    """Half an interval after the start, if not given."""
    jitter: Duration = 30.0
    """Each comes up to this much later, by chance of the seed, so that none keeps step with the decisions; at most
    `every`."""


class ControlTable(Table):
    """How often the job reports, how often a policy decides, and what the loop does on its own."""

    report_every: Duration = 10.0
    decide_every: Duration = 60.0
    roll_back: bool = True
    """Whether the loop takes back a change that breaks a promise; earlier systems did not."""
    cooldown: Duration | None = None
    """Wait after any change; the guards' own waits by mechanism, if not given."""
    largest_step: int | None = None
    quota_cores: float | None = None
    quota_memory: Memory | None = None

    def loop_settings(self) -> LoopSettings:
        defaults = LoopSettings()
        return LoopSettings(
            decide_every_s=self.decide_every, broken_reports=defaults.broken_reports if self.roll_back else None
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
        )


class LoadTable(Table):
    """A load: a shape by name, or a trace file; further keys are the shape's parameters."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name
    shape: str
    noise: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Spread of independent noise on each second, as a share of the rate."""

    def load(self, folder: Path) -> Load:
        load = build_load(self.shape, self.__pydantic_extra__ or {}, folder=folder)
        return Noisy(load=load, share=self.noise) if self.noise > 0 else load


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
    engine: Literal["simulator"] = "simulator"
    profile: str
    """A simulator profile: shipped, by name, or a file."""
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

    def resolved(self) -> dict[str, JsonValue]:
        """The plan with every default filled in, as plain data."""
        plain: dict[str, JsonValue] = self.model_dump(mode="json")
        return plain


def read_plan(file: TomlFile) -> Plan:
    """The plan in this file; BadInputError for whatever is wrong with the file itself.

    What only shows when the parts are made (an unknown policy, a bad trace) is told by `Experiment`.
    """
    plan = file.read(Plan)
    for kind, names in (("loads", [load.name for load in plan.loads]), ("policies", [p.label for p in plan.policies])):
        for index, name in enumerate(names):
            if name in names[:index]:
                raise file.wrong((kind, index), f"two of the {kind} are called {name!r}; give one another name")
    check_tables(file, promises=plan.promises, prices=plan.prices, control=plan.control)
    if not 60 <= plan.duration <= LONGEST_DURATION_S:
        raise file.wrong(("duration",), "duration must be from 60s to 31d")
    if len(set(plan.seeds)) < len(plan.seeds):
        raise file.wrong(("seeds",), "each seed can be run once; name it once")
    return plan


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
