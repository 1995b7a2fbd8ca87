"""Executors that join and leave a job under load: is anything felt, and how soon does a new one work."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.page import table
from bench.spark_job import BenchJob, local_cluster, running_job
from tidewise.core import ChangeStatus, Configuration, JobStatus, Mechanism
from tidewise.engines.spark.cluster import LocalCluster

_PAIRS = 5
_GOAL = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joined:
    """One executor that joined."""

    asked_to_works_s: float
    jvm_to_works_s: float
    """From the birth of its process."""

    @property
    def ratio(self) -> float:
        return self.asked_to_works_s / self.jvm_to_works_s


def measure(_traces: Path | None) -> str:
    """Five executors up, one at a time down again, under load."""
    start = Configuration(executors=1, cores_per_executor=0.5, memory_mib_per_executor=1024, commit_interval_s=1.0)
    joined: list[_Joined] = []
    left_s: list[float] = []
    failed = 0
    with local_cluster() as cluster, running_job(cluster, start, rate_per_s=3000.0) as bench:
        bench.settle()
        calm_s = np.median(bench.latencies_s(bench.clock.now_s() - 10.0))
        began_s, batches_before = bench.clock.now_s(), _batches(bench)
        for _ in range(_PAIRS):
            joined.append(_join(cluster, bench, start))
            bench.watch(6.0)
            before_s = time.monotonic()
            outcome = bench.change(start, Mechanism.LIVE)
            left_s.append(time.monotonic() - before_s)
            failed += outcome.status is not ChangeStatus.APPLIED
            bench.watch(6.0)
        stops = sum(report.status is not JobStatus.RUNNING for report in bench.reports if report.time_s >= began_s)
        batches = _batches(bench) - batches_before
        problems = len(bench.job.problems())
        felt_s = bench.latencies_s(began_s)
    ratios = [one.ratio for one in joined]
    rows = [
        ["changes that failed", f"{failed} of {2 * _PAIRS}", "0"],
        ["batches meanwhile; reports of a stop", f"{batches}; {stops}", "no stop"],
        ["failed queries", str(problems), "0"],
        ["asked until it works", _spread([one.asked_to_works_s for one in joined]), ""],
        ["of it, from the birth of its JVM", _spread([one.jvm_to_works_s for one in joined]), ""],
        ["ratio of the two", f"median {np.median(ratios):.2f}, worst {max(ratios):.2f}", f"{_GOAL}"],
        ["asked until it has left", _spread(left_s), ""],
        ["latency p95 before; during (median, worst)", f"{calm_s:.1f}; {_spread(felt_s)}", ""],
    ]
    return (
        f"The clicks job at 3,000 records/s, executors of 0.5 cores, 1 to 2 and back {_PAIRS} times. An executor works "
        "when Spark has registered it and gives it tasks.\n\n" + table(["", "measured", "goal"], rows)
    )


def _join(cluster: LocalCluster, bench: BenchJob, start: Configuration) -> _Joined:
    application = bench.job.fleet.active
    before = {one.executor_id for one in cluster.executor_processes(application.spark_id or "")}
    asked_s, asked_on_run_s = time.clock_gettime(time.CLOCK_BOOTTIME), bench.clock.now_s()
    outcome = bench.change(start.with_executors(2), Mechanism.LIVE)
    works_s = asked_s + outcome.finished_at_s - asked_on_run_s
    new = [one for one in cluster.executor_processes(application.spark_id or "") if one.executor_id not in before]
    identity = new[0].identity
    assert identity is not None
    assert identity.started_ticks is not None
    born_s = identity.started_ticks / os.sysconf("SC_CLK_TCK")
    return _Joined(asked_to_works_s=works_s - asked_s, jvm_to_works_s=works_s - born_s)


def _batches(bench: BenchJob) -> int:
    details = bench.job.detail().queries
    return max((query.batch_id for query in details), default=0)


def _spread(values: list[float]) -> str:
    return f"{np.median(values):.1f} s, worst {max(values):.1f} s"
