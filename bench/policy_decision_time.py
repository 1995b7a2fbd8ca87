"""How long tidewise takes to decide among 10,000 configurations, and how much memory it holds after a day.

The benchmark `decision-time` is about the loop around a policy, whose moves it leaves undone. Tidewise has to be seen
at work: a move that is done, a failure and a backlog make other decisions, and longer ones, than a job at rest.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np

from bench.page import table
from bench.policies_plans import MAIN, OURS, WORLDS, compose, offered, shipped_plan
from tidewise.core import Decision, Observation, PermanentError, Policy, Situation
from tidewise.experiments import Experiment, run_experiment
from tidewise.experiments.experiment import Trial
from tidewise.experiments.plan import PolicyTable
from tidewise.experiments.toml_file import to_toml
from tidewise.policies import Tidewise

_P50_MS, _P99_MS = 20.0, 50.0
_MOST_MB = 300.0
_WARM_UP = 100
"""So many decisions are made before the first that counts."""
_INTERVALS = "2s..10s step 1s"
"""Makes more than 10,000 configurations of the space of the plan."""
_LIMIT_S = 3600.0
"""A run takes a minute or two; whatever takes as long as this hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the process that decided tells."""

    configurations: int
    decisions: int
    """Those that were reckoned: while a change is on, nothing is."""
    p50_ms: float
    p99_ms: float
    worst_ms: float
    cpu_p50_ms: float
    """The same without the time in which others had the core."""
    cpu_p99_ms: float
    learning_p50_ms: float
    """To learn from one report."""
    learning_p99_ms: float
    first_mb: float
    """Resident memory at the first decision that counts."""
    last_mb: float
    """At the last one."""


def measure(traces: Path | None) -> str:
    """Eighteen hours of ysb on a simulated Spark, decided every 15 s in a process of its own."""
    world = next(one for one in WORLDS if one.name == "spark-local")
    load = next(one for one in offered(world, traces) if one.name == MAIN)
    with tempfile.TemporaryDirectory() as folder:
        plan = compose(shipped_plan(world), load={"name": MAIN, **load.table}, hours=None)
        space = plan["space"]
        assert isinstance(space, dict)
        path = Path(folder) / "plan.toml"
        path.write_text(to_toml({**plan, "space": {**space, "commit_interval": _INTERVALS}}), encoding="utf-8")
        told = _in_a_process(path)
    rows = [
        ["a decision, p50", f"{told.p50_ms:.1f} ms", f"{_P50_MS:g} ms", _reached(told.p50_ms, _P50_MS)],
        ["a decision, p99", f"{told.p99_ms:.1f} ms", f"{_P99_MS:g} ms", _reached(told.p99_ms, _P99_MS)],
        ["a decision, worst", f"{told.worst_ms:.0f} ms", "", ""],
        ["CPU of a decision, p50", f"{told.cpu_p50_ms:.1f} ms", "", ""],
        ["CPU of a decision, p99", f"{told.cpu_p99_ms:.1f} ms", "", ""],
        ["to learn from a report, p50", f"{told.learning_p50_ms:.2f} ms", "", ""],
        ["to learn from a report, p99", f"{told.learning_p99_ms:.2f} ms", "", ""],
        ["resident memory at first", f"{told.first_mb:.0f} MB", "", ""],
        ["resident memory after 18 h", f"{told.last_mb:.0f} MB", f"{_MOST_MB:g} MB", _reached(told.last_mb, _MOST_MB)],
    ]
    return (
        f"`Tidewise.decide` over a space of {told.configurations:,} configurations, along a simulated run of 18 h "
        f"(`{MAIN}`, {load.words}) whose moves are done and in which drivers are killed: {told.decisions:,} decisions, "
        "without those that have nothing to reckon as a change is on; wall-clock time, one thread. The forecast is "
        "made before and not in it. The memory is that of the whole process, the simulated job included, "
        "without Spark.\n\n" + table(["what", "measured", "goal", "reached"], rows)
    )


def _reached(value: float, goal: float) -> str:
    return "yes" if value <= goal else "NO"


def _in_a_process(plan: Path) -> Told:
    """Without whatever this process holds."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    ended = subprocess.run(  # noqa: S603 - this very program
        [sys.executable, "-m", "bench.policy_decision_time", str(plan)],
        env={**os.environ, **threads},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if ended.returncode != 0:
        raise PermanentError(f"the process that decides has failed: {ended.stderr.strip()[-500:]}")
    return Told(**json.loads(ended.stdout))


@dataclass(slots=True, kw_only=True)
class _Timed(Tidewise):
    """Tidewise with a stop-watch."""

    decide_ms: list[float] = field(init=False, default_factory=list)
    decide_cpu_ms: list[float] = field(init=False, default_factory=list)
    learn_ms: list[float] = field(init=False, default_factory=list)
    resident_mb: list[float] = field(init=False, default_factory=list)

    def decide(self, situation: Situation) -> Decision:
        begin_s, begin_cpu_s = time.perf_counter(), time.thread_time()
        decision = Tidewise.decide(self, situation)
        took_ms, cpu_ms = 1000 * (time.perf_counter() - begin_s), 1000 * (time.thread_time() - begin_cpu_s)
        if decision.reason.evidence:  # without, there was nothing to reckon
            self.decide_ms.append(took_ms)
            self.decide_cpu_ms.append(cpu_ms)
            self.resident_mb.append(_resident_mb())
        return decision

    def learn(self, observation: Observation) -> None:
        begin_s = time.perf_counter()
        Tidewise.learn(self, observation)
        self.learn_ms.append(1000 * (time.perf_counter() - begin_s))


class _Watched(Experiment):
    """A plan of tidewise alone, with the stop-watch in it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        ours = tuple(one for one in self.plan.policies if one.policy == OURS)
        self.plan = self.plan.model_copy(update={"policies": ours})
        self.made: list[_Timed] = []

    def policy(self, table: PolicyTable, trial: Trial) -> Policy:
        plain = super().policy(table, trial)
        self.made.append(_Timed(**{one.name: getattr(plain, one.name) for one in fields(Tidewise) if one.init}))
        return self.made[-1]


def _resident_mb() -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024 / 1e6


def _decide(plan: Path) -> Told:
    experiment = _Watched(plan)
    run_experiment(experiment, plan.parent / "runs", created="2026-01-01")
    assert "pyspark" not in sys.modules
    timed = experiment.made[-1]
    decide_ms, cpu_ms, resident_mb = (
        values[_WARM_UP:] for values in (timed.decide_ms, timed.decide_cpu_ms, timed.resident_mb)
    )
    return Told(
        configurations=len(experiment.ground(MAIN).space),
        decisions=len(decide_ms),
        p50_ms=float(np.quantile(decide_ms, 0.5)),
        p99_ms=float(np.quantile(decide_ms, 0.99)),
        worst_ms=max(decide_ms),
        cpu_p50_ms=float(np.quantile(cpu_ms, 0.5)),
        cpu_p99_ms=float(np.quantile(cpu_ms, 0.99)),
        learning_p50_ms=float(np.quantile(timed.learn_ms, 0.5)),
        learning_p99_ms=float(np.quantile(timed.learn_ms, 0.99)),
        first_mb=resident_mb[0],
        last_mb=resident_mb[-1],
    )


if __name__ == "__main__":
    print(json.dumps(asdict(_decide(Path(sys.argv[1])))))
