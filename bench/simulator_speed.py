"""How long an 18-hour run takes, with everything a user's run has: loop, guards, journal, series on disk."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from bench.page import table
from tidewise.experiments import Experiment, run_experiment

_PLAN = """\
name = "speed"
profile = "{profile}"
duration = "18h"
seeds = [{seed}]
[space]
executors = "1..24"
memory_per_executor = "4GiB"
commit_interval = "{interval}"
[promises]
latency_p95 = "60s"
good_share = 0.01
[failures]
kind = "{failure}"
every = "2700s"
[[loads]]
name = "day"
shape = "daily"
mean_per_s = {rate}
noise = 0.1
[[policies]]
policy = "{policy}"
"""
_CASES = {
    ("paper-cluster", "static"): 1.0,
    ("paper-cluster", "reactive"): 3.0,
    ("paper-cluster", "ds2"): 3.0,
    ("spark-local", "static"): 1.0,
    ("spark-local", "reactive"): 3.0,
    ("spark-local", "ds2"): 3.0,
}
_PROFILES = {
    "paper-cluster": {"interval": "10s", "failure": "network-delay", "rate": 43_000.0},
    "spark-local": {"interval": "1s", "failure": "driver-kill", "rate": 170_000.0},
}
_ROUNDS = 5


def measure(_traces: Path | None) -> str:
    """Interleaved: every case once per round, the first round thrown away as a warm-up."""
    seconds: dict[tuple[str, str], list[float]] = {case: [] for case in _CASES}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(_ROUNDS + 1):
            for case in _CASES:
                profile, policy = case
                plan = Path(folder) / "plan.toml"
                plan.write_text(_PLAN.format(profile=profile, policy=policy, seed=number, **_PROFILES[profile]))
                experiment = Experiment(plan)
                home = Path(folder) / f"{profile}-{policy}-{number}"
                begin = time.process_time()
                run_experiment(experiment, home, created="2026-01-01")
                if number > 0:
                    seconds[case].append(time.process_time() - begin)
    rows = [
        [
            profile,
            policy,
            f"{statistics.median(seconds[profile, policy]):.2f} s",
            f"{max(seconds[profile, policy]):.2f} s",
            f"{limit:.0f} s",
            "yes" if statistics.median(seconds[profile, policy]) <= limit else "NO",
        ]
        for (profile, policy), limit in _CASES.items()
    ]
    head = ["profile", "policy", "median", "worst", "goal", "reached"]
    return (
        f"An 18-hour run in steps of 1 s, a report every 10 s and a decision every 60 s, a failure every 45 minutes; "
        f"CPU time of one core for everything from the load to the run's folder, the check that the promises can be "
        f"kept included. {_ROUNDS} seeds, interleaved, after a warm-up round.\n\n{table(head, rows)}"
    )
