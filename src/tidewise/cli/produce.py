"""The command that loads a topic: the records of a job, at the rates of a shape or a trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console

from tidewise.cli.output import BAD_INPUT, STOPPED, console, print_json, print_sentence
from tidewise.core import BadInputError, InvalidValueError, format_duration, parse_duration_s
from tidewise.experiments.load_words import load_of
from tidewise.experiments.produce import REPORT_NAME, Produced, Production, produce, schedule_of
from tidewise.jobs.records.encoding import Encoding
from tidewise.jobs.records.kinds import Disorder
from tidewise.kafka.lateness import Lateness
from tidewise.kafka.sending import SendProgress

_LOST = 1
"""The exit code where not everything that was due is in the topic."""


def produce_records(
    *,
    job: Annotated[
        str, typer.Option("--job", help="Whose records: ysb, tsw, clicks, nexmark or psm.", show_default=False)
    ],
    load: Annotated[
        str,
        typer.Option(
            "--load", help="A CSV file or a shape, with its settings; see tidewise loads.", show_default=False
        ),
    ],
    brokers: Annotated[str, typer.Option("--brokers", help="Where the broker listens.")] = "127.0.0.1:9092",
    topic: Annotated[str | None, typer.Option("--topic", help="The topic; by default named like the job.")] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", help="How many it has; makes the topic where it is missing.")
    ] = None,
    encoding: Annotated[str, typer.Option("--encoding", help="json, or avro, which is smaller.")] = "json",
    processes: Annotated[int, typer.Option("--processes", min=1, help="How many send, each its partitions.")] = 2,
    for_: Annotated[
        str | None, typer.Option("--for", help="How long, such as 60s; a trace by default to its end.")
    ] = None,
    scale: Annotated[float, typer.Option("--scale", min=0.0, help="What the rates are multiplied by.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Another seed gives other records.")] = 0,
    late_share: Annotated[
        float, typer.Option("--late-share", min=0.0, max=1.0, help="The share of records that happened earlier.")
    ] = 0.0,
    late_by: Annotated[str, typer.Option("--late-by", help="How much earlier at most.")] = "10s",
    broken: Annotated[
        float, typer.Option("--broken", min=0.0, max=1.0, help="The share of records that nobody can read.")
    ] = 0.0,
    at_once: Annotated[
        bool,
        typer.Option(
            "--at-once", help="All of it as fast as the broker takes it; its event times end now, or follow --began."
        ),
    ] = False,
    began: Annotated[
        float | None,
        typer.Option(
            "--began",
            help="When the load began or begins, in Unix seconds; by default now, at once so that it ends now.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="A folder for the schedule and the report.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")] = False,
) -> None:
    """Send a job's records to a topic as a load says, by the clock, and account for every one of them.

    It never slows down with the broker: what cannot be sent in time is sent late, and how late is told.

    Exit code 0: all that was due is in the topic; 1: some is not, or it is not known; 2: bad input, or the report could
    not be written; 130: stopped before its end.

    For example:

    tidewise produce --job ysb --load trace.csv --partitions 2

    tidewise produce --job tsw --load "sine mean_per_s=5000 period=10min" --for 1h --encoding avro
    """
    duration_s = None if for_ is None else _whole_seconds(for_)
    began_s = time.time() if began is None else began
    wanted = load_of(load)
    production = Production(
        job=job,
        brokers=brokers,
        topic=topic or job,
        partitions=partitions,
        encoding=cast("Encoding", encoding),
        processes=processes,
        seed=seed,
        disorder=Disorder(share=late_share, most_s=parse_duration_s(late_by)),
        broken_share=broken,
        at_once=at_once,
    )
    schedule = schedule_of(wanted, duration_s=duration_s, seed=seed, scale=scale, began_unix_s=began_s)
    with _telling(quiet=json) as (say, progress):
        produced = produce(production, schedule, folder=out, began_unix_s=began, say=say, progress=progress)
        if produced.unwritten is not None:
            say(produced.unwritten)
    if json:
        print_json(produced.as_json())
    else:
        _print_summary(produced, out)
    if code := _exit_code(produced):
        raise typer.Exit(code)


def _exit_code(produced: Produced) -> int:
    """The worst that happened: what somebody stopped on purpose is no loss, and no excuse for one."""
    report = produced.report
    if report.failed or produced.lost or produced.silent or (produced.whole and report.unsent):
        return _LOST
    if not produced.whole:
        return STOPPED
    return BAD_INPUT if produced.unwritten else 0


def _whole_seconds(text: str) -> int:
    try:
        seconds = parse_duration_s(text)
    except InvalidValueError as error:
        raise BadInputError(f"--for: {error}") from error
    if seconds < 1.0 or seconds != int(seconds):
        raise BadInputError(f"--for must be a whole number of seconds, 1s or more, not {text!r}")
    return int(seconds)


@contextmanager
def _telling(*, quiet: bool) -> Iterator[tuple[Callable[[str], None], Callable[[SendProgress], None]]]:
    """How it goes, on standard error: a line that changes on a terminal; elsewhere only what is waited for."""
    errors = Console(stderr=True)

    def say(sentence: str) -> None:
        print_sentence(sentence, errors)

    if quiet or not errors.is_terminal:
        yield say, lambda _: None
        return
    before = [(time.monotonic(), 0)]
    with errors.status("getting ready") as line:

        def show(progress: SendProgress) -> None:
            now_s = time.monotonic()
            then_s, acknowledged = before.pop()
            before.append((now_s, progress.acknowledged))
            rate = (progress.acknowledged - acknowledged) / max(now_s - then_s, 1e-3)
            failed = f", {progress.failed:,} FAILED" if progress.failed else ""
            line.update(
                f"{progress.acknowledged:,} of {progress.due:,} due records acknowledged, {rate:,.0f} per s, "
                f"{format_duration(progress.behind_s)} behind{failed}"
            )

        yield say, show


def _print_summary(produced: Produced, out: Path | None) -> None:
    report = produced.report
    screen = console()

    def line(sentence: str) -> None:
        print_sentence(sentence, screen)

    line(
        f"Topic:         {produced.production.topic}, {produced.partitions} partitions, {produced.processes} processes"
    )
    line(f"Due:           {report.due:,} records")
    line(f"Acknowledged:  {report.acknowledged:,} in {format_duration(report.seconds)}")
    line(f"Failed:        {report.failed:,}{_reasons(produced)}")
    line(f"Not sent:      {report.unsent:,}")
    if not produced.production.at_once:
        line(f"Sent late:     {_lateness(report.sent_late)}")
        line(f"Acknowledged:  {_lateness(report.acknowledged_late)} after they were due")
    for sentence in _cautions(produced):
        line(sentence)
    if not produced.whole:
        line("Stopped before its end.")
    if out is not None and produced.unwritten is None:
        line(f"The report:    {out / REPORT_NAME}")


def _cautions(produced: Produced) -> list[str]:
    """What is not as it should be, beyond the counts."""
    told, acknowledged = [], produced.report.acknowledged
    if produced.silent:
        told.append(
            f"Careful:       {produced.silent} of {produced.processes} processes gave no report: what they sent is not "
            "counted here"
        )
    if produced.grew_by is None:
        told.append("Careful:       by how many records the topic grew could not be told")
    elif produced.lost:
        told.append(
            f"LOST:          the topic grew by {produced.grew_by:,} records only, {produced.lost:,} fewer than were "
            "acknowledged: the broker lost them, or the topic was made anew"
        )
    elif produced.grew_by > acknowledged:
        failed = "some that count as failed are there all the same, or " if produced.report.failed else ""
        told.append(
            f"Careful:       the topic grew by {produced.grew_by:,} records: {failed}somebody else writes to it as well"
        )
    return told


def _reasons(produced: Produced) -> str:
    told = [f"{count:,} times: {sentence}" for sentence, count in produced.report.problems.items()]
    return f" ({'; '.join(told)})" if told else ""


def _lateness(lateness: Lateness) -> str:
    p50_s, p99_s = lateness.quantile_s(0.5), lateness.quantile_s(0.99)
    if p50_s is None or p99_s is None:
        return "no records"
    return (
        f"half within {format_duration(p50_s)}, 99 % within {format_duration(p99_s)}, "
        f"the worst {format_duration(lateness.worst_s)}"
    )
