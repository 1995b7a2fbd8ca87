"""`tidewise telemetry ship`: tells the history of jobs, from their runs or from what others keep of them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from tidewise.cli.live import RUNS
from tidewise.cli.output import BAD_INPUT, STOPPED, print_json, print_sentence
from tidewise.core import BadInputError
from tidewise.core.telemetry import ROWS
from tidewise.experiments.advise_terms import Terms, terms_of_job
from tidewise.experiments.explain_run import find_recorded
from tidewise.experiments.job_file import JobFile
from tidewise.experiments.record import JOURNAL_FILE, PARTIAL_SUFFIX
from tidewise.experiments.signals import asked_to_stop
from tidewise.experiments.telemetry_prometheus import PrometheusSource
from tidewise.experiments.telemetry_ship import Shipped, Shipper, refuse_twice
from tidewise.experiments.telemetry_sources import LogSource, RunSource, Source
from tidewise.experiments.telemetry_target import Target

telemetry_commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="The history of many jobs, as tables.",
    epilog="Begin with:  tidewise telemetry ship runs/clicks --to history/rows",
)

_PROMETHEUS_SUFFIX = ".toml"
_MEMORY = RUNS / "telemetry"
_PROGRESS_EVERY_S = 10.0


@telemetry_commands.command()
def ship(
    *,
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Runs or folders of runs, event logs of programs, or files that say how to ask Prometheus.",
            show_default=False,
        ),
    ],
    to: Annotated[
        str,
        typer.Option("--to", metavar="TARGET", help="A folder, or kafka://HOST:PORT/TOPIC.", show_default=False),
    ],
    follow: Annotated[bool, typer.Option("--follow", help="Go on while they are on; Ctrl-C ends it.")] = False,
    job_file: Annotated[
        Path | None,
        typer.Option("--job-file", metavar="FILE", help="For event logs and Prometheus: promises and prices."),
    ] = None,
    memory: Annotated[
        Path,
        typer.Option("--memory", help="Where it is kept how far event logs and Prometheus were told."),
    ] = _MEMORY,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")] = False,
) -> None:
    """Tell what came of runs as rows, for whoever keeps the history of many jobs; nothing of the runs is changed.

    What was told before is not told again. Where this is killed, some rows come twice, known by their run and line, and
    none is lost. A broker that is away is tried again. A program that Tidewise does not run can be followed by its
    event log, or by a Prometheus server.

    For example:

    tidewise telemetry ship runs/clicks --to history/rows

    tidewise telemetry ship runs/clicks runs/orders --to kafka://127.0.0.1:9092/metrics --follow

    tidewise telemetry ship /var/spark-events/app-1 --job-file job.toml --to history/rows
    """
    target = Target.parse(to)
    terms = None if job_file is None else JobFile(job_file)
    sources = [source for path in runs for source in _sources(path, terms, memory=memory)]
    refuse_twice(sources)
    sink = target.open()
    shipper = Shipper(sources, sink, target=str(target), tell=_warn, progress=_Progress(quiet=json), once=not follow)
    if follow and not json:
        _warn(f"Following {len(sources)} {'run' if len(sources) == 1 else 'runs'}; Ctrl-C ends it.")
    try:
        with asked_to_stop(shipper.stop):
            shipped = shipper.run()
    finally:
        sink.close()
    _say(shipped, target, json=json)
    if shipped.problems:
        raise typer.Exit(BAD_INPUT)
    if shipped.waiting:
        raise typer.Exit(STOPPED)


def _sources(path: Path, job: JobFile | None, *, memory: Path) -> list[Source]:
    """What this names; BadInputError where it names nothing that rows could be read from."""
    terms: Terms | None = None if job is None else terms_of_job(job)
    if path.suffix == _PROMETHEUS_SUFFIX and not path.is_dir():
        return [PrometheusSource(path, memory=memory, terms=terms)]
    if not path.exists() and not path.with_name(path.name + PARTIAL_SUFFIX).exists():
        raise BadInputError(f"there is no {path}; name a run, an event log, or a file that says how to ask Prometheus")
    folders = sorted(journal.parent for journal in path.glob(f"*/{JOURNAL_FILE}"))
    is_run = (path / JOURNAL_FILE).exists() or not path.exists()
    if is_run or folders:
        if job is not None:
            raise BadInputError(f"--job-file is for event logs and Prometheus, and {path} is a run; leave it out")
        return [RunSource(find_recorded(folder)) for folder in ([path] if is_run else folders)]
    return [LogSource(path, memory=memory, terms=terms, job=None if job is None else job.name)]


class _Progress:
    """A line now and then, on standard error."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._told_s = time.monotonic()

    def __call__(self, shipped: Shipped) -> None:
        now_s = time.monotonic()
        if not self._quiet and now_s - self._told_s >= _PROGRESS_EVERY_S:
            self._told_s = now_s
            _warn(f"{shipped.total:,} rows told.")


def _say(shipped: Shipped, target: Target, *, json: bool) -> None:
    counts = {row.kind: shipped.rows.get(row.kind, 0) for row in ROWS}
    if json:
        print_json({"to": str(target), "rows": counts, "waiting": shipped.waiting, "problems": list(shipped.problems)})
        return
    told = ", ".join(f"{count:,} {_NAMES[kind][count != 1]}" for kind, count in counts.items() if count)
    left = f"; {shipped.waiting:,} rows were not told, and will be the next time" if shipped.waiting else ""
    print_sentence(f"{told or 'Nothing new was'} told to {target}{left}.")


_NAMES = {
    "report": ("report", "reports"),
    "change": ("change", "changes"),
    "recovery": ("recovery", "recoveries"),
    "forecast_error": ("forecast error", "forecast errors"),
}
"""One of a kind, and several."""


def _warn(sentence: str) -> None:
    sys.stderr.write(f"tidewise: {sentence}\n")
