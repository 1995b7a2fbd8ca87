"""The job file: a PySpark program, where it runs, what it may become and what it has to keep."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, JsonValue, StrictBool

from tidewise.core import (
    REACH,
    BadInputError,
    Configuration,
    ConfigurationSpace,
    InvalidValueError,
    Mechanism,
    Parameter,
    Policy,
    Prices,
    Promises,
)
from tidewise.engines.spark.engine import offered_changes
from tidewise.engines.spark.latency import LatencyChoice
from tidewise.engines.spark.master import StandaloneMaster
from tidewise.engines.spark.program import SparkProgram, check_memory, spark_conf
from tidewise.experiments.fleet_warm_start import JobTraits, known_traits, most_alike, warm_physics
from tidewise.experiments.plan import (
    ConfigurationTable,
    ControlTable,
    Name,
    PolicyTable,
    PricesTable,
    PromisesTable,
    SpaceTable,
    check_start,
    check_tables,
)
from tidewise.experiments.plan_checks import check_policy, refuse_hindsight
from tidewise.experiments.policy_words import policy_of
from tidewise.experiments.telemetry_target import Target
from tidewise.experiments.toml_file import Memory, Table, TomlFile
from tidewise.policies import Tidewise, make_policy
from tidewise.qos import CONTINUOUS, Physics

LOCAL = "local"
NOT_OURS = "CPU is not limited on a cluster that is not Tidewise's own"
_OURS = ("spark.master", "spark.submit.deployMode")
"""Settings of the cluster; those of a configuration are told by `spark_conf`."""


def _flat(value: object, before: str = "") -> object:
    """Spark's settings by their whole names: TOML takes the dots in a name for tables inside each other."""
    if not isinstance(value, dict):
        return value
    flat: dict[str, object] = {}
    for key, inner in value.items():
        name = f"{before}{key}"
        if isinstance(inner, dict):
            found = _flat(inner, f"{name}.")
            flat |= found if isinstance(found, dict) else {}
        elif isinstance(inner, bool):
            flat[name] = str(inner).lower()
        else:
            flat[name] = str(inner) if isinstance(inner, int | float) else inner
    return flat


class ClusterTable(Table):
    """Where the job runs: on a cluster of its own on this machine, or on one that is there."""

    master: str = LOCAL
    """`local`, or `spark://HOST:PORT`."""
    ui: str | None = None
    """The master's web interface, `http://HOST:PORT`, where it is not at the usual port."""
    workers: Annotated[int, Field(ge=1, le=64)] = 2
    """Of a local cluster."""
    slots: Annotated[int, Field(ge=1, le=1024)] = 16
    """How many tasks each of its workers holds, whatever CPUs there are."""
    memory: Memory | None = None
    """Of each of its workers; by default all together have three quarters of the machine's."""


class TelemetryTable(Table):
    """Where the history of the job is told while it runs, and whose history it begins with."""

    to: str | None = None
    """A folder, beside the job file where its path is relative; or `kafka://HOST:PORT/TOPIC`."""
    program: str | None = None
    """The version of the program, as the rows have it."""
    models: str | None = None
    """The tables of a fleet that was fitted, a folder as in `to`: what jobs like this one showed is believed of it
    until it shows something itself."""


class JobTable(Table):
    """What a job file may hold."""

    name: Name
    program: str | None = None
    """A Python file; or else `command`."""
    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    arguments: tuple[str, ...] = ()
    python: str | None = None
    """The interpreter of `program`; the one that runs Tidewise if left out."""
    folder: str | None = None
    """Where it is started; the folder of the job file if left out."""
    environment: dict[str, str] = Field(default_factory=dict)
    checkpoint: str | None = None
    """Held against what the program really uses, where it is given."""
    handover: StrictBool = False
    """Whether the program may run a second time beside itself, up to its first query."""
    standby: StrictBool = False
    """Whether a second application waits, warm, for the first one's driver to die."""
    replayable_sources: tuple[str, ...] = ()
    """Sources, by their format, that a second application may read without harm, besides those known to be so."""
    latency: LatencyChoice = LatencyChoice.AUTO
    cluster: ClusterTable = ClusterTable()
    conf: Annotated[dict[str, str], BeforeValidator(_flat)] = Field(default_factory=dict)
    """Spark settings."""
    space: SpaceTable
    start: ConfigurationTable = ConfigurationTable()
    promises: PromisesTable
    prices: PricesTable = PricesTable()
    control: ControlTable = ControlTable()
    policy: PolicyTable = PolicyTable(policy=Tidewise.name)
    telemetry: TelemetryTable | None = None


class JobFile:
    """A job file made concrete; building it finds what is wrong with it, with the line, and starts nothing."""

    def __init__(self, path: Path, *, policy: str | None = None, kept: Path | None = None) -> None:
        """`policy` takes the place of the one that the file names, with the settings that stand behind it.

        `kept`: an earlier copy that is read instead; what the file names is still beside the file itself.
        """
        self._file = TomlFile(kept or path)
        self.path = path.absolute()
        if self._file.has("policies") or self._file.has("loads"):
            raise BadInputError(
                f"{path} is the plan of an experiment; write a job file, or run it with `tidewise experiment {path}`"
            )
        table = self._file.read(JobTable)
        self.table = table
        check_tables(self._file, promises=table.promises, prices=table.prices, control=table.control)
        self.promises: Promises = table.promises.promises()
        self.prices: Prices = table.prices.prices()
        self._check_cluster()
        self.repartitions = table.space.state_partitions is not None and len(table.space.state_partitions) > 1
        with self._file.at("space"):
            changes = offered_changes(handover=table.handover, repartitions=self.repartitions)
            self.space: ConfigurationSpace = table.space.space(changes)
        self._check_space()
        with self._file.at("start"):
            self.start: Configuration = table.start.configuration(self.space)
        check_start(self._file, self.start, self.space, table.control)
        self.telemetry: Target | None = self._telemetry()
        self.program: SparkProgram = self._program()
        self._check_conf()
        self._policy_table = table.policy if policy is None else policy_of(policy)
        if policy is None:
            with self._file.at("policy"):
                self._check_policy()
        else:
            self._check_policy()
        if kept is None:
            self.similar()  # what is wrong with it is told now; a run that is on needs it no more

    @property
    def text(self) -> str:
        return self._file.text

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def label(self) -> str:
        """What the policy is called."""
        return self._policy_table.label

    @property
    def is_local(self) -> bool:
        """Whether the job gets a cluster of its own on this machine."""
        return self.table.cluster.master == LOCAL

    @property
    def checkpoint(self) -> Path | None:
        """Where the file says that the checkpoint is; None: it does not, or it is no place on this machine."""
        given = self.table.checkpoint
        return None if given is None or "://" in given else self.program.folder / given

    def policy(self, similar: Iterable[JobTraits] = ()) -> Policy:
        """A fresh one, which begins with what these jobs showed, where it is one that looks at that."""
        policy = make_policy(self._policy_table.policy, self._policy_table.settings)
        similar = list(similar)
        if not similar or not isinstance(policy, Tidewise):
            return policy
        usual = CONTINUOUS if policy.continuous else Physics()
        return replace(policy, prior=warm_physics(self._traits, similar, usual=usual))

    def similar(self) -> list[JobTraits]:
        """The jobs most like this one, in the models that the file names; BadInputError where those cannot be read."""
        table = self.table.telemetry
        if table is None or table.models is None:
            return []
        with self._file.at("telemetry", "models"):
            known = known_traits(self.path.parent / table.models)
        return most_alike(self._traits, known) if self._policy_table.policy == Tidewise.name else []

    def begins_with(self, similar: Iterable[JobTraits]) -> str | None:
        """What to tell of the jobs that this one begins with; None where the file names no models."""
        names = [each.job for each in similar]
        if names:
            return f"It begins with what jobs like it have shown: {', '.join(names)}."
        table = self.table.telemetry
        if table is None or table.models is None:
            return None
        if self._policy_table.policy != Tidewise.name:
            return f"The models in {table.models} are of no use to the policy {self.label}."
        return f"No job in {table.models} is like {self.name}: it begins with what is usual."

    def master(self) -> StandaloneMaster:
        """The cluster that the file names; not for a local one."""
        return StandaloneMaster(self.table.cluster.master, self.table.cluster.ui)

    def resolved(self) -> dict[str, JsonValue]:
        """The file with every default filled in, as plain data, without the environment: secrets are passed there."""
        plain: dict[str, JsonValue] = self.table.model_dump(mode="json", exclude={"environment"})
        return {**plain, "policy": self._policy_table.model_dump(mode="json")}

    def changes(self) -> list[str]:
        """For each thing that the space lets change: by which mechanism, and why not by a gentler one."""
        told = []
        for parameters, name in _KINDS.items():
            axes = [len(getattr(self.space, parameter)) > 1 for parameter in parameters]
            if any(axes):
                cost = next(one for one in self.space.changes if set(parameters) <= REACH[one.mechanism])
                told.append(f"{name}: {_HOW[cost.mechanism]}{self._why(cost.mechanism)}")
        if not told:
            told.append("nothing can be changed: every key of [space] has one value")
        return told

    def cpu_note(self, reason: str | None) -> str | None:
        """What to tell where CPU is not limited, for this reason; BadInputError where the space rests on it."""
        if reason is None:
            return None
        with self._file.at("space", "cores_per_executor"):
            if len(self.space.cores_per_executor) > 1:
                raise BadInputError(f"several values make no difference here ({reason}); give one")
        return f"{reason}: cores_per_executor is what is charged, not what an executor gets."

    @property
    def _traits(self) -> JobTraits:
        """All that is known of the job before it has run."""
        table = self.table.telemetry
        return JobTraits(job=self.name, program="" if table is None else table.program or "")

    def _why(self, mechanism: Mechanism) -> str:
        if mechanism is Mechanism.REDEPLOY:
            return ", because handover is not allowed (handover = true, if the program may run beside itself)"
        return ""

    def _program(self) -> SparkProgram:
        table, home = self.table, self.path.parent
        folder = home if table.folder is None else home / table.folder
        with self._file.at("folder"):
            if not folder.is_dir():
                raise BadInputError(f"there is no folder {folder} to start the program in")
        if (table.program is None) == (table.command is None):
            where = "program" if table.program is not None else "name"
            raise self._file.wrong((where,), 'write either program = "FILE.py" or command = ["PROGRAM", ...]')
        if table.command is not None:
            if table.python is not None:
                raise self._file.wrong(("python",), "python is for `program`; name the interpreter in `command`")
            command = table.command
        else:
            command = (self._interpreter(), str(table.program))
        program = SparkProgram(
            command=(*command, *table.arguments),
            folder=folder,
            environment=table.environment,
            conf=table.conf,
            most_executors=self.space.executors[-1],
            handover=table.handover,
            standby=table.standby,
            replayable_sources=table.replayable_sources,
        )
        with self._file.at("program"):
            program.check()
            if table.program is not None and not (folder / table.program).is_file():
                raise BadInputError(f"there is no program {folder / table.program}")
        if table.standby and not table.handover:
            sentence = "a standby is the program a second time, so it needs handover = true"
            raise self._file.wrong(("standby",), sentence)
        return program

    def _telemetry(self) -> Target | None:
        table = self.table.telemetry
        if table is None:
            return None
        if table.to is None:
            if table.models is None:
                raise self._file.wrong(("telemetry",), 'write to = "FOLDER" or models = "FOLDER", or both')
            return None
        with self._file.at("telemetry", "to"):
            return Target.parse(table.to, beside=self.path.parent)

    def _interpreter(self) -> str:
        given = self.table.python
        if given is None:
            return sys.executable
        local = self.path.parent / given
        found = str(local) if os.sep in given and os.access(local, os.X_OK) else shutil.which(given)
        if found is None:
            raise self._file.wrong(("python",), f"there is no interpreter {given!r}")
        return found

    def _check_cluster(self) -> None:
        cluster = self.table.cluster
        if cluster.master == LOCAL:
            if cluster.ui is not None:
                raise self._file.wrong(
                    ("cluster", "ui"), "ui is for a cluster that is there; a local one tells its own"
                )
            return
        with self._file.at("cluster", "master"):
            try:
                self.master()
            except (BadInputError, InvalidValueError) as error:
                raise BadInputError(f'{error}; or write "{LOCAL}" for a cluster of its own') from error
        given = cluster.model_fields_set & {"workers", "slots", "memory"}
        if given:
            first = min(given)
            raise self._file.wrong(("cluster", first), f"{first} is for a local cluster; {cluster.master} has its own")

    def _check_space(self) -> None:
        space = self.space
        with self._file.at("space", "memory_per_executor"):
            check_memory(space.memory_mib_per_executor[0])
        if not self.is_local:
            self.cpu_note(NOT_OURS)
        cluster = self.table.cluster
        with self._file.at("space", "slots_per_executor"):
            if self.is_local and space.slots_per_executor[-1] > cluster.slots:
                raise BadInputError(
                    f"an executor of {space.slots_per_executor[-1]} slots fits on no worker of {cluster.slots}; "
                    "give the workers more (slots in [cluster])"
                )
        with self._file.at("space", "memory_per_executor"):
            if self.is_local and cluster.memory is not None and space.memory_mib_per_executor[-1] > cluster.memory:
                raise BadInputError(
                    f"an executor of {space.memory_mib_per_executor[-1]} MiB fits on no worker of {cluster.memory} MiB"
                )

    def _check_conf(self) -> None:
        ours = {*_OURS, *spark_conf(SparkProgram(command=("-",), folder=Path()), self.start)}
        for key in self.table.conf:
            place = ("conf", *key.split("."))
            if key in ours:
                sentence = f"{key} is set by Tidewise; write what it may be in [space], or leave it out"
                raise self._file.wrong(place, sentence)
            if not key.startswith("spark."):
                raise self._file.wrong(place, f"{key!r} is no setting of Spark; they begin with 'spark.'")

    def _check_policy(self) -> None:
        refuse_hindsight(self._policy_table)
        check_policy(self._policy_table, space=self.space, start=self.start, offers="this job")


_KINDS: dict[tuple[Parameter, ...], str] = {
    (Parameter.EXECUTORS,): "executors",
    (Parameter.COMMIT_INTERVAL_S,): "commit interval",
    (Parameter.SLOTS_PER_EXECUTOR, Parameter.CORES_PER_EXECUTOR, Parameter.MEMORY_MIB_PER_EXECUTOR): "cores or memory",
    (Parameter.STATE_PARTITIONS,): "state partitions",
}
_HOW = {
    Mechanism.LIVE: "live, while the job runs on",
    Mechanism.QUERY_RESTART: "the query is restarted in the same driver",
    Mechanism.HANDOVER: "handover to a second application that is warm",
    Mechanism.REDEPLOY: "cold restart",
    Mechanism.REPARTITION: "the query stops, its state is cut anew, and it starts again",
}
