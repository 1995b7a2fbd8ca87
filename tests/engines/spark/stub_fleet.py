"""A real fleet without Spark: drivers that only sleep, a cluster that counts, and agents that say what is expected."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tidewise.control.clock import SystemClock
from tidewise.core import Configuration, InvalidValueError, JobStatus, ProfileOutcome, ProfileRequest, Reason
from tidewise.engines.spark.application import Application
from tidewise.engines.spark.book import Book
from tidewise.engines.spark.cgroups import CpuLimits
from tidewise.engines.spark.copies import Copies
from tidewise.engines.spark.fleet import Fleet
from tidewise.engines.spark.master import Capacity, ExecutorProcess
from tidewise.engines.spark.program import SparkProgram
from tidewise.engines.spark.reports import Reporter
from tidewise.host.processes import ProcessIdentity, wait_until

START = Configuration(
    executors=1, cores_per_executor=1.0, memory_mib_per_executor=1024, commit_interval_s=0.2, state_partitions=2
)
RATE_PER_S = 1000.0
LONG_S = 40.0


@dataclass
class StubCluster:
    """Room for so many executors, all applications together."""

    room: int = 4
    blind: str | None = None
    is_silent: bool = False
    """It does not tell whether anything fits."""
    fleet: Fleet | None = None
    most_copies: int = 0
    """How many copies were there at once, at most."""
    master_url: str = "spark://127.0.0.1:1"
    cpu_limits: CpuLimits | None = None
    worker_processes: tuple[ProcessIdentity, ...] = ()

    def check(self) -> None:
        pass

    def capacity(self) -> Capacity | None:
        return None

    def fits(self, *, count: int, slots: int, memory_mib: int) -> bool | None:
        assert self.fleet is not None
        if min(count, slots, memory_mib) < 1:
            raise InvalidValueError("executors are placed by counts of 1 or more")
        if self.is_silent:
            return None
        taken = sum(one.configuration.executors for one in self.fleet.applications.values())
        return count <= self.room - taken

    def is_gone(self, app_id: str) -> bool | None:  # noqa: ARG002 -- the port's shape
        return True

    def executor_processes(self, app_id: str) -> tuple[ExecutorProcess, ...]:  # noqa: ARG002 -- the port's shape
        return ()

    def blind_spot(self) -> str | None:
        return self.blind

    def conf(self, *, cores: float, warms_up: bool) -> dict[str, str]:  # noqa: ARG002 -- the port's shape
        return {}

    def environment(self) -> dict[str, str]:
        return {}

    def restart_worker(self, number: int) -> ProcessIdentity:
        raise NotImplementedError


@dataclass
class StubAgents:
    """Tells, for every application that lives, of a batch each tenth of a second that commits all that has come."""

    fleet: Fleet
    checkpoint: Path
    why_alone: str | None = None
    mute: bool = False
    """Copies come up, but say nothing."""
    batches: dict[str, int] = field(default_factory=dict)

    def tell(self) -> None:
        with self.fleet.news:
            living = [one for one in self.fleet.applications.values() if one.is_driver_alive]
            copies = [one for one in living if one.copy is not None]
            cluster = self.fleet.cluster
            assert isinstance(cluster, StubCluster)
            cluster.most_copies = max(cluster.most_copies, len(copies))
        for application in living:
            if application.copy is None or not self.mute:
                self._tell_of(application)

    def _tell_of(self, application: Application) -> None:
        key = application.key
        if key not in self.batches:
            self.batches[key] = 0
            ids = [str(number) for number in range(application.configuration.executors)]
            hello = {"kind": "hello", "executors": ids, "target": len(ids), "queries": [self._query()]}
            self.fleet._hear(key, hello)
        self.batches[key] += 1
        text = progress_text(batch_id=self.batches[key], began_unix_s=time.time() - 0.05, duration_s=0.05, run_id=key)
        self.fleet._hear(key, {"kind": "progress", "query": "c", "progress": text, "received": time.time()})

    def _query(self) -> dict[str, object]:
        return {
            "key": "c",
            "name": None,
            "checkpoint": str(self.checkpoint),
            "sink": "noop",
            "sink_path": None,
            "interval_s": 0.1,
            "movable": True,
            "why_alone": self.why_alone,
        }


def progress_text(*, batch_id: int, began_unix_s: float, duration_s: float, run_id: str) -> str:
    """A batch as Spark tells it, of records that have come evenly since the epoch."""
    end = int(began_unix_s % 1e6 * RATE_PER_S)
    rows = int(0.1 * RATE_PER_S)
    return json.dumps(
        {
            "id": "query",
            "runId": run_id,
            "name": None,
            "timestamp": datetime.fromtimestamp(began_unix_s, UTC).isoformat(timespec="milliseconds"),
            "batchId": batch_id,
            "numInputRows": rows,
            "durationMs": {"triggerExecution": 1000 * duration_s, "addBatch": 900 * duration_s},
            "sources": [
                {
                    "description": "made",
                    "startOffset": {"records": end - rows},
                    "endOffset": {"records": end},
                    "latestOffset": {"records": end},
                    "numInputRows": rows,
                    "metrics": {},
                }
            ],
            "stateOperators": [],
        }
    )


@dataclass
class Stage:
    """A job that runs, and what measures its copies."""

    fleet: Fleet
    cluster: StubCluster
    agents: StubAgents
    copies: Copies
    home: Path

    def request(self, *candidates: Configuration, name: str = "p", **more: object) -> ProfileRequest:
        settings: dict[str, object] = {
            "settle_s": 0.3,
            "measure_s": 0.6,
            "inject_failure": False,
            "recovery_limit_s": 5.0,
        }
        now_s = self.fleet.clock.now_s()
        within_s = more.pop("within_s", LONG_S)
        assert isinstance(within_s, float)
        return ProfileRequest(
            request_id=name,
            candidates=candidates or (START,),
            requested_at_s=now_s,
            deadline_s=now_s + within_s,
            reason=Reason(code="test", sentence="A test wants to know."),
            **(settings | more),  # type: ignore[arg-type]  # as the test says
        )

    def outcome(self, name: str = "p") -> ProfileOutcome:
        assert wait_until(lambda: self.fleet.book.profile_outcome(name) is not None, deadline_s=LONG_S, poll_s=0.02)
        found = self.fleet.book.profile_outcome(name)
        assert found is not None
        return found

    def copies_alive(self) -> list[Application]:
        with self.fleet.news:
            return [one for one in self.fleet.applications.values() if one.copy is not None]

    def wait_for_a_copy(self) -> Application:
        assert wait_until(lambda: bool(self.copies_alive()), deadline_s=LONG_S, poll_s=0.02)
        return self.copies_alive()[0]


@contextmanager
def stage(folder: Path, *, room: int = 4, handover: bool = True) -> Iterator[Stage]:
    """A fleet whose job runs; nothing of it is left at the end."""
    cluster = StubCluster(room=room)
    fleet = Fleet(
        program=SparkProgram(
            command=(sys.executable, "-c", "import time; time.sleep(60)"),
            folder=folder,
            handover=handover,
            launch_deadline_s=5.0,
        ),
        cluster=cluster,
        book=Book.new(folder / "job"),
        clock=SystemClock(),
        reporter=Reporter(window_s=1.0),
        faults=False,
    )
    cluster.fleet = fleet
    agents = StubAgents(fleet=fleet, checkpoint=folder / "checkpoint")
    copies = Copies(fleet)
    over = threading.Event()

    def talk() -> None:
        while not over.wait(timeout=0.1):
            agents.tell()

    talking = threading.Thread(target=talk, daemon=True)
    try:
        fleet.make_active(fleet.launch(START))
        talking.start()
        assert wait_until(lambda: bool(fleet.active.running), deadline_s=LONG_S)
        fleet.set_status(JobStatus.RUNNING)
        yield Stage(fleet=fleet, cluster=cluster, agents=agents, copies=copies, home=folder)
    finally:
        copies.end("the test is over")
        over.set()
        for application in list(fleet.applications.values()):
            fleet.end(application)
        fleet.close()
