"""What a reader has to know about the data of a scenario: all that is missing, cut off or not alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidewise.core import Censored, format_duration
from tidewise.experiments.comparison import BASELINE_POLICY, Aggregate
from tidewise.experiments.measures import Summary
from tidewise.report import wording
from tidewise.report.drawing import Shown, TimeAxis
from tidewise.report.timeline import MOST_MARKS


def notes(aggregates: Sequence[Aggregate], shown: Sequence[Shown], axis: TimeAxis) -> list[str]:
    """Plain text, one sentence or two per note."""
    return [*_about_runs(aggregates), *_about_seconds(aggregates), *_about_figures(aggregates, shown, axis)]


def _about_runs(aggregates: Sequence[Aggregate]) -> list[str]:
    found = []
    runs = [summary for aggregate in aggregates for summary in aggregate.summaries]
    cut = [summary.record.name for summary in runs if not summary.record.complete]
    if cut:
        found.append(f"Cut short before their planned end, so not to be compared: {wording.listing(cut)}.")
    alone = [
        aggregate.policy for aggregate in aggregates if any(run.over_baseline is None for run in aggregate.summaries)
    ]
    if alone:
        found.append(
            f"For {wording.listing(alone)} there is no {BASELINE_POLICY} run of the same length on the same load for "
            "every seed: shares of static are left out, and good seconds may be held against the run's own median."
        )
    found += _about_time(runs)
    found += _about_audits(runs)
    numbers = {len(aggregate.summaries) for aggregate in aggregates}
    if len(numbers) > 1:
        counts = wording.listing([f"{aggregate.policy} {len(aggregate.summaries)}" for aggregate in aggregates])
        found.append(f"The policies were not run equally often: {counts}.")
    unlike = {
        "promises": len({run.record.promises for run in runs}) > 1,
        "prices": len({run.record.prices for run in runs}) > 1,
        "failures": not _faults_by_seed_only(runs),
    }
    if any(unlike.values()):
        what = wording.listing([name for name, differs in unlike.items() if differs])
        found.append(f"Not alike in all of these runs: {what}. Those of the first run are shown above.")
    return found


def _about_time(runs: Sequence[Summary]) -> list[str]:
    """How long the time is that a run on a real engine shows, where that was compressed."""
    shown = set()
    for run in runs:
        table = run.record.plan.get("spark")
        day = table.get("day") if isinstance(table, dict) else None
        if isinstance(day, int | float) and day > run.record.duration_s:
            shown.add((float(day), run.record.duration_s))
    return [
        f"Time is compressed: {format_duration(length_s)} show {format_duration(day_s)}. Loads are that much faster, "
        f"and prices {day_s / length_s:g} times as high, so that costs are those of the time shown. Latencies, gaps "
        "and recoveries are as they were measured."
        for day_s, length_s in sorted(shown)
    ]


def _about_audits(runs: Sequence[Summary]) -> list[str]:
    """What was found where the commits of real jobs were checked."""
    audits = [(run.record.name, audit) for run in runs for audit in run.record.audits]
    if not audits:
        return []
    bad = [f"In {name}, after {audit.after}: {audit.sentence}" for name, audit in audits if not audit.clean]
    checked = f"What was committed was checked {len(audits)} times, after every change and failure and at the end"
    return bad or [f"{checked}: each time, every batch that was looked at had been committed once and in order."]


def _faults_by_seed_only(runs: Sequence[Summary]) -> bool:
    """Other seeds may break other things; one seed has to break the same for every policy."""
    return len({(run.record.seed, run.record.faults) for run in runs}) == len({run.record.seed for run in runs})


def _about_seconds(aggregates: Sequence[Aggregate]) -> list[str]:
    found = []
    never = [
        f"{aggregate.policy} {count}"
        for aggregate in aggregates
        if (count := sum(summary.never_output_s for summary in aggregate.summaries))
    ]
    if never:
        found.append(
            "Seconds whose records were never output before the run ended, counted as infinitely late "
            f"(over all seeds): {wording.listing(never)}."
        )
    waiting = [
        f"{aggregate.policy} {count}"
        for aggregate in aggregates
        if (count := sum(summary.undecided_s for summary in aggregate.summaries))
    ]
    if waiting:
        found.append(
            "Seconds left out because their records were still waiting when the run ended, and not too long yet "
            f"(over all seeds): {wording.listing(waiting)}."
        )
    down = [
        f"{aggregate.policy} {wording.count(sum(run.down_s for run in aggregate.summaries) / len(aggregate.summaries))}"
        f" (of these {gap} in the gaps of changes)"
        for aggregate in aggregates
        for gap in [wording.count(round(sum(s.change_gap_s for s in aggregate.summaries) / len(aggregate.summaries)))]
    ]
    found.append(f"Seconds down per run, all of them counted as bad: {wording.listing(down)}.")
    cut = [
        f"{aggregate.policy} {count}"
        for aggregate in aggregates
        if (count := sum(isinstance(one.took_s, Censored) for run in aggregate.summaries for one in run.recoveries))
    ]
    if cut:
        found.append(
            "Recoveries cut off by the next failure or the end of the run; they enter mean and maximum with what was "
            f"seen of them (≥): {wording.listing(cut)}."
        )
    return found


def _about_figures(aggregates: Sequence[Aggregate], shown: Sequence[Shown], axis: TimeAxis) -> list[str]:
    found = []
    seeds = wording.seeds(aggregates)
    if len(seeds) > 1:
        drawn = sorted({one.summary.record.seed for one in shown})
        found.append(
            f"Tables: mean over the seeds {wording.listing([str(seed) for seed in seeds])}, range in brackets. "
            f"Figures: seed {wording.listing([str(seed) for seed in drawn])} only."
        )
    if axis.width_s > 1:
        found.append(f"Each point of a line over time stands for {format_duration(axis.width_s)}.")
    blind = [one.policy for one in shown if np.isnan(one.series.forecast_per_s).all()]
    if blind:
        found.append(f"Without a forecast of the load: {wording.listing(blind)}.")
    crowded = [one.policy for one in shown if len(one.summary.record.changes) > MOST_MARKS]
    if crowded:
        found.append(
            f"Only {MOST_MARKS} of the changes are marked in the figure, failed ones first: {wording.listing(crowded)}."
        )
    return found
