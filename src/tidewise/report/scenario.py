"""One scenario's part of the page: its facts, tables, figures and notes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidewise.core import format_duration
from tidewise.experiments.comparison import Aggregate
from tidewise.experiments.compressed import compressed_prices
from tidewise.experiments.record import Run, RunRecord
from tidewise.report import wording
from tidewise.report.drawing import Shown, TimeAxis, time_axis
from tidewise.report.figures import (
    distribution_figure,
    latency_figure,
    load_figure,
    recovery_figure,
    resources_figure,
)
from tidewise.report.markup import page_text
from tidewise.report.notes import notes
from tidewise.report.palette import NEUTRAL
from tidewise.report.parts import Figure, chip, figure_parts, table_part
from tidewise.report.published import origin_of, published_section
from tidewise.report.spending import purposes_figure, quality_figure
from tidewise.report.table import COLUMNS
from tidewise.report.timeline import configuration_figure, timeline_figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """How each policy is drawn, on the whole page."""

    colours: Mapping[str, str]
    dashes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page, and what can be found in it."""

    markup: str
    names: tuple[str, ...]
    """Of its anchors, each after the section's own."""


def scenario_section(place: str, aggregates: Sequence[Aggregate], runs: Sequence[Run], looks: Looks) -> Section:
    """The section; `place` is the start of all anchors in it."""
    shown = _shown(aggregates, runs, looks)
    axis = time_axis(max(len(one.series) for one in shown))
    parts: dict[str, list[str]] = {}
    published = published_section(f"{place}-published", aggregates, lambda policy: _named(policy, looks))
    if published is not None:
        parts["published"] = [published]
    for name, figure in _figures(aggregates, shown, axis):
        parts[name] = figure_parts(f"{place}-{name}", figure)
    parts["changes"] = [f'<h3 id="{place}-changes">What changes cost</h3>', _change_table(aggregates, looks)]
    parts["notes"] = [
        f'<h3 id="{place}-notes">Notes</h3>',
        '<ol class="notes">',
        *(f"<li>{page_text(note)}</li>" for note in notes(aggregates, shown, axis)),
        "</ol>",
    ]
    markup = [
        f'<section id="{place}">',
        f"<h2>{page_text(aggregates[0].scenario.load)}</h2>",
        f'<p class="facts">{page_text(facts(aggregates))}</p>',
        _summary_table(aggregates, looks),
        *(line for part in parts.values() for line in part),
        "</section>",
    ]
    return Section(markup="\n".join(markup), names=tuple(parts))


def facts(aggregates: Sequence[Aggregate]) -> str:
    """Where the figures come from, and under which promises and prices."""
    record = aggregates[0].summaries[0].record
    seeds = wording.seeds(aggregates)
    origin = wording.origin(aggregates[0].scenario)
    day_s = _day_s(record)
    length = format_duration(record.duration_s)
    # A compressed run is charged so much more for each of its hours; what a person pays is the plan's.
    prices = record.prices if day_s is None else compressed_prices(record.prices, record.duration_s / day_s)
    return " · ".join(
        [
            f"{origin[0].upper()}{origin[1:]}",
            length if day_s is None else f"{format_duration(day_s)} in {length}",
            *([f"load {origin_of(record)}"] if origin_of(record) else []),
            f"{len(record.faults)} failures",
            f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(str(seed) for seed in seeds)}",
            f"promised: {wording.promises(record.promises)}",
            f"{prices.core_hour:g} {prices.currency} per core-hour and {prices.gib_hour:g} per GiB-hour",
            *(
                []
                if day_s is None
                else [f"costs are those of {format_duration(day_s)}, core-h and GiB-h those of the {length} that ran"]
            ),
        ]
    )


def _day_s(record: RunRecord) -> float | None:
    """How long the time is that a compressed run shows; None where it shows its own."""
    spark = record.plan.get("spark")
    day_s = spark.get("day") if isinstance(spark, dict) else None
    return float(day_s) if isinstance(day_s, int | float) and day_s > record.duration_s else None


def _shown(aggregates: Sequence[Aggregate], runs: Sequence[Run], looks: Looks) -> list[Shown]:
    """The first seed that every policy ran, or else the first of each."""
    common = set.intersection(*({one.record.seed for one in aggregate.summaries} for aggregate in aggregates))
    shown = []
    for aggregate in aggregates:
        seed = min(common) if common else aggregate.summaries[0].record.seed
        summary = next(one for one in aggregate.summaries if one.record.seed == seed)
        run = next(run for run in runs if run.record is summary.record)
        shown.append(
            Shown(
                policy=aggregate.policy,
                colour=looks.colours[aggregate.policy],
                dash=looks.dashes[aggregate.policy],
                summary=summary,
                series=run.read_series(),
            )
        )
    return shown


def _figures(aggregates: Sequence[Aggregate], shown: Sequence[Shown], axis: TimeAxis) -> Iterator[tuple[str, Figure]]:
    yield (
        "load",
        Figure(
            title="Load and forecast",
            caption="Records that arrived per second, and the median that a naive forecast had for that time. It is "
            "there for comparison: policies that look ahead have forecasts of their own.",
            drawn=load_figure(shown, axis),
        ),
    )
    if all(run.over_baseline is not None for aggregate in aggregates for run in aggregate.summaries):
        yield (
            "quality",
            Figure(
                title="Quality and cost",
                caption="One mark per seed; further up and left is better. What was spent is everything, profiling and "
                "double running included, over all that static spent.",
                drawn=quality_figure(aggregates, shown),
            ),
        )
    yield (
        "latency",
        Figure(
            title="Latency over time",
            caption="By arrival, log scale. Bold: the median second of each point; thin: its slowest. Dashed: the "
            "limit of a good second. Dotted red: failures. Red triangles: seconds whose records were never output.",
            drawn=latency_figure(shown, axis),
        ),
    )
    yield (
        "distribution",
        Figure(
            title="How often it was how slow",
            caption="Share of all seconds whose latency was higher than a value; further down and left is better. A "
            "line that ends high on the right stopped where the rest was never output.",
            drawn=distribution_figure(shown),
        ),
    )
    yield (
        "recovery",
        Figure(
            title="Recovery from each failure",
            caption="One dot per failure; open triangles were cut off, so the true time is longer. The bar is the "
            "mean. Further left is better.",
            drawn=recovery_figure(shown, axis),
        ),
    )
    yield (
        "resources",
        Figure(
            title="Cores and memory paid for",
            caption="Executors only; drivers, double running, profiling and the controller are in the all-in columns.",
            drawn=resources_figure(shown, axis),
        ),
    )
    if all(run.over_baseline is not None for aggregate in aggregates for run in aggregate.summaries):
        yield (
            "purposes",
            Figure(
                title="What it was spent on",
                caption="Core-hours and GiB-hours by purpose, over those of static's executors; mean over the seeds.",
                drawn=purposes_figure(aggregates),
            ),
        )
    yield (
        "timeline",
        Figure(
            title="Executors, and why they changed",
            caption="Every mark is a change; its reason is shown when you point at it. Dotted red: failures.",
            drawn=timeline_figure(shown, axis),
        ),
    )
    configuration = configuration_figure(shown, axis)
    if configuration is not None:
        yield (
            "configuration",
            Figure(
                title="The other parameters over time",
                caption="What changes of the configuration left running; only parameters that some policy changed.",
                drawn=configuration,
            ),
        )


_WITH_RANGE = re.compile(r"(.+?) (\(.+\))")


def _summary_table(aggregates: Sequence[Aggregate], looks: Looks) -> str:
    head = "".join(f'<th scope="col"{_css(column.words)}>{_heading(column.title)}</th>' for column in COLUMNS)
    rows = []
    for aggregate in aggregates:
        cells = [f'<td class="name">{_named(aggregate.policy, looks)}</td>']
        for column in COLUMNS[1:]:
            text = column.cell(aggregate)
            ranged = None if column.words else _WITH_RANGE.fullmatch(text)
            inner = f"{page_text(ranged[1])}<small>{page_text(ranged[2])}</small>" if ranged else page_text(text)
            cells.append(f"<td{_css(column.words)}>{inner}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return table_part(head, rows)


def _change_table(aggregates: Sequence[Aggregate], looks: Looks) -> str:
    rows = []
    for aggregate in aggregates:
        mechanisms = sorted({use.mechanism for summary in aggregate.summaries for use in summary.uses})
        for mechanism in mechanisms:
            uses = [use for summary in aggregate.summaries for use in summary.uses if use.mechanism is mechanism]
            made = sum(use.count for use in uses)
            bad = [use.bad_s_per_change for use in uses if use.bad_s_per_change is not None]
            cells = (
                mechanism.value,
                wording.count(made / len(aggregate.summaries)),
                wording.count(sum(use.failed for use in uses) / len(aggregate.summaries)),
                wording.count(sum(use.rollbacks for use in uses) / len(aggregate.summaries)),
                wording.seconds(sum(use.gap_s for use in uses) / made),
                wording.seconds(sum(bad) / len(bad)) if bad else wording.MISSING,
            )
            name = f'<td class="name">{_named(aggregate.policy, looks)}</td>'
            rows.append(f"<tr>{name}{''.join(f'<td>{page_text(cell)}</td>' for cell in cells)}</tr>")
    if not rows:
        return "<p>No policy changed anything.</p>"
    titles = ("policy", "mechanism", "per run", "failed", "rollbacks", "gap per change", "bad seconds per change")
    return table_part("".join(f'<th scope="col">{title}</th>' for title in titles), rows)


def _heading(title: str) -> str:
    """Breaks before a slash only."""
    return page_text(title).replace("-", "&#8209;").replace("/ ", "/&nbsp;")


def _named(policy: str, looks: Looks) -> str:
    return f"{chip(looks.colours.get(policy, NEUTRAL))}{page_text(policy)}"


def _css(words: bool) -> str:  # noqa: FBT001 - one flag, private
    return ' class="words"' if words else ""
