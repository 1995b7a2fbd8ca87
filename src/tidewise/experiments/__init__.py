"""Wires the concrete parts into runs and keeps what came of them; the only room that knows them all."""

from tidewise.experiments.comparison import Aggregate, by_scenario, compare, missing_runs
from tidewise.experiments.experiment import Experiment
from tidewise.experiments.record import Run, find_runs, load_run
from tidewise.experiments.run import Progress, run_experiment
from tidewise.experiments.shipped import DEMO_PLAN, find_plan, shipped_plans
from tidewise.experiments.spreading import Spreader, in_this_process, spread_over

__all__ = [
    "DEMO_PLAN",
    "Aggregate",
    "Experiment",
    "Progress",
    "Run",
    "Spreader",
    "by_scenario",
    "compare",
    "find_plan",
    "find_runs",
    "in_this_process",
    "load_run",
    "missing_runs",
    "run_experiment",
    "shipped_plans",
    "spread_over",
]
