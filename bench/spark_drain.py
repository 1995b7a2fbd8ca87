"""Stopping a query between two batches: how often a batch is cut, and how long it takes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

from bench.page import table
from bench.spark_job import BenchJob, local_cluster, running_job
from tidewise.core import Configuration

_OVERLOADED_STOPS = 100
_LONG_TRIGGER_STOPS = 20


def measure(_traces: Path | None) -> str:
    """A hundred stops at a 0 s trigger with more load than can be borne, twenty at a 30 s trigger."""
    chance = random.Random(1)  # noqa: S311 -- moments, not secrets
    rows = []
    with local_cluster() as cluster:
        for interval_s, stops, rate_per_s, overload in (
            (0.0, _OVERLOADED_STOPS, 200_000.0, ("--max-records-per-batch", "20000", "--work", "50")),
            (30.0, _LONG_TRIGGER_STOPS, 2_000.0, ()),
        ):
            configuration = Configuration(
                executors=1, slots_per_executor=2, cores_per_executor=1.0, commit_interval_s=interval_s
            )
            with running_job(cluster, configuration, rate_per_s=rate_per_s, arguments=overload) as bench:
                bench.watch(10.0)
                stopped = [_stop_and_start(bench, interval_s, chance) for _ in range(stops)]
            rows.append(_row(interval_s, stopped))
    head = ["trigger", "stops", "batches cut", "time to stop: median", "p95", "worst", "how"]
    return (
        "The clicks job. At 0 s: ten times more records than it can take, so that a batch is always on. At 30 s: "
        "stopped at random moments between and during batches. Each stop waits for the batch that is on to commit. "
        "A cut batch is one in the offset log without a commit; it would be replayed.\n\n" + table(head, rows)
    )


def _stop_and_start(bench: BenchJob, interval_s: float, chance: random.Random) -> dict[str, Any]:
    fleet = bench.job.fleet
    application = fleet.active
    with fleet.news:
        application.forget_runs()
    bench.watch(chance.uniform(0.0, 1.0) if interval_s == 0.0 else chance.uniform(0.0, 12.0))
    answer = fleet.ask(application, "drain", {"within_s": 60.0, "hold_s": 60.0}, within_s=90.0)
    fleet.ask(application, "start", {"commit_interval_s": interval_s}, within_s=60.0)
    fleet.wait_for(lambda: bool(application.first_commit_unix_s), within_s=90.0, alive=(application,))
    (stopped,) = answer["queries"].values()
    return dict(stopped)


def _row(interval_s: float, stopped: list[dict[str, Any]]) -> list[str]:
    seconds = [float(one["seconds"]) for one in stopped]
    ways = sorted({str(one["how"]) for one in stopped})
    how = ", ".join(f"{sum(one['how'] == way for one in stopped)} {way}" for way in ways)
    return [
        f"{interval_s:g} s",
        str(len(stopped)),
        str(sum(bool(one["cut"]) for one in stopped)),
        f"{np.median(seconds):.2f} s",
        f"{np.quantile(seconds, 0.95):.2f} s",
        f"{max(seconds):.2f} s",
        how,
    ]
