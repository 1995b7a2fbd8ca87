"""A plan on real Spark as a user meets it: each run shown while it is on, and what to do when it was stopped."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from tidewise.cli.logs import logging_to
from tidewise.cli.output import print_sentence
from tidewise.cli.view import Frame, watching
from tidewise.core import format_duration
from tidewise.experiments.live import LiveView, Observer
from tidewise.experiments.spark_experiment import JOBS, Outcome, Turn, run_on_spark
from tidewise.experiments.spark_plan import SparkExperiment
from tidewise.experiments.tries import LOG_FILE


def show_spark_plan(experiment: SparkExperiment, home: Path, *, quiet: bool) -> Outcome:
    """Run the plan into this folder; everything on standard error, so that standard output stays clean.

    `quiet` leaves out how it goes, but never what makes a difference to the figures.
    """
    screen = Console(stderr=True)

    def warn(sentence: str) -> None:
        print_sentence(sentence, screen)

    def say(sentence: str) -> None:
        if not quiet:
            warn(sentence)

    def watch(turn: Turn) -> AbstractContextManager[Observer]:
        return watching(frame_of(experiment, turn), screen=screen, quiet=quiet)

    created = datetime.now(UTC).date().isoformat()
    with logging_to(home / LOG_FILE):
        outcome = run_on_spark(experiment, home, created=created, say=say, warn=warn, watch=watch)
    say(f"{len(outcome.runs)} of {outcome.total} runs are complete; what belongs to their jobs is in {home / JOBS}")
    return outcome


def frame_of(experiment: SparkExperiment, turn: Turn) -> Frame:
    """What stays the same in the pictures of one run."""
    ground, prices = experiment.ground(turn.key.load), experiment.prices

    def static_cost(view: LiveView) -> float:
        usage = ground.program.usage(experiment.start, ground.program.paid_s(view.meter))
        return prices.cost(core_s=usage.core_s, memory_mib_s=usage.memory_mib_s)

    length_s, shown_s = experiment.plan.duration, experiment.plan.shown_s
    shown = "" if shown_s == length_s else f"{format_duration(shown_s)} in "
    return Frame(
        title=f"Run {turn.number} of {turn.total}, {turn.key.name}: {shown}{format_duration(length_s)} on Spark",
        promises=ground.promises,
        most_executors=experiment.space.largest.executors,
        currency=prices.currency,
        time_of=lambda now_s: clock_of(now_s * experiment.factor),
        static_cost=static_cost,
        report_every_s=experiment.plan.control.report_every,
        # Once in each hour that is shown, or ten times, but not all the time.
        line_every_s=max(10.0, min(3600.0 / experiment.factor, length_s / 10.0)),
    )


def clock_of(seconds: float) -> str:
    """Hours, minutes and seconds since the beginning of what is shown."""
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
