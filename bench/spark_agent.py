"""What the agent costs: its own CPU time per batch, and the throughput with and without it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy import stats

import tidewise_agent
from bench.page import table
from bench.spark_job import local_cluster, running_job
from tidewise.core import Configuration
from tidewise.engines.spark.switchboard import Switchboard
from tidewise.jobs.counts import committed_end
from tidewise.jobs.schedule import Schedule, write_schedule
from tidewise_agent.spec import SPEC_VARIABLE, AgentSpec

_PAIRS = 3
_WARM_UP_S, _MEASURED_S = 20.0, 25.0
_GOAL_SHARE = 0.01


def measure(_traces: Path | None) -> str:
    """CPU time on a cluster, then pairs of local runs."""
    batches, own_s, driver_s = _cpu()
    differences = []
    rates: dict[bool, list[float]] = {True: [], False: []}
    for number in range(_PAIRS):
        # Who goes first changes from pair to pair.
        for with_agent in (True, False) if number % 2 else (False, True):
            rates[with_agent].append(_throughput(with_agent=with_agent))
        differences.append(rates[True][-1] / rates[False][-1] - 1.0)
    low, high = stats.t.interval(0.95, len(differences) - 1, loc=np.mean(differences), scale=stats.sem(differences))
    share = own_s / driver_s
    rows = [
        [
            "the agent's CPU time per batch",
            f"{1000 * own_s / batches:.2f} ms of the driver's {1000 * driver_s / batches:.0f} ms: {share:.2%}",
            f"{_GOAL_SHARE:.0%}",
            "yes" if share <= _GOAL_SHARE else "NO",
        ],
        [
            f"throughput with the agent against without, {_PAIRS} pairs",
            f"{np.mean(differences):+.1%} (95 % interval {low:+.1%} to {high:+.1%})",
            "",
            "",
        ],
        ["records/s without; with (medians)", f"{np.median(rates[False]):,.0f}; {np.median(rates[True]):,.0f}", "", ""],
    ]
    return (
        "CPU time: the agent's threads in Python, of all CPU time of the driver (Python and JVM), clicks at 2,000 "
        "records/s with a 1 s trigger for a minute. Throughput: clicks on local[2] with more records than it can take, "
        f"batches of 20,000, {_MEASURED_S:g} s after {_WARM_UP_S:g} s of warm-up, in pairs, from the offsets in the "
        "checkpoint.\n\n" + table(["", "measured", "goal", "reached"], rows)
    )


def _cpu() -> tuple[int, float, float]:
    start = Configuration(executors=1, cores_per_executor=0.75, memory_mib_per_executor=1024, commit_interval_s=1.0)
    with local_cluster() as cluster, running_job(cluster, start, rate_per_s=2000.0) as bench:
        bench.settle()
        fleet = bench.job.fleet
        before, first = fleet.ask(fleet.active, "describe"), bench.job.detail().queries[0].batch_id
        bench.watch(60.0)
        after, last = fleet.ask(fleet.active, "describe"), bench.job.detail().queries[0].batch_id
    own_s = after["own_cpu_s"] - before["own_cpu_s"]
    driver_s = sum(after[name] - before[name] for name in ("jvm_cpu_s", "python_cpu_s"))
    return last - first, own_s, driver_s


def _throughput(*, with_agent: bool) -> float:
    """Records committed per second by a program that can never keep up."""
    folder = Path(tempfile.mkdtemp(prefix="tidewise-bench-"))
    schedule, checkpoint = folder / "schedule.json", folder / "checkpoint"
    write_schedule(schedule, Schedule(began_unix_s=time.time(), step_s=1.0, rates_per_s=(500_000.0,), after="hold"))
    environment = dict(os.environ)
    switchboard = Switchboard(token="bench", heard=lambda _name, _message: None)  # noqa: S106 -- no secret: it ends here
    if with_agent:
        spec = AgentSpec(
            application="bench",
            host=switchboard.host,
            port=switchboard.port,
            token="bench",  # noqa: S106 -- the same
            state_folder=str(folder),
            identity_file=str(folder / "identity.json"),
        )
        spec.write(folder / "agent.json")
        environment[SPEC_VARIABLE] = str(folder / "agent.json")
        environment["PYTHONPATH"] = str(Path(tidewise_agent.__file__).parent / "path")
    command = [
        *(sys.executable, "-m", "tidewise.jobs.clicks", "--schedule", str(schedule), "--checkpoint", str(checkpoint)),
        *("--trigger", "0 seconds", "--max-records-per-batch", "20000", "--work", "50", "--master", "local[2]"),
    ]
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)  # noqa: S603 -- our own
    try:
        while not (checkpoint / "commits" / "0").exists():
            time.sleep(0.2)
        time.sleep(_WARM_UP_S)
        before, began_s = committed_end(checkpoint), time.monotonic()
        time.sleep(_MEASURED_S)
        return (committed_end(checkpoint) - before) / (time.monotonic() - began_s)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        switchboard.close()
        shutil.rmtree(folder, ignore_errors=True)
