"""The commands about forecasts: how good each model would have been on a load of the past."""

from __future__ import annotations

import json as plain_json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tidewise.cli.output import console, print_json, print_sentence
from tidewise.core import BadInputError, InvalidValueError, parse_duration_s
from tidewise.experiments.backtest import Backtest, BacktestSettings, backtest
from tidewise.experiments.backtest_origins import BLOCK_S, BLOCKS
from tidewise.forecast import FORECASTERS
from tidewise.report.backtest_page import backtest_headline, backtest_page, subject_facts
from tidewise.report.backtest_table import backtest_table
from tidewise.report.parts import write_page

forecast_commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Forecasts of a load, and how good they would have been.",
    epilog="Begin with:  tidewise forecast backtest trace.csv",
)

PAGE_NAME = "backtest.html"
RESULTS_NAME = "backtest.json"


@forecast_commands.callback()
def forecast() -> None:
    """Forecasts of a load, and how good they would have been."""


@forecast_commands.command(name="backtest")
def backtest_loads(
    loads: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACE...", help="CSV files or shapes, with their settings; see tidewise loads.", show_default=False
        ),
    ],
    *,
    models: Annotated[
        str | None, typer.Option("--models", help=f"Some of {', '.join(FORECASTERS)}; by default all.")
    ] = None,
    sample: Annotated[str, typer.Option("--sample", help="Over how long rates are averaged.")] = "60s",
    every: Annotated[str, typer.Option("--every", help="From one forecast that is judged to the next.")] = "10min",
    hours: Annotated[
        float, typer.Option("--hours", help="How much of the end of each load is judged; the rest is learnt.")
    ] = 25.0,
    noise: Annotated[
        float, typer.Option("--noise", help="Noise on every second of the load, as a share: 0.1 is 10 %.")
    ] = 0.0,
    seed: Annotated[
        list[int] | None, typer.Option("--seed", help="Of the noise and of shapes; several are judged together.")
    ] = None,
    compress: Annotated[
        bool, typer.Option("--compress", help="Take every row as one sample where rows lie further apart than those.")
    ] = False,
    master: Annotated[str, typer.Option("--master", help="The Spark that computes it.")] = "local[*]",
    out: Annotated[
        Path, typer.Option("--out", help=f"The folder for {PAGE_NAME} and {RESULTS_NAME}, which are replaced.")
    ] = Path("runs/backtest"),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")] = False,
) -> None:
    """Let every model forecast a load again and again, each time from what was known by then, and say how good it was.

    Error of the median 0-10, 10-20 and 20-30 minutes ahead, how often the 90 % interval held, by how much the peak of
    the next 10 minutes was missed, and the time per forecast; as a table and as a page with figures. The models are
    spread over the cores of this machine, or over a cluster, by Spark: needs Java 17 and PySpark (the extra `spark`).

    For example:

    tidewise forecast backtest trace.csv

    tidewise forecast backtest trace.csv "daily mean_per_s=1000" --models naive,ensemble --noise 0.1 --seed 0 --seed 1

    tidewise forecast backtest half_hours.csv --compress        every row is taken as one sample of 60 s
    """
    settings = BacktestSettings(
        models=tuple(FORECASTERS) if models is None else tuple(name.strip() for name in models.split(",")),
        sample_s=_whole_seconds("--sample", sample),
        every_s=_whole_seconds("--every", every),
        judged_s=3600.0 * hours,
        noise_share=noise,
        seeds=tuple(seed or [0]),
        compress=compress,
    )
    with _telling(quiet=json) as progress:
        found = backtest(loads, settings, master=master, progress=progress)
    page = out / PAGE_NAME
    document = _document(found, page)
    write_page(backtest_page(found), page)
    write_page(plain_json.dumps(document, indent=2, allow_nan=False) + "\n", out / RESULTS_NAME)
    if json:
        print_json(document)
        return
    screen = console()
    for subject in found.subjects:
        scores = found.scores(subject)
        print_sentence(f"{subject.load} ({subject_facts(subject, found)})", screen)
        screen.print(backtest_table(scores, width=screen.width))
        print_sentence(backtest_headline(subject, scores), screen)
        screen.print()
    print_sentence(f"* the best of its column. The page: {page}", screen)


def _whole_seconds(option: str, text: str) -> int:
    try:
        seconds = parse_duration_s(text)
    except InvalidValueError as error:
        raise BadInputError(f"{option}: {error}") from error
    if seconds < 1.0 or seconds != int(seconds):
        raise BadInputError(f"{option} must be a whole number of seconds, 1s or more, not {text!r}")
    return int(seconds)


@contextmanager
def _telling(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error; one sentence where that is no terminal."""
    errors = Console(stderr=True)
    if quiet or not errors.is_terminal:

        def say(done: int, total: int) -> None:
            if done == 0 and not quiet and total not in told:
                told.append(total)
                print_sentence(f"judging {total} parts on Spark", errors)

        told: list[int] = []
        yield say
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors) as bar:
        task = bar.add_task("starting Spark", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, description="judging" if done else "starting Spark", completed=done, total=total)

        yield show


def _document(found: Backtest, page: Path) -> dict[str, object]:
    settings = found.settings
    return {
        "page": str(page),
        "settings": asdict(settings),
        "blocks_s": [[block * BLOCK_S, (block + 1) * BLOCK_S] for block in range(BLOCKS)],
        "loads": [
            {
                "load": subject.load,
                "compressed": subject.compressed,
                "seeds": list(subject.samples),
                "samples": len(next(iter(subject.samples.values()))),
                "origins": len(subject.origins),
                "models": {model: asdict(score) for model, score in found.scores(subject).items()},
            }
            for subject in found.subjects
        ],
    }
