"""The commands. Each is thin: it reads its options, calls one room of the house and prints what came of it."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.markup import escape

from tidewise import __version__
from tidewise.cli.advise import advise
from tidewise.cli.bench import bench
from tidewise.cli.choices import choice_row, print_choice
from tidewise.cli.cluster import cluster_commands
from tidewise.cli.demo import show_demo
from tidewise.cli.explain import explain
from tidewise.cli.fleet import fleet_commands
from tidewise.cli.forecast import forecast_commands
from tidewise.cli.forecast_service import service_commands
from tidewise.cli.history import history
from tidewise.cli.kafka import kafka_commands
from tidewise.cli.lag import lag
from tidewise.cli.live import chaos, control_job, job_status, pause_job, resume_job, run_job, stop_job
from tidewise.cli.output import (
    BAD_INPUT,
    STOPPED,
    console,
    experiment_progress,
    print_json,
    print_sentence,
    print_wrapped,
)
from tidewise.cli.produce import produce_records
from tidewise.cli.spark_plan import show_spark_plan
from tidewise.cli.summary import published_rows, summary_rows
from tidewise.cli.telemetry import telemetry_commands
from tidewise.cli.telemetry_tables import compact_tables, write_tables
from tidewise.cli.verify import verify
from tidewise.cli.whatif import whatif
from tidewise.core import BadInputError, PermanentError, TidewiseError
from tidewise.experiments import (
    DEMO_PLAN,
    Experiment,
    Run,
    Spreader,
    by_scenario,
    compare,
    find_plan,
    find_runs,
    in_this_process,
    run_experiment,
    shipped_plans,
    spread_over,
)
from tidewise.experiments.plan import files_in, read_plan
from tidewise.experiments.spark_plan import SparkExperiment
from tidewise.experiments.spark_run import check_spark
from tidewise.experiments.toml_file import TomlFile
from tidewise.experiments.tries import LOG_FILE
from tidewise.policies import describe
from tidewise.report import DEFAULT_TITLE, headlines, terminal_table, warnings, write_report
from tidewise.report.published import published_table
from tidewise.report.wording import origin
from tidewise.workload import describe_loads

app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with:  tidewise demo",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
Out = Annotated[Path, typer.Option("--out", help="The folder that the runs go into.", show_default=True)]
REPORT_NAME = "report.html"
DEMO_MINUTES = 4.0
DEFAULT_MASTER = "local[*]"


def _version(value: bool) -> None:
    if value:
        typer.echo(f"tidewise {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keep streaming jobs at their promised latency and recovery time for the least money.

    tidewise demo                    a day of load on real Spark, tuned while you look on

    tidewise run job.toml            a PySpark job, kept at its promises

    tidewise verify CHECKPOINT       proof that every record was committed once

    tidewise lag CHECKPOINT          what waits in the topics of a query

    tidewise kafka up                a broker on this machine

    tidewise produce --job ysb ...   a job's records into a topic, as a load says

    tidewise experiment plan.toml    compare policies on the same load

    tidewise experiment paper        the experiment of the earlier systems, as one command

    tidewise report runs/mine        tables and figures of any runs

    tidewise advise runs/mine        what a policy would do with a job, and what that would save

    tidewise explain runs/mine       what was decided and why, what was expected, and what came

    tidewise whatif runs/mine        what other policies would have made of a run

    tidewise forecast backtest ...   how good each forecaster would have been on a load

    tidewise bench nexmark           what Spark takes of each query, and where its time goes

    tidewise policies                what can decide, with its settings

    tidewise loads                   what a plan can load a job with
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def demo(
    *,
    out: Out = Path("runs"),
    simulated: Annotated[
        bool, typer.Option("--simulated", help="In the simulator instead: every policy, and nothing is started.")
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            min=0.5,
            max=60.0,
            help="How long the day lasts on real Spark.",
            show_default=f"{DEMO_MINUTES:g}",
        ),
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Measure the largest configuration as well: takes twice as long.")
    ] = False,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Read the load from a real Kafka broker, started for it on this machine.")
    ] = False,
    json: Json = False,
) -> None:
    """Tune a job on real Spark through a day of load in four minutes, while you look on, and write a report.

    Starts a Spark cluster on 127.0.0.1 and stops it at the end. Needs Java 17 and PySpark (the extra `spark`).

    For example:

    tidewise demo

    tidewise demo --kafka
      the same, with a Kafka broker between the load and the job

    tidewise demo --simulated
      a day in the simulator under each policy, in seconds, without Java or Spark
    """
    if simulated:
        spark_only = {"--kafka": kafka, "--minutes": minutes is not None, "--static": static}
        given = [option for option, is_given in spark_only.items() if is_given]
        if given:
            raise BadInputError(
                f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} for real Spark: leave out "
                f"{' and '.join(given)}, or --simulated"
            )
        home = _free_folder(out / "demo")
        _show(_run(Experiment(DEMO_PLAN), home, quiet=json), report=home / REPORT_NAME, json=json)
        return
    check_spark()
    home = _free_folder(out / "demo")
    seconds = round(60 * (DEMO_MINUTES if minutes is None else minutes))
    if not show_demo(home, seconds=seconds, measure_static=static, kafka=kafka, report=home / REPORT_NAME, json=json):
        raise typer.Exit(STOPPED)


@app.command(name="experiment")
def run_plan(
    plan: Annotated[
        str,
        typer.Argument(
            help=f"A plan file (TOML), or the name of a shipped one: {', '.join(shipped_plans())}.", show_default=False
        ),
    ],
    *,
    out: Out = Path("runs"),
    load: Annotated[
        list[str] | None,
        typer.Option("--load", metavar="NAME=FILE", help="Read this load of the plan from a CSV file instead."),
    ] = None,
    loads: Annotated[
        Path | None,
        typer.Option("--loads", help="A folder with such files: NAME.csv, or with the plan's length, NAME_18h.csv."),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            help="The Spark that computes the runs (simulated plans only); none: this process, one by one.",
            show_default=DEFAULT_MASTER,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Run policies x loads x seeds, with failures on a schedule; one folder per run, and a report.

    Everything wrong with a plan is told before the first run begins: the line,
    and what to write instead. The runs are spread over the cores of this machine,
    or over a cluster, by Spark: needs Java 17 and PySpark (the extra `spark`).
    Stopped, it goes on where it was: with the same command.

    For example:

    tidewise experiment plan.toml

    tidewise experiment plan.toml --out results --json > summary.json

    tidewise experiment paper
      the experiment of the earlier systems, on generated loads

    tidewise experiment paper --load ysb=ysb_18h.csv
      the same, with a load that was released

    tidewise experiment real-spark
      the same on real Spark, 18 hours in 20 minutes for each run
    """
    path = find_plan(plan)
    if path != Path(plan) and Path(plan).exists():
        sys.stderr.write(f"tidewise: careful: {plan} is a shipped plan; write ./{plan} for the one in this folder\n")
    files = _load_files(path, load or [], loads)
    if read_plan(TomlFile(path)).engine == "spark":
        if master is not None:
            raise BadInputError("this plan runs on a cluster of its own for each run: leave out --master")
        _run_on_spark(SparkExperiment(path, files=files), out, json=json)
        return
    experiment = Experiment(path, files=files)
    for table in experiment.plan.loads:
        if not json:
            print_sentence(f"The load {table.name} is {table.origin}.", Console(stderr=True))
    home = out / experiment.plan.name
    with spread_over(DEFAULT_MASTER if master is None else master) as spread:
        runs = _run(experiment, home, quiet=json, spread=spread)
    _show(runs, report=home / REPORT_NAME, json=json)


def _run_on_spark(experiment: SparkExperiment, out: Path, *, json: bool) -> None:
    home = out / experiment.plan.name
    outcome = show_spark_plan(experiment, home, quiet=json)
    if outcome.runs:
        _show(list(outcome.runs), report=home / REPORT_NAME, json=json)
    if outcome.stopped:
        raise typer.Exit(STOPPED)
    cut = outcome.total - len(outcome.runs)
    if cut:
        raise PermanentError(
            f"{cut} of the {outcome.total} runs were cut short or failed; see {home / LOG_FILE}, and run the same "
            "command again"
        )


def _load_files(plan: Path, named: list[str], folder: Path | None) -> dict[str, Path]:
    """By the name of the load; a file that is named goes before one that lies in the folder."""
    found = {} if folder is None else files_in(folder, read_plan(TomlFile(plan)))
    seen: set[str] = set()
    for text in named:
        name, equals, file = text.partition("=")
        if not (name and equals and file):
            raise BadInputError(f"--load {text}: write the name of a load and its file, as in --load ysb=ysb_18h.csv")
        if name in seen:
            raise BadInputError(f"--load names {name} twice; one file is enough for a load")
        seen.add(name)
        found[name] = Path(file)
    return found


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of runs.", show_default=False)],
    to: Annotated[Path, typer.Option("--to", help="The page to write.")] = Path(REPORT_NAME),
    title: Annotated[str, typer.Option("--title", help="The page's title.")] = DEFAULT_TITLE,
    json: Json = False,
) -> None:
    """Turn any set of runs into one self-contained HTML page, and print its summary.

    For example:

    tidewise report runs/demo

    tidewise report runs/a runs/b --to comparison.html --title "Before and after"
    """
    _show(find_runs(runs), report=to, json=json, title=title)


@app.command()
def policies(json: Json = False) -> None:
    """List the policies that can decide, with their settings and defaults.

    For example:  tidewise policies
    """
    known = describe()
    if json:
        print_json([{**choice_row(one), "package": one.package, "problem": one.problem} for one in known])
        return
    for one in known:
        print_choice(one, problem=one.problem)


@app.command()
def loads(json: Json = False) -> None:
    """List the load shapes that a plan can name, with their settings and defaults.

    For example:  tidewise loads
    """
    known = describe_loads()
    if json:
        print_json([choice_row(one) for one in known])
        return
    for one in known:
        print_choice(one)


app.command(name="run")(run_job)
app.command(name="control", hidden=True)(control_job)
app.command(name="status")(job_status)
app.command(name="pause")(pause_job)
app.command(name="resume")(resume_job)
app.command(name="stop")(stop_job)
app.command()(chaos)
app.command()(verify)
app.command()(lag)
app.command(name="produce")(produce_records)
app.command()(explain)
app.command()(advise)
app.command()(whatif)
app.command()(history)
app.command()(bench)
app.add_typer(cluster_commands, name="cluster")
app.add_typer(kafka_commands, name="kafka")
app.add_typer(forecast_commands, name="forecast")
telemetry_commands.command(name="tables")(write_tables)
telemetry_commands.command(name="compact")(compact_tables)
app.add_typer(telemetry_commands, name="telemetry")
app.add_typer(service_commands, name="service")
app.add_typer(fleet_commands, name="fleet")


def _run(experiment: Experiment, home: Path, *, quiet: bool, spread: Spreader = in_this_process) -> list[Run]:
    created = datetime.now(UTC).date().isoformat()
    with experiment_progress(quiet=quiet) as progress:
        return run_experiment(experiment, home, created=created, spread=spread, progress=progress)


def _show(runs: list[Run], *, report: Path, json: bool, title: str = DEFAULT_TITLE) -> None:
    aggregates = compare(runs)
    write_report(runs, report, title=title, aggregates=aggregates)
    for sentence in warnings(runs):
        sys.stderr.write(f"tidewise: careful: {sentence}\n")
    if json:
        print_json({"report": str(report), "runs": summary_rows(aggregates), "published": published_rows(aggregates)})
        return
    screen = console()
    for rows in by_scenario(aggregates):
        scenario = rows[0].scenario
        screen.print(terminal_table(rows, title=f"{scenario.load} ({origin(scenario)})", width=screen.width))
        for sentence in headlines(rows):
            print_wrapped(sentence, screen)
        beside = published_table(rows)
        if beside is not None:
            screen.print(beside)
        screen.print()
    screen.print(f"The report: [bold]{escape(str(report))}[/bold]", soft_wrap=True)


def _free_folder(wanted: Path) -> Path:
    """The demo may be run again and again: it never touches what an earlier one left, or one beside it makes."""
    number = 1
    folder = wanted
    while True:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
            folder = wanted.with_name(f"{wanted.name}-{number}")
        except OSError as error:
            raise PermanentError(f"the folder {folder} cannot be made: {error.strerror}") from error
        else:
            return folder


def run() -> int:
    """Run the command line and answer its exit code; whatever the user can mend is one sentence on standard error."""
    try:
        # Not in the standalone mode: that answers wrong options with a box, and exceptions with a page.
        code = app(standalone_mode=False)
        sys.stdout.flush()
        if code == STOPPED:  # how Typer tells of Ctrl-C
            raise KeyboardInterrupt
    except TidewiseError as error:
        return _say(str(error))
    except _USAGE_ERROR as error:
        return _say(f"{str(error).rstrip('.')}; see tidewise --help")
    except SystemExit as ended:
        # Somebody read only the beginning of the output (`| head`): nothing is wrong.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        _drop_output()
        return 0
    except OSError as error:
        if error.filename is not None:
            raise
        _drop_output()
        return _say(f"the output cannot be written: {error.strerror}")
    return code if isinstance(code, int) else 0


_USAGE_ERROR: type[Exception] = cast("type[Exception]", typer.BadParameter.__base__)
# Typer shows this class, by which it tells of wrong options, only as the base of another.


def _say(sentence: str) -> int:
    """One sentence on one line, and the exit code that goes with it."""
    sys.stderr.write(f"tidewise: {' '.join(sentence.split())}\n")
    return BAD_INPUT


def _drop_output() -> None:
    """Nobody reads what is still in the buffer; without this Python would complain when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
