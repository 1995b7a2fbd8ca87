"""Real executors and drivers killed on a local Spark cluster, each recovery foretold from those before it."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from bench.page import table
from bench.recovery_score import GOAL_S, HEAD, Scores, flat
from bench.spark_job import BenchJob, local_cluster, running_job
from bench.spark_recovery import per_second
from tidewise.core import Censored, Configuration, JobStatus, Measured, Observation, recovery_s
from tidewise.core.recovery import CALM_S, FELT_WITHIN_S
from tidewise.qos import Belief, Candidates
from tidewise.qos.physics import Physics
from tidewise.qos.recovery import RecoveryModel

_RATES_PER_S = (2000.0, 5000.0)
_KILLS = ("kill-executor", "kill-driver") * 4
_BUDGET_S = 900.0
"""No kill is begun after this time: on a busy machine there are fewer, and the page says how many."""
_LIMIT_S = FELT_WITHIN_S + 5.0
"""When a recovery is given up, and one that is not felt is known to be none."""


def measure(_traces: Path | None) -> str:
    """Eight kills at each of two rates."""
    configuration = Configuration(
        executors=2, cores_per_executor=0.5, memory_mib_per_executor=1024, commit_interval_s=1.0
    )
    model, scores, lines = RecoveryModel(Physics()), Scores(), []
    until_s = time.monotonic() + _BUDGET_S
    with local_cluster() as cluster:
        for rate_per_s in _RATES_PER_S:
            if time.monotonic() > until_s:
                break
            with running_job(cluster, configuration, rate_per_s=rate_per_s) as bench:
                for kind in _KILLS:
                    if time.monotonic() > until_s:
                        break
                    lines.append(_foretell_and_kill(bench, kind, rate_per_s, model, scores))
                    print(lines[-1], flush=True)
    if not scores.scored:
        return "The machine was too busy: no kind of failure was seen twice within the time. Measure again."
    kinds = sorted({one.kind for one in scores.scored})
    rows = [
        ["all", *scores.row("")[1:]],
        *(Scores(scored=[one for one in scores.scored if one.kind == kind]).row(kind) for kind in kinds),
    ]
    error_s = float(np.mean([abs(one.foretold_s["Tidewise"] - one.took_s) for one in scores.scored]))
    verdict = "reached" if error_s <= GOAL_S else "MISSED"
    return (
        "REAL: the clicks job on a local cluster, 1 s trigger, 2 executors of 0.5 cores, executors and drivers killed "
        f"in turn at {' and '.join(f'{rate:,.0f}' for rate in _RATES_PER_S)} records/s; no standby. Each recovery is "
        "foretold before the kill from those before it (the first of a kind, known from the prior alone, is not "
        f"scored). Mean absolute error; the goal of {GOAL_S:g} s is {verdict} with {error_s:.1f} s.\n\n"
        + table(HEAD, rows)
        + "\n\nOne by one:\n\n"
        + table(["fault", "rate", "foretold (90 % interval)", "took"], lines)
    )


def _foretell_and_kill(
    bench: BenchJob, kind: str, rate_per_s: float, model: RecoveryModel, scores: Scores
) -> list[str]:
    bench.settle()
    bench.watch(10.0)
    configuration, capacity = bench.job.observed(), _capacity(bench.reports)
    one = Candidates.listing([configuration])
    belief = model.predict_kind(kind, one, capacity, flat(rate_per_s, spread=0.02), just_before_commit=False)
    took = _kill(bench, kind)
    scores.add(
        kind,
        took,
        belief,
        rate_per_s=rate_per_s,
        capacity_per_s=float(capacity.median[0]),
        replay_s=configuration.commit_interval_s / 2,
    )
    model.learn(kind, took, configuration=configuration, rate_per_s=rate_per_s, capacity=capacity)
    low_s, middle_s, high_s = (float(belief.quantile(level)[0]) for level in (0.05, 0.5, 0.95))
    said = f"at least {took.at_least:.0f} s" if isinstance(took, Censored) else f"{took:.1f} s"
    return [kind, f"{rate_per_s:,.0f}/s", f"{middle_s:.1f} s ({low_s:.1f}..{high_s:.1f} s)", said]


def _capacity(reports: list[Observation]) -> Belief:
    """The true rate of the latest reports; a job far below its capacity tells it with a wide spread."""
    rates = [
        report.true_rate_per_s
        for report in reports[-60:]
        if report.status is JobStatus.RUNNING and report.true_rate_per_s is not None
    ]
    return Belief.of(np.array([np.median(rates)]), 0.2)


def _kill(bench: BenchJob, kind: str) -> Measured:
    began_s, until_s = bench.clock.now_s(), time.monotonic() + _LIMIT_S
    bench.job.inject(kind)
    took: Measured = Censored(at_least=0.0)
    while time.monotonic() < until_s:
        bench.watch(2.0)
        waited_s, up = per_second(bench.reports, int(bench.clock.now_s()))
        if bench.clock.now_s() - began_s > 2 * CALM_S:
            took = recovery_s(waited_s=waited_s, up=up, fault_s=began_s)
            if not isinstance(took, Censored):
                break
    return took
