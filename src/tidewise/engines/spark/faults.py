"""Breaking things on purpose, each for a bounded time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from tidewise.core import PermanentError, TemporaryError
from tidewise.core.readers import did_you_mean
from tidewise.engines.spark.fleet import Fleet
from tidewise.host.processes import ProcessIdentity

FREEZE_S = 20.0
"""How long a process stays frozen, unless whoever watches over it ends it first."""
LASTS_S = 20.0
"""How long the CPU stays slow, memory full, a connection cut or delayed."""
_DELAY_S = 1.0
_SLOW_SHARE = 0.25
_FILL_SHARE = 0.5
_FILL_MOST_MIB = 4096
_FILL = """
import sys, time
ballast = bytearray(int(sys.argv[1]) << 20)
ballast[::4096] = b"x" * len(ballast[::4096])
time.sleep(float(sys.argv[2]))
"""


class Faults:
    """What can be broken in a job; victims are drawn from a seeded chance."""

    def __init__(self, fleet: Fleet, *, seed: int, supervised: bool) -> None:
        """`supervised`: somebody starts the controller again when it is killed."""
        self._fleet = fleet
        self._chance = random.Random(seed)  # noqa: S311 -- victims, not secrets
        self._supervised = supervised

    @staticmethod
    def kinds(*, local: bool, lines: bool, supervised: bool) -> tuple[str, ...]:
        """What can be broken: on a local cluster, with a proxy in the agents' line, under a supervisor."""
        kinds = ["kill-driver", "freeze-driver"]
        if local:
            kinds = ["kill-executor", "freeze-executor", *kinds, "kill-worker", "freeze-worker", "slow-cpu"]
        if lines:
            kinds += ["cut-connection", "delay-connection"]
        if supervised:
            kinds.append("kill-controller")
        return (*kinds, "fill-memory")

    def inject(self, kind: str) -> None:
        """Break it; what is not a kill ends by itself."""
        known: dict[str, Callable[[], None]] = {
            "kill-executor": lambda: self._kill(self._executor()),
            "freeze-executor": lambda: self._freeze(self._executor()),
            "kill-worker": lambda: self._kill(self._worker()),
            "freeze-worker": lambda: self._freeze(self._worker()),
            "kill-driver": lambda: self._kill(self._fleet.active.process),
            "freeze-driver": self._freeze_driver,
            "kill-controller": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "slow-cpu": self._slow_cpu,
            "fill-memory": _fill_memory,
            "cut-connection": self._cut,
            "delay-connection": self._delay,
        }
        offered = self.kinds(
            local=bool(self._fleet.cluster.worker_processes),
            lines=self._fleet.proxy is not None,
            supervised=self._supervised,
        )
        if kind not in offered:
            raise PermanentError(f"there is no fault {kind!r} here{did_you_mean(kind, offered)}")
        known[kind]()

    def _executor(self) -> ProcessIdentity:
        application = self._fleet.active
        found = [
            one.identity
            for one in self._fleet.cluster.executor_processes(application.spark_id or "")
            if one.identity is not None
        ]
        if not found:
            raise TemporaryError("the job has no executor at this moment")
        return self._chance.choice(found)

    def _worker(self) -> ProcessIdentity:
        cluster = self._fleet.cluster
        living = [worker for worker in cluster.worker_processes if worker.is_alive()]
        if not living:
            raise TemporaryError("the cluster has no worker at this moment")
        return self._chance.choice(living)

    @staticmethod
    def _kill(victim: ProcessIdentity) -> None:
        victim.signal(signal.SIGKILL)

    @staticmethod
    def _freeze(victim: ProcessIdentity) -> None:
        victim.signal(signal.SIGSTOP)
        _later(FREEZE_S, lambda: victim.signal(signal.SIGCONT))

    def _freeze_driver(self) -> None:
        application = self._fleet.active
        jvm = application.jvm
        for victim in (application.process, jvm):
            if victim is not None:
                self._freeze(victim)

    def _slow_cpu(self) -> None:
        """One executor gets a quarter of its CPU."""
        cluster, application = self._fleet.cluster, self._fleet.active
        limits, spark_id = cluster.cpu_limits, application.spark_id or ""
        if limits is None:
            raise PermanentError("the CPU of executors is not limited here, so it cannot be slowed")
        names = [one.executor_id for one in cluster.executor_processes(spark_id)]
        if not names:
            raise TemporaryError("the job has no executor at this moment")
        name, cores = self._chance.choice(names), application.configuration.cores_per_executor
        try:
            limits.set_cores(spark_id, name, _SLOW_SHARE * cores)
        except OSError as error:
            raise TemporaryError(f"executor {name} has just gone: {error}") from error

        def restore() -> None:
            if name in [one.executor_id for one in cluster.executor_processes(spark_id)]:
                limits.set_cores(spark_id, name, cores)

        _later(LASTS_S, restore)

    def _cut(self) -> None:
        proxy = self._fleet.proxy
        if proxy is not None:
            proxy.cut()
            _later(LASTS_S, proxy.restore)

    def _delay(self) -> None:
        proxy = self._fleet.proxy
        if proxy is not None:
            proxy.delay(_DELAY_S)
            _later(LASTS_S, proxy.restore)


def _fill_memory() -> None:
    """Take half of the machine's free memory, at most 4 GiB, in a process that ends by itself."""
    pages, size = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    mib = min(_FILL_MOST_MIB, int(_FILL_SHARE * pages * size) >> 20)
    child = subprocess.Popen([sys.executable, "-c", _FILL, str(mib), str(LASTS_S)])  # noqa: S603 -- our own words
    _later(LASTS_S + 5.0, child.wait)


def _later(seconds: float, what: Callable[[], object]) -> None:
    def wait_and_do() -> None:
        time.sleep(seconds)
        what()

    threading.Thread(target=wait_and_do, name="spark-fault-ends", daemon=True).start()
