"""`tidewise bench`: queries on real Spark, what a core takes of each, how long a batch, and where its time goes."""

from __future__ import annotations

import json as plain_json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tidewise.cli.output import STOPPED, console, print_json, print_sentence
from tidewise.core import BadInputError, InvalidValueError, format_duration, parse_duration_s, parse_memory_mib
from tidewise.core.readers import did_you_mean
from tidewise.experiments.query_bench import (
    BATCHES,
    EVENTS,
    EVENTS_PER_S,
    REPEATS,
    BenchSettings,
    QueryBench,
    Step,
    as_document,
    bench_queries,
    chosen_queries,
)
from tidewise.jobs.measure_request import BENCHMARKS
from tidewise.report.parts import write_page
from tidewise.report.query_page import bench_facts, bench_headlines, bench_markdown, bench_page, bench_warnings
from tidewise.report.query_table import query_table, stage_table

PAGE_NAME, MARKDOWN_NAME, RESULTS_NAME = "bench.html", "bench.md", "bench.json"
Number = TypeVar("Number", int, float)
FAILED = 1
"""The exit code where a query failed."""


def bench(
    benchmark: Annotated[
        str, typer.Argument(metavar="BENCHMARK", help=f"One of {', '.join(BENCHMARKS)}.", show_default=False)
    ],
    *,
    queries: Annotated[
        str | None, typer.Option("--queries", help="Some of them, with commas between.", show_default="all")
    ] = None,
    events: Annotated[int, typer.Option("--events", help="How many events each query reads.")] = EVENTS,
    batches: Annotated[int, typer.Option("--batches", help="In how many batches.")] = BATCHES,
    repeats: Annotated[
        int, typer.Option("--repeats", help="How often each is measured, after once that does not count.")
    ] = REPEATS,
    state_store: Annotated[
        str, typer.Option("--state-store", help="Where state is kept: rocksdb or hdfs.")
    ] = "rocksdb",
    state_partitions: Annotated[int, typer.Option("--state-partitions", help="Partitions of the state.")] = 2,
    source: Annotated[
        str, typer.Option("--source", help="embedded: made inside Spark; kafka: read from a broker on this machine.")
    ] = "embedded",
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            help="Events in each second of their own time: more of them fall into the same windows.",
            show_default=", ".join(f"{name} {per_s:g}" for name, per_s in EVENTS_PER_S.items()),
        ),
    ] = None,
    cores: Annotated[
        int | None, typer.Option("--cores", help="How many tasks run at a time.", show_default="all there are")
    ] = None,
    memory: Annotated[str, typer.Option("--memory", help="Of the JVM.")] = "2GiB",
    limit: Annotated[str, typer.Option("--limit", help="A run that takes longer has failed.")] = "10min",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help=f"The folder for {PAGE_NAME}, {MARKDOWN_NAME} and {RESULTS_NAME}, which are replaced.",
            show_default="runs/bench-BENCHMARK",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")] = False,
) -> None:
    """Measure the queries of Nexmark (q0 to q22) or of the price search machine (psm), on one warm Spark.

    Each query reads the same events to their end, in batches; again and again, one query after the other, so that what
    else the machine does hits all alike. Time, events per second and core (by the CPU time of everything, Python's
    workers included), batches, state, what a batch costs before its first event, and the time of each operator: as a
    table, as Markdown, and as a page with figures. Needs Java 17 and PySpark (the extra `spark`).

    For example:

    tidewise bench nexmark

    tidewise bench nexmark --queries q5,q8 --events 1000000 --state-store hdfs

    tidewise bench psm --queries q4 --source kafka
    """
    if benchmark not in BENCHMARKS:
        raise BadInputError(f"there is no benchmark {benchmark!r}{did_you_mean(benchmark, BENCHMARKS)}")
    chosen = chosen_queries(benchmark, queries, state_store=state_store)
    try:
        settings = BenchSettings(
            benchmark=benchmark,
            queries=tuple(chosen),
            events=events,
            batches=batches,
            repeats=repeats,
            state_store=state_store,
            state_partitions=state_partitions,
            source=source,
            events_per_s=EVENTS_PER_S[benchmark] if rate is None else rate,
            cores=(os.cpu_count() or 1) if cores is None else cores,
            memory_mib=_read("--memory", memory, parse_memory_mib),
            at_most_s=_read("--limit", limit, parse_duration_s),
        )
    except InvalidValueError as error:
        raise BadInputError(str(error)) from error
    folder = out or Path("runs") / f"bench-{benchmark}"
    with _telling(settings, quiet=json) as (say, progress):
        found = bench_queries(settings, chosen, folder, say=say, progress=progress)
    _show(found, folder, json=json)
    if found.is_stopped:
        raise typer.Exit(STOPPED)
    if found.failed:
        raise typer.Exit(FAILED)


def _read(option: str, text: str, parse: Callable[[str], Number]) -> Number:
    try:
        return parse(text)
    except InvalidValueError as error:
        raise BadInputError(f"{option}: {error}") from error


def _show(found: QueryBench, folder: Path, *, json: bool) -> None:
    page = folder / PAGE_NAME
    document = {"page": str(page), **as_document(found)}
    write_page(bench_page(found), page)
    write_page(bench_markdown(found), folder / MARKDOWN_NAME)
    write_page(plain_json.dumps(document, indent=2, allow_nan=False) + "\n", folder / RESULTS_NAME)
    if json:
        print_json(document)
        return
    screen = console()
    screen.print(stage_table(found.queries, width=screen.width))
    print_sentence(bench_facts(found), screen)
    screen.print(query_table(found.queries, width=screen.width))
    for sentence in (*bench_warnings(found), *bench_headlines(found)):
        print_sentence(sentence, screen)
    print_sentence(f"The page: {page}; as Markdown: {folder / MARKDOWN_NAME}", screen)


Telling = tuple[Callable[[str], None], Callable[[Step], None]]


@contextmanager
def _telling(settings: BenchSettings, *, quiet: bool) -> Iterator[Telling]:
    """How long it will take, and then a line for each run, on standard error; with a bar where that is a terminal."""
    errors = Console(stderr=True)
    if quiet:
        yield lambda _: None, lambda _: None
        return
    count = len(settings.queries)
    print_sentence(
        f"{count} {'query' if count == 1 else 'queries'} of {settings.events:,} events, {settings.repeats} "
        f"{'time' if settings.repeats == 1 else 'times'} after a warm-up, on {settings.cores} "
        f"{'core' if settings.cores == 1 else 'cores'}: about {format_duration(_round_s(settings.expected_s))}; Ctrl-C "
        "keeps what is measured",
        errors,
    )
    if not errors.is_terminal:
        yield lambda sentence: print_sentence(sentence, errors), lambda step: print_sentence(_said(step), errors)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=errors) as bar:
        task = bar.add_task("starting Spark", total=(1 + settings.repeats) * count)

        def show(step: Step) -> None:
            print_sentence(_said(step), bar.console)
            left = f"about {format_duration(_round_s(step.left_s))} left" if step.left_s > 0 else "done"
            bar.update(task, completed=step.done, description=left)

        yield lambda sentence: print_sentence(sentence, bar.console), show


def _said(step: Step) -> str:
    of = "warm-up" if step.repeat == 0 else f"repeat {step.repeat}"
    if step.figures is None:
        return f"{of}, {step.query}: failed: {step.error}"
    seconds, cpu_s = step.figures.seconds, step.figures.cpu_s
    rate = "" if not cpu_s else f", {step.events / cpu_s:,.0f} events/s per core"
    return f"{of}, {step.query}: {format_duration(seconds)}{rate}"


def _round_s(seconds: float) -> float:
    """Nobody knows it to the second."""
    return 60.0 * max(1, round(seconds / 60.0)) if seconds > 90.0 else 10.0 * max(1, round(seconds / 10.0))
