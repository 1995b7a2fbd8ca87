"""How long one decision takes: policy, forecast, guards and the journal's transaction."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bench.page import table
from tidewise.control import Durability, Loop, SqliteJournal
from tidewise.core import ControllerStarted, Policy, Prices, Promises, Reported, Ticked
from tidewise.core.configuration import Configuration, ConfigurationSpace
from tidewise.engines.simulator import Simulator, load_profile
from tidewise.forecast import Naive
from tidewise.policies import Ds2, Reactive, Static
from tidewise.workload import Daily, Noisy

_LIMIT_MS = 5.0


def measure(_traces: Path | None) -> str:
    """Eighteen hours of decisions on a simulated job, each timed by itself."""
    rows = []
    policies: Iterable[Policy] = (Static(), Reactive(), Ds2())
    for policy in policies:
        for durability in Durability:
            times_ms = _decide(policy, durability)
            p50, p99, worst = np.quantile(times_ms, 0.5), np.quantile(times_ms, 0.99), max(times_ms)
            reached = "yes" if p99 <= _LIMIT_MS else "NO"
            rows.append(
                [policy.name, durability.value, f"{p50:.2f} ms", f"{p99:.2f} ms", f"{worst:.2f} ms", "5 ms", reached]
            )
    head = ["policy", "an append survives the end of", "p50", "p99", "worst", "goal for p99", "reached"]
    return (
        "One decision of the loop: the policy with its history, the forecast (60 steps), the guards, and the journal's "
        "append in a transaction of its own; 1,080 decisions of an 18-hour run, wall-clock time on a disk.\n\n"
        + table(head, rows)
    )


def _decide(policy: Policy, durability: Durability) -> list[float]:
    profile = load_profile("spark-local")
    rates = Noisy(load=Daily(mean_per_s=170_000.0), share=0.1).rates_per_s(18 * 3600, 1)
    simulator = Simulator(profile=profile, rates_per_s=rates, seed=1)
    space = ConfigurationSpace(executors=tuple(range(1, 25)), changes=simulator.changes)
    start = Configuration(executors=24)
    job = simulator.launch(start)
    loop = Loop(
        run="bench",
        policy=policy,
        space=space,
        promises=Promises(latency_p95_s=3.0, recovery_s=180.0),
        prices=Prices(),
        forecaster=Naive(),
    )
    times_ms = []
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "journal.sqlite", durability=durability)
        journal.append(
            loop.handle(ControllerStarted(at_s=0.0, version="bench", policy=policy.name, configuration=start)).events
        )
        for now_s in range(60, len(rates), 60):
            simulator.clock.wait_until(float(now_s))
            for report in job.reports():
                journal.append(loop.handle(Reported(at_s=float(now_s), observation=report)).events)
            begin = time.perf_counter()
            handled = loop.handle(Ticked(at_s=float(now_s)))
            journal.append(handled.events)
            times_ms.append(1000 * (time.perf_counter() - begin))
        journal.close()
    return times_ms
