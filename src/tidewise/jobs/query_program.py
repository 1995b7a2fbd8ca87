"""A program that runs the query of a benchmark that it is asked for, or says in a sentence why it cannot."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from tidewise.core.readers import did_you_mean
from tidewise.jobs.program import (
    keep_dead_letters,
    missing_for_python_state,
    options_of,
    parsed,
    records_of,
    session_of,
    wait,
    worked,
    writer_of,
)
from tidewise.jobs.query import Query, Read
from tidewise.jobs.records.kinds import RecordKind

WATERMARK = "4 seconds"
"""How much later than others an event may come."""


def run_query(queries: Mapping[str, Query], kind: RecordKind, *, description: str, arguments: list[str] | None) -> None:
    """Run until stopped, or for `--seconds`."""
    parser = query_options(queries, kind, description=description)
    run_asked(parser, parsed(parser, arguments), queries, kind)


def query_options(queries: Mapping[str, Query], kind: RecordKind, *, description: str) -> argparse.ArgumentParser:
    """A parser with the options of all programs, and the one that names a query."""
    parser = options_of(description)
    # Otherwise the application would be called after the file, `__main__.py`.
    parser.prog = kind.name
    parser.add_argument("--query", required=True, metavar="NAME", help=f"which one: {', '.join(queries)}")
    return parser


def run_asked(
    parser: argparse.ArgumentParser, options: argparse.Namespace, queries: Mapping[str, Query], kind: RecordKind
) -> None:
    """Run the query that the options name until stopped, or for `--seconds`."""
    if options.query not in queries:
        parser.error(f"there is no query {options.query!r}{did_you_mean(options.query, queries)}")
    query = queries[options.query]
    wrong = _not_for(query, options)
    if wrong is not None:
        parser.error(wrong)
    spark = session_of(options)
    results = query.make(reading(spark, options, kind))
    writer = writer_of(results, options, output_mode=query.output_mode, key=query.key, partition_by=query.partition_by)
    wait(options, writer.start(), keep_dead_letters(spark, options, kind))


def reading(spark: SparkSession, options: argparse.Namespace, kind: RecordKind) -> Read:
    """The events for one query, which may read them several times."""
    numbers = itertools.count(1)

    def read() -> DataFrame:
        events = records_of(spark, options, kind, reading=next(numbers))
        return events.where(worked(options.work)).withWatermark("event_time", WATERMARK)

    return read


def _not_for(query: Query, options: argparse.Namespace) -> str | None:
    """Why this query cannot run with these options."""
    if options.mode == "real-time" and query.real_time is not None:
        return f"--mode real-time is not for {query.name}: {query.real_time}; leave it out"
    if query.stores and options.state_provider not in query.stores:
        return f"{query.name} needs --state-provider {' or '.join(query.stores)}, not {options.state_provider}"
    if options.sink == "files" and query.output_mode == "update":
        return f"{query.name} corrects what it said, which files cannot; use --sink foreachbatch, kafka or noop"
    # Of all that keeps state, only transformWithState is so particular.
    return missing_for_python_state() if query.stores == ("rocksdb",) else None
