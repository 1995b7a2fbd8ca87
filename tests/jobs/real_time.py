"""How the queries of a benchmark are tried in real-time mode, between two topics of a real broker."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.jobs.queries import Rows, assert_same, told
from tests.jobs.running import PATIENCE_S, values_of
from tidewise.experiments.produce import Production, produce
from tidewise.jobs.program import options_of, parsed, session_of, writer_of
from tidewise.jobs.query import Query
from tidewise.jobs.query_program import reading
from tidewise.jobs.records.kinds import RecordKind
from tidewise.jobs.schedule import Schedule
from tidewise.kafka import topics

EVENTS = Schedule(began_unix_s=1_700_000_000.0, rates_per_s=(100.0,) * 30, after="stop")
TOTAL = 3000
PARTITIONS = 2
TRIGGER = "10 minutes"
"""So long that all is one batch: the watermark stays where it is until a batch ends, and nothing comes too late."""

_LOOK_S = 0.5
_QUOTED = re.compile(r"\('(.+)'\)")


def fill(address: str, kind: RecordKind, *, topic: str) -> None:
    """A topic with records of this kind."""
    wanted = Production(job=kind.name, brokers=address, topic=topic, partitions=PARTITIONS, processes=1, at_once=True)
    produce(wanted, EVENTS, began_unix_s=EVENTS.began_unix_s)


def events(kind: RecordKind, *, closed_by: str) -> pa.Table:
    """What is in the topic, and an event of this type a day later, which closes all windows."""
    sent = pa.Table.from_batches([kind.batch(seed=0, first=0, end=TOTAL, pieces=EVENTS.pieces(0, TOTAL))])
    later = datetime.datetime.fromtimestamp(EVENTS.began_unix_s, datetime.UTC) + datetime.timedelta(days=1)
    closing = {"ordinal": TOTAL, "event_time": later, "event_type": closed_by}
    return pa.concat_tables([sent, pa.Table.from_pylist([closing], schema=sent.schema)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where queries of a benchmark run."""

    spark: SparkSession
    kind: RecordKind
    address: str
    """Of the broker."""
    topic: str
    """With the events."""
    checkpoint: Path

    def answers(self, query: Query) -> str:
        """The topic that the query writes to: others have queries of the same name."""
        return f"{self.topic}-{query.name}"


def assert_refused(place: Place, query: Query) -> None:
    """Spark refuses the query in the words that the registry quotes."""
    said = _QUOTED.search(query.real_time or "")
    assert said is not None, f"{query.name} does not tell what Spark says"
    with pytest.raises((AnalysisException, StreamingQueryException), match=re.escape(said[1])):
        _writer(place, query).start().awaitTermination(PATIENCE_S)


def assert_right(place: Place, query: Query, *, right: Rows, settled: Callable[[Rows], Rows]) -> None:
    """Once all events are done, the topic says what is right; `settled`: which of its rows count in the end."""
    with running(place, query) as live:
        wait_for(live, lambda: told(settled(_said(place, query, right))) == told(right))
    assert_same(settled(_said(place, query, right)), right)


def wait_for(live: StreamingQuery, is_there: Callable[[], bool]) -> None:
    """Until it is there, or the time is over: what is missing then, the caller can tell better."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_there() and time.monotonic() < deadline_s:
        assert live.isActive, live.exception()
        time.sleep(_LOOK_S)


@contextmanager
def running(place: Place, query: Query) -> Iterator[StreamingQuery]:
    """The query, which is stopped in the end."""
    live = _writer(place, query).start()
    try:
        yield live
    finally:
        live.stop()


def _writer(place: Place, query: Query) -> DataStreamWriter:
    # In one partition all rows lie in the order in which they were said.
    topics.create(place.address, place.answers(query), 1)
    kafka = ["--source", "kafka", "--brokers", place.address, "--topic", place.topic, "--sink", "kafka"]
    kafka += ["--out-topic", place.answers(query), "--checkpoint", str(place.checkpoint)]
    given = parsed(options_of("a test"), [*kafka, "--mode", "real-time", "--trigger", TRIGGER])
    session_of(given)
    results = query.make(reading(place.spark, given, place.kind))
    return writer_of(results, given, output_mode=query.output_mode, key=query.key)


def _said(place: Place, query: Query, right: Rows) -> Rows:
    """The rows in the query's topic, with the columns and types of those that are right."""
    types = {name: type(value) for name, value in right[0].items()}
    rows = list(values_of(place.address, place.answers(query)))
    assert all(row.keys() <= types.keys() for row in rows), f"{query.name} has columns that nobody asked for"
    return [{name: _as(types[name], row.get(name)) for name in types} for row in rows]


def _as(wanted: type, value: object) -> object:
    """JSON has no moments."""
    if wanted is datetime.datetime and isinstance(value, str):
        return datetime.datetime.fromisoformat(value).astimezone(datetime.UTC)
    return value
