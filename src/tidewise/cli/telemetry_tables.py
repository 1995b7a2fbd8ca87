"""The commands about tables of telemetry: write them from what jobs tell, and keep them small."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tidewise.cli.output import BAD_INPUT, print_json, print_sentence
from tidewise.core import BadInputError, parse_duration_s
from tidewise.core.checks import require_finite
from tidewise.experiments.telemetry_target import Target
from tidewise.host.spark_home import find_spark
from tidewise.kafka.jars import resolve, spark_connector
from tidewise.pipeline.context import spark_session

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the tables.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document at the end instead of a sentence.")]
Master = Annotated[str, typer.Option("--master", help="The Spark that does it.")]


_MOST_DIGITS = 9
"""What is longer is no number of days, and too much for Python at some length."""


def write_tables(
    *,
    source: Annotated[
        str,
        typer.Option("--from", metavar="SOURCE", help="A folder of line files, or kafka://HOST:PORT/TOPIC."),
    ],
    folder: Annotated[Path, typer.Option("--to", metavar="DIR", help="The folder of the tables.")],
    once: Annotated[bool, typer.Option("--once", help="Take in what is there, then end.")] = False,
    every: Annotated[str, typer.Option("--every", help="From one batch to the next.")] = "60s",
    oldest: Annotated[
        str, typer.Option("--oldest", help="Rows from longer before they were received are dead letters.")
    ] = "30d",
    buckets: Annotated[
        int, typer.Option("--buckets", help="Files of a table per day and batch, at most; from 1 to 100.")
    ] = 16,
    master: Master = "local[*]",
    json: Json = False,
) -> None:
    """Turn what jobs tell into tables, until stopped: reports, observations, performance, recoveries and more.

    Every row is taken in once, also when this is killed and started again. What cannot be taken in goes to the table
    dead_letters, with the reason. One at a time may write a folder.

    For example:

    tidewise telemetry tables --from kafka://127.0.0.1:9092/metrics --to /data/telemetry

    tidewise telemetry tables --from runs/lines --to runs/telemetry --once
    """
    find_spark()  # says what to install, before what needs it is imported
    from tidewise.pipeline.telemetry_stream import (  # noqa: PLC0415 - an optional extra
        StreamSettings,
        require_apart,
        run_stream,
    )

    settings = StreamSettings(buckets=buckets, behind_s=parse_duration_s(oldest))
    trigger_s = parse_duration_s(every)
    require_finite("every", trigger_s, above=0.0)
    lines = Target.parse(source).source()
    lines.check()
    require_apart(lines, folder)
    jars = resolve(spark_connector(), tell=_tell) if source.startswith("kafka://") else ()
    with spark_session(master, jars=jars) as session:
        taken = run_stream(
            lines, folder, session=session, trigger_s=trigger_s, once=once, settings=settings, tell=_tell
        )
    if json:
        print_json(
            {"batches": taken.batches, "rows": taken.rows, "dead_letters": taken.dead_letters, "lost": taken.lost}
        )
    else:
        print_sentence(f"{taken.rows:,} rows and {taken.dead_letters:,} dead letters were taken into {folder}.")


def compact_tables(
    folder: Folder,
    *,
    keep_days: Annotated[
        list[str] | None,
        typer.Option("--keep-days", metavar="TABLE=DAYS", help="How long a table is kept; may be given several times."),
    ] = None,
    master: Master = "local[*]",
    json: Json = False,
) -> None:
    """Rewrite the days that are over into few sorted files, and drop those that are too old; once a day is enough.

    The tables may be written and read meanwhile. Reports are kept for 7 days, observations_10s and dead_letters for
    30, all others for 400, unless told otherwise. A day with a file that cannot be read stays as it is, and is told.

    For example:

    tidewise telemetry compact /data/telemetry

    tidewise telemetry compact /data/telemetry --keep-days reports=2 --keep-days observations_60s=800
    """
    find_spark()  # says what to install, before what needs it is imported
    from tidewise.pipeline.telemetry_compact import compact, kept_days, retain  # noqa: PLC0415 - an optional extra

    kept = kept_days(_days(keep_days or []))
    today = datetime.now(UTC).date()
    # What goes anyway need not be rewritten.
    dropped = retain(folder, kept, today=today)
    with spark_session(master) as session:
        done = compact(session, folder, today, tell=_tell)
    if json:
        print_json(
            {
                "compacted": done.days,
                "dropped": dropped,
                "folders_removed": done.folders_removed,
                "problems": list(done.problems),
            }
        )
    else:
        print_sentence(f"{done.days} days of tables were compacted and {dropped} dropped in {folder}.")
    if done.problems:
        raise typer.Exit(BAD_INPUT)


def _days(told: list[str]) -> dict[str, int]:
    found = {}
    for each in told:
        table, _, days = each.partition("=")
        if not table or not days.isdecimal() or len(days) > _MOST_DIGITS:
            raise BadInputError(f"--keep-days {each} is no table with its days: write it like --keep-days reports=7")
        found[table] = int(days)
    return found


def _tell(sentence: str) -> None:
    """Progress goes to standard error: standard output is for the answer."""
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()
