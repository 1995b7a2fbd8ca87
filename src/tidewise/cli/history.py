"""The command `history`: what the tables of many jobs say, in SQL or as ready reports."""

from __future__ import annotations

import csv
import math
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tidewise.cli.output import console, print_json, print_sentence
from tidewise.core import BadInputError
from tidewise.experiments.history import ReportName, ask_history, report_history
from tidewise.pipeline.context import spark_session
from tidewise.pipeline.table_sql import Answered


def history(
    *,
    sql: Annotated[str | None, typer.Argument(metavar="SQL", help="A query in Spark SQL.", show_default=False)] = None,
    tables: Annotated[
        Path,
        typer.Option(
            "--tables", help="The folder of tables that tidewise telemetry tables writes.", show_default=False
        ),
    ],
    report: Annotated[
        ReportName | None, typer.Option("--report", help="A ready report in place of a query.", show_default=False)
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="At most so many rows of each table.")] = 100,
    master: Annotated[str, typer.Option("--master", help="The Spark that computes it.")] = "local[*]",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the table as CSV.")] = False,
) -> None:
    """Ask the tables of all jobs: with a query in plain Spark SQL, or for a ready report.

    The tables are observations_10s, observations_60s, performance, changes, recoveries, forecast_errors, reports and
    dead_letters; after tidewise fleet, models and backtest too. SHOW COLUMNS IN performance lists what is in one.
    Reports: where the money goes (money), which jobs are larger than their peak needs (oversized), which promises were
    broken and why (promises). Needs Java 17 and PySpark (the extra `spark`).

    For example:

    tidewise history "SELECT job, sum(cost) FROM observations_60s GROUP BY job" --tables tables

    tidewise history --report money --tables tables
    """
    if sql is not None and report is not None:
        raise BadInputError("ask one thing at a time: a query in SQL, or --report")
    if sql is None and report is None:
        raise BadInputError("ask something: a query in SQL, or --report with money, oversized or promises")
    if json and as_csv:
        raise BadInputError("--json and --csv are two forms of one answer: give one of them")
    with spark_session(master) as session:
        if report is None:
            answer = ask_history(session, tables, sql or "", at_most=rows)
            _show_answer(answer, json=json, as_csv=as_csv)
            return
        found = report_history(session, tables, report, at_most=rows)
    if json:
        print_json(
            {
                "sentences": list(found.sentences),
                "tables": [{"title": title, **_document(answer)} for title, answer in found.tables],
            }
        )
        return
    if as_csv:
        _print_csv(found.tables[0][1])
        return
    for sentence in found.sentences:
        print_sentence(sentence)
    for title, answer in found.tables:
        print_sentence("")
        print_sentence(title)
        _print_table(answer)


def _show_answer(answer: Answered, *, json: bool, as_csv: bool) -> None:
    if json:
        print_json(_document(answer))
    elif as_csv:
        _print_csv(answer)
    else:
        _print_table(answer)


def _document(answer: Answered) -> dict[str, object]:
    rows = [{name: _plain(value) for name, value in row.items()} for row in answer.dicts()]
    return {"columns": list(answer.columns), "rows": rows, "is_cut": answer.is_cut}


def _plain(value: object) -> object:
    """As JSON can hold it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else str(value)


def _print_csv(answer: Answered) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows(["" if value is None else _plain(value) for value in row] for row in answer.rows)
    if answer.is_cut:
        sys.stderr.write(_cut_sentence(answer) + "\n")


def _print_table(answer: Answered) -> None:
    screen = console()
    table = Table(box=None)
    for place, name in enumerate(answer.columns):
        numbers = any(isinstance(row[place], int | float) for row in answer.rows)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in answer.rows:
        table.add_row(*(_cell(value) for value in row))
    screen.print(table, markup=False, highlight=False)
    if answer.is_cut:
        print_sentence(_cut_sentence(answer), screen)
    elif not answer.rows:
        print_sentence("No rows.", screen)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def _cut_sentence(answer: Answered) -> str:
    return f"These are the first {len(answer.rows):,} rows; there are more: ask for them with --rows."
