"""The page of a benchmark of queries: their table, what a core takes, how long a batch, and where its time goes."""

from __future__ import annotations

from collections.abc import Sequence

from tidewise.core import format_duration, format_memory
from tidewise.experiments.query_bench import FEW_EVENTS, QueryBench
from tidewise.experiments.query_figures import QueryFigures
from tidewise.report import palette, wording
from tidewise.report.drawing import bare
from tidewise.report.markup import figure_text, page_text
from tidewise.report.palette import NEUTRAL
from tidewise.report.parts import Figure, definitions_part, figure_parts, list_part, table_part, whole_page
from tidewise.report.query_table import (
    COLUMNS,
    STAGE_COLUMNS,
    columns_of,
    duration,
    markdown_tables,
    size,
    stage_rows,
)

TITLES = {"nexmark": "Nexmark", "psm": "The price search machine"}
_BAR_HEIGHT = 26
_LEGEND_HEIGHT = 60
"""Names of operators are long: a narrow screen shows them in several lines."""
_WORDS = ' class="words"'


def bench_title(bench: QueryBench) -> str:
    """What was measured, in a few words."""
    return f"{TITLES[bench.settings.benchmark]} on Spark"


def bench_facts(bench: QueryBench) -> str:
    """How it was measured, in one line."""
    settings = bench.settings
    repeats = "repeat" if settings.repeats == 1 else "repeats"
    facts = [
        f"{settings.events:,} events in {settings.batches} batches",
        f"{settings.events_per_s:,g} events in each second of their own time",
        f"{settings.repeats} {repeats}, in turn, after one that does not count",
        f"local[{settings.cores}], {format_memory(settings.memory_mib)} of memory",
        f"state in {settings.state_store}, {settings.state_partitions} partitions",
        {"embedded": "events made by the embedded source", "kafka": "events read from Kafka on the same machine"}[
            settings.source
        ],
        "results thrown away, but for those of queries about files",
        *(f"{name} {version}" for name, version in bench.versions.items()),
    ]
    return " · ".join(facts)


def bench_headlines(bench: QueryBench) -> list[str]:
    """What the figures say, in sentences."""
    said = []
    per_core = {query.name: query.per_core_s for query in bench.queries if query.per_core_s is not None}
    if len(per_core) > 1:
        best, worst = max(per_core, key=lambda name: per_core[name]), min(per_core, key=lambda name: per_core[name])
        bounds = f"{per_core[worst]:,.0f} ({worst}) and {per_core[best]:,.0f} ({best})"
        said.append(f"A core takes between {bounds} events per second.")
    elif per_core:
        said += [f"A core takes {rate:,.0f} events per second of {name}." for name, rate in per_core.items()]
    fixed = {query.name: query.fixed_s for query in bench.queries if query.fixed_s is not None}
    if fixed:
        least, most = min(fixed, key=lambda name: fixed[name]), max(fixed, key=lambda name: fixed[name])
        between = (
            f"{duration(fixed[least])} ({least})"
            if least == most
            else f"between {duration(fixed[least])} ({least}) and {duration(fixed[most])} ({most})"
        )
        said.append(f"A batch of {FEW_EVENTS} events takes {between}: what it costs before its first event.")
    largest = max(bench.queries, key=lambda query: query.state_rows or 0)
    if largest.state_rows is not None and largest.state_bytes is not None:
        held = f"{largest.state_rows:,} rows, {size(largest.state_bytes)} of memory"
        said.append(f"{largest.name} keeps the most state: {held}.")
    return said


def bench_warnings(bench: QueryBench) -> list[str]:
    """What a reader has to know before the figures."""
    said = [f"{query.name} failed: {query.error}" for query in bench.failed]
    if bench.is_stopped:
        least = min((len(query.runs) for query in bench.queries if query.error is None), default=0)
        said.append(f"It was stopped: {least} of {bench.settings.repeats} repeats are whole.")
    return said


def bench_page(bench: QueryBench) -> str:
    """The page, as HTML; the same benchmark gives the same page."""
    measured = [query for query in bench.queries if query.runs]
    figures = [_per_core(measured), _batches(measured), _operators(measured)] if measured else []
    drawn = [
        part for number, figure in enumerate(figures, start=1) for part in figure_parts(f"figure-{number}", figure)
    ]
    queries = "\n".join(
        ['<section id="queries">', "<h2>The queries</h2>", _facts(bench), _table(bench.queries), *drawn, "</section>"]
    )
    stages = "\n".join(
        [
            '<section id="operators">',
            "<h2>Their operators</h2>",
            '<p class="facts">Every stage of every query, named after what it does: where its time goes.</p>',
            _stages(measured),
            "</section>",
        ]
    )
    links = {"queries": "The queries", "operators": "Their operators", "definitions": "Definitions", "runs": "Runs"}
    contents = "".join(f'<li><a href="#{place}">{title}</a></li>' for place, title in links.items())
    return whole_page(
        title=bench_title(bench),
        origin=f"{len(bench.queries)} queries, measured in {format_duration(bench.seconds)}.",
        headlines=list_part(bench_headlines(bench), warnings=bench_warnings(bench)),
        contents=f"<ul>{contents}</ul>",
        sections=[queries, stages],
        definitions=_definitions(),
        runs=_runs(measured),
    )


def bench_markdown(bench: QueryBench) -> str:
    """The same as a document: the facts, the sentences and both tables."""
    of_queries, of_stages = markdown_tables(bench.queries)
    warnings = "".join(f"- **{sentence}**\n" for sentence in bench_warnings(bench))
    sentences = "".join(f"- {sentence}\n" for sentence in bench_headlines(bench))
    meanings = "".join(f"- {title}: {meaning}\n" for title, meaning in _meanings())
    return (
        f"# {bench_title(bench)}\n{bench_facts(bench)}\n\n{warnings}{sentences}\n{of_queries}\n"
        f"## Operators\n{of_stages}\n## What each figure is\n{meanings}"
    )


def _facts(bench: QueryBench) -> str:
    return f'<p class="facts">{page_text(bench_facts(bench))}</p>'


def _table(queries: Sequence[QueryFigures]) -> str:
    columns = columns_of(queries)
    rows = [
        _row([*((column.cell(query), column.words) for column in columns), (query.sentence, True)]) for query in queries
    ]
    return table_part(_head([*((column.title, column.words) for column in columns), ("what it answers", True)]), rows)


def _stages(queries: Sequence[QueryFigures]) -> str:
    rows, before = [], ""
    for cells in stage_rows(queries):
        # A query is named at its first stage only: the eye then finds where the next one begins.
        shown = ["" if cells[0] == before else cells[0], *cells[1:]]
        before = cells[0]
        rows.append(_row([(cell, column.words) for cell, column in zip(shown, STAGE_COLUMNS, strict=True)]))
    return table_part(_head([(column.title, column.words) for column in STAGE_COLUMNS]), rows)


def _head(titles: Sequence[tuple[str, bool]]) -> str:
    return _cells(titles, 'th scope="col"', "th")


def _row(cells: Sequence[tuple[str, bool]]) -> str:
    return f"<tr>{_cells(cells, 'td', 'td')}</tr>"


def _cells(cells: Sequence[tuple[str, bool]], begin: str, end: str) -> str:
    """Text, and whether it is words; the first is a name, for which the page has a look of its own."""
    return "".join(
        f"<{begin}{_WORDS if words and place > 0 else ''}>{page_text(text)}</{end}>"
        for place, (text, words) in enumerate(cells)
    )


def _meanings() -> list[tuple[str, str]]:
    queries = [(column.title, column.meaning) for column in COLUMNS if column.meaning]
    stages = [
        (column.title if column.words else f"{column.title} of operators", column.meaning)
        for column in STAGE_COLUMNS
        if column.meaning
    ]
    return queries + stages


def _definitions() -> str:
    return definitions_part(_meanings())


def _per_core(queries: Sequence[QueryFigures]) -> Figure:
    shown = [query for query in queries if query.per_core_s is not None][::-1]
    bounds = [query.per_core_range or (0.0, 0.0) for query in shown]
    values = [query.per_core_s or 0.0 for query in shown]
    figure = bare(90 + _BAR_HEIGHT * len(shown))
    figure.add_bar(
        x=values,
        y=[query.name for query in shown],
        orientation="h",
        marker={"color": palette.colours(["queries"])["queries"]},
        error_x={
            "type": "data",
            "array": [most - value for value, (_, most) in zip(values, bounds, strict=True)],
            "arrayminus": [value - least for value, (least, _) in zip(values, bounds, strict=True)],
            "thickness": 1,
            "color": NEUTRAL,
        },
        hovertext=[figure_text(query.sentence) for query in shown],
    )
    figure.update_xaxes(title="events per second of CPU time", rangemode="tozero")
    return Figure(
        title="What a core takes",
        caption="Events per second of CPU time; the thin lines reach from the least to the most of the repeats.",
        drawn=figure,
    )


def _batches(queries: Sequence[QueryFigures]) -> Figure:
    figure = bare(360)
    names = [query.name for query in queries]
    hues = palette.colours(["batch p50", "batch p95"])
    for title, each_s in (
        ("batch p50", [query.batch_p50_s for query in queries]),
        ("batch p95", [query.batch_p95_s for query in queries]),
    ):
        figure.add_bar(x=names, y=_milliseconds(each_s), name=title, marker={"color": hues[title]})
    figure.add_scatter(
        x=names,
        y=_milliseconds([query.fixed_s for query in queries]),
        mode="markers",
        name="fixed per batch",
        marker={"color": NEUTRAL, "size": 9, "symbol": "line-ew-open", "line": {"width": 3}},
    )
    figure.update_layout(barmode="group", showlegend=True)
    figure.update_yaxes(title="milliseconds", rangemode="tozero")
    return Figure(
        title="How long a batch takes",
        caption=f"The median and the 95th percentile, and what a batch costs before its first event (the median of "
        f"batches of {FEW_EVENTS} events).",
        drawn=figure,
    )


def _milliseconds(each_s: Sequence[float | None]) -> list[float | None]:
    return [None if seconds is None else 1000 * seconds for seconds in each_s]


def _operators(queries: Sequence[QueryFigures]) -> Figure:
    names = [query.name for query in queries][::-1]
    kinds = dict.fromkeys(_kind(stage.name) for query in queries for stage in query.stages)
    hues = palette.colours(kinds)
    figure = bare(90 + _LEGEND_HEIGHT + _BAR_HEIGHT * len(queries))
    for kind in kinds:
        figure.add_bar(
            x=[sum(one.run_s for one in query.stages if _kind(one.name) == kind) for query in queries][::-1],
            y=names,
            orientation="h",
            name=figure_text(kind),
            marker={"color": hues[kind]},
        )
    figure.update_layout(barmode="stack", showlegend=True)
    figure.layout.margin.t += _LEGEND_HEIGHT
    figure.update_xaxes(title="seconds in tasks", rangemode="tozero")
    return Figure(
        title="Where the time goes",
        caption="Run time of all tasks of a run, by what their stage does.",
        drawn=figure,
    )


def _kind(stage: str) -> str:
    """The name of a stage without the number that tells it from others that do the same."""
    words = stage.rsplit(" ", 1)
    return words[0] if len(words) == 2 and words[1].isdigit() and words[0] != "stage" else stage


def _runs(queries: Sequence[QueryFigures]) -> str:
    titles = ("query", "repeat", "time", "CPU time", "events/s per core", "fixed per batch", "checkpoint")
    rows = []
    for query in queries:
        for repeat, run in enumerate(query.runs, start=1):
            cells = (
                query.name,
                str(repeat),
                wording.seconds(run.seconds),
                wording.MISSING if run.cpu_s is None else wording.seconds(run.cpu_s),
                f"{query.events / run.cpu_s:,.0f}" if run.cpu_s else wording.MISSING,
                wording.MISSING if run.fixed_s is None else duration(run.fixed_s),
                size(run.checkpoint_bytes),
            )
            rows.append(_row([(cell, False) for cell in cells]))
    head = _head([(title, False) for title in titles])
    count = sum(len(query.runs) for query in queries)
    return f"<details><summary>All {count} runs</summary>{table_part(head, rows)}</details>"
