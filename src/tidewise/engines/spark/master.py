"""What Tidewise asks of a cluster manager: is it there, what does it hold, and is an application really gone.

This port is the only place that knows a kind of cluster. Spark's standalone master is implemented. For others:

- `check`: Kubernetes: the API server's /readyz. YARN: the resource manager's /ws/v1/cluster/info says STARTED.
- `capacity`, `fits`: Kubernetes: the nodes' allocatable less the requests of their pods. YARN: the free cores and
  memory of /ws/v1/cluster/nodes.
- `is_gone`: Kubernetes: no pod with the label spark-app-selector=APP. YARN: the application is FINISHED, FAILED or
  KILLED, and no container of it is left.
- `executor_processes`: Kubernetes: the pods with the label spark-role=executor too. YARN: the attempt's containers.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from tidewise.core import BadInputError, InvalidValueError, PermanentError, TemporaryError
from tidewise.engines.spark.cgroups import CpuLimits
from tidewise.host.processes import ProcessIdentity

DEADLINE_S = 5.0
_USUAL_UI_PORT = 8080
_MOST_BYTES = 16 * 1024 * 1024
_MASTER_URL = re.compile(r"spark://([^\s,/:@]+:\d{1,5}(?:,[^\s,/:@]+:\d{1,5})*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCapacity:
    """What one living worker can hold, and what of it is free."""

    worker_id: str
    port: int
    cores_total: int
    cores_free: int
    memory_mib_total: int
    memory_mib_free: int

    def holds(self, *, slots: int, memory_mib: int) -> int:
        """How many executors of this size fit in beside what runs there."""
        return max(0, min(self.cores_free // slots, self.memory_mib_free // memory_mib))


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the living workers of a cluster can hold; cores are the slots that the cluster counts, not its CPUs."""

    workers: tuple[WorkerCapacity, ...]

    @property
    def cores_total(self) -> int:
        return sum(worker.cores_total for worker in self.workers)

    @property
    def cores_free(self) -> int:
        return sum(worker.cores_free for worker in self.workers)

    @property
    def memory_mib_total(self) -> int:
        return sum(worker.memory_mib_total for worker in self.workers)

    @property
    def memory_mib_free(self) -> int:
        return sum(worker.memory_mib_free for worker in self.workers)

    def fits(self, *, count: int, slots: int, memory_mib: int) -> bool:
        """Whether so many executors find a place; all are of one size, so filling worker by worker is exact."""
        if min(count, slots, memory_mib) < 1:
            raise InvalidValueError(
                f"executors are placed by counts of 1 or more, not {count} of {slots} slots and {memory_mib} MiB"
            )
        return sum(worker.holds(slots=slots, memory_mib=memory_mib) for worker in self.workers) >= count


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorProcess:
    """An executor that the cluster runs; its process is None where that is out of reach."""

    executor_id: str
    identity: ProcessIdentity | None


class ClusterManager(Protocol):
    """A cluster on which applications run, whoever owns it. All answers are read fresh."""

    @property
    def master_url(self) -> str:
        """What an application sets as spark.master."""

    def check(self) -> None:
        """Raise TemporaryError, within 5 s, when the cluster does not answer."""

    def capacity(self) -> Capacity | None:
        """What it can hold; None: that cannot be known (see `blind_spot`)."""

    def fits(self, *, count: int, slots: int, memory_mib: int) -> bool | None:
        """Whether executors of this heap find a place beside what runs, per worker; None: cannot be known."""

    def is_gone(self, app_id: str) -> bool | None:
        """Whether the cluster has ended the application and no executor of it lives; None: cannot be known.

        The driver is no business of a cluster in client mode: whoever started it knows it.
        """

    def executor_processes(self, app_id: str) -> tuple[ExecutorProcess, ...]:
        """The executors of an application that live now, as far as they can be seen."""

    def blind_spot(self) -> str | None:
        """The sentence that says what cannot be known of this cluster now, and what would help; None: nothing."""

    def conf(self, *, cores: float, warms_up: bool) -> dict[str, str]:
        """The Spark settings by which an application finds this cluster and is given so much CPU per executor."""

    def environment(self) -> dict[str, str]:
        """What the driver's process needs in its environment to use this cluster."""

    @property
    def cpu_limits(self) -> CpuLimits | None:
        """How the CPU of executors is read and limited; None: it is not."""

    @property
    def worker_processes(self) -> tuple[ProcessIdentity, ...]:
        """The workers that are ours to heal and to break, whether they live or not; none of somebody else's."""

    def restart_worker(self, number: int) -> ProcessIdentity:
        """Stop a worker of ours with its executors, if it lives, and start it anew; its process once it is ready."""


class StandaloneMaster:
    """Spark's own master, `spark://host:port`, seen through its web interface where that answers.

    Without `ui_url` the interface is looked for at port 8080 of the master's host. Without an answer there,
    everything but `check` is unknown, and says so.
    """

    def __init__(self, master_url: str, ui_url: str | None = None) -> None:
        match = _MASTER_URL.fullmatch(master_url)
        if match is None:
            raise BadInputError(f"a standalone master is written spark://HOST:PORT, not {master_url!r}")
        addresses = [address.rsplit(":", 1) for address in match[1].split(",")]
        self._masters = [(host, int(port)) for host, port in addresses]
        if any(not 0 < port < 65536 for _, port in self._masters):
            raise BadInputError(f"a port lies between 1 and 65535, but {master_url!r} has another")
        if ui_url is not None and (urlsplit(ui_url).scheme not in {"http", "https"} or not urlsplit(ui_url).hostname):
            raise BadInputError(f"a master's web interface is written http://HOST:PORT, not {ui_url!r}")
        self._master_url = master_url
        self._ui_url = ui_url

    @property
    def master_url(self) -> str:
        return self._master_url

    @property
    def ui_urls(self) -> tuple[str, ...]:
        """Where the web interface is looked for."""
        if self._ui_url is not None:
            return (self._ui_url,)
        return tuple(f"http://{host}:{_USUAL_UI_PORT}" for host, _ in self._masters)

    def check(self) -> None:
        problems: list[str] = []
        for host, port in self._masters:
            try:
                socket.create_connection((host, port), timeout=DEADLINE_S / len(self._masters)).close()
            except OSError as error:
                problems.append(error.strerror or "no answer in time")
            else:
                return
        raise TemporaryError(
            f"no Spark master answers at {self._master_url} ({problems[0]}): start it (a local one: tidewise cluster "
            f"up) or correct the address",
            retry_after_s=DEADLINE_S,
        )

    def capacity(self) -> Capacity | None:
        state = self.state()
        if state is None:
            return None
        return Capacity(workers=tuple(_worker(one) for one in _rows(state, "workers") if one.get("state") == "ALIVE"))

    def fits(self, *, count: int, slots: int, memory_mib: int) -> bool | None:
        capacity = self.capacity()
        return None if capacity is None else capacity.fits(count=count, slots=slots, memory_mib=memory_mib)

    def is_gone(self, app_id: str) -> bool | None:
        state = self.state()
        if state is None:
            return None
        if self.is_registered(state, app_id):
            return False
        # The master lets go of an application before its executors have ended: only the workers know that.
        executors = _executors(state, app_id)
        if executors:
            return False
        return None if executors is None else True

    def executor_processes(self, app_id: str) -> tuple[ExecutorProcess, ...]:
        state = self.state()
        found = None if state is None else _executors(state, app_id)
        return tuple(ExecutorProcess(executor_id=one, identity=None) for one in found or ())

    def blind_spot(self) -> str | None:
        if self.state() is not None:
            return None
        return (
            f"what {self._master_url} holds and runs is not known, because its web interface does not answer at "
            f"{' or '.join(self.ui_urls)}: name it by the option for the master's web interface"
        )

    def conf(self, *, cores: float, warms_up: bool) -> dict[str, str]:  # noqa: ARG002 -- not ours to limit
        return {"spark.master": self._master_url}

    def environment(self) -> dict[str, str]:
        return {}

    @property
    def cpu_limits(self) -> CpuLimits | None:
        return None

    @property
    def worker_processes(self) -> tuple[ProcessIdentity, ...]:
        return ()

    def restart_worker(self, number: int) -> ProcessIdentity:
        raise PermanentError(f"worker {number} of {self._master_url} is not ours to restart")

    def state(self) -> Mapping[str, object] | None:
        """What the acting master's interface tells as JSON; None: none answers as this master."""
        ports = {port for _, port in self._masters}
        for url in self.ui_urls:
            told = fetch_json(f"{url.rstrip('/')}/json/")
            # A stranger may live at the usual port: only a master that names our port is ours.
            ours = told is not None and (self._ui_url is not None or urlsplit(str(told.get("url"))).port in ports)
            if told is not None and ours and told.get("status") == "ALIVE":
                return told
        return None

    @staticmethod
    def is_registered(state: Mapping[str, object], app_id: str) -> bool:
        """Whether the master still has this application among its active ones."""
        return any(app.get("id") == app_id for app in _rows(state, "activeapps"))


def fetch_json(url: str, *, deadline_s: float = DEADLINE_S) -> Mapping[str, object] | None:
    """The JSON object at an address, or None when there is no such answer in time."""
    parts = urlsplit(url)
    if not parts.hostname:
        return None
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=deadline_s)
    try:
        connection.request("GET", parts.path, headers={"Accept": "application/json"})
        response = connection.getresponse()
        told = json.loads(response.read(_MOST_BYTES)) if response.status == http.HTTPStatus.OK else None
    except (OSError, http.client.HTTPException, ValueError):  # nobody there, or somebody who speaks otherwise
        return None
    finally:
        connection.close()
    return told if isinstance(told, dict) else None


def _executors(state: Mapping[str, object], app_id: str) -> list[str] | None:
    """The executors of an application on all workers; None when none is seen but a worker does not answer."""
    found: list[str] = []
    silent = False
    for worker in _rows(state, "workers"):
        told = fetch_json(f"{str(worker.get('webuiaddress', '')).rstrip('/')}/json/")
        if told is None:
            silent = True
            continue
        found += [str(one.get("id")) for one in _rows(told, "executors") if one.get("appid") == app_id]
    return None if silent and not found else found


def _rows(told: Mapping[str, object], name: str) -> Iterable[Mapping[str, object]]:
    rows = told.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _worker(told: Mapping[str, object]) -> WorkerCapacity:
    def number(name: str) -> int:
        value = told.get(name)
        return value if isinstance(value, int) else 0

    return WorkerCapacity(
        worker_id=str(told.get("id", "")),
        port=number("port"),
        cores_total=number("cores"),
        cores_free=number("coresfree"),
        memory_mib_total=number("memory"),
        memory_mib_free=number("memoryfree"),
    )
