"""Starts Spark's master and workers as processes of their own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tidewise.host.daemons import HOST, Daemon, free_ports, spawn
from tidewise.host.java import Java

_HEAP = "256m"


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
        port, ui_port = free_ports(2)
        places = ["--host", HOST, "--port", str(port), "--webui-port", str(ui_port)]
        program = self.spark / "bin" / "spark-class"
        argv = [str(program), main, *places, "--properties-file", str(self.properties), *arguments]
        return spawn(name, argv, environment=self._environment(), logs=self.folder / "logs", ports=(port, ui_port))

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
