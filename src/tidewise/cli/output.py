"""What all commands share: how they print, how they show progress, and what they say when something is wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tidewise.experiments import Progress as ExperimentProgress

BAD_INPUT = 2
"""The exit code for everything the user can mend."""


def console() -> Console:
    """Where people read; wide enough for a table where the output is not a terminal."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=max(plain.width, 140))


def print_json(value: object) -> None:
    """Where programs read: one JSON document on standard output, nothing else."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


@contextmanager
def experiment_progress(*, quiet: bool) -> Iterator[Callable[[ExperimentProgress], None]]:
    """A bar on standard error, so that standard output stays clean; one line per run where that is no terminal."""
    errors = Console(stderr=True)
    if quiet:
        yield lambda _: None
        return
    if not errors.is_terminal:
        seen: set[str] = set()

        def say(progress: ExperimentProgress) -> None:
            if progress.run not in seen:
                seen.add(progress.run)
                errors.print(f"run {progress.done_runs + 1} of {progress.total_runs}: {progress.run}", highlight=False)

        yield say
        return
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=errors
    ) as bar:
        task = bar.add_task("starting", total=None)

        def show(progress: ExperimentProgress) -> None:
            done = progress.done_runs + progress.run_share
            bar.update(task, description=progress.run, total=progress.total_runs, completed=done)

        yield show
