"""Starts Spark's master and workers as processes of their own, on ports that are free."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.engines.spark.java import Java
from tidewise.engines.spark.processes import ProcessIdentity, reap, wait_until

HOST = "127.0.0.1"
START_S = 120.0
"""A JVM on a busy machine may take long; a healthy start takes about 5 s."""
_PORT_ATTEMPTS = 5
_HEAP = "256m"
_TAIL_BYTES = 64 * 1024
_PORT_TAKEN = ("BindException", "Address already in use")


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A master or worker that was started, and where it listens."""

    identity: ProcessIdentity
    port: int
    ui_port: int
    log: Path

    def to_dict(self) -> dict[str, object]:
        return {"process": self.identity.to_dict(), "port": self.port, "ui_port": self.ui_port, "log": str(self.log)}

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> Self:
        """What `to_dict` wrote; KeyError, TypeError or ValueError where it did not."""
        process = value["process"]
        if not isinstance(process, dict):
            raise TypeError("a process is an object")
        return cls(
            identity=ProcessIdentity.from_dict(process),
            port=int(str(value["port"])),
            ui_port=int(str(value["ui_port"])),
            log=Path(str(value["log"])),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """How daemons are started here: from which Spark and Java, with which settings, in which folder."""

    spark: Path
    java: Java
    folder: Path
    properties: Path

    def master(self) -> Daemon:
        """Start a master; it is not ready yet."""
        return self._start("master", "org.apache.spark.deploy.master.Master", [])

    def worker(self, number: int, *, master_url: str, slots: int, memory_mib: int) -> Daemon:
        """Start a worker; it is not ready yet."""
        work = self.folder / "work" / f"worker-{number}"
        work.mkdir(parents=True, exist_ok=True)
        sizes = ["--cores", str(slots), "--memory", f"{memory_mib}m", "--work-dir", str(work)]
        return self._start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", [*sizes, master_url])

    def _start(self, name: str, main: str, arguments: list[str]) -> Daemon:
        port, ui_port = _free_ports(2)
        log = _unused(self.folder / "logs", name)
        places = ["--host", HOST, "--port", str(port), "--webui-port", str(ui_port)]
        program = self.spark / "bin" / "spark-class"
        argv = [str(program), main, *places, "--properties-file", str(self.properties), *arguments]
        # A session of its own: Ctrl-C in the terminal it was started from is not meant for it.
        # Not by Popen, which warns when it is forgotten while its process runs on: here that is the point.
        pid = os.posix_spawn(
            program,
            argv,
            self._environment(),
            setsid=True,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
        )
        identity = ProcessIdentity.of(pid)
        if identity is None:  # not even a zombie of our own child is there: somebody else waits for our children
            raise PermanentError(f"the Spark {name} ended as soon as it was started; see {log}")
        return Daemon(identity=identity, port=port, ui_port=ui_port, log=log)

    def _environment(self) -> dict[str, str]:
        # Spark reads many settings from SPARK_*: what the user has set for another cluster is not meant for this one.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
        return inherited | {
            "JAVA_HOME": str(self.java.home),
            "SPARK_HOME": str(self.spark),
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_HOSTNAME": HOST,
            "SPARK_PUBLIC_DNS": HOST,
            "SPARK_DAEMON_MEMORY": _HEAP,
        }


def find_spark() -> Path:
    """The Spark that SPARK_HOME names, else the one that came with PySpark."""
    named = os.environ.get("SPARK_HOME")
    if named:
        home = Path(named).absolute()
        if not (home / "bin" / "spark-class").is_file():
            raise BadInputError(f"SPARK_HOME is {home}, but there is no bin/spark-class in it: correct it or unset it")
        return home
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise BadInputError("PySpark is not installed: pip install 'tidewise[spark]'")
    return Path(found.origin).parent


def settle(
    daemons: list[Daemon], *, what: str, ready: Callable[[], set[int]], again: Callable[[int], Daemon]
) -> list[Daemon]:
    """Wait until all daemons are ready, by their ports; start those again that found theirs taken.

    Raises when one ends for another reason, or is not ready in time; stops none.
    """
    daemons = list(daemons)
    attempts = [1] * len(daemons)

    def settled() -> bool:
        for index, daemon in enumerate(daemons):
            reap(daemon.identity)
            if daemon.identity.is_alive():
                continue
            if attempts[index] == _PORT_ATTEMPTS or not _port_was_taken(daemon.log):
                raise PermanentError(f"a Spark {what} ended as soon as it was started: {last_line(daemon.log)}")
            attempts[index] += 1
            daemons[index] = again(index)
        return {daemon.port for daemon in daemons} <= ready()

    if not wait_until(settled, deadline_s=START_S, poll_s=0.1):
        late = next((one for one in daemons if one.port not in ready()), daemons[0])
        raise TemporaryError(f"a Spark {what} was not ready after {START_S:g} s: {last_line(late.log)}")
    return daemons


def last_line(log: Path) -> str:
    """The end of a log in one line that tells most, with its place."""
    lines = [line.strip() for line in _tail(log).splitlines() if line.strip()]
    telling = [line for line in lines if "Exception" in line or " ERROR " in line or line.startswith("Error")]
    return f"{(telling or lines or ['it wrote nothing'])[-1][:300]} (in {log})"


def _port_was_taken(log: Path) -> bool:
    tail = _tail(log)
    return any(sign in tail for sign in _PORT_TAKEN)


def _tail(log: Path) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", errors="replace")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:  # all at once, so that they differ
        return [held.enter_context(socket.create_server((HOST, 0))).getsockname()[1] for _ in range(count)]


def _unused(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    log = folder / f"{name}.log"
    while log.exists():
        number += 1
        log = folder / f"{name}-{number}.log"
    return log
