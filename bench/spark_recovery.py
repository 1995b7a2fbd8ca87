"""A driver that is killed, with and without a warm standby, and an executor that is killed."""

from __future__ import annotations

import math
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.page import table
from bench.spark_job import BenchJob, local_cluster, running_job
from tidewise.core import Censored, Configuration, JobStatus, Observation
from tidewise.core.recovery import recovery_s

_KILLS = 2
_GOAL_S = 10.0


def measure(_traces: Path | None) -> str:
    """Two kills of each kind."""
    start = Configuration(executors=2, cores_per_executor=0.5, memory_mib_per_executor=1024, commit_interval_s=1.0)
    rows = []
    with local_cluster() as cluster:
        for name, fault, standby in (
            ("driver killed, cold start", "kill-driver", False),
            ("driver killed, warm standby", "kill-driver", True),
            ("executor killed", "kill-executor", False),
        ):
            gaps_s: list[float] = []
            recoveries: list[str] = []
            with running_job(cluster, start, rate_per_s=2000.0, standby=standby) as bench:
                for _ in range(_KILLS):
                    gap_s, recovered = _kill(bench, fault, standby=standby)
                    gaps_s.append(gap_s)
                    recoveries.append(recovered)
            reached = ""
            if standby:
                reached = "yes" if max(gaps_s) <= _GOAL_S else "NO"
            goal = f"{_GOAL_S:g} s" if standby else ""
            rows.append(
                [name, f"{np.median(gaps_s):.1f} s", f"{max(gaps_s):.1f} s", goal, reached, ", ".join(recoveries)]
            )
    head = ["", "no commit for: median", "worst", "goal", "reached", "until latency is back below twice its level"]
    return (
        "The clicks job at 2,000 records/s, 1 s trigger, 2 executors of 0.5 cores. First the time from the last commit "
        "before the kill to the first one after it; then recovery as everywhere in Tidewise: 15 s at or below twice "
        "the latency before.\n\n" + table(head, rows)
    )


def _kill(bench: BenchJob, fault: str, *, standby: bool) -> tuple[float, str]:
    bench.settle()
    until_s = time.monotonic() + 180.0
    while standby and not bench.job.standby_is_warm and time.monotonic() < until_s:
        bench.watch(1.0)
    bench.settle()
    fleet = bench.job.fleet
    with fleet.news:
        last_unix_s = max(fleet.active.committed_unix_s.values())
    began_s = bench.clock.now_s()
    bench.job.inject(fault)
    commits: list[float] = [last_unix_s]
    until_s = time.monotonic() + 60.0
    while time.monotonic() < until_s:
        bench.watch(0.2)
        with fleet.news:
            commits += [unix_s for unix_s in fleet.active.committed_unix_s.values() if unix_s > commits[-1]]
    gap_s = max(later - earlier for earlier, later in pairwise(commits))
    waited_s, up = per_second(bench.reports, int(bench.clock.now_s()))
    recovered = recovery_s(waited_s=waited_s, up=up, fault_s=began_s)
    return gap_s, f"at least {recovered.at_least:.0f} s" if isinstance(recovered, Censored) else f"{recovered:.0f} s"


def per_second(reports: list[Observation], end_s: int) -> tuple[list[float], list[float]]:
    """The latency of each second, NaN where none is known, and whether the job was up in it."""
    waited_s, up = [math.nan] * end_s, [1.0] * end_s
    for report in reports:
        first = max(0, round(report.time_s - report.window_s))
        for second in range(first, min(end_s, max(first + 1, round(report.time_s)))):
            waited_s[second] = math.nan if report.latency_p95_s is None else report.latency_p95_s
            up[second] = float(report.status is JobStatus.RUNNING)
    return waited_s, up
