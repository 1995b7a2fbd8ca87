"""What a comparison comes to, in sentences that a person can repeat."""

from __future__ import annotations

from collections.abc import Sequence

from tidewise.core import format_duration
from tidewise.experiments.comparison import BASELINE_POLICY, Aggregate, missing_runs
from tidewise.experiments.record import RUN_FILE, SERIES_FILE, Run
from tidewise.report import wording

_NAMED = 5
"""How many runs are named where many have the same fault."""


def headlines(aggregates: Sequence[Aggregate]) -> list[str]:
    """Which policy of one scenario was cheapest at which quality, and what it saved; plain text."""
    load = aggregates[0].scenario.load
    by_cost = sorted(aggregates, key=_cost)
    kept = [one for one in by_cost if one.kept_promises]
    cheapest = by_cost[0]
    if len(aggregates) == 1:
        promises = "kept" if kept else f"broke (it {_broken(cheapest)})"
        return [
            f"On {load}, {_named(cheapest)} cost {_money(cheapest)} with {_good(cheapest)}; its promises it {promises}."
        ]
    baseline = next((one for one in aggregates if one.policy == BASELINE_POLICY), None)
    said = []
    if not kept:
        best = max(aggregates, key=_good_share)
        said.append(f"On {load}, no policy kept every promise. The cheapest was {_offer(cheapest, baseline)}.")
        said.append(f"The best quality on {load} came from {_offer(best, baseline)}; even so, it {_broken(best)}.")
    elif kept[0] is baseline:
        said.append(f"On {load}, no policy that kept its promises cost less than {_offer(kept[0], baseline)}.")
    else:
        said.append(f"On {load}, the cheapest policy that kept its promises was {_offer(kept[0], baseline)}.")
    if kept and cheapest is not kept[0]:
        said.append(
            f"Cheaper on {load}, but not what was promised: {_offer(cheapest, baseline)}; it {_broken(cheapest)}."
        )
    if kept and baseline is not None and baseline not in kept:
        said.append(f"Static on {load} did not keep them either: it {_broken(baseline)}.")
    return said


def warnings(runs: Sequence[Run]) -> list[str]:
    """What a reader has to know before believing a comparison: what is missing, and policies that did not work."""
    said = [f"{sentence}." for sentence in missing_runs(runs)]
    said += [
        f"In {run.record.name}, {run.record.policy} failed {run.record.failed_decisions} times instead of deciding; "
        "the journal has the errors."
        for run in runs
        if run.record.failed_decisions
    ]
    without = sorted(run.record.name for run in runs if not run.has_journal)
    if without:
        said.append(
            f"Of {_listed(without)} there is no journal, or it is damaged. All figures here come from {RUN_FILE} and "
            f"{SERIES_FILE}, so nothing is missing; but explain, advise and whatif need the journal."
        )
    return said


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return wording.listing([*names[:_NAMED], f"{more} more"] if more > 0 else names)


def _offer(one: Aggregate, baseline: Aggregate | None) -> str:
    """The policy, its cost, what that saves, and the quality it was had at."""
    text = f"{_named(one)} at {_money(one)}"
    if baseline is None or one is baseline:
        return f"{text} with {_good(one)}"
    share = 1 - _cost(one) / _cost(baseline) if _cost(baseline) else 0.0
    saves = f"{100 * share:.0f} % less" if share >= 0 else f"{-100 * share:.0f} % more"
    theirs = wording.percent(_good_share(baseline))
    return f"{text}, {saves} than static ({_money(baseline)}), with {_good(one)} (static: {theirs})"


def _named(one: Aggregate) -> str:
    return f"“{one.policy}”" if one.policy != BASELINE_POLICY else "static"


def _cost(one: Aggregate) -> float:
    return sum(summary.all_in.cost for summary in one.summaries) / len(one.summaries)


def _good_share(one: Aggregate) -> float:
    return sum(summary.good_share for summary in one.summaries) / len(one.summaries)


def _money(one: Aggregate) -> str:
    return f"{wording.money(_cost(one))} {one.summaries[0].record.prices.currency}"


def _good(one: Aggregate) -> str:
    return f"{wording.percent(_good_share(one))} good seconds"


def _broken(one: Aggregate) -> str:
    """Which promise was broken, over all seeds."""
    promises = one.summaries[0].record.promises
    parts = []
    shares = [summary.promise_share for summary in one.summaries if summary.promise_share is not None]
    if shares and min(shares) < promises.good_share:
        parts.append(f"met the promised latency in only {wording.percent(min(shares))} of the seconds")
    if promises.recovery_s is not None:
        slow = sum(summary.recoveries_over(promises.recovery_s) for summary in one.summaries)
        failures = sum(len(summary.recoveries) for summary in one.summaries)
        if slow:
            limit = format_duration(promises.recovery_s)
            parts.append(f"took longer than {limit} to recover from {slow} of {failures} failures")
    return wording.listing(parts)
