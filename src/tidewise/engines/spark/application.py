"""One application: a driver process with its JVM and its executors, and what its agent has told."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import tidewise_agent
from tidewise.core import Configuration, PermanentError
from tidewise.engines.spark.copy_record import CopyRecord
from tidewise.engines.spark.master import ClusterManager
from tidewise.engines.spark.program import SparkProgram, spark_conf
from tidewise.host.cache import cache_folder
from tidewise.host.daemons import last_line
from tidewise.host.processes import ProcessIdentity, reap, wait_until
from tidewise_agent.spec import OWNER_VARIABLE, SPEC_VARIABLE, AgentSpec

_LOG = logging.getLogger(__name__)

_AGENT_PATH = Path(tidewise_agent.__file__).parent / "path"
_GRACE_S = 3.0
"""Executors leave by themselves when their driver is gone; after this they are ended."""
_COPY_NICENESS = 10
"""How far the driver of a copy steps back: it then weighs about a tenth of the job's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFacts:
    """A query of the program, as its agent describes it."""

    key: str
    name: str | None
    checkpoint: str | None
    sink: str
    sink_path: str | None
    interval_s: float | None
    movable: bool
    why_alone: str | None = None
    """Why no second application may run it beside the first one; None where one may."""

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Self:
        return cls(
            key=message["key"],
            name=message["name"],
            checkpoint=message["checkpoint"],
            sink=message["sink"],
            sink_path=message["sink_path"],
            interval_s=message["interval_s"],
            movable=message["movable"],
            why_alone=message.get("why_alone"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOrder:
    """What makes an application a copy: something to be measured, and nothing else."""

    scratch: str
    """The name of its scratch checkpoint; one that is there is gone on from."""
    ends_unix_s: float
    """When it leaves by itself."""
    record: CopyRecord


@dataclass(slots=True, kw_only=True, eq=False)
class Application:
    """What is known of an application; changed by the job only, under its lock."""

    key: str
    configuration: Configuration
    """What it was launched as, and has become by live changes and query restarts."""
    folder: Path
    process: ProcessIdentity
    child: subprocess.Popen[bytes] | None = None
    """None: an earlier controller started it."""
    target: int = 1
    """How many executors were asked for."""
    executor_ids: tuple[str, ...] = ()
    queries: dict[str, QueryFacts] = field(default_factory=dict)
    warm_s: dict[str, list[float]] = field(default_factory=dict)
    """How long each batch took on the scratch checkpoint, by query."""
    batch_s: dict[str, float] = field(default_factory=dict)
    """How long a batch takes, by query: a slowly moving average."""
    committed_unix_s: dict[str, float] = field(default_factory=dict)
    """When each query last committed a batch here."""
    first_commit_unix_s: dict[str, float] = field(default_factory=dict)
    """When each query first committed after its last start."""
    running: set[str] = field(default_factory=set)
    """The queries that have run since their last start, be it that they found nothing to do."""
    stopped_by_program: bool = False
    failure: str | None = None
    """What the program died of, in its own words."""
    query_failure: str | None = None
    """What a query of it ended with, though the program may go on."""
    problems: list[str] = field(default_factory=list)
    ending: bool = False
    greeted: bool = False
    copy: str | None = None
    """The scratch checkpoint that a copy works on, only to be measured; None: it is no copy."""
    record: CopyRecord | None = None
    """What a copy has shown so far."""

    def to_dict(self) -> dict[str, Any]:
        """What another controller needs to take it back."""
        return {
            "key": self.key,
            "folder": str(self.folder),
            "process": self.process.to_dict(),
            "target": self.target,
            "copy": self.copy,
        }

    @property
    def log(self) -> Path:
        return self.folder / "driver.log"

    @property
    def is_driver_alive(self) -> bool:
        if self.child is not None:
            return self.child.poll() is None
        return self.process.is_alive()

    @property
    def exit_code(self) -> int | None:
        return None if self.child is None else self.child.poll()

    @property
    def identity(self) -> Mapping[str, Any]:
        """What the agent left behind of its processes; empty before there was a session."""
        return identity_in(self.folder)

    @property
    def spark_id(self) -> str | None:
        return self.identity.get("spark_application")

    @property
    def jvm(self) -> ProcessIdentity | None:
        """The driver's JVM while it lives."""
        pid = self.identity.get("jvm_pid")
        found = None if pid is None else ProcessIdentity.of(int(pid))
        # A number that was given to a younger process since is not our JVM.
        if found is None or found.started_ticks is None or self.process.started_ticks is None:
            return found
        return found if found.started_ticks >= self.process.started_ticks and _is_java(found.pid) else None

    def why_it_ended(self) -> str:
        """One sentence on the end of the driver."""
        code = self.exit_code
        if code is not None and code < 0:
            return f"the program was killed by signal {-code} (log: {self.log})"
        how = "the program ended" if not code else f"the program ended with exit code {code}"
        return f"{how}: {self.failure} (log: {self.log})" if self.failure else f"{how}: {last_line(self.log)}"

    def is_frozen(self) -> bool:
        """Whether the driver lives and was stopped by a signal."""
        jvm = self.jvm
        return self.process.is_stopped() or (jvm is not None and jvm.is_stopped())

    def end(self, cluster: ClusterManager, *, within_s: float) -> bool:
        """Kill driver, JVM and executors; whether all of them are known to be dead."""
        jvm = self.jvm
        self.process.kill()
        if self.child is not None:
            self.child.wait()
        reap(self.process)
        if jvm is not None:
            jvm.kill()
        return self.is_gone(cluster, within_s=within_s)

    def forget_runs(self) -> None:
        """Its queries are about to start: what was told before counts no more."""
        self.first_commit_unix_s.clear()
        self.running.clear()

    def is_gone(self, cluster: ClusterManager, *, within_s: float) -> bool:
        """Wait until nothing of it lives, ending executors that stay; False where that cannot be confirmed in time."""
        grace_until_s = time.monotonic() + _GRACE_S

        def gone() -> bool:
            if self.process.is_alive() or self.jvm is not None:
                return False
            if self.spark_id is None:
                return True  # it never had a session, so it has no executors
            if time.monotonic() > grace_until_s:
                for executor in cluster.executor_processes(self.spark_id):
                    if executor.identity is not None:
                        executor.identity.kill()
            return cluster.is_gone(self.spark_id) is True

        return wait_until(gone, deadline_s=within_s, poll_s=0.1)


def identity_in(folder: Path) -> Mapping[str, Any]:
    """What an agent left in the folder of its application; empty before there was a session."""
    try:
        found: Mapping[str, Any] = json.loads((folder / "identity.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found


def launch(
    *,
    key: str,
    program: SparkProgram,
    configuration: Configuration,
    cluster: ClusterManager,
    home: Path,
    controller: tuple[str, int],
    token: str,
    standby: bool,
    gone: tuple[str, ...],
    copy: CopyOrder | None = None,
) -> Application:
    """Start the program as a process of its own, which outlives the controller."""
    program.check()
    folder = home / "applications" / key
    folder.mkdir(parents=True)
    warms_up = standby and copy is None
    conf = cluster.conf(cores=configuration.cores_per_executor, warms_up=warms_up) | spark_conf(program, configuration)
    spec = AgentSpec(
        application=key,
        host=controller[0],
        port=controller[1],
        token=token,
        state_folder=str(home),
        identity_file=str(folder / "identity.json"),
        run=key.rpartition("-")[0],
        standby=standby,
        commit_interval_s=configuration.commit_interval_s,
        conf=conf,
        executors=configuration.executors,
        gone=gone,
        replayable_sources=program.replayable_sources,
        copy=None if copy is None else copy.scratch,
        ends_unix_s=None if copy is None else copy.ends_unix_s,
        cache_folder=_cache(),
    )
    spec.write(folder / "agent.json")
    environment = program.process_environment()
    environment[SPEC_VARIABLE] = str(folder / "agent.json")
    environment.pop(OWNER_VARIABLE, None)
    environment["PYTHONPATH"] = os.pathsep.join(
        part for part in (str(_AGENT_PATH), environment.get("PYTHONPATH", "")) if part
    )
    environment |= cluster.environment()
    with (folder / "driver.log").open("ab") as log:
        try:
            child = subprocess.Popen(  # noqa: S603 -- the user's own program
                program.command,
                cwd=program.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise PermanentError(f"{program.command[0]} cannot be started: {error.strerror}") from error
    if copy is not None:
        _step_back(child.pid)
    process = ProcessIdentity.of(child.pid)
    if process is None:  # pragma: no cover -- our own child is there until it is waited for
        raise PermanentError("the program was gone as soon as it had been started")
    return Application(
        key=key,
        configuration=configuration,
        folder=folder,
        process=process,
        child=child,
        target=configuration.executors,
        copy=None if copy is None else copy.scratch,
        record=None if copy is None else copy.record,
    )


def _step_back(pid: int) -> None:
    """Let the driver of a copy have what CPU the others leave; what it starts is given the same."""
    try:
        ours = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, pid, min(19, ours + _COPY_NICENESS))
    except OSError as error:
        _LOG.warning("The copy runs with the priority of the job: %s", error)


def _cache() -> str | None:
    """Where executors' warm-up is kept; None where the user has no home for it."""
    try:
        return str(cache_folder())
    except RuntimeError:
        return None


def _is_java(pid: int) -> bool:
    try:
        return b"java" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        return False
