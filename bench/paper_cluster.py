"""The whole experiment of the earlier systems as one command: how long it takes, and how near it comes to theirs."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.page import table
from tidewise.engines.simulator import load_profile
from tidewise.experiments import (
    Aggregate,
    Experiment,
    Progress,
    by_scenario,
    compare,
    find_plan,
    run_experiment,
    spread_over,
)
from tidewise.experiments.fit_paper_cluster import NETWORK_DELAY, fit_capacity, read_profiles
from tidewise.experiments.plan import files_in, read_plan
from tidewise.experiments.published import beside, published_job
from tidewise.experiments.toml_file import TomlFile
from tidewise.report import wording
from tidewise.report.published import misfit, one_figure, their_range

_GOAL_S = 180.0
_GOAL_CORES = 2
_PROFILES_FILE = "ysb_profiles.csv"


def measure(traces: Path | None) -> str:
    """Run the shipped plan as Spark tasks, on the released loads where they are, and set it beside the published."""
    path = find_plan("paper")
    files = {} if traces is None else files_in(traces, read_plan(TomlFile(path)))
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.monotonic()
        experiment = Experiment(path, files=files)
        with spread_over("local[*]") as spread:
            runs = run_experiment(
                experiment, Path(folder) / "runs", created="2026-01-01", spread=spread, progress=_tell
            )
        aggregates = compare(runs)
        wall_s = time.monotonic() - began_s
    jobs = by_scenario(aggregates)
    return "\n\n".join(
        [
            _preface(experiment, wall_s),
            *(_job(rows) for rows in jobs),
            _REASONS,
            _PER_CHANGE,
            table(["job", "policy", "mechanism", "changes", "bad seconds per change"], _mechanisms(jobs)),
            _FITTED,
            _by_hand(jobs),
            _capacity(traces),
        ]
    )


_PER_CHANGE = (
    "Bad seconds per change, outside failures (published: in-place rescale 15-20, redeploy 57-108 on YSB and 122-153 "
    "on TSW, operator upgrade 140-240):"
)

_REASONS = """\
What does not fit, and how far the reasons are known: **DS2** changes far less often here than published. That the \
Flink operator decides for each operator alone does not explain it: an offline trial with three vertices gave 17-35 \
changes under the documented rules, where 79-96 were published. Only with an assumed noise of 0.4 on its metrics \
did it come to 88-91, which is a hypothesis and no evidence. **Reactive on TSW**: the published cores imply about \
8,000 records/s per core, where the scaled profile has 12,000. **Demeter**: the noise of its measurements and its \
`enough_profiles` were chosen by other figures than these totals, but after these had been seen: its agreement is \
partly calibrated. **Reactive on YSB** is no untouched validation either: that a job deployed for in-place rescale \
restarts on the workers that are left, that CPU is read interval by interval, and that an interval is 60 s was \
settled after its misfit had been seen; none of the three is a number fitted to its figures."""

_FITTED = """\
Where the profiles come from: capacity and latency at rest are fitted on the released profiles of YSB, detection \
and downtime of a failure on each job's static run, the gap of each mechanism on the published bad seconds per \
change. TSW is YSB scaled by the published stable load per core. No other parameter was fitted on a policy's run."""


def _tell(progress: Progress) -> None:
    sys.stderr.write(f"{progress.sentence}\n")


def _preface(experiment: Experiment, wall_s: float) -> str:
    cores = os.cpu_count() or 1
    met = "reached" if wall_s <= _GOAL_S else "missed"
    verdict = f"{met} on {cores} cores" if cores != _GOAL_CORES else met
    loads = "; ".join(f"`{load.name}` {load.origin}" for load in experiment.plan.loads)
    return (
        f"`tidewise experiment paper`, SIMULATED: {experiment.run_count} runs of 18 hours as Spark tasks took "
        f"**{wall_s:.0f} s** from the plan to the figures, Spark's start included; goal: {_GOAL_S:.0f} s on two cores, "
        f"{verdict}. Loads: {loads}; all with 10 % noise, {len(experiment.plan.seeds)} seeds. Means over the seeds, "
        "least to most in brackets; `≥`: cut off, so the true figure may be larger. Beside the published figures: "
        "ours, *published*, misfit to the nearest end of the published range; ✓ and ✗ where there is a goal (core-h "
        "and GiB-h 10 %, good seconds 5 points, changes 30 %); recovery max is the longest of all runs there."
    )


def _job(rows: Sequence[Aggregate]) -> str:
    record = rows[0].summaries[0].record
    currency = record.prices.currency
    head = ["policy", f"cost ({currency})", "core-h", "GiB-h", "good seconds", "changes", "recovery mean", "max"]
    return "\n\n".join(
        [
            f"**{published_job(record) or record.load}** (profile `{record.profile}`)",
            table(head, [_figures(aggregate) for aggregate in rows]),
            *_published(rows),
        ]
    )


def _figures(aggregate: Aggregate) -> list[str]:
    spread = aggregate.spread
    return [
        aggregate.policy,
        wording.spread(spread(lambda one: one.all_in.cost), wording.money),
        wording.spread(spread(lambda one: one.executors.core_h), wording.count),
        wording.spread(spread(lambda one: one.executors.gib_h), wording.count),
        wording.spread(spread(lambda one: one.good_share), wording.percent),
        wording.spread(spread(lambda one: one.changes), wording.count),
        wording.spread(spread(lambda one: one.recovery_mean_s), wording.whole_seconds),
        wording.spread(spread(lambda one: one.recovery_max_s), wording.whole_seconds),
    ]


def _published(rows: Sequence[Aggregate]) -> list[str]:
    known = [(aggregate.policy, found) for aggregate in rows if (found := beside(aggregate))]
    if not known:
        return []
    head = ["policy", *(one.figure for one in known[0][1])]
    cells = [
        [policy, *(f"{one_figure(one)}, *{their_range(one)}*, {misfit(one)}" for one in found)]
        for policy, found in known
    ]
    return [table(head, cells)]


def _mechanisms(jobs: Sequence[Sequence[Aggregate]]) -> list[list[str]]:
    rows = []
    for aggregate in (aggregate for job in jobs for aggregate in job):
        for mechanism in sorted({use.mechanism for summary in aggregate.summaries for use in summary.uses}):
            uses = [use for summary in aggregate.summaries for use in summary.uses if use.mechanism is mechanism]
            known = [use.bad_s_per_change for use in uses if use.bad_s_per_change is not None]
            changes = wording.count(sum(use.count for use in uses) / len(aggregate.summaries))
            bad = f"{np.mean(known):.0f}" if known else wording.MISSING
            rows.append([aggregate.scenario.load, aggregate.policy, mechanism.value, changes, bad])
    return rows


def _by_hand(jobs: Sequence[Sequence[Aggregate]]) -> str:
    """Per failure about D + (D + 5 s) u / (1 - u), with the downtime D and the utilisation u."""
    profile = load_profile("paper-cluster")
    failure = profile.failures[NETWORK_DELAY]
    # The median downtime is in the profile; the mean of a lognormal lies above it.
    downtime_s = failure.downtime_s * float(np.exp(failure.downtime_spread_share**2 / 2))
    static = next(one for job in jobs for one in job if one.policy == "static" and one.scenario.profile == profile.name)
    bad_s = float(
        np.mean([(1 - one.good_share) * one.seconds / max(1, len(one.recoveries)) for one in static.summaries])
    )
    utilisation = 42_800.0 / (24 * profile.capacity.records_per_core_s)
    by_hand_s = downtime_s + (downtime_s + 5.0) * utilisation / (1 - utilisation)
    return (
        f"Checked by hand: with a mean downtime D of {downtime_s:.1f} s and a mean utilisation u of {utilisation:.2f}, "
        f"a failure of static on YSB should cost about D + (D + 5 s) u / (1 - u) = {by_hand_s:.0f} bad seconds; "
        f"simulated were {bad_s:.0f}."
    )


def _capacity(traces: Path | None) -> str:
    if traces is None or not (traces / _PROFILES_FILE).is_file():
        return ""
    fit = fit_capacity(read_profiles(traces / _PROFILES_FILE))
    return (
        f"The capacity behind it, from the released profiles: {fit.records_per_core_s:.0f} records/s per core with one "
        f"slot, each further slot costing {fit.slot_contention:.0%}, {fit.cores_per_slot:g} cores used per slot; the "
        f"saturated profiles scatter by {fit.spread:.0%} around it, and 'overloaded, yes or no' is right in "
        f"{fit.right_share:.0%} of all profiles."
    )
