"""A service on Spark: JSON lines from topics or folders, an object for every job, and its answers as lines again."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tidewise.core import PermanentError
from tidewise.core.checks import require, require_finite
from tidewise.host.whole_files import write_whole
from tidewise.pipeline.context import cause
from tidewise.pipeline.per_job import PerJob, per_job
from tidewise.pipeline.streaming import fresh_progress, lost_lines, own_session, triggered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from tidewise.pipeline.telemetry_stream import Source

SUFFIX = ".jsonl"
MARK_FILE = "tidewise-mark"
"""In a checkpoint: what tells its answers from those of another."""
PARTITIONS = 4
"""Into how many pieces the state of all jobs is cut, for good; to commit each takes some 0.1 s a batch."""
_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PerJobService:
    """What is read, and what is made of it for every job."""

    name: str
    """Problems are told to the topic `<name>-problems`."""
    tells: tuple[str, ...]
    """The topics of its answers."""
    fields: str
    """What a line may hold, as columns of SQL; what it does not is null."""
    where: str
    """Which lines are taken, as a condition of SQL on the fields."""
    columns: tuple[str, ...]
    """What the objects see of a line, as expressions of SQL; `job`, `run`, `line` and `at_unix_s` among them."""
    make: Callable[[], PerJob]
    """Makes the object of one job. Each of its answers has a `topic`, and the columns of `answers`."""
    answers: str
    """As columns of SQL. A `run` among them is told with the mark of the checkpoint: whoever begins with another one
    knows nothing of the lines before, numbers them anew, and is another run to those who read them."""
    forget_after_s: float

    @property
    def problems_topic(self) -> str:
        return f"{self.name}-problems"


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderTarget:
    """A folder in which every topic is a folder of line files: each batch appears whole, and once."""

    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTarget:
    """The topics of a broker, which have to be there; after a crash a line may come twice."""

    brokers: str
    """HOST:PORT, several with commas between."""


Target: TypeAlias = FolderTarget | BrokerTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTold:
    """How one batch went."""

    batch: int
    lines: int
    """Read, whether they were taken or not."""
    took_s: float
    lost: int = 0
    """Deleted by the broker before they could be read."""


def mark_of(checkpoint: Path) -> str:
    """The mark of a checkpoint, which is made with it and goes with it."""
    path = checkpoint / MARK_FILE
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        checkpoint.mkdir(parents=True, exist_ok=True)
        mark = secrets.token_hex(4)
        write_whole(path, (f"{mark}\n",))
        return mark


def answers_of(lines: DataFrame, service: PerJobService, *, mark: str) -> DataFrame:
    """What a service makes of lines (a column `raw`): `topic`, `key` and `value` of each line that it tells."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own custom, and an optional extra

    told = lines.select(F.from_json("raw", service.fields).alias("told")).select("told.*")
    rows = (
        told.where(service.where)
        .where("job IS NOT NULL AND run IS NOT NULL AND line >= 1")
        .selectExpr(*service.columns)
    )
    answers = per_job(
        rows, service.make, schema=f"topic string, {service.answers}", forget_after_s=service.forget_after_s
    )
    if "run" in answers.columns:
        answers = answers.withColumn("run", F.concat("run", F.lit(f"-{mark}")))
    fields = [name for name in answers.columns if name not in ("topic", "problem")]
    line = F.to_json(F.struct(*fields), {"ignoreNullFields": "false"})
    went_wrong = F.to_json(F.struct("job", "problem"))
    return answers.select(
        F.coalesce("topic", F.lit(service.problems_topic)).alias("topic"),
        F.col("job").alias("key"),
        F.when(F.col("problem").isNull(), line).otherwise(went_wrong).alias("value"),
    )


def serve(
    service: PerJobService,
    *,
    session: SparkSession,
    sources: Sequence[Source],
    target: Target,
    checkpoint: Path,
    every_s: float | None,
    partitions: int = PARTITIONS,
    stop: threading.Event | None = None,
    tell: Callable[[BatchTold], None] = lambda _: None,
) -> int:
    """Run a service until told to stop, or, without `every_s`, until all that is there is read; how many lines.

    From the same `checkpoint` it goes on where it was: each line counts once. BadInputError and TemporaryError where
    there is nothing to read, PermanentError where Spark gave up.
    """
    require(len(sources) > 0, f"the service {service.name} needs something to read")
    if every_s is not None:
        require_finite("every_s", every_s, above=0.0)
    for source in sources:
        source.check()
    own = own_session(session, partitions=partitions)
    first, *others = (source.lines(own).select("raw") for source in sources)
    lines = first
    for other in others:
        lines = lines.unionAll(other)
    mark = mark_of(checkpoint)
    writer = _writer(answers_of(lines, service, mark=mark), target, mark=mark).outputMode("append")
    writer = writer.queryName(f"tidewise {service.name}").option("checkpointLocation", str(checkpoint.absolute()))
    return _followed(triggered(writer, every_s=every_s).start(), service.name, stop or threading.Event(), tell)


def _writer(answers: DataFrame, target: Target, *, mark: str) -> DataStreamWriter:
    if isinstance(target, BrokerTarget):
        return answers.writeStream.format("kafka").option("kafka.bootstrap.servers", target.brokers)
    folder = target.folder

    def write(batch: DataFrame, number: int) -> None:
        by_topic: dict[str, list[Row]] = {}
        for row in batch.collect():
            by_topic.setdefault(row.topic, []).append(row)
        for topic, rows in by_topic.items():
            place = folder / topic
            place.mkdir(parents=True, exist_ok=True)
            # In place of what an earlier try of the same batch has written, and of no other checkpoint's.
            write_whole(place / f"batch-{mark}-{number:09d}{SUFFIX}", (f"{row.value}\n" for row in rows))

    return answers.writeStream.foreachBatch(write)


def _followed(query: StreamingQuery, name: str, stop: threading.Event, tell: Callable[[BatchTold], None]) -> int:
    """Wait for its end, or end it; how many lines were read."""
    lines, last = 0, -1

    def told() -> None:
        nonlocal lines, last
        for progress in fresh_progress(query, after=last):
            last = progress.batchId
            lines += progress.numInputRows
            lost = lost_lines(progress)
            if progress.numInputRows > 0 or lost > 0:
                took_s = progress.durationMs.get("triggerExecution", 0) / 1000
                tell(BatchTold(batch=last, lines=progress.numInputRows, lost=lost, took_s=took_s))

    try:
        while query.isActive and not stop.wait(_POLL_S):
            told()
        told()
        error = query.exception()
    finally:
        query.stop()
    if error is not None:
        raise PermanentError(f"Spark gave the service {name} up: {cause(str(error))}") from error
    return lines
