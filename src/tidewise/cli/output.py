"""What all commands share: how they print, how they show progress, and what they say when something is wrong."""

from __future__ import annotations

import io
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tidewise.experiments import Progress as ExperimentProgress

BAD_INPUT = 2
"""The exit code for everything the user can mend."""
STOPPED = 130
"""The exit code of a program that somebody stopped."""


class _Trimmed(io.TextIOBase):
    """Standard output without the spaces that a table has at the end of its lines."""

    def __init__(self) -> None:
        self._line = ""

    def write(self, text: str) -> int:
        *whole, self._line = (self._line + text).split("\n")
        for line in whole:
            sys.stdout.write(line.rstrip() + "\n")
        return len(text)

    def flush(self) -> None:
        sys.stdout.flush()


def console() -> Console:
    """Where people read; where the output is not a terminal, as wide as asked for by COLUMNS, or wide enough."""
    plain = Console()
    if plain.is_terminal:
        return plain
    wide = int(os.environ["COLUMNS"]) if os.environ.get("COLUMNS", "").isdigit() else 160
    return Console(width=wide, file=cast("TextIO", _Trimmed()))


def print_sentence(sentence: str, screen: Console | None = None) -> None:
    """As it is: nothing in it is markup or coloured, and a terminal breaks its lines, not we."""
    (screen or console()).print(sentence, highlight=False, markup=False, soft_wrap=True)


def print_wrapped(sentence: str, screen: Console | None = None, *, indent: int = 0) -> None:
    """As it is, with lines that end between words; those after the first begin so far in."""
    shown = screen or console()
    lines = textwrap.wrap(
        sentence,
        width=max(shown.width, indent + 1),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    print_sentence("\n".join(lines), shown)


def print_json(value: object) -> None:
    """Where programs read: one JSON document on standard output, nothing else."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


@contextmanager
def experiment_progress(*, quiet: bool) -> Iterator[Callable[[ExperimentProgress], None]]:
    """A bar on standard error, so that standard output stays clean; a line per step where that is no terminal."""
    errors = Console(stderr=True)
    if quiet:
        yield lambda _: None
        return
    if not errors.is_terminal:
        seen: set[int | None] = set()

        def say(progress: ExperimentProgress) -> None:
            step = None if progress.checking else progress.done
            if step not in seen:
                seen.add(step)
                errors.print(progress.sentence, highlight=False, soft_wrap=True)

        yield say
        return
    with Progress(
        BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"), console=errors
    ) as bar:
        task = bar.add_task("starting", total=None)

        def show(progress: ExperimentProgress) -> None:
            told = "checking the plan" if progress.checking else f"runs; on: {', '.join(progress.on) or 'none yet'}"
            shown = _within(told, errors.width - 60)
            bar.update(task, description=shown, total=progress.total, completed=progress.done)

        yield show


def _within(text: str, width: int) -> str:
    """Cut off where a terminal is too narrow: a bar that breaks its line is drawn again and again."""
    return text if len(text) <= max(10, width) else f"{text[: max(9, width - 1)]}…"
