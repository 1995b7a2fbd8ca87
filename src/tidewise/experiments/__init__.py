"""Wires the concrete parts into runs and keeps what came of them; the only room that knows them all."""

from pathlib import Path

from tidewise.experiments.comparison import Aggregate, by_scenario, compare, missing_runs
from tidewise.experiments.experiment import Experiment
from tidewise.experiments.record import Run, find_runs, load_run
from tidewise.experiments.run import Progress, run_experiment

DEMO_PLAN = Path(__file__).parent / "plans" / "demo.toml"

__all__ = [
    "DEMO_PLAN",
    "Aggregate",
    "Experiment",
    "Progress",
    "Run",
    "by_scenario",
    "compare",
    "find_runs",
    "load_run",
    "missing_runs",
    "run_experiment",
]
