"""How the queries of a benchmark are tried in real-time mode, between two topics of a real broker."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from tests.jobs.running import PATIENCE_S
from tidewise.experiments.produce import Production, produce
from tidewise.jobs.program import options_of, parsed, session_of, writer_of
from tidewise.jobs.query import Query
from tidewise.jobs.query_program import reading
from tidewise.jobs.records.kinds import RecordKind
from tidewise.jobs.schedule import Schedule
from tidewise.kafka import topics

EVENTS = Schedule(began_unix_s=1_700_000_000.0, rates_per_s=(100.0,) * 30, after="stop")
PARTITIONS = 2

_QUOTED = re.compile(r"\('(.+)'\)")


def fill(address: str, kind: RecordKind) -> None:
    """A topic `events` with records of this kind."""
    wanted = Production(
        job=kind.name, brokers=address, topic="events", partitions=PARTITIONS, processes=1, at_once=True
    )
    produce(wanted, EVENTS, began_unix_s=EVENTS.began_unix_s)


def assert_as_told(spark: SparkSession, address: str, folder: Path, kind: RecordKind, query: Query) -> None:
    """The query answers something, or Spark refuses it in the words that the registry quotes."""
    topics.create(address, query.name, PARTITIONS)
    kafka = ["--source", "kafka", "--brokers", address, "--topic", "events", "--sink", "kafka"]
    kafka += ["--out-topic", query.name, "--checkpoint", str(folder), "--mode", "real-time", "--trigger", "5 seconds"]
    given = parsed(options_of("a test"), kafka)
    session_of(given)
    writer = writer_of(query.make(reading(spark, given, kind)), given, output_mode=query.output_mode, key=query.key)
    if query.real_time is not None:
        said = _QUOTED.search(query.real_time)
        assert said is not None, f"{query.name} does not tell what Spark says"
        with pytest.raises((AnalysisException, StreamingQueryException), match=re.escape(said[1])):
            writer.start().awaitTermination(PATIENCE_S)
        return
    running = writer.start()
    deadline_s = time.monotonic() + PATIENCE_S
    try:
        while not sum(reach.records for reach in topics.ends(address, query.name).values()):
            assert running.isActive, running.exception()
            assert time.monotonic() < deadline_s, f"{query.name} said nothing in {PATIENCE_S} s"
            time.sleep(0.2)
    finally:
        running.stop()
