"""The commands about many jobs at once: their models, and how good forecasts of their loads would have been."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tidewise.cli.output import console, print_json, print_sentence
from tidewise.core import format_duration
from tidewise.experiments.fleet_backtest import FleetBacktestSettings, HorizonSummary, backtest_fleet, fleet_summary
from tidewise.experiments.fleet_fit import fit_fleet, fleet_facts
from tidewise.experiments.fleet_tables import BACKTEST, MODELS
from tidewise.pipeline.context import spark_session
from tidewise.pipeline.grouped import Worked

fleet_commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Many jobs at once: their models, and how good forecasts of their loads would have been.",
    epilog="Begin with:  tidewise fleet fit --tables DIR",
)

_Tables = Annotated[
    Path,
    typer.Option("--tables", help="The folder of tables that tidewise telemetry tables writes.", show_default=False),
]
_Master = Annotated[str, typer.Option("--master", help="The Spark that computes it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of sentences.")]


@fleet_commands.callback()
def fleet() -> None:
    """Many jobs at once: their models, and how good forecasts of their loads would have been."""


@fleet_commands.command(name="fit")
def fit(*, tables: _Tables, master: _Master = "local[*]", json: _Json = False) -> None:
    """Fit the forecaster, and the models of capacity, latency and memory, of every job in the tables.

    They become the table `models`, a row per job, in the place of what was fitted before. A job that cannot be fitted
    is a row with the reason. Of each job the newest 3,360 minutes and some 240 windows of all its time are looked at.
    Needs Java 17 and PySpark (the extra `spark`).

    For example:

    tidewise fleet fit --tables tables

    tidewise history "SELECT job, records_per_core_s, error_10min FROM models" --tables tables
    """
    folder = tables / MODELS
    with spark_session(master) as session:
        with _telling("fitting", quiet=json) as progress:
            worked = fit_fleet(session, tables, folder, now_unix_s=time.time(), progress=progress)
        facts = fleet_facts(session, folder)
    if json:
        print_json({"folder": str(folder), **asdict(worked), **asdict(facts)})
        return
    _say_worked("fitted", worked)
    for sentence in facts.sentences():
        print_sentence(sentence)
    print_sentence(f"The models: {folder}")


@fleet_commands.command(name="backtest")
def backtest(
    *,
    tables: _Tables,
    models: Annotated[str, typer.Option("--models", help="Forecasters, with commas between them.")] = "naive,ensemble",
    jobs: Annotated[int, typer.Option("--jobs", help="At most so many jobs, chosen by their names; 0: all.")] = 200,
    origins: Annotated[int, typer.Option("--origins", help="Forecasts of each job that are judged.")] = 12,
    master: _Master = "local[*]",
    json: _Json = False,
) -> None:
    """Let forecasters forecast the load of every job again and again, and say how good they were 1 to 10 min ahead.

    The table `backtest` gets a row per job, model and horizon, in the place of what was there before. The ensemble
    takes a few seconds a job. Needs Java 17 and PySpark (the extra `spark`).

    For example:

    tidewise fleet backtest --tables tables --jobs 50
    """
    settings = FleetBacktestSettings(
        models=tuple(name.strip() for name in models.split(",")), origins=origins, most_jobs=jobs or None
    )
    folder = tables / BACKTEST
    with spark_session(master) as session:
        with _telling("judging", quiet=json) as progress:
            worked = backtest_fleet(session, tables, folder, settings, progress=progress)
        found = fleet_summary(session, folder)
    if json:
        print_json({"folder": str(folder), **asdict(worked), "horizons": [asdict(each) for each in found]})
        return
    _say_worked("judged", worked)
    console().print(_summary_table(found))
    print_sentence(f"By job: {folder}")


def _say_worked(what: str, worked: Worked) -> None:
    done = worked.groups - worked.failed
    each = format_duration(worked.wall_s / worked.groups)
    print_sentence(f"{done:,} of {worked.groups:,} jobs {what} in {format_duration(worked.wall_s)}, {each} each.")
    if worked.failed:
        print_sentence(f"{worked.failed:,} could not be: the column error of the table says why.")


def _summary_table(found: list[HorizonSummary]) -> Table:
    table = Table(box=None)
    for head in ("ahead", "model"):
        table.add_column(head)
    for head in ("jobs", "error (median)", "inside 90 %", "better than naive"):
        table.add_column(head, justify="right")
    for each in found:
        shares = (each.wape_median, each.inside, each.beats_naive)
        table.add_row(format_duration(each.horizon_s), each.model, f"{each.jobs:,}", *map(_percent, shares))
    return table


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


@contextmanager
def _telling(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error; one sentence at every tenth where that is no terminal."""
    errors = Console(stderr=True)
    if quiet:
        yield lambda _done, _total: None
        return
    if not errors.is_terminal:
        told = [-1]

        def say(done: int, total: int) -> None:
            tenth = 10 * done // total
            if tenth > told[0]:
                told[0] = tenth
                print_sentence(f"{what}: {done:,} of {total:,} jobs", errors)

        yield say
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors) as bar:
        task = bar.add_task("reading the tables", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, description=f"{what} jobs", completed=done, total=total)

        yield show
