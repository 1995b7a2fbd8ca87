"""A real job on a real local cluster for the benchmarks: started, watched, changed and stopped."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidewise.control import SystemClock
from tidewise.core import (
    ChangeOutcome,
    ChangeRequest,
    Configuration,
    Mechanism,
    Observation,
    Origin,
    Reason,
)
from tidewise.engines.spark.cluster import LocalCluster
from tidewise.engines.spark.engine import SparkEngine
from tidewise.engines.spark.job import SparkJob
from tidewise.engines.spark.program import SparkProgram
from tidewise.jobs.embedded import NAME
from tidewise.jobs.schedule import Schedule, write_schedule

_REASON = Reason(code="benchmark", sentence="A benchmark measures what a change costs.")


class BenchJob:
    """One running job, and what a benchmark does with it."""

    def __init__(self, job: SparkJob, clock: SystemClock, folder: Path) -> None:
        self.job = job
        self.clock = clock
        self.folder = folder
        self.reports: list[Observation] = []

    def watch(self, seconds: float) -> None:
        """Let time pass and keep the reports."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            time.sleep(0.2)
            self.reports += self.job.reports()

    def settle(self, *, within_s: float = 120.0) -> None:
        """Wait until the job keeps up: three reports in a row with little waiting."""
        until_s, calm = time.monotonic() + within_s, 0
        while calm < 3 and time.monotonic() < until_s:
            known = len(self.reports)
            self.watch(1.0)
            for report in self.reports[known:]:
                latency_s = report.latency_p95_s
                calm = calm + 1 if latency_s is not None and latency_s < 6.0 else 0

    def change(self, target: Configuration, mechanism: Mechanism, *, within_s: float = 240.0) -> ChangeOutcome:
        """Make a change and wait for its end."""
        now_s = self.clock.now_s()
        request = ChangeRequest(
            request_id=uuid.uuid4().hex,
            origin=Origin.OPERATOR,
            source=self.job.observed(),
            target=target,
            mechanism=mechanism,
            requested_at_s=now_s,
            deadline_s=now_s + within_s,
            reason=_REASON,
        )
        self.job.change(request)
        while True:
            self.watch(0.2)
            outcome = self.job.change_outcome(request.request_id)
            if outcome is not None:
                return outcome

    def latencies_s(self, since_s: float) -> list[float]:
        """The p95 of every report since this time of the run's clock."""
        return [
            report.latency_p95_s
            for report in self.reports
            if report.time_s >= since_s and report.latency_p95_s is not None
        ]


@contextmanager
def local_cluster() -> Iterator[LocalCluster]:
    """A cluster of its own, in a folder of its own, gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="tidewise-bench-"))
    cluster = LocalCluster.up(folder / "cluster")
    try:
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_job(
    cluster: LocalCluster,
    configuration: Configuration,
    *,
    rate_per_s: float,
    program: str = "clicks",
    arguments: tuple[str, ...] = (),
    standby: bool = False,
    window_s: float = 1.0,
) -> Iterator[BenchJob]:
    """A job of `tidewise.jobs` under a steady load."""
    folder = Path(tempfile.mkdtemp(prefix="tidewise-bench-"))
    schedule = folder / "schedule.json"
    write_schedule(schedule, Schedule(began_unix_s=time.time(), step_s=1.0, rates_per_s=(rate_per_s,), after="hold"))
    command = (
        *(sys.executable, "-m", f"tidewise.jobs.{program}", "--schedule", str(schedule)),
        *("--checkpoint", str(folder / "checkpoint"), "--partitions", "2", "--state-partitions", "2"),
        *arguments,
    )
    clock = SystemClock()
    engine = SparkEngine(
        program=SparkProgram(
            command=command,
            folder=folder,
            most_executors=8,
            handover=True,
            standby=standby,
            replayable_sources=(NAME,),
        ),
        cluster=cluster,
        home=folder / "job",
        clock=clock,
        window_s=window_s,
    )
    job = engine.launch(configuration)
    try:
        yield BenchJob(job, clock, folder)
    finally:
        job.stop()
        shutil.rmtree(folder, ignore_errors=True)
