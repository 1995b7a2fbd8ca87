"""One streaming query that turns lines of telemetry into tables, each row once, whatever is killed meanwhile.

A line is known again by its run and number for as long as `known_again_s` after it was taken in. That is counted on
the clock of this query and not on any that comes with the line: a job, a producer or a copied file whose clock is off
makes neither its own rows late nor those of others, and no row is ever dropped for being late. That holds as well where
this machine's own clock is set back (see `telemetry_clock`). Where that leaps ahead, rows are forgotten too early.

A report counts whole in the window in which it ends (one that ends where two windows meet, in the earlier one), as
long as it is: a report that straddles windows is not divided. Windows, days and buckets know no time zone.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidewise.core import BadInputError, PermanentError, TemporaryError, TidewiseError
from tidewise.core.checks import require, require_finite
from tidewise.pipeline.context import cause
from tidewise.pipeline.streaming import fresh_progress, late_rows, lost_lines, own_session, triggered
from tidewise.pipeline.telemetry_claim import (
    BUCKETS,
    CHECKPOINT,
    Claim,
    Tell,
    claimed,
    query_of,
    remove_folder,
    writing_batch,
)
from tidewise.pipeline.telemetry_clock import ClockWentBackError, StreamClock
from tidewise.pipeline.telemetry_partials import OBSERVATIONS, PARTITIONS, PERFORMANCE, WINDOW_START
from tidewise.pipeline.telemetry_schema import MOST_RAW_CHARACTERS, is_bad, parsed, reason
from tidewise.pipeline.telemetry_tables import (
    DEAD_LETTERS,
    OBSERVATION_WINDOWS_S,
    PERFORMANCE_TABLE,
    ROW_TABLES,
    TABLES,
    Table,
    buckets_of,
    commit,
    days_of,
    read_committed,
)

DAY_S = 86_400
MOST_BUCKETS = 100
"""Their folders have names of two digits."""
_DEAD = "dead letter"
_POLL_S = 0.2
_END_S = 120.0
"""By then a batch that was stopped has noticed."""
_ANSWER_S = 5.0
"""How long a broker may take to accept a connection."""
_GRACE_S = 0.001
"""A report that ends so little behind the end of a window ends with it: clocks are sums of floats."""
_FILE_AGE = "1000000d"
"""Spark passes files by for good that are so much older than the newest: one from a clock that was ahead must not hide
all that come after it. What this costs is some hundred bytes of memory for every file that was ever read."""
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",  # a number out of bounds is a dead letter, not the end
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSource:
    """A folder of files with a line for each row, which appear whole: written under a hidden name, then renamed."""

    folder: Path
    files_per_batch: int = 1000

    def __str__(self) -> str:
        return str(self.folder)

    def lines(self, session: SparkSession) -> DataFrame:
        """Every line, when its file was last written, and which it was."""
        reader = session.readStream.format("text").option("recursiveFileLookup", "true")
        reader = reader.option("maxFileAge", _FILE_AGE).option("maxFilesPerTrigger", self.files_per_batch)
        return reader.load(str(self.folder)).selectExpr(
            "value AS raw",
            "cast(_metadata.file_modification_time AS DOUBLE) AS received",
            "_metadata.file_path AS where_from",
        )

    def check(self) -> None:
        """BadInputError where there is no such folder."""
        if not self.folder.is_dir():
            raise BadInputError(f"there is no folder {self.folder} to read lines from: make it, or correct the path")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSource:
    """A topic of lines, from its beginning; what it has deleted before it was read is passed by."""

    brokers: str
    """HOST:PORT, several with commas between."""
    topic: str
    records_per_batch: int = 200_000

    def __str__(self) -> str:
        return f"kafka://{self.brokers}/{self.topic}"

    def lines(self, session: SparkSession) -> DataFrame:
        """Every line, when the broker or its producer says that it came, and its place in the topic."""
        reader = session.readStream.format("kafka").option("kafka.bootstrap.servers", self.brokers)
        reader = reader.option("subscribe", self.topic).option("startingOffsets", "earliest")
        reader = reader.option("maxOffsetsPerTrigger", self.records_per_batch).option("failOnDataLoss", "false")
        return reader.load().selectExpr(
            "cast(value AS STRING) AS raw",
            "cast(timestamp AS DOUBLE) AS received",
            "concat(topic, '/', partition, '/', offset) AS where_from",
        )

    def check(self) -> None:
        """TemporaryError where no broker listens: Spark itself would try for minutes."""
        for address in self.brokers.split(","):
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()
            except OSError:
                continue
            return
        raise TemporaryError(
            f"no broker listens at {self.brokers}: start it (tidewise kafka up) or correct the address"
        )


Source: TypeAlias = FolderSource | KafkaSource


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """What seldom has to be chosen."""

    buckets: int = BUCKETS
    """Files that a table writes per day and batch, at most; stays as it was when the tables were begun."""
    known_again_s: float = 3600.0
    """How long a row is remembered. Every batch looks through all that are: an hour of 1,000 rows/s takes seconds."""
    ahead_s: float = 3600.0
    """A row from further ahead of when it was received is a dead letter."""
    behind_s: float = 30.0 * DAY_S
    """The same for rows from so long before."""
    partitions: int | None = None
    """Of the state and of a batch; as many as cores unless told. Stays as it was when the tables were begun."""

    def __post_init__(self) -> None:
        require(1 <= self.buckets <= MOST_BUCKETS, f"buckets must lie between 1 and {MOST_BUCKETS}, not {self.buckets}")
        require_finite("known_again", self.known_again_s, above=0.0)
        require_finite("ahead", self.ahead_s, least=0.0)
        require_finite("behind", self.behind_s, above=0.0)


@dataclass(slots=True, kw_only=True)
class Taken:
    """What a stream has taken in."""

    batches: int = 0
    rows: int = 0
    dead_letters: int = 0
    batch_rows: list[int] = field(default_factory=list)
    """Rows of each batch, in their order."""
    lost: int = 0
    """Lines that a topic had deleted before they could be read, and rows that Spark dropped as late."""


def run_stream(
    source: Source,
    tables: Path,
    *,
    session: SparkSession,
    trigger_s: float = 60.0,
    once: bool = False,
    stop: threading.Event | None = None,
    settings: StreamSettings | None = None,
    tell: Tell = lambda _: None,
) -> Taken:
    """Write the lines of a source to tables until told to stop; with `once`, until all that is there is taken in.

    Killed at any point and started again, it goes on where it was: a batch that was not finished is written anew in
    the place of what is left of it, and readers never see parts of one. That holds for the death of processes; after
    a power cut the last files may be damaged. One query at a time may write a folder: see `claimed`.

    BadInputError where the folder is another's or there is nothing to read; PermanentError where Spark gave up.
    """
    chosen = settings or StreamSettings()
    require_finite("trigger", trigger_s, above=0.0)
    source.check()
    require_apart(source, tables)
    with claimed(tables, buckets=chosen.buckets) as claim:
        partitions = chosen.partitions or max(2, session.sparkContext.defaultParallelism)
        own = own_session(session, partitions=partitions, more=_SETTINGS)
        ended, taken = stop or threading.Event(), Taken()
        tell(f"Lines of {source} go to the tables in {tables}.")
        while True:
            checkpoint = tables / CHECKPOINT
            clock = StreamClock.resumed(checkpoint, known_again_s=chosen.known_again_s, now_unix_s=time.time())
            writer = _Batches(claim=claim, settings=chosen, clock=clock, taken=taken, tell=tell)
            stream = _rows(source.lines(own), chosen, clock).writeStream.queryName(f"tidewise tables {tables}")
            stream = stream.option("checkpointLocation", str(checkpoint)).foreachBatch(writer.write)
            stream = triggered(stream, every_s=None if once else trigger_s)
            try:
                _follow(stream.start(), source, writer, ended)
            except ClockWentBackError as error:
                tell(str(error))
            else:
                return taken


def require_apart(source: Source, tables: Path) -> None:
    """BadInputError where the tables would be read as lines, or the lines lie among the tables."""
    if isinstance(source, KafkaSource):
        return
    lines, written = source.folder.resolve(), tables.resolve()
    if lines == written or lines in written.parents or written in lines.parents:
        raise BadInputError(
            f"lines are read from {source.folder} with all its folders, so that the tables cannot lie in it, nor it in "
            f"them: name a folder beside it in place of {tables}"
        )


def _follow(query: StreamingQuery, source: Source, writer: _Batches, stop: threading.Event) -> None:
    last = -1

    def look() -> None:
        nonlocal last
        for progress in fresh_progress(query, after=last):
            last = progress.batchId
            writer.note_lost(last, lost_lines(progress), source)
            writer.note_late(last, late_rows(progress))

    try:
        while query.isActive:
            if stop.wait(_POLL_S):
                return
            look()
        look()
        error = query.exception()
    finally:
        query.stop()
        writer.end()
    if error is not None:
        raise writer.problem or PermanentError(f"Spark gave the tables up: {cause(str(error))}") from error


def _rows(lines: DataFrame, settings: StreamSettings, clock: StreamClock) -> DataFrame:
    """Each line once, as a row or with what it was."""
    bad = is_bad(ahead_s=settings.ahead_s, behind_s=settings.behind_s)
    now = "cast(current_timestamp() AS DOUBLE)"
    # A line cannot have been received after now: whoever says so has a clock that is ahead. Nor before all time.
    received = f"CASE WHEN received > 0 THEN least(received, {now}) ELSE {now} END AS received_unix_s"
    return (
        lines.selectExpr("raw", "where_from", received, f"{clock.sql} AS taken_in", f"{parsed('raw')} AS fields")
        .withWatermark("taken_in", f"{round(1000 * settings.known_again_s)} milliseconds")
        .selectExpr("raw", "where_from", "received_unix_s", "taken_in", "fields.*")
        .selectExpr("*", f"{bad} AS is_bad")
        # A bad line must not be taken for the good one of its number: it is known by where and what it is.
        .selectExpr(
            "* EXCEPT (raw, where_from)",
            f"if(is_bad, left(raw, {MOST_RAW_CHARACTERS + 1}), NULL) AS raw",
            "if(is_bad, where_from, NULL) AS where_from",
            "if(is_bad, concat('!', where_from), run) AS known_run",
            "if(is_bad, xxhash64(raw), line) AS known_line",
        )
        .dropDuplicatesWithinWatermark(["known_run", "known_line"])
    )


def _placed(rows: DataFrame, buckets: int) -> DataFrame:
    """With the day and the bucket that each belongs to, and the end of its window on the finest grid."""
    finest_s = min(OBSERVATION_WINDOWS_S.values())
    window = f"(cast(ceil((at_unix_s - {_GRACE_S}) / {finest_s}) AS BIGINT) - 1) * {finest_s}"
    # The day of a report is that of its windows: one that ends at midnight belongs to the day before.
    at = f"CASE WHEN is_bad THEN received_unix_s WHEN kind = 'report' THEN {window} ELSE at_unix_s END"
    return rows.selectExpr(
        "* EXCEPT (kind, known_run, known_line, taken_in)",
        f"if(is_bad, '{_DEAD}', kind) AS kind",
        "kind AS told_kind",
        f"if(is_bad OR kind != 'report', NULL, {window}) AS finest_start",
        f"date_from_unix_date(cast(floor(({at}) / {DAY_S}) AS INT)) AS day",
        f"lpad(cast(coalesce(pmod(xxhash64(job), {buckets}), 0) AS STRING), 2, '0') AS bucket",
    )


class _Batches:
    """Writes batches, each whole or, to readers, not at all."""

    def __init__(self, *, claim: Claim, settings: StreamSettings, clock: StreamClock, taken: Taken, tell: Tell) -> None:
        self.problem: TidewiseError | None = None
        self._taken = taken
        self._claim = claim
        self._folder = claim.folder
        self._settings = settings
        self._clock = clock
        self._tell = tell
        self._is_first = True
        self._over = threading.Event()
        self._busy = threading.Lock()

    def end(self) -> None:
        """Write nothing more: Spark does not wait for a batch that it stops, and the folder may soon be another's.

        TemporaryError where it does not come to its end.
        """
        self._over.set()
        if not self._busy.acquire(timeout=_END_S):
            raise TemporaryError(f"the last batch of {self._folder} is still being written after {_END_S:.0f} s")
        self._busy.release()

    def write(self, rows: DataFrame, batch: int) -> None:
        """Called by Spark for every batch, and once more for one of which it does not know whether it was written."""
        try:
            with self._busy, writing_batch(self._folder):
                self._write(rows, batch)
        except TidewiseError as error:
            self.problem = error
            raise

    def _write(self, rows: DataFrame, batch: int) -> None:
        began_s = time.monotonic()
        self._claim.check()
        self._clock.check(self._folder / CHECKPOINT, batch)
        if batch <= read_committed(self._folder):
            # It is there; but Spark's own state has to learn of its rows.
            rows.write.format("noop").mode("overwrite").save()
            return
        query = query_of(self._folder)
        if query is not None:
            self._claim.belongs_to(query)
        if self._is_first:
            self._clear(batch)
            self._is_first = False
        placed = _placed(rows, self._settings.buckets).repartition(*PARTITIONS).persist()
        try:
            counts = {str(row["kind"]): int(row["count"]) for row in placed.groupBy("kind").count().collect()}
            self._write_tables(placed, counts, batch)
        finally:
            placed.unpersist()
        self._require_going_on()
        commit(self._folder, batch)
        self._note(batch, counts, time.monotonic() - began_s)

    def _write_tables(self, placed: DataFrame, counts: Mapping[str, int], batch: int) -> None:
        for kind, table in ROW_TABLES.items():
            if kind in counts:
                self._append(placed.where(f"kind = '{kind}'"), table, batch)
        if "report" in counts:
            reports = placed.where("kind = 'report'")
            for name, window_s in OBSERVATION_WINDOWS_S.items():
                started = reports.selectExpr("*", f"finest_start - pmod(finest_start, {window_s}) AS {WINDOW_START}")
                self._append(OBSERVATIONS.fold(started), TABLES[name], batch)
            self._append(PERFORMANCE.fold(reports), PERFORMANCE_TABLE, batch)
        if _DEAD in counts:
            why = reason(ahead_s=self._settings.ahead_s, behind_s=self._settings.behind_s)
            dead = placed.where(f"kind = '{_DEAD}'").selectExpr("* EXCEPT (kind, told_kind)", "told_kind AS kind")
            told = dead.selectExpr(
                "* EXCEPT (raw)", f"make_valid_utf8(left(raw, {MOST_RAW_CHARACTERS})) AS raw", f"{why} AS reason"
            )
            self._append(told, DEAD_LETTERS, batch)

    def _require_going_on(self) -> None:
        if self._over.is_set():
            raise TemporaryError(f"the stream to {self._folder} was stopped within a batch, which is written anew")

    def _append(self, rows: DataFrame, table: Table, batch: int) -> None:
        self._require_going_on()
        columns = [one.name for one in table.columns]
        stored = rows.selectExpr(*columns, *PARTITIONS, f"{batch}L AS batch")
        (
            stored.write.mode("append")
            .partitionBy(*PARTITIONS, "batch")
            .option("compression", "zstd")
            .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
            .parquet(str(self._folder / table.name))
        )

    def _clear(self, batch: int) -> None:
        """Take away what a killed query left of this batch; of any later one there is nothing."""
        for table in TABLES:
            # What its tasks had finished, Spark would take for ours and give a place beside our own.
            remove_folder(self._folder / table / "_temporary")
            for _, day in days_of(self._folder / table):
                for bucket in buckets_of(day):
                    remove_folder(bucket / f"batch={batch}")

    def note_lost(self, batch: int, lines: int, source: Source) -> None:
        """Say what nobody can get back."""
        if lines > 0:
            self._taken.lost += lines
            self._tell(f"Batch {batch}: {lines:,} lines of {source} were deleted there before they could be read.")

    def note_late(self, batch: int, rows: int) -> None:
        """Say what should not be."""
        if rows > 0:
            self._taken.lost += rows
            self._tell(f"Batch {batch}: {rows:,} rows were dropped as late, as this machine's clock was set back.")

    def _note(self, batch: int, counts: Mapping[str, int], took_s: float) -> None:
        dead = counts.get(_DEAD, 0)
        rows = sum(counts.values()) - dead
        self._taken.batches += 1
        self._taken.rows += rows
        self._taken.dead_letters += dead
        self._taken.batch_rows.append(rows)
        self._tell(f"Batch {batch}: {rows:,} rows and {dead:,} dead letters in {took_s:.1f} s.")
