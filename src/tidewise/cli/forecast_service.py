"""The commands of the services for all jobs: their forecasts, and TidalScale's decisions from topics alone."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from tidewise.cli.output import print_json, print_sentence
from tidewise.core import BadInputError, InvalidValueError, parse_duration_s
from tidewise.core.quantities import parse_range
from tidewise.core.telemetry import METRICS_TOPIC
from tidewise.experiments.forecast_service import FORECAST_TOPIC, ForecastSettings, forecast_service
from tidewise.experiments.per_job_services import run_service
from tidewise.experiments.signals import asked_to_stop
from tidewise.experiments.telemetry_target import Target
from tidewise.experiments.tidalscale_service import DecisionSettings, known_loads, tidalscale_service
from tidewise.pipeline.per_job_query import PARTITIONS, BatchTold, PerJobService

service_commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Services for all jobs on Spark: forecasts of their loads, and decisions.",
    epilog="Begin with:  tidewise service forecast --from history/rows --to history/forecasts --once",
)

STATE = Path("runs/services")

From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="PLACE",
        help=f"Where reports are told: a folder, or kafka://HOST:PORT (the topic {METRICS_TOPIC!r}).",
        show_default=False,
    ),
]
To = Annotated[
    str,
    typer.Option("--to", metavar="PLACE", help="Where to tell it: a folder, or kafka://HOST:PORT.", show_default=False),
]
Every = Annotated[str, typer.Option("--every", help="From one batch to the next.")]
Once = Annotated[bool, typer.Option("--once", help="End when all that is there is read.")]
State = Annotated[
    Path | None,
    typer.Option("--state", help=f"Where it is kept how far it is; by default {STATE}/NAME. Another begins anew."),
]
Partitions = Annotated[
    int, typer.Option("--partitions", min=1, help="Into how many pieces what is kept is cut; for good.")
]
Master = Annotated[str, typer.Option("--master", help="The Spark that computes it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document at the end, and nothing else.")]


@service_commands.command()
def forecast(
    *,
    from_: From,
    to: To,
    every: Every = "60s",
    once: Once = False,
    horizon: Annotated[str, typer.Option("--horizon", help="How far ahead.")] = "180s",
    state: State = None,
    partitions: Partitions = PARTITIONS,
    master: Master = "local[*]",
    json: Json = False,
) -> None:
    """Forecast the load of every job, short-term and long-term, each with its recent error, and both together.

    A line through the last 540 s goes to the topic (or folder) forecast-short, Holt-Winters with a daily season to
    forecast-long, and both, weighed by each other's error, to forecast; a new one for every job and minute.

    For example:

    tidewise service forecast --from kafka://127.0.0.1:9092 --to kafka://127.0.0.1:9092

    tidewise service forecast --from history/rows --to history/forecasts --once
    """
    settings = ForecastSettings(horizon_s=_seconds("--horizon", horizon))
    _run(
        forecast_service(settings),
        reads=[Target.parse(from_)],
        tells=_told_to(to),
        every_s=None if once else _seconds("--every", every),
        state=state,
        partitions=partitions,
        master=master,
        json=json,
    )


@service_commands.command()
def tidalscale(
    *,
    from_: From,
    to: To,
    forecasts: Annotated[
        str | None,
        typer.Option(
            "--forecasts",
            metavar="PLACE",
            help=f"Where forecasts are told; by default the topic {FORECAST_TOPIC!r} of the same broker.",
        ),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option("--tables", metavar="DIR", help="Tables of telemetry, whose performance to begin with."),
    ] = None,
    every: Every = "10s",
    once: Once = False,
    executors: Annotated[str, typer.Option("--executors", metavar="LEAST..MOST", help="To choose between.")] = "1..20",
    cooldown: Annotated[str, typer.Option("--cooldown", help="How long nothing is decided after a change.")] = "180s",
    lag: Annotated[str, typer.Option("--lag", help="More waiting than arrives in this time is too much.")] = "1s",
    state: State = None,
    partitions: Partitions = PARTITIONS,
    master: Master = "local[*]",
    json: Json = False,
) -> None:
    """Decide for every job how many executors it should have, as TidalScale does, from topics alone.

    Reads reports and forecasts, keeps the table of what each job was seen to cope with, and tells what it decides to
    the topic (or folder) decisions: whenever that is something new.

    For example:

    tidewise service tidalscale --from kafka://127.0.0.1:9092 --to kafka://127.0.0.1:9092 --lag 10s

    tidewise service tidalscale --from history/rows --forecasts history/forecasts/forecast --to history --once
    """
    reports = Target.parse(from_)
    if forecasts is None and reports.folder is not None:
        raise BadInputError(
            "--forecasts: name the folder that forecasts are told to, such as history/forecasts/forecast"
        )
    told = f"kafka://{reports.brokers}/{FORECAST_TOPIC}" if forecasts is None else forecasts
    least, most = _range("--executors", executors)
    settings = DecisionSettings(
        least_executors=least,
        most_executors=most,
        cooldown_s=_seconds("--cooldown", cooldown),
        lag_s=_seconds("--lag", lag),
    )
    _run(
        tidalscale_service(settings, {} if tables is None else known_loads(tables, master=master)),
        reads=[reports, Target.parse(told)],
        tells=_told_to(to),
        every_s=None if once else _seconds("--every", every),
        state=state,
        partitions=partitions,
        master=master,
        json=json,
    )


def _run(
    service: PerJobService,
    *,
    reads: list[Target],
    tells: Target,
    every_s: float | None,
    state: Path | None,
    partitions: int,
    master: str,
    json: bool,
) -> None:
    stop = threading.Event()
    batches = 0

    def say(sentence: str) -> None:
        if not json:
            sys.stderr.write(f"{sentence}\n")

    def batch(told: BatchTold) -> None:
        nonlocal batches
        batches += 1
        say(f"batch {told.batch}: {told.lines:,} lines in {told.took_s:.1f} s")
        if told.lost:
            say(f"batch {told.batch}: {told.lost:,} lines were deleted from their topic before they could be read")

    places = " and ".join(str(place) for place in reads)
    say(f"Reading {places}{'' if every_s is None else '; Ctrl-C ends it'}.")
    with asked_to_stop(stop.set):
        lines = run_service(
            service,
            reads=reads,
            tells=tells,
            state=STATE / service.name if state is None else state,
            every_s=every_s,
            master=master,
            partitions=partitions,
            stop=stop,
            tell=say,
            batch=batch,
        )
    if json:
        print_json({"service": service.name, "lines": lines, "batches": batches})
        return
    where = f"kafka://{tells.brokers}" if tells.folder is None else str(tells.folder)
    count = f"{batches} batch{'' if batches == 1 else 'es'}"
    print_sentence(f"{lines:,} lines were read in {count}. What came of them: {where}")


def _told_to(text: str) -> Target:
    """A broker or a folder: which topics, or folders in it, is the service's to say."""
    target = Target.parse(text)
    if target.folder is None and text.rstrip("/").endswith(f"{target.brokers}/{target.topic}"):
        raise BadInputError(f"--to: the topics have names of their own; write kafka://{target.brokers}")
    return target


def _seconds(option: str, text: str) -> float:
    try:
        return parse_duration_s(text)
    except InvalidValueError as error:
        raise BadInputError(f"{option}: {error}") from error


def _range(option: str, text: str) -> tuple[int, int]:
    try:
        least, most, step = parse_range(text)
    except InvalidValueError as error:
        raise BadInputError(f"{option}: {error}") from error
    if step is not None or not least.isdigit() or not most.isdigit():
        raise BadInputError(f"{option} must be two whole numbers such as 1..20, not {text!r}")
    return int(least), int(most)
