"""The demo on real Spark as a user meets it: the set-up told, the morning shown, the summary printed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidewise.cli.logs import logging_to
from tidewise.cli.output import console, print_json, print_sentence
from tidewise.cli.summary import summary_rows
from tidewise.cli.view import Frame, watching
from tidewise.core import Purpose, Usage, format_duration
from tidewise.experiments import compare
from tidewise.experiments.demo import (
    PROMISES,
    REPORT_EVERY_S,
    SPACE,
    Demo,
    cost_of,
    demo_prices,
    driver_s,
    run_demo,
    static_usage,
    time_of_day,
)
from tidewise.experiments.live import LiveView
from tidewise.experiments.measures import Summary, summarise
from tidewise.experiments.tries import LOG_FILE
from tidewise.report import write_report
from tidewise.report.wording import MISSING, percent
from tidewise.report.wording import seconds as say_seconds


def show_demo(home: Path, *, seconds: int, measure_static: bool, kafka: bool, report: Path, json: bool) -> bool:
    """Run the demo into this folder and show it; whether it ran to its end, and nobody stopped it."""
    screen = console()
    prices = demo_prices(seconds)

    def static_cost(view: LiveView) -> float:
        return cost_of(static_usage(driver_s(view.meter)), prices)

    def say(sentence: str) -> None:
        if not json:
            print_sentence(sentence, screen)

    frame = Frame(
        title=f"A morning in {format_duration(seconds)} on Spark",
        promises=PROMISES,
        most_executors=SPACE.largest.executors,
        currency=prices.currency,
        time_of=lambda now_s: time_of_day(now_s, seconds),
        static_cost=static_cost,
        report_every_s=REPORT_EVERY_S,
    )
    with logging_to(home / LOG_FILE):
        demo = run_demo(
            home,
            seconds=seconds,
            measure_static=measure_static,
            kafka=kafka,
            created=datetime.now(UTC).date().isoformat(),
            say=say,
            watch=lambda: watching(frame, screen=screen, quiet=json),
        )
    runs = [run for run in (demo.static, demo.tuned) if run is not None]
    write_report(runs, report, title="Tidewise demo")
    if json:
        rows = summary_rows(compare(runs))
        print_json({"report": str(report), "static_cost": demo.static_cost, "whole": demo.whole, "runs": rows})
    else:
        print_summary(demo, screen)
        say(f"The run:    {demo.tuned.folder}")
        say(f"The report: {report}")
        say(f"The logs:   {home}")
    return demo.whole


def print_summary(demo: Demo, screen: Console) -> None:
    """The tuned run beside static: measured, or where nobody measured that, what is known all the same."""
    static = None if demo.static is None else summarise(demo.static.record, demo.static.read_series(), None)
    tuned = summarise(demo.tuned.record, demo.tuned.read_series(), None)
    length = format_duration(round(tuned.record.duration_s))
    what = f"A morning in {length}" if demo.whole else f"A morning that was stopped after {length}"
    screen.print()
    screen.print(summary_table(demo, tuned, static, title=f"{what}, measured on Spark"))
    for sentence in summary_sentences(demo, tuned, static):
        screen.print(sentence, highlight=False, markup=False)
    screen.print()


def summary_table(demo: Demo, tuned: Summary, static: Summary | None, *, title: str) -> Table:
    """One row for each of the two."""
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("policy", "cost", "saves", "executors", "promised latency", "latency p50", "latency p95", "changes"):
        table.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    currency, largest = tuned.record.prices.currency, SPACE.largest.executors
    cost = f"{demo.static_cost:.2f} {currency}"
    table.add_row("static", cost, "0 %", f"{largest}", *(_latencies(static) if static else (MISSING,) * 3), "0")
    saved = f"{100 * (1 - tuned.all_in.cost / demo.static_cost):.0f} %"
    used = tuned.record.meter.get(Purpose.EXECUTORS, Usage()).core_s / SPACE.largest.cores_per_executor
    mean = used / driver_s(tuned.record.meter)
    made = sum(use.count for use in tuned.uses)
    name = tuned.record.policy
    table.add_row(name, f"{tuned.all_in.cost:.2f} {currency}", saved, f"{mean:.1f}", *_latencies(tuned), str(made))
    return table


def _latencies(summary: Summary) -> tuple[str, str, str]:
    promised = MISSING if summary.promise_share is None else percent(summary.promise_share)
    if summary.latency_p50 is None or summary.latency_p95 is None:
        return promised, MISSING, MISSING
    return promised, say_seconds(summary.latency_p50.p50_s), say_seconds(summary.latency_p95.p95_s)


def summary_sentences(demo: Demo, tuned: Summary, static: Summary | None) -> list[str]:
    """What the table does not say by itself."""
    told = "Cost: everything counted, driver and controller as well, at prices multiplied as time is compressed"
    said = [f"{told}: what such a morning would cost."]
    if static is None:
        said.append(
            "static: the largest configuration for the same time. Its cost is exact; its latency was not measured "
            "(tidewise demo --static does)."
        )
    if tuned.promise_share is not None:
        kept = "kept" if tuned.kept_promises else "NOT kept"
        said.append(
            f"Promise: 95 % of records within {PROMISES.latency_p95_s:g} s in {100 * PROMISES.good_share:g} % of all "
            f"seconds: {kept} by {tuned.record.policy}."
        )
    said += demo.proof
    return said
