"""The commands for a real job: run it under control, look at it, stop it, break it on purpose."""

from __future__ import annotations

import getpass
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tidewise.cli.advice_words import Watched
from tidewise.cli.output import STOPPED, print_json, print_sentence
from tidewise.cli.summary import summary_rows
from tidewise.cli.view import Frame, watching
from tidewise.core import (
    BadInputError,
    InvalidValueError,
    PermanentError,
    TemporaryError,
    format_duration,
    parse_duration_s,
)
from tidewise.core.readers import did_you_mean
from tidewise.experiments import Run, compare, load_run
from tidewise.experiments.advise_terms import terms_of_job
from tidewise.experiments.channel import ask
from tidewise.experiments.claim import claimed
from tidewise.experiments.controller import KEPT_JOB_FILE, Controller, Home, clear
from tidewise.experiments.job_check import check_job
from tidewise.experiments.job_file import JobFile
from tidewise.experiments.live import LiveView, Observer
from tidewise.experiments.supervise import TRY_AGAIN, Supervisor
from tidewise.experiments.telemetry_beside import told_beside

RUNS = Path("runs")

JobArgument = Annotated[Path, typer.Argument(help="A job file (TOML).", show_default=False)]
HomeArgument = Annotated[Path, typer.Argument(help="The home of a `tidewise run`.", show_default=False)]
HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="The folder to keep it in; by default runs/NAME, or the next that is free."),
]
ForOption = Annotated[
    str | None, typer.Option("--for", metavar="DURATION", help="How long, such as 10m; by default until it is stopped.")
]
PolicyOption = Annotated[
    str | None,
    typer.Option("--policy", metavar="NAME[:KEY=VALUE,...]", help="Another policy than the file names."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]


def run_job(
    *,
    job: JobArgument,
    home: HomeOption = None,
    duration: ForOption = None,
    policy: PolicyOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only look at everything, and say what would be done.")
    ] = False,
    json: Json = False,
) -> None:
    """Start a PySpark job and keep it at its promises, until it ends or Ctrl-C.

    Ctrl-C once lets the batch commit, stops everything and writes the run's folder (exit code 0); twice stops at once
    (exit code 130). A controller that dies is started again and takes its job back; where all of it died, the same
    command takes the job back.

    For example:

    tidewise run job.toml --check

    tidewise run job.toml --for 10m
    """
    file = JobFile(job, policy=policy)
    duration_s = duration_s_of("--for", duration)
    if check:
        _say_check(file, json=json)
        return
    place = Home.default(file, RUNS) if home is None else Home.of(file, home)
    ended = supervise_job(file, place, duration_s=duration_s, policy=policy, quiet=json)
    run = ended.run
    if json:
        rows = summary_rows(compare([run]))
        print_json({"home": str(place.folder), "run": str(run.folder), "restarts": ended.restarts, "runs": rows})
        return
    print_sentence(f"The run: {run.folder}")
    print_sentence(f"Its report: tidewise report {run.folder}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """What is left of a job that was under control."""

    run: Run
    restarts: int
    """How often its controller was started again."""


def supervise_job(
    file: JobFile,
    place: Home,
    *,
    duration_s: float | None,
    policy: str | None,
    quiet: bool,
    advice_only: bool = False,
) -> EndedJob:
    """Keep a controller at the job until it ends in order; typer.Exit where it does not."""
    place.refuse_a_second()
    command = [sys.executable, "-m", "tidewise.cli", "control", str(file.path), "--home", str(place.folder)]
    if duration_s is not None:
        command += ["--for", f"{duration_s:g}s"]
    if policy is not None:
        command += ["--policy", policy]
    if quiet:
        command.append("--quiet")
    if advice_only:
        command.append("--advice-only")
    taken = f"the job in {place.folder} is under control already; choose another folder with --home"
    supervisor = Supervisor(command)
    with claimed(place.folder, taken=taken):
        place.refuse_the_other(advice_only=advice_only)
        _log_to(place.folder / "supervisor.log")
        if not place.keep(file):
            sys.stderr.write(
                f"tidewise: {file.path} has changed since this run began, and the run goes on with {place.job_file}; "
                f"for the changes to count, stop it (tidewise stop {place.folder}) and start it again\n"
            )
        file = JobFile(file.path, policy=policy, kept=place.job_file)
        with told_beside(place, file.telemetry, tell=_warn):
            try:
                code = supervisor.run()
            finally:
                clear(file, place)
    if code != 0:
        # What is wrong has been said by the controller; a signal ended it where it was told to end while it began.
        raise typer.Exit(code if code > 0 else STOPPED)
    return EndedJob(run=load_run(place.run_folder), restarts=supervisor.restarts)


def control_job(
    *,
    job: JobArgument,
    home: Annotated[Path, typer.Option("--home")],
    duration: ForOption = None,
    policy: PolicyOption = None,
    quiet: Annotated[bool, typer.Option("--quiet")] = False,
    advice_only: Annotated[bool, typer.Option("--advice-only")] = False,
) -> None:
    """What `tidewise run` and `tidewise advise` start, and start again: the controller itself."""
    file = JobFile(job, policy=policy, kept=home / KEPT_JOB_FILE)
    place = Home.of(file, home)
    place.refuse_a_second()
    _log_to(place.folder / "controller.log")
    screen = Console(stderr=True)
    started = time.monotonic()

    def tell(sentence: str) -> None:
        if not quiet:
            print_sentence(sentence, screen)

    if not place.was_left_behind:
        tell(f"Starting {file.name} with {file.start}; Ctrl-C stops it.")
    with _showing(file, screen, quiet=quiet, advice_only=advice_only) as observer:
        controller = Controller(
            file,
            place,
            created=datetime.now(UTC).date().isoformat(),
            duration_s=duration_s_of("--for", duration),
            advice_only=advice_only,
            observer=observer,
            tell=tell,
        )
        try:
            controller.run()
        except KeyboardInterrupt:
            raise typer.Exit(STOPPED) from None
        except TemporaryError as error:
            logging.getLogger(__name__).warning(
                "The controller ends after %.0f s: %s", time.monotonic() - started, error
            )
            raise typer.Exit(TRY_AGAIN) from error


@contextmanager
def _showing(file: JobFile, screen: Console, *, quiet: bool, advice_only: bool) -> Iterator[Observer]:
    """Where only advice is asked for, it is told beside a line now and then: a picture would draw over it."""
    if advice_only and not quiet:
        told = Watched(terms_of_job(file), screen)
        with watching(_frame(file), screen=screen, quiet=quiet, is_drawn=False) as shown:

            def observe(view: LiveView) -> None:
                shown(view)
                told.see(view)

            yield observe
        return
    with watching(_frame(file), screen=screen, quiet=quiet) as shown:
        yield shown


def job_status(*, home: HomeArgument, json: Json = False) -> None:
    """Say how a job under control is doing.

    For example:  tidewise status runs/clicks
    """
    told = ask(home, "status")["status"]
    if json:
        print_json(told)
        return
    if not isinstance(told, dict):
        print_sentence("The job has begun; nothing has been reported yet.")
        return
    queries = told.pop("queries", [])
    for name, value in told.items():
        print_sentence(f"{name + ':':20}{_shown(value)}")
    for query in queries if isinstance(queries, list) else []:
        print_sentence(_query_line(query))


def _query_line(query: dict[str, object]) -> str:
    """What a person wants to know of a query, in one line."""
    parts = [f"batch {query['batch']}"]
    if "waiting_records" in query:
        oldest_s = query["oldest_waits_s"]
        age = f", the oldest for {_shown(oldest_s)} s" if oldest_s is not None else ""
        where = f"{query['partitions_lagging']} of {query['partitions']} partitions"
        parts.append(f"{_shown(query['waiting_records'])} records wait in {where}{age}")
    parts.append(f"{query['dropped_as_too_late']} dropped as too late")
    observed = query["observed"]
    parts += [f"{name} {value}" for name, value in observed.items()] if isinstance(observed, dict) else []
    return f"{'query ' + str(query['name']) + ':':20}{'; '.join(parts)}"


def _shown(value: object) -> str:
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    if value is None:
        return "-"
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


def pause_job(home: HomeArgument) -> None:
    """Leave the job alone until `tidewise resume`; rollbacks still act.

    For example:  tidewise pause runs/clicks
    """
    ask(home, "pause", by=getpass.getuser())
    print_sentence("The job is left alone; `tidewise resume` lets the policy act again.")


def resume_job(home: HomeArgument) -> None:
    """Let the policy act again.

    For example:  tidewise resume runs/clicks
    """
    ask(home, "resume", by=getpass.getuser())
    print_sentence("The policy acts again.")


def stop_job(home: HomeArgument) -> None:
    """Stop a job under control in order, as Ctrl-C in its terminal would.

    For example:  tidewise stop runs/clicks
    """
    ask(home, "stop", by=getpass.getuser())
    print_sentence("The job is ending.")


def chaos(
    *,
    home: HomeArgument,
    fault: Annotated[str | None, typer.Argument(help="What to break; see --list.", show_default=False)] = None,
    every: Annotated[str | None, typer.Option("--every", metavar="DURATION", help="Again and again.")] = None,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="For how long, with --every.")
    ] = None,
    list_faults: Annotated[bool, typer.Option("--list", help="Say what can be broken.")] = False,
    json: Json = False,
) -> None:
    """Break something of a running job on purpose, and see whether it heals: for game days.

    For example:

    tidewise chaos runs/clicks --list

    tidewise chaos runs/clicks kill-driver

    tidewise chaos runs/clicks kill-executor --every 5m --for 1h
    """
    told = ask(home, "faults")["faults"]
    known = [str(one) for one in told] if isinstance(told, list) else []
    if list_faults:
        if json:
            print_json(known)
        else:
            for one in known:
                print_sentence(one)
        return
    if fault is None:
        raise BadInputError(f"name what to break: {', '.join(known)}")
    if fault not in known:
        raise BadInputError(f"there is no fault {fault!r} here{did_you_mean(fault, known)}")
    every_s, duration_s = duration_s_of("--every", every), duration_s_of("--for", duration)
    if (every_s is None) != (duration_s is None):
        raise BadInputError("a schedule needs both: --every 5m --for 1h")
    done = _break(home, fault, every_s=every_s, duration_s=duration_s or 0.0, quiet=json)
    if json:
        print_json({"fault": fault, "times": done})


def _break(home: Path, fault: str, *, every_s: float | None, duration_s: float, quiet: bool) -> int:
    """Once, or on a schedule until its end or that of the job; how often it was done."""
    end_s, done = time.monotonic() + duration_s, 0
    while True:
        try:
            ask(home, "inject", fault=fault)
            done += 1
            if not quiet:
                print_sentence(f"{datetime.now(UTC):%H:%M:%S} {fault}")
        except (TemporaryError, PermanentError) as error:
            if every_s is None:
                raise
            sys.stderr.write(f"tidewise: {fault} was left out: {error}\n")
        if every_s is None or time.monotonic() + every_s > end_s:
            return done
        time.sleep(every_s)


def _say_check(file: JobFile, *, json: bool) -> None:
    told = check_job(file)
    if json:
        print_json({"name": file.name, "check": told})
        return
    for sentence in told:
        print_sentence(sentence)


def _frame(file: JobFile) -> Frame:
    largest = file.space.largest
    hourly = file.prices.cost(core_s=3600 * largest.total_cores, memory_mib_s=3600.0 * largest.total_memory_mib)

    def static_cost(view: LiveView) -> float:
        return hourly * view.now_s / 3600

    return Frame(
        title=f"{file.name} under {file.label}",
        promises=file.promises,
        most_executors=largest.executors,
        currency=file.prices.currency,
        time_of=lambda passed_s: format_duration(round(passed_s)),
        static_cost=static_cost,
        report_every_s=file.table.control.report_every,
    )


def duration_s_of(option: str, text: str | None) -> float | None:
    """Seconds of an option's duration; None where it was not given."""
    if text is None:
        return None
    try:
        duration_s = parse_duration_s(text)
    except InvalidValueError as error:
        raise BadInputError(f"{option}: {error}") from error
    if duration_s <= 0:
        raise BadInputError(f"{option}: {text!r} is no time at all; write it like 10m")
    return duration_s


def _warn(sentence: str) -> None:
    sys.stderr.write(f"tidewise: {sentence}\n")


def _log_to(path: Path) -> None:
    """What happens inside goes to a file, so that the terminal stays readable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=path, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
