"""The command that tells what waits for a query in its topics, from its checkpoint and the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tidewise.cli.output import console, print_json, print_sentence
from tidewise.engines.spark.audit import committed_in_kafka
from tidewise.kafka.lag import Lag, PartitionLag
from tidewise.kafka.lag import lag as find_lag

LOST = 1
"""The exit code when records were deleted before they were read."""
_SHOWN = 20


def lag(
    checkpoint: Annotated[Path, typer.Argument(help="The query's checkpointLocation.", show_default=False)],
    *,
    brokers: Annotated[str, typer.Option("--brokers", help="HOST:PORT of the Kafka broker.", show_default=False)],
    all_partitions: Annotated[
        bool, typer.Option("--all", help=f"Show every partition, not only the {_SHOWN} worst.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> None:
    """Tell what a query has not committed yet of its topics: per partition, in records and in seconds.

    The offsets of the checkpoint are the truth: Spark commits none to Kafka. Reads only; the query may be running, or
    down. Exit code 0: nothing was lost; 1: records were deleted before they were read; 2: no such checkpoint or topic.

    For example:

    tidewise lag /data/checkpoints/orders --brokers 127.0.0.1:9092
    """
    found = find_lag(committed_in_kafka(checkpoint), brokers)
    if json:
        print_json(_document(found))
    else:
        _show(found, most=len(found.partitions) if all_partitions else _SHOWN)
    if found.lost:
        raise typer.Exit(LOST)


def _show(found: Lag, *, most: int) -> None:
    screen = console()
    table = Table("partition", "committed", "newest", "records", "oldest", "")
    for one in found.partitions[:most]:
        committed = "none" if one.committed is None else f"{one.committed:,}"
        age = _seconds(one.oldest_s)
        table.add_row(
            f"{one.topic}/{one.partition}", committed, f"{one.following:,}", f"{one.records:,}", age, _remark(one)
        )
    screen.print(table)
    left = len(found.partitions) - most
    if left > 0:
        screen.print(f"... and {left:,} more partitions; --all shows them.", highlight=False)
    for sentence in _sentences(found):
        print_sentence(sentence, screen)


def _sentences(found: Lag) -> list[str]:
    how_long = "for how long is unknown" if found.oldest_s is None else f"the oldest for {_seconds(found.oldest_s)}"
    told = [
        f"{found.records:,} records wait in {len(found.partitions):,} partitions; {how_long}."
        if found.records
        else f"Nothing waits in {len(found.partitions):,} partitions."
    ]
    if found.lost:
        told.append(
            f"LOST: {found.lost:,} records were deleted before the query had read them; give its topics a longer "
            "retention."
        )
    anew = [f"{one.topic}/{one.partition}" for one in found.partitions if one.is_anew]
    if anew:
        named = ", ".join(anew[:5]) + (f" and {len(anew) - 5:,} more" if len(anew) > 5 else "")
        told.append(
            f"MADE ANEW: the query has committed more than there is in {named}: the topic was deleted and made again, "
            "or this is another broker. Spark will stop there, or skip what is new."
        )
    return told


def _remark(one: PartitionLag) -> str:
    if one.lost:
        return f"{one.lost:,} LOST"
    if one.is_anew:
        return "MADE ANEW"
    return "new" if one.committed is None else ""


def _seconds(age_s: float | None) -> str:
    return "unknown" if age_s is None else f"{age_s:,.1f} s"


def _document(found: Lag) -> dict[str, object]:
    return {
        "records": found.records,
        "oldest_s": found.oldest_s,
        "lost": found.lost,
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "committed": one.committed,
                "first": one.first,
                "following": one.following,
                "records": one.records,
                "oldest_s": one.oldest_s,
                "lost": one.lost,
                "made_anew": one.is_anew,
            }
            for one in found.partitions
        ],
    }
