"""`tidewise advise`: what a policy would do with a job, why, and what that would save; nothing is changed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from tidewise.cli.advice_words import print_advice, summary_document, summary_sentences, summary_table
from tidewise.cli.live import RUNS, ForOption, HomeOption, Json, duration_s_of, supervise_job
from tidewise.cli.output import console, print_json, print_sentence, print_wrapped
from tidewise.core import BadInputError, Configuration, Prices, Promises
from tidewise.experiments.advise import Advice, AdviceBook
from tidewise.experiments.advise_follow import Watch, follow_log, follow_run
from tidewise.experiments.advise_terms import DEFAULT_POLICY, Terms, terms_of_job, terms_of_options, terms_of_run
from tidewise.experiments.controller import Home
from tidewise.experiments.explain_run import find_recorded
from tidewise.experiments.job_file import JobFile

_JOB_SUFFIX = ".toml"
_FOR_OPTIONS = "--executors 1..8 --latency-p95 5s"


def advise(
    *,
    job_or_run: Annotated[
        Path | None,
        typer.Argument(
            help="A job file, to be started and watched; or a run, also one that is on.", show_default=False
        ),
    ] = None,
    event_log: Annotated[
        Path | None,
        typer.Option("--event-log", metavar="PATH", help="The event log of a program that runs without Tidewise."),
    ] = None,
    job: Annotated[
        Path | None, typer.Option("--job", metavar="FILE", help="For an event log: the job file with its promises.")
    ] = None,
    executors: Annotated[
        str | None,
        typer.Option("--executors", metavar="RANGE", help="Without a job file: how many it may have, as in 1..8."),
    ] = None,
    latency_p95: Annotated[
        str | None,
        typer.Option("--latency-p95", metavar="DURATION", help="Without a job file: the latency it has to keep."),
    ] = None,
    recovery: Annotated[
        str | None,
        typer.Option("--recovery", metavar="DURATION", help="Without a job file: the recovery time it has to keep."),
    ] = None,
    core_hour: Annotated[
        float | None, typer.Option("--core-hour", help="Without a job file: the price of a core for an hour.")
    ] = None,
    gib_hour: Annotated[
        float | None, typer.Option("--gib-hour", help="Without a job file: the price of a GiB of memory for an hour.")
    ] = None,
    currency: Annotated[str | None, typer.Option("--currency", help="Without a job file: of these prices.")] = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            "--trigger", metavar="DURATION", help="The trigger's interval, which a log does not tell; else judged."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="NAME[:KEY=VALUE,...]",
            help=f"Who is asked, with its settings; by default what the job file names, or {DEFAULT_POLICY}.",
            show_default=False,
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Only read what is there, and do not wait for more.")] = False,
    duration: ForOption = None,
    home: HomeOption = None,
    json: Json = False,
) -> None:
    """Say what a policy would do with a job, why, and what that would save; the job is not touched.

    A job file is started as by `tidewise run`, but nothing is changed. A run, or the event log of a program that runs
    without Tidewise, is only read, and followed while it grows. Ctrl-C ends it with a summary.

    For example:

    tidewise advise job.toml --for 1h

    tidewise advise runs/clicks

    tidewise advise --event-log /var/spark-events/app-1 --executors 1..8 --latency-p95 5s
    """
    for_log = _LogOptions(
        job=job,
        executors=executors,
        latency_p95=latency_p95,
        recovery=recovery,
        core_hour=core_hour,
        gib_hour=gib_hour,
        currency=currency,
        trigger=trigger,
    )
    watch = Watch(
        advise=_keep_to_the_summary if json else print_advice,
        tell=_warn,
        once=once,
        duration_s=duration_s_of("--for", duration),
    )
    is_over = False
    if event_log is not None and job_or_run is None:
        _refuse({"--home": home}, "for a job file, which is started")
        book = _advise_log(event_log, for_log, watch, policy=policy)
    elif job_or_run is not None and event_log is None:
        _refuse(for_log.given(), "for an event log")
        if job_or_run.suffix == _JOB_SUFFIX:
            _refuse({"--once": once or None}, "for what is only read, and a job file is started")
            book = _advise_job(job_or_run, home=home, duration_s=watch.duration_s, policy=policy, quiet=json)
        else:
            _refuse({"--home": home}, "for a job file, which is started")
            run = find_recorded(job_or_run)
            is_over = run.record is not None
            if is_over:
                # Nobody waits for one advice after the other where all of them are there: the summary lists them.
                watch.advise = _keep_to_the_summary
            book = follow_run(run, terms_of_run(run, policy=policy), watch).book
    else:
        raise BadInputError("name a job file, a run, or an event log with --event-log PATH; one of them")
    if json:
        print_json(summary_document(book))
        return
    screen = console()
    for sentence in summary_sentences(book):
        print_wrapped(sentence, screen)
    table = summary_table(book, width=screen.width)
    if table is not None:
        screen.print(table)
        if is_over:
            asked = "" if policy is None else f" --policy {shlex.quote(policy)}"
            print_sentence(f"Each with its reason: tidewise advise {job_or_run}{asked} --json", screen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogOptions:
    """What a log does not tell of its job."""

    job: Path | None
    executors: str | None
    latency_p95: str | None
    recovery: str | None
    core_hour: float | None
    gib_hour: float | None
    currency: str | None
    trigger: str | None

    def given(self, *, but: tuple[str, ...] = ()) -> dict[str, object]:
        """By the names of the options."""
        names = [one.name for one in fields(self) if one.name not in but]
        return {f"--{name.replace('_', '-')}": getattr(self, name) for name in names}

    def promises(self) -> Promises:
        if self.executors is None or (self.latency_p95 is None and self.recovery is None):
            raise BadInputError(
                f"an event log tells neither what its job may have nor what it has to keep: write {_FOR_OPTIONS}, or "
                "--job job.toml"
            )
        return Promises(
            latency_p95_s=duration_s_of("--latency-p95", self.latency_p95),
            recovery_s=duration_s_of("--recovery", self.recovery),
        )

    def prices(self) -> Prices:
        usual = Prices()
        return Prices(
            core_hour=usual.core_hour if self.core_hour is None else self.core_hour,
            gib_hour=usual.gib_hour if self.gib_hour is None else self.gib_hour,
            currency=usual.currency if self.currency is None else self.currency,
        )


def _advise_log(path: Path, options: _LogOptions, watch: Watch, *, policy: str | None) -> AdviceBook:
    interval_s = duration_s_of("--trigger", options.trigger)
    if options.job is not None:
        _refuse(options.given(but=("job", "trigger")), "in the job file already")
        terms = terms_of_job(JobFile(options.job, policy=policy))
        return follow_log(
            path,
            lambda _runs: terms,
            watch,
            interval_s=interval_s,
            report_every_s=terms.report_every_s,
            latency=terms.latency,
        ).book
    promises, prices = options.promises(), options.prices()

    def terms_for(runs: Configuration) -> Terms:
        return terms_of_options(
            runs=runs, executors=options.executors or "", promises=promises, prices=prices, policy=policy
        )

    # What is wrong with the options is told before anything is read.
    terms_for(Configuration(executors=1))
    return follow_log(path, terms_for, watch, interval_s=interval_s).book


def _advise_job(
    job: Path, *, home: Path | None, duration_s: float | None, policy: str | None, quiet: bool
) -> AdviceBook:
    file = JobFile(job, policy=policy)
    place = Home.default(file, RUNS, name=f"{file.name}-advice") if home is None else Home.of(file, home)
    ended = supervise_job(file, place, duration_s=duration_s, policy=policy, quiet=quiet, advice_only=True)
    book = AdviceBook(terms_of_job(file))
    with find_recorded(ended.run.folder).open_journal() as journal:
        for event in journal.read():
            book.note(event)
    if not quiet:
        print_sentence(f"The run: {ended.run.folder}")
    return book


def _keep_to_the_summary(_advice: Advice) -> None:
    """Says nothing."""


def _warn(sentence: str) -> None:
    sys.stderr.write(f"tidewise: {sentence}\n")


def _refuse(options: Mapping[str, object], why: str) -> None:
    """BadInputError where one of these was given."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise BadInputError(f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} {why}; leave it out")
