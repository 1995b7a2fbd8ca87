"""Runs whose job is known exactly: simulated with a profile that differs from the shipped ones."""

from __future__ import annotations

from pathlib import Path

from tidewise.engines.simulator import SimulatorProfile, load_profile
from tidewise.engines.simulator.profile_file import profile_to_toml
from tidewise.experiments import Experiment, Run, run_experiment

PLAN = """\
name = "known"
profile = "known.toml"
duration = "{duration}"

[space]
executors = "1..8"
slots_per_executor = 2
cores_per_executor = 1.0
memory_per_executor = "2GiB"
commit_interval = "5s"

[start]
executors = {executors}

[promises]
latency_p95 = "15s"
good_share = 0.9

[control]
report_every = "5s"
decide_every = "20s"

[failures]
kind = "driver-kill"
every = "20min"

[[loads]]
name = "waves"
shape = "sine"
mean_per_s = 24000.0
amplitude_share = 0.5
period = "20min"
noise = 0.03

[[policies]]
policy = "{policy}"
"""


def known_profile() -> SimulatorProfile:
    """A job that is slower than the one of `spark-local`, with cheaper batches and slower executors."""
    usual = load_profile("spark-local")
    return usual.model_copy(
        update={
            "name": "known",
            "capacity": usual.capacity.model_copy(update={"records_per_core_s": 15_000.0}),
            "batch": usual.batch.model_copy(update={"fixed_s": 0.6, "noise_share": 0.06}) if usual.batch else None,
            "live": usual.live.model_copy(update={"start_s": 9.0, "leave_s": 2.0}),
            "driver": usual.driver.model_copy(update={"cores": 0.8}),
        }
    )


def record(folder: Path, *, policy: str = "reactive", executors: int = 4, duration: str = "1h") -> Run:
    """A run in this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "known.toml").write_text(profile_to_toml(known_profile(), preface="For tests."), encoding="utf-8")
    plan = folder / "plan.toml"
    plan.write_text(PLAN.format(policy=policy, executors=executors, duration=duration), encoding="utf-8")
    (run,) = run_experiment(Experiment(plan), folder / "runs", created="2026-01-01")
    return run
