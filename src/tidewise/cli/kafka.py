"""The commands for a real Kafka broker on this machine: start it, look at it, stop it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tidewise.cli.output import print_json, print_sentence
from tidewise.core import BadInputError
from tidewise.kafka import topics as topics_of
from tidewise.kafka.broker import LocalBroker

kafka_commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="A real Kafka broker on this machine, on 127.0.0.1 only.",
    epilog="Begin with:  tidewise kafka up",
)

DEFAULT_FOLDER = Path("runs/kafka")

Folder = Annotated[Path, typer.Option("--folder", help="The folder that the broker is kept in.", show_default=True)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]


@kafka_commands.command()
def up(
    *,
    folder: Folder = DEFAULT_FOLDER,
    port: Annotated[
        int | None, typer.Option("--port", help="Where it listens; by default wherever a port is free.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="NAME:PARTITIONS", help="A topic to make; may be given several times."),
    ] = None,
    json: Json = False,
) -> None:
    """Start a Kafka broker, which stays until `tidewise kafka down`; the first time, its jars are fetched.

    What an earlier broker left in the folder is there again.

    For example:

    tidewise kafka up

    tidewise kafka up --port 9092 --topic clicks:4 --topic counts:1
    """
    broker = LocalBroker.up(folder, port=port, topics=_topics(topic or []), tell=_tell)
    _show(broker, folder, json=json)


@kafka_commands.command()
def status(*, folder: Folder = DEFAULT_FOLDER, json: Json = False) -> None:
    """Say where the broker listens, and what its topics hold.

    For example:  tidewise kafka status
    """
    _show(_find(folder), folder, json=json)


@kafka_commands.command()
def down(*, folder: Folder = DEFAULT_FOLDER, json: Json = False) -> None:
    """Stop the broker; its data and logs stay.

    For example:  tidewise kafka down
    """
    broker = _find(folder)
    was_running = broker.is_running
    broker.down()
    if json:
        print_json({"folder": str(folder), "was_running": was_running})
        return
    told = "The broker is stopped" if was_running else "The broker did not run any more"
    print_sentence(f"{told}. Its data and logs: {folder}")


def _topics(told: list[str]) -> dict[str, int]:
    topics: dict[str, int] = {}
    for each in told:
        name, _, partitions = each.rpartition(":")
        if not name or not partitions.isdecimal():
            raise BadInputError(f"--topic {each} is no topic with its partitions: write it like --topic clicks:4")
        if topics.setdefault(name, int(partitions)) != int(partitions):
            raise BadInputError(f"--topic names {name} with {topics[name]} and with {partitions} partitions: drop one")
    return topics


def _find(folder: Path) -> LocalBroker:
    broker = LocalBroker.find(folder)
    if broker is None:
        raise BadInputError(
            f"there is no broker in {folder}: start one (tidewise kafka up --folder {folder}) "
            f"or name its folder by --folder"
        )
    return broker


def _show(broker: LocalBroker, folder: Path, *, json: bool) -> None:
    if not broker.is_running:
        raise BadInputError(
            f"the broker in {folder} does not run any more: start it again (tidewise kafka up --folder {folder})"
        )
    topics = {
        name: (partitions, sum(one.records for one in topics_of.ends(broker.address, name).values()))
        for name, partitions in sorted(topics_of.describe(broker.address).items())
    }
    if json:
        print_json(
            {
                "folder": str(folder),
                "address": broker.address,
                "topics": {
                    name: {"partitions": partitions, "records": records}
                    for name, (partitions, records) in topics.items()
                },
            }
        )
        return
    print_sentence(f"Address:  {broker.address}")
    print_sentence(f"Topics:   {len(topics) or 'none'}")
    for name, (partitions, records) in topics.items():
        print_sentence(f"          {name}: {partitions} {_plural('partition', partitions)}, {records:,} records")
    print_sentence(f"Stop it:  tidewise kafka down --folder {folder}")


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _tell(sentence: str) -> None:
    """Progress goes to standard error: standard output is for the answer."""
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()
