"""A real Spark cluster on this machine: a master and workers on 127.0.0.1, found again by any process."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.engines.spark.cgroups import BOOST_S, WARM_UP_BOOST_S, CpuLimits, install_java, limit_environment
from tidewise.engines.spark.launcher import Launcher
from tidewise.engines.spark.master import Capacity, ExecutorProcess, StandaloneMaster
from tidewise.host import state_file
from tidewise.host.daemons import HOST, Daemon, settle
from tidewise.host.java import Java, find_java
from tidewise.host.private_files import write_properties
from tidewise.host.processes import (
    FoundProcess,
    ProcessIdentity,
    can_find,
    descendants,
    ended_by,
    find,
    reap,
    wait_until,
)
from tidewise.host.spark_home import find_spark

STATE_FILE = "cluster.json"
_PROPERTIES = "cluster.properties"
_SECRET_KEY = "spark.authenticate.secret"  # noqa: S105 - the name of the setting, not its value
_DAEMON_SETTINGS = {
    "spark.authenticate": "true",
    "spark.master.rest.enabled": "false",  # it knows no secret, so anybody could submit a program
    "spark.ui.killEnabled": "false",  # the same
    "spark.port.maxRetries": "0",  # a daemon on another port than asked for would be looked for in vain
}
_FORMAT = 1
_STOP_S = 20.0
_LEAST_MEMORY_MIB = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """What is written down of a cluster, so that another process can find and stop it."""

    name: str
    spark: Path
    java: Java
    slots_per_worker: int
    memory_mib_per_worker: int
    cpu: CpuLimits | str
    """How CPU is limited, or the sentence why it is not."""
    master: Daemon | None = None
    workers: tuple[Daemon, ...] = ()

    def to_dict(self) -> dict[str, object]:
        return {
            "format": _FORMAT,
            "name": self.name,
            "spark": str(self.spark),
            "java": self.java.to_dict(),
            "slots_per_worker": self.slots_per_worker,
            "memory_mib_per_worker": self.memory_mib_per_worker,
            "cpu": self.cpu if isinstance(self.cpu, str) else self.cpu.to_dict(),
            "master": None if self.master is None else self.master.to_dict(),
            "workers": [worker.to_dict() for worker in self.workers],
        }

    @classmethod
    def from_dict(cls, told: Mapping[str, object]) -> Self:
        """What `to_dict` wrote; KeyError, TypeError or ValueError where it did not."""
        cpu, master, workers = told["cpu"], told["master"], told["workers"]
        if told["format"] != _FORMAT or not isinstance(workers, list):
            raise ValueError("another format")
        return cls(
            name=str(told["name"]),
            spark=Path(str(told["spark"])),
            java=Java.from_dict(told["java"]),
            slots_per_worker=int(str(told["slots_per_worker"])),
            memory_mib_per_worker=int(str(told["memory_mib_per_worker"])),
            cpu=CpuLimits.from_dict(cpu) if isinstance(cpu, dict) else str(cpu),
            master=Daemon.from_dict(master) if isinstance(master, dict) else None,
            workers=tuple(Daemon.from_dict(worker) for worker in workers),
        )


class LocalCluster:
    """A standalone cluster on 127.0.0.1 that lives on after the process that started it; a ClusterManager.

    Its folder holds the state (`cluster.json`), the settings with the secret, the logs and the executors' folders;
    only its owner can read the first two. `down` may be called again, and by any process of the same user.
    """

    def __init__(self, folder: Path, state: ClusterState) -> None:
        self.folder = folder
        self._state = state

    @classmethod
    def up(
        cls, folder: Path, *, workers: int = 2, slots_per_worker: int = 16, memory_mib_per_worker: int | None = None
    ) -> Self:
        """Start a cluster in this folder and wait until all workers are ready; on any failure nothing is left.

        Slots and memory are what Spark counts, not what the machine has: by default all workers together promise
        three quarters of its memory.
        """
        memory_mib = machine_memory_mib(workers) if memory_mib_per_worker is None else memory_mib_per_worker
        if min(workers, slots_per_worker) < 1 or memory_mib < _LEAST_MEMORY_MIB:
            raise BadInputError(
                f"a cluster has 1 worker or more, each with 1 slot and {_LEAST_MEMORY_MIB} MiB or more, "
                f"not {workers} with {slots_per_worker} slots and {memory_mib} MiB"
            )
        java, spark = find_java(), find_spark()
        folder = folder.absolute()
        earlier = cls.find(folder)
        if earlier is not None:
            if earlier.is_running:
                raise BadInputError(
                    f"a cluster runs in {folder} already: use it, stop it (tidewise cluster down --folder {folder}) "
                    f"or name another folder"
                )
            earlier.down()
        name = f"tidewise-{secrets.token_hex(4)}"
        state = ClusterState(
            name=name,
            spark=spark,
            java=java,
            slots_per_worker=slots_per_worker,
            memory_mib_per_worker=memory_mib,
            cpu=CpuLimits.detect(name),
        )
        cluster = cls(folder, state)
        cluster._claim()
        try:
            cluster._start(workers)
        except BaseException:
            cluster.down()
            raise
        return cluster

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """The cluster whose state is written in this folder, whether it still runs or not; None: there is none."""
        folder = folder.absolute()
        mend = "stop its processes by hand"
        state = state_file.read(folder / STATE_FILE, ClusterState.from_dict, what="cluster", mend=mend)
        return None if state is None else cls(folder, state)

    @property
    def is_running(self) -> bool:
        """Whether its master lives."""
        return self._state.master is not None and self._state.master.identity.is_alive()

    @property
    def master_url(self) -> str:
        return f"spark://{HOST}:{self._master.port}"

    @property
    def ui_url(self) -> str:
        """The master's web interface."""
        return f"http://{HOST}:{self._master.ports[1]}"

    @property
    def master_process(self) -> ProcessIdentity:
        return self._master.identity

    @property
    def worker_processes(self) -> tuple[ProcessIdentity, ...]:
        """One per worker, in their order, whether it lives or not."""
        return tuple(worker.identity for worker in self._state.workers)

    @property
    def cpu_limits(self) -> CpuLimits | None:
        """How the CPU of executors is read and limited; None: it is not (see `cpu_reason`)."""
        return None if isinstance(self._state.cpu, str) else self._state.cpu

    @property
    def cpu_reason(self) -> str | None:
        """Why the CPU of executors is not limited here; None: it is."""
        return self._state.cpu if isinstance(self._state.cpu, str) else None

    def check(self) -> None:
        self._manager.check()

    def capacity(self) -> Capacity | None:
        return self._manager.capacity()

    def fits(self, *, count: int, slots: int, memory_mib: int) -> bool | None:
        return self._manager.fits(count=count, slots=slots, memory_mib=memory_mib)

    def blind_spot(self) -> str | None:
        return self._manager.blind_spot()

    def is_gone(self, app_id: str) -> bool | None:
        if not can_find():
            return self._manager.is_gone(app_id)
        state = self._manager.state()
        if self._executors(app_id) or (state is not None and self._manager.is_registered(state, app_id)):
            return False
        # A master that is dead starts no executor; one that is alive and silent might still.
        return True if state is not None or not self.is_running else None

    def executor_processes(self, app_id: str) -> tuple[ExecutorProcess, ...]:
        return tuple(
            ExecutorProcess(executor_id=one.option("--executor-id") or "", identity=one.identity)
            for one in self._executors(app_id)
        )

    def conf(self, *, cores: float, warms_up: bool = False, boost_s: int | None = None) -> dict[str, str]:
        """The Spark settings by which an application finds this cluster, may use it, and gets its share of it.

        A new executor has whole cores for `boost_s` seconds, to start its JVM; longer where it also `warms_up`. The
        settings hold the secret: hand them over by `write_properties`. PySpark puts what a session's builder is told
        on the command line of the driver's JVM, where anybody can read it.
        """
        return {
            "spark.master": self.master_url,
            "spark.authenticate": "true",
            _SECRET_KEY: self._secret(),
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.executorEnv.JAVA_HOME": str(self._java_home),
            "spark.ui.port": "0",
            **self._cpu_conf(cores, boost_s or (WARM_UP_BOOST_S if warms_up else BOOST_S)),
        }

    def environment(self) -> dict[str, str]:
        return {"SPARK_LOCAL_IP": HOST}

    def _cpu_conf(self, cores: float, boost_s: int) -> dict[str, str]:
        if self.cpu_limits is None:
            return {}
        environment = limit_environment(cores, boost_s=boost_s)
        return {f"spark.executorEnv.{name}": value for name, value in environment.items()}

    def restart_worker(self, number: int) -> ProcessIdentity:
        """Stop a worker with its executors, if it lives, and start it anew; its process once it is ready."""
        if not 0 <= number < len(self._state.workers):
            raise BadInputError(f"the cluster has workers 0 to {len(self._state.workers) - 1}, not {number}")
        old = self._state.workers[number]
        below = descendants(old.identity.pid) if old.identity.is_alive() else ()
        ended_by(old.identity, deadline_s=_STOP_S)
        reap(old.identity)
        for each in below:
            each.kill()
        self._settle_workers({number: self._spawn_worker(number)})
        return self._state.workers[number].identity

    def down(self) -> None:
        """Stop everything that belongs to this cluster, executors included; the logs stay."""
        daemons = [*self._state.workers, *([] if self._state.master is None else [self._state.master])]
        executors = self._executors()
        below = [each for executor in executors for each in descendants(executor.identity.pid)]
        for executor in executors:
            executor.identity.signal(signal.SIGCONT)  # a worker would wait long for one that is frozen
        for daemon in daemons:  # workers first: they end their executors
            daemon.identity.signal(signal.SIGTERM)
            daemon.identity.signal(signal.SIGCONT)
        for daemon in daemons:
            ended_by(daemon.identity, deadline_s=_STOP_S)
            reap(daemon.identity)

        def all_gone() -> bool:
            left = [each for each in below if each.is_alive()] + [each.identity for each in self._own()]
            for each in left:
                each.signal(signal.SIGKILL)
            return not left and not any(daemon.identity.is_alive() for daemon in daemons)

        if not wait_until(all_gone, deadline_s=_STOP_S, poll_s=0.05):
            raise TemporaryError(f"some processes of the cluster in {self.folder} do not end: try again")
        if self.cpu_limits is not None:
            self.cpu_limits.remove()
        shutil.rmtree(self.folder / "local", ignore_errors=True)  # what it held was of use to executors only
        for name in (_PROPERTIES, STATE_FILE):
            (self.folder / name).unlink(missing_ok=True)

    @property
    def _master(self) -> Daemon:
        if self._state.master is None:
            raise TemporaryError(f"the cluster in {self.folder} has no master yet: wait until it is up")
        return self._state.master

    @property
    def _manager(self) -> StandaloneMaster:
        return StandaloneMaster(self.master_url, self.ui_url)

    @property
    def _java_home(self) -> Path:
        return self.folder / "java"

    @property
    def _launcher(self) -> Launcher:
        state = self._state
        return Launcher(spark=state.spark, java=state.java, folder=self.folder, properties=self.folder / _PROPERTIES)

    def _claim(self) -> None:
        """Make the folder ours before anything is written or started in it."""
        try:
            state_file.claim(self.folder / STATE_FILE, self._state.to_dict(), what="cluster")
        except BadInputError:
            if self.cpu_limits is not None:
                self.cpu_limits.remove()
            raise

    def _start(self, workers: int) -> None:
        for inner in ("conf", "local"):
            (self.folder / inner).mkdir(exist_ok=True)
        secret = secrets.token_hex(32)
        write_properties(self.folder / _PROPERTIES, _DAEMON_SETTINGS | {_SECRET_KEY: secret})
        install_java(self._java_home, real=self._state.java.program, limits=self.cpu_limits)
        master = self._spawn_master(0)
        settle([master], what="Spark master", ready=self._ready_masters, again=self._spawn_master)
        self._settle_workers({number: self._spawn_worker(number) for number in range(workers)})

    def _spawn_master(self, _number: int) -> Daemon:
        master = self._launcher.master()
        self._state = replace(self._state, master=master)
        self._save()
        return master

    def _spawn_worker(self, number: int) -> Daemon:
        state = self._state
        worker = self._launcher.worker(
            number,
            master_url=self.master_url,
            slots=state.slots_per_worker,
            memory_mib=state.memory_mib_per_worker,
        )
        self._state = replace(state, workers=(*state.workers[:number], worker, *state.workers[number + 1 :]))
        self._save()  # at once, so that a crash of ours leaves nothing that nobody knows
        return worker

    def _settle_workers(self, spawned: dict[int, Daemon]) -> None:
        numbers = list(spawned)
        settle(
            list(spawned.values()),
            what="Spark worker",
            ready=self._ready_workers,
            again=lambda index: self._spawn_worker(numbers[index]),
        )

    def _ready_masters(self) -> set[int]:
        return set() if self._manager.state() is None else {self._master.port}

    def _ready_workers(self) -> set[int]:
        capacity = self.capacity()
        return set() if capacity is None else {worker.port for worker in capacity.workers}

    def _executors(self, app_id: str | None = None) -> tuple[FoundProcess, ...]:
        """Executors run in a folder below ours, under whatever Java, and also when their worker is dead."""
        work = self.folder.resolve() / "work"
        return tuple(
            one
            for one in find(lambda argv: "--app-id" in argv and "--executor-id" in argv)
            if one.folder is not None and one.folder.is_relative_to(work)
            if app_id is None or one.option("--app-id") == app_id
        )

    def _own(self) -> tuple[FoundProcess, ...]:
        """Executors, and what starts them."""
        program = str(self._java_home / "bin" / "java")
        return self._executors() + find(lambda argv: program in argv[:2])

    def _secret(self) -> str:
        path = self.folder / _PROPERTIES
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise PermanentError(f"the secret of the cluster cannot be read from {path}: {error.strerror}") from error
        return dict(line.split("=", 1) for line in lines)[_SECRET_KEY]

    def _save(self) -> None:
        state_file.save(self.folder / STATE_FILE, self._state.to_dict())


def machine_memory_mib(workers: int) -> int:
    """What each of so many workers promises by default: together three quarters of the machine's memory."""
    total_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    return max(_LEAST_MEMORY_MIB, total_mib * 3 // 4 // max(1, workers))
