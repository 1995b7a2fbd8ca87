"""Configurations of a job, the space they come from, and what it takes to get from one to another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from tidewise.core.checks import require, require_finite, require_text
from tidewise.core.errors import ImpossibleChangeError
from tidewise.core.quantities import format_duration, format_memory


class Parameter(StrEnum):
    """Each thing about a job that a change may touch."""

    EXECUTORS = "executors"
    """How many worker processes run the job's tasks."""
    SLOTS_PER_EXECUTOR = "slots_per_executor"
    """How many tasks an executor runs at once."""
    CORES_PER_EXECUTOR = "cores_per_executor"
    """CPU given to each executor, in cores; may be a fraction."""
    MEMORY_MIB_PER_EXECUTOR = "memory_mib_per_executor"
    """Memory given to each executor, overhead included."""
    COMMIT_INTERVAL_S = "commit_interval_s"
    """How often progress becomes durable: trigger interval (micro-batches) or checkpoint interval (real-time mode)."""
    STATE_PARTITIONS = "state_partitions"
    """Into how many pieces the state is cut; pinned in the checkpoint."""
    SETTINGS = "settings"
    """Any other setting of the engine, by its own name."""


class Mechanism(StrEnum):
    """The ways in which a running job can be changed; what each costs is the engine's to say."""

    LIVE = "live"
    """Executors join or leave while the job runs on."""
    IN_PLACE_RESCALE = "in-place-rescale"
    """The job stops and starts again on the executors that are there now, without a new deployment."""
    QUERY_RESTART = "query-restart"
    """The query stops between two batches and starts again in the same driver."""
    HANDOVER = "handover"
    """A second application warms up beside the first and takes its checkpoint over."""
    REDEPLOY = "redeploy"
    """The application stops and is launched anew, cold."""
    OPERATOR_UPGRADE = "operator-upgrade"
    """A cluster operator upgrades the deployment: as a redeploy, with the operator's own waits."""
    REPARTITION = "repartition"
    """The job drains, its state is cut anew offline, and it starts again."""


_ALL_BUT_STATE = frozenset(Parameter) - {Parameter.STATE_PARTITIONS}

REACH: dict[Mechanism, frozenset[Parameter]] = {
    Mechanism.LIVE: frozenset({Parameter.EXECUTORS}),
    Mechanism.IN_PLACE_RESCALE: frozenset({Parameter.EXECUTORS}),
    Mechanism.QUERY_RESTART: frozenset({Parameter.COMMIT_INTERVAL_S}),
    Mechanism.HANDOVER: _ALL_BUT_STATE,
    Mechanism.REDEPLOY: _ALL_BUT_STATE,
    Mechanism.OPERATOR_UPGRADE: _ALL_BUT_STATE,
    Mechanism.REPARTITION: frozenset(Parameter),
}
"""Which parameters each mechanism can change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Everything about a job that Tidewise may choose."""

    executors: int
    slots_per_executor: int = 1
    cores_per_executor: float = 1.0
    memory_mib_per_executor: int = 1024
    commit_interval_s: float = 1.0
    """0 means: as often as possible."""
    state_partitions: int | None = None
    """None: the job has no state, or its partitions are not Tidewise's to change."""
    settings: tuple[tuple[str, str], ...] = ()
    """Other settings of the engine, sorted by name."""

    def __post_init__(self) -> None:
        require(self.executors >= 1, f"executors must be at least 1, not {self.executors}")
        require(self.slots_per_executor >= 1, f"slots_per_executor must be at least 1, not {self.slots_per_executor}")
        require_finite("cores_per_executor", self.cores_per_executor, above=0.0)
        require(
            self.memory_mib_per_executor >= 1,
            f"memory_mib_per_executor must be at least 1, not {self.memory_mib_per_executor}",
        )
        require_finite("commit_interval_s", self.commit_interval_s, least=0.0)
        require(
            self.state_partitions is None or self.state_partitions >= 1,
            f"state_partitions must be at least 1, not {self.state_partitions}",
        )
        names = [name for name, _ in self.settings]
        require(names == sorted(set(names)), "settings must be sorted by name, each named once")

    @property
    def total_cores(self) -> float:
        return self.executors * self.cores_per_executor

    @property
    def total_memory_mib(self) -> int:
        return self.executors * self.memory_mib_per_executor

    @property
    def total_slots(self) -> int:
        return self.executors * self.slots_per_executor

    def with_executors(self, executors: int) -> Configuration:
        return replace(self, executors=executors)

    def differs_from(self, other: Configuration) -> frozenset[Parameter]:
        """The parameters in which the two differ."""
        return frozenset(name for name in Parameter if getattr(self, name.value) != getattr(other, name.value))

    def takes_less_than(self, other: Configuration) -> bool:
        """Whether this gives the job less than the other in slots, cores or memory, all executors together."""
        return (
            self.total_cores < other.total_cores
            or self.total_memory_mib < other.total_memory_mib
            or self.total_slots < other.total_slots
        )

    def __str__(self) -> str:
        parts = [
            f"{_counted(self.executors, 'executor')} x {_counted(self.cores_per_executor, 'core')}",
            _counted(self.slots_per_executor, "slot"),
            format_memory(self.memory_mib_per_executor),
        ]
        text = f"{parts[0]}, {parts[1]}, {parts[2]}, commit every {format_duration(self.commit_interval_s)}"
        if self.state_partitions is not None:
            text += f", {self.state_partitions} state partitions"
        if self.settings:
            text += ", " + ", ".join(f"{name}={value}" for name, value in self.settings)
        return text


def _counted(number: float, thing: str) -> str:
    return f"{number:g} {thing}{'' if number == 1 else 's'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCost:
    """What one use of a mechanism costs, as far as it is known before it is used."""

    mechanism: Mechanism
    gap_s: float
    """How long the job gives no output."""
    preparation_s: float = 0.0
    """How long it takes until the gap begins; the job runs on meanwhile."""
    runs_double: bool = False
    """Whether the old and the new configuration are both paid for during the preparation."""

    def __post_init__(self) -> None:
        require_finite("gap_s", self.gap_s, least=0.0)
        require_finite("preparation_s", self.preparation_s, least=0.0)

    @property
    def duration_s(self) -> float:
        return self.preparation_s + self.gap_s

    def can_carry(self, source: Configuration, target: Configuration) -> bool:
        return source.differs_from(target) <= REACH[self.mechanism]


@dataclass(frozen=True, kw_only=True)
class ConfigurationSpace:
    """The configurations a job may have: every combination of the values listed for each parameter.

    Values are ascending and without repeats. `changes` holds the mechanisms the engine offers,
    the one to prefer first.
    """

    executors: tuple[int, ...]
    slots_per_executor: tuple[int, ...] = (1,)
    cores_per_executor: tuple[float, ...] = (1.0,)
    memory_mib_per_executor: tuple[int, ...] = (1024,)
    commit_interval_s: tuple[float, ...] = (1.0,)
    state_partitions: tuple[int | None, ...] = (None,)
    settings: tuple[tuple[str, str], ...] = ()
    """The same for every configuration of the space."""
    changes: tuple[ChangeCost, ...]

    def __post_init__(self) -> None:
        for name, values in self._axes().items():
            require(len(values) > 0, f"the space has no value for {name}")
            if values != (None,):
                require(None not in values, f"{name} mixes values with none at all")
                # Sorting cannot tell: a NaN between two numbers would pass as ascending.
                require(all(value is None or math.isfinite(value) for value in values), f"{name} must be finite")
                ascending = sorted(set(values))  # type: ignore[type-var]  # None is excluded just above
                require(list(values) == ascending, f"the values of {name} must ascend without repeats, not {values}")
        require(len(self.changes) > 0, "the space offers no mechanism of change")
        names = [cost.mechanism for cost in self.changes]
        require(len(set(names)) == len(names), "each mechanism may be offered once")
        _ = self.smallest, self.largest  # a corner that is illegal makes the whole space so

    def _axes(self) -> dict[str, tuple[float | None, ...]]:
        return {
            "executors": self.executors,
            "slots_per_executor": self.slots_per_executor,
            "cores_per_executor": self.cores_per_executor,
            "memory_mib_per_executor": self.memory_mib_per_executor,
            "commit_interval_s": self.commit_interval_s,
            "state_partitions": self.state_partitions,
        }

    def _corner(self, end: int) -> Configuration:
        return Configuration(
            executors=self.executors[end],
            slots_per_executor=self.slots_per_executor[end],
            cores_per_executor=self.cores_per_executor[end],
            memory_mib_per_executor=self.memory_mib_per_executor[end],
            # Committing often is the safe end: less to replay after a failure.
            commit_interval_s=self.commit_interval_s[-1 - end],
            state_partitions=self.state_partitions[end],
            settings=self.settings,
        )

    @cached_property
    def smallest(self) -> Configuration:
        return self._corner(0)

    @cached_property
    def largest(self) -> Configuration:
        """The most of everything, and the shortest commit interval."""
        return self._corner(-1)

    def __len__(self) -> int:
        count = 1
        for values in self._axes().values():
            count *= len(values)
        return count

    def __iter__(self) -> Iterator[Configuration]:
        for executors, slots, cores, memory, interval, partitions in itertools.product(
            self.executors,
            self.slots_per_executor,
            self.cores_per_executor,
            self.memory_mib_per_executor,
            self.commit_interval_s,
            self.state_partitions,
        ):
            yield Configuration(
                executors=executors,
                slots_per_executor=slots,
                cores_per_executor=cores,
                memory_mib_per_executor=memory,
                commit_interval_s=interval,
                state_partitions=partitions,
                settings=self.settings,
            )

    def __contains__(self, configuration: object) -> bool:
        return (
            isinstance(configuration, Configuration)
            and configuration.settings == self.settings
            and all(getattr(configuration, name) in values for name, values in self._axes().items())
        )

    def nearest(self, wanted: Configuration) -> Configuration:
        """The configuration of the space closest to the wanted one; between two, the one that gives the job more."""

        def up(values: tuple[int, ...] | tuple[float, ...], value: float) -> float:
            return min(values, key=lambda candidate: (abs(candidate - value), -candidate))

        partitions = wanted.state_partitions
        if partitions not in self.state_partitions:
            numbers = tuple(count for count in self.state_partitions if count is not None)
            partitions = int(up(numbers, partitions or 0)) if numbers else None
        return Configuration(
            executors=int(up(self.executors, wanted.executors)),
            slots_per_executor=int(up(self.slots_per_executor, wanted.slots_per_executor)),
            cores_per_executor=up(self.cores_per_executor, wanted.cores_per_executor),
            memory_mib_per_executor=int(up(self.memory_mib_per_executor, wanted.memory_mib_per_executor)),
            commit_interval_s=min(
                self.commit_interval_s, key=lambda candidate: (abs(candidate - wanted.commit_interval_s), candidate)
            ),
            state_partitions=partitions,
            settings=self.settings,
        )

    def with_at_least(self, wanted: Configuration, executors: int) -> Configuration:
        """The wanted configuration with the fewest executors of the space that are not below this number."""
        enough = [count for count in self.executors if count >= executors]
        return wanted.with_executors(enough[0] if enough else self.executors[-1])

    def change(self, source: Configuration, target: Configuration, mechanism: Mechanism | None = None) -> ChangeCost:
        """The mechanism that carries source over to target: the one named, else the first that can.

        A named mechanism that cannot carry the change (an executor-only one asked to change memory) is refused.
        """
        differing = ", ".join(sorted(source.differs_from(target))) or "nothing"
        if mechanism is not None:
            for cost in self.changes:
                if cost.mechanism is mechanism:
                    if cost.can_carry(source, target):
                        return cost
                    raise ImpossibleChangeError(f"{mechanism} cannot change {differing}")
            offered = ", ".join(cost.mechanism for cost in self.changes)
            raise ImpossibleChangeError(f"the engine does not offer {mechanism}; it offers {offered}")
        for cost in self.changes:
            if cost.can_carry(source, target):
                return cost
        raise ImpossibleChangeError(f"no mechanism that the engine offers can change {differing}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What resources cost, in the user's currency."""

    core_hour: float = 0.04
    gib_hour: float = 0.005
    currency: str = "USD"

    def __post_init__(self) -> None:
        require_finite("core_hour", self.core_hour, least=0.0)
        require_finite("gib_hour", self.gib_hour, least=0.0)
        require(self.core_hour > 0 or self.gib_hour > 0, "cores and memory cannot both be free: nothing could be saved")
        require_text("currency", self.currency)

    def cost(self, *, core_s: float, memory_mib_s: float) -> float:
        return self.core_hour * core_s / 3600 + self.gib_hour * memory_mib_s / 1024 / 3600

    def per_hour(self, configuration: Configuration) -> float:
        return self.cost(core_s=3600 * configuration.total_cores, memory_mib_s=3600.0 * configuration.total_memory_mib)
