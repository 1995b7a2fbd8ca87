"""The summary table: one definition of its columns for the page, the terminal and the documents."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.table import Table

from tidewise.core import Mechanism
from tidewise.core.recovery import BEFORE_S, CALM_S, FELT_WITHIN_S
from tidewise.experiments.comparison import Aggregate
from tidewise.experiments.measures import SLOW_RECOVERY_S, OverBaseline, Percentiles, Summary
from tidewise.report import wording
from tidewise.report.fitted_table import fitted_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column."""

    title: str
    meaning: str
    """The definition, for the page's list of definitions."""
    cell: Callable[[Aggregate], str]
    words: bool = False
    """Whether it holds text rather than a number."""
    brief: bool = True
    """Whether it is among those that fit on a terminal."""


def _over(pick: Callable[[OverBaseline], float | None]) -> Callable[[Aggregate], str]:
    def figure(summary: Summary) -> float | None:
        return None if summary.over_baseline is None else pick(summary.over_baseline)

    return lambda aggregate: wording.spread(aggregate.spread(figure), wording.ratio)


def _latency(pick: Callable[[Percentiles], float]) -> Callable[[Aggregate], str]:
    def figure(summary: Summary) -> float | None:
        return None if summary.latency_p50 is None else pick(summary.latency_p50)

    return lambda aggregate: wording.spread(aggregate.spread(figure), wording.seconds)


def _changes(aggregate: Aggregate) -> str:
    """The mean number per run, by mechanism."""
    runs = len(aggregate.summaries)
    total = wording.spread(aggregate.spread(lambda summary: summary.changes), wording.count)
    by_kind: dict[Mechanism, int] = {}
    for summary in aggregate.summaries:
        for use in summary.uses:
            by_kind[use.mechanism] = by_kind.get(use.mechanism, 0) + use.count
    kinds = ", ".join(f"{wording.count(number / runs)} {kind}" for kind, number in sorted(by_kind.items()))
    failed = sum(summary.failed_changes for summary in aggregate.summaries) / runs
    undone = sum(summary.rollbacks for summary in aggregate.summaries) / runs
    ends = [
        f"{wording.count(number)} {word}" for number, word in ((failed, "failed"), (undone, "rolled back")) if number
    ]
    return "; ".join([f"{total}: {kinds}" if kinds else total, *ends])


def _promises(aggregate: Aggregate) -> str:
    return "kept" if aggregate.kept_promises else "BROKEN"


def _slow(aggregate: Aggregate) -> str:
    failures = sum(len(summary.recoveries) for summary in aggregate.summaries)
    if not failures:
        return wording.MISSING
    return f"{sum(summary.recoveries_over() for summary in aggregate.summaries)} of {failures}"


def _cost(aggregate: Aggregate) -> str:
    currency = aggregate.summaries[0].record.prices.currency
    return wording.spread(
        aggregate.spread(lambda summary: summary.all_in.cost), lambda value: f"{wording.money(value)} {currency}"
    )


def _saving(aggregate: Aggregate) -> str:
    def figure(summary: Summary) -> float | None:
        over = summary.over_baseline
        return None if over is None or over.cost is None else 100 * (1 - over.cost)

    return wording.spread(aggregate.spread(figure), lambda value: f"{round(value)} %")


COLUMNS: tuple[Column, ...] = (
    Column(title="policy", meaning="Who decided about the job.", cell=lambda aggregate: aggregate.policy, words=True),
    Column(title="cost", meaning="Everything counted, at the prices of the plan, for the whole run.", cell=_cost),
    Column(title="saves", meaning="Of what the static run cost, everything counted on both sides.", cell=_saving),
    Column(
        title="core-h / static",
        meaning="Core-hours of the executors over those of the static run on the same load and seed.",
        cell=_over(lambda over: over.core),
    ),
    Column(
        title="GiB-h / static",
        meaning="Memory over time of the executors, over that of the static run.",
        cell=_over(lambda over: over.gib),
    ),
    Column(
        title="good seconds",
        meaning="Share of ALL seconds in which the job was up and the median latency was at most twice the median "
        "latency of the static run (over the seconds in which that one was up and gave output). "
        "Without a static run on the same seed: twice the run's own median. Left out: seconds whose records were still "
        "waiting when the run ended, for no longer than that limit; nobody knows what they would have become.",
        cell=lambda aggregate: wording.spread(aggregate.spread(lambda run: run.good_share), wording.percent),
    ),
    Column(
        title="promises",
        meaning="Whether every promise was kept, with every seed: the promised latency in the promised share of all "
        "seconds, and each recovery within the promised time.",
        cell=_promises,
    ),
    Column(
        title="promised latency",
        meaning="Share of ALL seconds in which the job was up and 95 % of the records met the promised latency. Left "
        "out: seconds whose records were still waiting when the run ended, for no longer than was promised.",
        cell=lambda aggregate: wording.spread(aggregate.spread(lambda run: run.promise_share), wording.percent),
    ),
    Column(
        title="latency p50",
        meaning="The median over all seconds of the seconds' median latency. Latency is by arrival: how long the "
        "records that arrived in a second waited for their output. A second whose records were never output counts as "
        "infinitely late; one in which the job was down counts with the wait of its records, and always as later than "
        "the limit of a good second; one in which nothing arrived has none. Left out: seconds whose records were still "
        "waiting when the run ended, for no longer than the limit of a good second.",
        cell=_latency(lambda latency: latency.p50_s),
        brief=False,
    ),
    Column(
        title="latency p95",
        meaning="The same, 95th percentile over all seconds.",
        cell=_latency(lambda latency: latency.p95_s),
        brief=False,
    ),
    Column(
        title="latency p99",
        meaning="The same, 99th percentile over all seconds.",
        cell=_latency(lambda latency: latency.p99_s),
    ),
    Column(
        title="recovery mean",
        meaning="From a failure until the job was up and the median latency at most twice what it had been before for "
        f"{CALM_S} s in a row. Before: the median over the last {BEFORE_S} seconds, good or not, in which the job was "
        "up and whose records were output before the failure. 0 where no bad second followed within "
        f"{FELT_WITHIN_S} s; downtime of a change that was on when the job failed is not counted as one. "
        "≥: the next failure or the end of the run cut some off. It goes by the second; `tidewise explain` has only "
        "reports, and knows a recovery to about the length of one.",
        cell=lambda aggregate: wording.spread(aggregate.spread(lambda run: run.recovery_mean_s), wording.whole_seconds),
        brief=False,
    ),
    Column(
        title="recovery max",
        meaning="The longest of them.",
        cell=lambda aggregate: wording.spread(aggregate.spread(lambda run: run.recovery_max_s), wording.whole_seconds),
    ),
    Column(
        title=f"over {SLOW_RECOVERY_S:.0f} s",
        meaning=f"Recoveries known to have taken longer than {SLOW_RECOVERY_S:.0f} s, of all failures over all seeds; "
        "one that was cut off later than that counts.",
        cell=_slow,
        brief=False,
    ),
    Column(
        title="changes",
        meaning="Changes per run that were asked for, by how they were made; how many of them failed, and how many "
        "were the undoing of another.",
        cell=_changes,
        words=True,
    ),
    Column(
        title="all-in core-h / static",
        meaning="Everything counted: drivers, double running during handovers, profiling and the controller as well; "
        "over everything that the static run used.",
        cell=_over(lambda over: over.all_in_core),
        brief=False,
    ),
    Column(
        title="all-in GiB-h / static",
        meaning="The same for memory.",
        cell=_over(lambda over: over.all_in_gib),
        brief=False,
    ),
)


_FIRST_TO_GO = ("GiB-h / static", "latency p99", "core-h / static", "changes", "good seconds", "recovery max")
"""What a narrow terminal does without, the first first; the rest of the brief columns always stays."""


def terminal_table(aggregates: Sequence[Aggregate], *, title: str, width: int) -> Table:
    """The columns that matter most, as many as fit into this width without breaking a figure."""
    cells = {
        column.title: [_two_lines(column, column.cell(aggregate)) for aggregate in aggregates]
        for column in COLUMNS
        if column.brief
    }
    words = {column.title for column in COLUMNS if column.words}
    return fitted_table(cells, width=width, title=title, words=words, breaking=("changes",), first_to_go=_FIRST_TO_GO)


def _two_lines(column: Column, cell: str) -> str:
    """The range below the mean and without its unit, which keeps the columns narrow."""
    return cell if column.words else re.sub(r" \((\S+\.\.\S+).*\)", r"\n(\1)", cell)


def markdown_table(aggregates: Sequence[Aggregate]) -> str:
    """All columns, for a document."""
    lines = [[column.title for column in COLUMNS], ["---" if column.words else "---:" for column in COLUMNS]]
    lines += [[_plain(column.cell(aggregate)) for column in COLUMNS] for aggregate in aggregates]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _plain(text: str) -> str:
    """Text that cannot be taken for Markdown or HTML, nor end its cell."""
    return re.sub(r"([\\`*_\[\]<>|&#])", r"\\\1", " ".join(text.split()))
