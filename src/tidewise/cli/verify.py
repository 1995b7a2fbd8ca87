"""The command that proves what a query committed: reads files, prints sentences, and answers by its exit code."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tidewise.cli.output import console, print_json, print_sentence
from tidewise.engines.spark.audit import Audit, audit

NOT_PROVED = 1
"""The exit code when something contradicts the proof."""


def verify(
    checkpoint: Annotated[Path, typer.Argument(help="The query's checkpointLocation.", show_default=False)],
    *,
    sink: Annotated[
        Path | None, typer.Option("--sink", help="The folder of its file sink, to check the files as well.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of sentences.")] = False,
) -> None:
    """Prove that a query committed every range of offsets once and in order, from its checkpoint and ledger.

    Reads only; the query may be running. Exit code 0: proved; 1: something contradicts it; 2: nothing to check there.

    For example:

    tidewise verify /data/checkpoints/orders

    tidewise verify /data/checkpoints/orders --sink /data/orders --json
    """
    found = audit(checkpoint, sink=sink)
    if json:
        print_json(_document(found))
    else:
        screen = console()
        for sentence in found.sentences():
            print_sentence(sentence, screen)
    if not found.clean:
        raise typer.Exit(NOT_PROVED)


def _document(found: Audit) -> dict[str, object]:
    return {"clean": found.clean, **asdict(found), "checkpoint": str(found.checkpoint)}
