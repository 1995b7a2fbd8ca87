"""The tables of a benchmark of queries: one definition of their columns for the page, the terminal and documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from tidewise.experiments.query_bench import FEW_EVENTS
from tidewise.experiments.query_figures import QueryFigures, StageFigures
from tidewise.report import wording
from tidewise.report.fitted_table import fitted_table

_KIB, _MIB = 1024.0, 1024.0**2
_FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One figure of every query."""

    title: str
    meaning: str
    cell: Callable[[QueryFigures], str]
    words: bool = False
    """Whether it holds text rather than a number."""


def duration(seconds: float) -> str:
    """Of a batch or a run, with the digits that matter."""
    return f"{1000 * seconds:,.0f} ms" if seconds < 0.9995 else wording.seconds(seconds)


def size(count: float) -> str:
    """An amount of memory or disk."""
    if count < _MIB:
        return f"{count / _KIB:.1f} KiB"
    return f"{count / _MIB:.1f} MiB" if count < 100 * _MIB else f"{count / _MIB:,.0f} MiB"


def _of(pick: Callable[[QueryFigures], float | None], form: Callable[[float], str]) -> Callable[[QueryFigures], str]:
    def cell(query: QueryFigures) -> str:
        value = pick(query)
        return wording.MISSING if value is None else form(value)

    return cell


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _range(query: QueryFigures) -> str:
    bounds = query.per_core_range
    return wording.MISSING if bounds is None else f"{bounds[0]:,.0f}..{bounds[1]:,.0f}"


COLUMNS: tuple[Column, ...] = (
    Column(title="query", meaning="", cell=lambda query: query.name, words=True),
    Column(
        title="events",
        meaning="How many events there were, of all types.",
        cell=_of(lambda query: query.events, _whole),
    ),
    Column(
        title="time",
        meaning="From the start of the query, on a Spark that is warm, until it has read every event, written every "
        "result and ended: the median of the repeats. Making or fetching the events is part of it.",
        cell=_of(lambda query: query.seconds, wording.seconds),
    ),
    Column(
        title="cores used",
        meaning="CPU time over time: that of the driver, the executor and Python's workers, as the system counts it.",
        cell=_of(lambda query: query.cores, wording.ratio),
    ),
    Column(
        title="cores x time",
        meaning="The CPU time.",
        cell=_of(lambda query: query.cpu_s, wording.seconds),
    ),
    Column(title="events/s", meaning="Events over time.", cell=_of(lambda query: query.per_s, _whole)),
    Column(
        title="events/s per core",
        meaning="Events over CPU time: what one busy core takes. It is the figure to compare engines by.",
        cell=_of(lambda query: query.per_core_s, _whole),
    ),
    Column(title="of the repeats", meaning="The least and the most events/s per core of the repeats.", cell=_range),
    Column(
        title="batch p50",
        meaning="How long a batch takes, from its trigger to its commit: the median over the batches of all repeats, "
        "without the first of each, which plans the query and makes the state stores.",
        cell=_of(lambda query: query.batch_p50_s, duration),
    ),
    Column(
        title="batch p95", meaning="The same, 95th percentile.", cell=_of(lambda query: query.batch_p95_s, duration)
    ),
    Column(
        title="fixed per batch",
        meaning=f"What a batch costs before its first event: the median batch of {FEW_EVENTS} events.",
        cell=_of(lambda query: query.fixed_s, duration),
    ),
    Column(
        title="state rows",
        meaning="Rows in all state stores after the batch that left most.",
        cell=_of(lambda query: query.state_rows, _whole),
    ),
    Column(
        title="state memory",
        meaning="Memory of these state stores then, as Spark counts it.",
        cell=_of(lambda query: query.state_bytes, size),
    ),
)
_REASON = Column(title=_FAILED, meaning="Why there are no figures.", cell=lambda query: query.error or "", words=True)
_FIRST_TO_GO = ("cores x time", "of the repeats", "events", "cores used", "state memory", "events/s")
"""What a narrow terminal does without, the first first."""


def columns_of(queries: Sequence[QueryFigures]) -> tuple[Column, ...]:
    """All columns; one more where a query failed."""
    return (*COLUMNS, _REASON) if any(query.error is not None for query in queries) else COLUMNS


def query_table(queries: Sequence[QueryFigures], *, width: int) -> Table:
    """For a terminal of this width."""
    cells = {column.title: [column.cell(query) for query in queries] for column in columns_of(queries)}
    words = {column.title for column in columns_of(queries) if column.words}
    return fitted_table(cells, width=width, words=words, breaking=words, first_to_go=_FIRST_TO_GO)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageColumn:
    """One figure of every stage of a query."""

    title: str
    meaning: str
    cell: Callable[[QueryFigures, StageFigures], str]
    words: bool = False


def _share(query: QueryFigures, stage: StageFigures) -> str:
    total_s = sum(one.run_s for one in query.stages)
    return wording.percent(stage.run_s / total_s) if total_s > 0.0 else wording.MISSING


STAGE_COLUMNS: tuple[StageColumn, ...] = (
    StageColumn(title="query", meaning="", cell=lambda query, _: query.name, words=True),
    StageColumn(
        title="operators",
        meaning="What the stage does, as Spark's own pages name it: the operators of the plan, in the order in which "
        "rows pass through them, but for those that only move rows or are compiled into others. A number tells apart "
        "stages that do the same.",
        cell=lambda _, stage: stage.name,
        words=True,
    ),
    StageColumn(
        title="time",
        meaning="From its start to its end, in all batches of the run with the median time. Stages can overlap, and "
        "what Spark does between them is in none.",
        cell=lambda _, stage: duration(stage.seconds),
    ),
    StageColumn(
        title="in tasks",
        meaning="The run time of its tasks, in all of these batches together.",
        cell=lambda _, stage: duration(stage.run_s),
    ),
    StageColumn(title="share", meaning="Of the run time of all tasks of the query.", cell=_share),
    StageColumn(
        title="rows",
        meaning="Rows that it read, from sources or from other stages, in all of these batches together.",
        cell=lambda _, stage: _whole(stage.rows),
    ),
    StageColumn(title="tasks", meaning="In one batch.", cell=lambda _, stage: _whole(stage.tasks)),
    StageColumn(
        title="skew",
        meaning="The longest task over the mean one, in the median batch: 1 is even.",
        cell=lambda _, stage: wording.MISSING if stage.skew is None else wording.ratio(stage.skew),
    ),
)


def stage_rows(queries: Sequence[QueryFigures]) -> Iterator[list[str]]:
    """The cells of every stage of every query."""
    for query in queries:
        for stage in query.stages:
            yield [column.cell(query, stage) for column in STAGE_COLUMNS]


def stage_table(queries: Sequence[QueryFigures], *, width: int) -> Table:
    """For a terminal of this width."""
    rows = list(stage_rows(queries))
    cells = {column.title: [row[place] for row in rows] for place, column in enumerate(STAGE_COLUMNS)}
    words = {column.title for column in STAGE_COLUMNS if column.words}
    return fitted_table(cells, width=width, words=words, breaking=words, first_to_go=("share", "tasks"))


def markdown_tables(queries: Sequence[QueryFigures]) -> tuple[str, str]:
    """Both tables with all columns, for a document: the queries, and their stages."""
    columns = columns_of(queries)
    of_queries = _markdown(
        [(column.title, column.words) for column in columns],
        [[column.cell(query) for column in columns] for query in queries],
    )
    of_stages = _markdown([(column.title, column.words) for column in STAGE_COLUMNS], list(stage_rows(queries)))
    return of_queries, of_stages


def _markdown(heads: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> str:
    lines: list[Sequence[str]] = [[title for title, _ in heads], ["---" if words else "---:" for _, words in heads]]
    lines += [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
