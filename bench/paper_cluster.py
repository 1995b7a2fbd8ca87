"""The simulator's `paper-cluster` beside the published figures: fitted on static, validated on reactive and DS2."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.page import table
from tidewise.engines.simulator import load_profile
from tidewise.experiments import Aggregate, Experiment, Progress, compare, run_experiment
from tidewise.experiments.comparison import Spread
from tidewise.experiments.fit_paper_cluster import NETWORK_DELAY, SEEDS, fit_capacity, read_profiles
from tidewise.experiments.published import Range, published

_PLAN = Path(__file__).parent / "plans" / "paper-ysb.toml"
_COMPARED = ("static", "reactive", "ds2")
_LOOK_ALIKE = """\
[[loads]]
name = "ysb"
shape = "daily"
mean_per_s = 42800.0
day_s = 9257.0
night_share = 0.3
noise = 0.1
"""


def measure(traces: Path | None) -> str:
    """Run the plan on the released load, or on a generated look-alike, and set it beside what was published."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / _PLAN.name
        text = _PLAN.read_text(encoding="utf-8")
        if traces is None:
            begin, end = text.index("[[loads]]"), text.index("[[policies]]")
            text = text[:begin] + _LOOK_ALIKE + "\n" + text[end:]
        else:
            shutil.copy(traces / "ysb_18h.csv", folder)
        plan.write_text(text, encoding="utf-8")
        runs = run_experiment(Experiment(plan), Path(folder) / "runs", created="2026-01-01", progress=_tell)
        aggregates = compare(runs)
    load = (
        "the released 18-hour load (`ysb_18h.csv`)"
        if traces is not None
        else "a generated look-alike of the 18-hour load (give `--traces FOLDER` for the released one)"
    )
    preface = (
        f"SIMULATED, profile `paper-cluster`, on {load} with 10 % noise, 24 workers, a failure every 2,700 s, "
        f"{len(SEEDS)} seeds; the plan is `bench/plans/paper-ysb.toml`. Means over the seeds, least to most in "
        "brackets. Each cell: simulated, then published in italics; the misfit is to the nearest end of a published "
        "range, with the goal of 10 % of core-h, 5 points of good seconds and 25 % of mean recovery."
    )
    per_change = (
        "Bad seconds per change, outside failures (published: in-place rescale 15-20, redeploy 57-108, operator "
        "upgrade 140-240):"
    )
    return "\n\n".join(
        [
            preface,
            table(
                ["policy", "core-h / static", "good seconds", "changes", "recovery mean / max", "misfit", "goal"],
                [_row(aggregate) for aggregate in aggregates],
            ),
            per_change,
            table(["policy", "mechanism", "changes", "bad seconds per change"], _mechanisms(aggregates)),
            _by_hand(aggregates),
            _capacity(traces),
            _REASONS,
        ]
    )


_REASONS = """\
Where it comes from: capacity and latency at rest are fitted on the released profiles, detection and downtime of \
a failure on the static run, the gap of each mechanism on the published bad seconds per change. No other \
parameter was fitted on a policy's run, but reactive is not an untouched validation: three choices were made \
after its misfit had been seen. A job deployed for in-place rescale restarts on the workers that are left when a \
failure takes one away, and once more when it is back, while any other job waits for it (before that, reactive's \
mean recovery was 78 s); CPU is read interval by interval as a metrics server gives it, the seconds of a restart \
included (before that, 230-360 changes); and the interval is 60 s, which is not published (with 15 s it changes \
nearly twice as often and costs a tenth more, with 120 s or more it changes less often). All three belong to the \
cluster or to Kubernetes, and none has a number fitted to reactive's figures. DS2 is untouched.

What does not fit, and why: **DS2** changes far less often here than published and so loses fewer seconds; its \
core-h, its recoveries and its bad seconds per change fit. The Flink operator watches every operator of the job, \
sets a parallelism for each and redeploys when any one of them leaves its band, also where the number of workers \
stays. A job is one operator here, with one pool of slots as on Spark, so it redeploys only when the whole job \
leaves the band. That this is the reason is our reading: the published runs do not say what set off each change."""


def _tell(progress: Progress) -> None:
    sys.stderr.write(f"{progress.sentence}\n")


def _row(aggregate: Aggregate) -> list[str]:
    core_spread = aggregate.spread(lambda one: None if one.over_baseline is None else one.over_baseline.core)
    good_spread = aggregate.spread(lambda one: 100 * one.good_share)
    mean_spread = aggregate.spread(lambda one: one.recovery_mean_s)
    core = _cell(core_spread, "{:.2f}")
    good = _cell(good_spread, "{:.1f}") + " %"
    changes = _cell(aggregate.spread(lambda one: one.changes), "{:.0f}")
    longest = _cell(aggregate.spread(lambda one: one.recovery_max_s), "{:.0f}")
    recovery = f"{_cell(mean_spread, '{:.0f}')} / {longest} s"
    policy = aggregate.policy.removesuffix("-down-at-once")
    if policy not in _COMPARED or core_spread is None or good_spread is None or mean_spread is None:
        return [aggregate.policy, core, good, changes, recovery, "", ""]
    theirs = published("YSB", policy)
    core_off = core_spread.mean / theirs.core_over_static.middle
    good_off = theirs.good_share.outside(good_spread.mean / 100)
    recovery_off = mean_spread.mean / (mean_spread.mean - theirs.recovery_mean_s.outside(mean_spread.mean))
    reached = abs(core_off - 1) <= 0.10 and abs(good_off) <= 0.05 and abs(recovery_off - 1) <= 0.25
    good_range = _range(theirs.good_share, lambda share: f"{100 * share:.3g}")
    changes_range = _range(theirs.changes, "{:.0f}".format)
    recovery_range = _range(theirs.recovery_mean_s, "{:.0f}".format)
    return [
        aggregate.policy,
        f"{core}, *{theirs.core_over_static.middle:.2f}*",
        f"{good}, *{good_range} %*",
        f"{changes}, *{changes_range}*",
        f"{recovery}, *{recovery_range} / {theirs.recovery_max_s:.0f} s*",
        f"{core_off - 1:+.0%}, {100 * good_off:+.1f} points, {recovery_off - 1:+.0%}",
        "reached" if reached else "missed",
    ]


def _range(published: Range, form: Callable[[float], str]) -> str:
    least, most = form(published.least), form(published.most)
    return most if least == most else f"{least}-{most}"


def _mechanisms(aggregates: tuple[Aggregate, ...]) -> list[list[str]]:
    rows = []
    for aggregate in aggregates:
        mechanisms = sorted({use.mechanism for summary in aggregate.summaries for use in summary.uses})
        for mechanism in mechanisms:
            uses = [use for summary in aggregate.summaries for use in summary.uses if use.mechanism is mechanism]
            known = [use.bad_s_per_change for use in uses if use.bad_s_per_change is not None]
            changes = np.mean([use.count for use in uses])
            rows.append([aggregate.policy, mechanism, f"{changes:.0f}", f"{np.mean(known):.0f}" if known else "-"])
    return rows


def _by_hand(aggregates: tuple[Aggregate, ...]) -> str:
    """Per failure about D + (D + 5 s) u / (1 - u), with the downtime D and the utilisation u."""
    profile = load_profile("paper-cluster")
    downtime_s = profile.failures[NETWORK_DELAY].downtime_s
    # The median downtime is in the profile; the mean of a lognormal lies above it.
    mean_downtime_s = downtime_s * float(np.exp(profile.failures[NETWORK_DELAY].downtime_spread_share ** 2 / 2))
    static = next(aggregate for aggregate in aggregates if aggregate.policy == "static")
    bad_s = float(
        np.mean([(1 - one.good_share) * one.seconds / max(1, len(one.recoveries)) for one in static.summaries])
    )
    capacity = 24 * profile.capacity.records_per_core_s
    utilisation = 42_800.0 / capacity
    by_hand = mean_downtime_s + (mean_downtime_s + 5.0) * utilisation / (1 - utilisation)
    return (
        f"Checked by hand: with a mean downtime D of {mean_downtime_s:.1f} s and a mean utilisation u of "
        f"{utilisation:.2f}, a failure of the static run should cost about D + (D + 5 s) u / (1 - u) = {by_hand:.0f} "
        f"bad seconds; simulated were {bad_s:.0f}."
    )


def _capacity(traces: Path | None) -> str:
    if traces is None:
        return ""
    fit = fit_capacity(read_profiles(traces / "ysb_profiles.csv"))
    return (
        f"The capacity behind it, from the released profiles: {fit.records_per_core_s:.0f} records/s per core with one "
        f"slot, each further slot costing {fit.slot_contention:.0%}, {fit.cores_per_slot:g} cores used per slot; the "
        f"saturated profiles scatter by {fit.spread:.0%} around it, and 'overloaded, yes or no' is right in "
        f"{fit.right_share:.0%} of all profiles."
    )


def _cell(spread: Spread | None, form: str) -> str:
    """The mean over the seeds, and the range where they differ."""
    if spread is None:
        return "-"
    mean, least, most = (form.format(value) for value in (spread.mean, spread.least, spread.most))
    bound = "≥ " if spread.censored else ""
    return f"{bound}{mean}" if least == most else f"{bound}{mean} [{least}..{most}]"
