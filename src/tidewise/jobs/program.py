"""What the programs share: their options, the session, the source, the sinks, and waiting for the end."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import math
import os
import re
import shutil
import socket
import sys
import time
import uuid
from pathlib import Path
from typing import NoReturn

import pyspark
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidewise.core import BadInputError
from tidewise.jobs.decoding import TOO_LARGE_BYTES, dead_letters, decoded
from tidewise.jobs.records.kinds import RecordKind
from tidewise.jobs.schedule import read_schedule

STATE_PROVIDERS = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}

_BROKER_WAIT_S = 120.0
_CONNECT_S = 5.0
_LOOK_S = 1


def options_of(description: str) -> argparse.ArgumentParser:
    """A parser with the options that all programs take."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--source", choices=["embedded", "kafka"], default="embedded", help="where records come from")
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder of the query's checkpoint")
    parser.add_argument("--sink", choices=["files", "foreachbatch", "kafka", "noop"], default="noop")
    parser.add_argument("--out", type=Path, help="folder that the sinks files and foreachbatch write to")
    parser.add_argument("--mode", choices=["micro-batch", "real-time"], default="micro-batch")
    parser.add_argument("--trigger", help="time between two batches (1 second), or between real-time checkpoints")
    parser.add_argument("--max-records-per-batch", type=int, help="most records of one batch; no limit if left out")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other records")
    parser.add_argument("--work", type=int, default=0, help="rounds of SHA-256 over each record that counts")
    parser.add_argument("--state-provider", choices=list(STATE_PROVIDERS), default="rocksdb")
    parser.add_argument("--state-partitions", type=int, default=2, help="fixed for a checkpoint by its first batch")
    parser.add_argument("--app-name", help="name of the application; the program's own if left out")
    parser.add_argument("--master", help="Spark master; left to spark-submit and its settings if left out")
    parser.add_argument("--seconds", type=float, help="stop after this long; run until stopped if left out")
    embedded = parser.add_argument_group("the embedded source")
    embedded.add_argument("--schedule", type=Path, help="JSON file: how many records come when")
    embedded.add_argument("--partitions", type=int, default=2, help="tasks that read the source in each batch")
    embedded.add_argument("--late-share", type=float, default=0.0, help="share of the records that come late")
    embedded.add_argument("--late-most-s", type=float, default=0.0, help="how late these come at most")
    kafka = parser.add_argument_group("Kafka")
    kafka.add_argument("--brokers", help="addresses such as 127.0.0.1:9092, of source and sink")
    kafka.add_argument("--wait-for-broker", type=float, default=_BROKER_WAIT_S, help="seconds at most, at the start")
    kafka.add_argument("--topic", help="topic to read")
    kafka.add_argument("--from", dest="begin", choices=["earliest", "latest"], default="earliest")
    kafka.add_argument("--encoding", choices=["json", "avro"], default="json", help="of the records that are read")
    kafka.add_argument("--too-large-bytes", type=int, default=TOO_LARGE_BYTES, help="from here on a record is refused")
    kafka.add_argument("--dead-letters", type=Path, help="folder for what could not be decoded, and why")
    kafka.add_argument("--out-topic", help="topic that the sink kafka writes to, as JSON")
    return parser


_NEEDS = {
    ("source", "embedded"): {"schedule": "FILE"},
    ("source", "kafka"): {"brokers": "HOST:PORT", "topic": "NAME"},
    ("sink", "files"): {"out": "FOLDER"},
    ("sink", "foreachbatch"): {"out": "FOLDER"},
    ("sink", "kafka"): {"brokers": "HOST:PORT", "out_topic": "NAME"},
}
"""Which further options a choice needs."""
_RANGES = {
    "max_records_per_batch": (1, math.inf),
    "seed": (0, math.inf),
    "work": (0, math.inf),
    "state_partitions": (1, math.inf),
    "seconds": (0, math.inf),
    "partitions": (1, math.inf),
    "late_share": (0, 1),
    "late_most_s": (0, math.inf),
    "wait_for_broker": (0, math.inf),
    "too_large_bytes": (1, math.inf),
}
"""The least and the most that options may be."""
_UNIT_S = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}
_TIME = re.compile(rf"(?:interval\s+)?(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>{'|'.join(_UNIT_S)})s?", re.IGNORECASE)
_SHORTEST_REAL_TIME_S = 5.0
_NO_CONNECTOR = re.compile(r"find (?:the )?data source:? `?kafka")
_OWN_REASON = re.compile(r"\[USER_RAISED_EXCEPTION\] (?P<sentence>[^\n]+?)(?: SQLSTATE|\n|$)")
_ADDRESS = re.compile(r"\s*\[?(?P<host>[^\s\[\]]+?)\]?:(?P<port>\d{1,5})\s*")


def parsed(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """The options given; ends the program with a sentence where they contradict each other."""
    options = parser.parse_args(arguments)
    for (choice, value), needed in _NEEDS.items():
        for name, form in needed.items():
            if getattr(options, choice) == value and getattr(options, name) is None:
                parser.error(f"--{choice} {value} needs --{name.replace('_', '-')} {form}")
    for address in [] if options.brokers is None else options.brokers.split(","):
        if _ADDRESS.fullmatch(address) is None:
            parser.error(f"--brokers needs HOST:PORT, several with a comma between them, not {options.brokers}")
    if options.dead_letters is not None and options.source != "kafka":
        parser.error("--dead-letters needs --source kafka: the embedded source has no records that cannot be decoded")
    if options.source == "embedded" and _older_than(4, 2):
        parser.error(f"--source embedded needs Spark 4.2 or newer, not {pyspark.__version__}; --source kafka does not")
    options.trigger = options.trigger or {"micro-batch": "1 second", "real-time": "30 seconds"}[options.mode]
    wrong = _out_of_range(options) or (_not_for_real_time(options) if options.mode == "real-time" else None)
    if wrong is not None:
        parser.error(wrong)
    options.app_name = options.app_name or parser.prog
    return options


def _older_than(major: int, minor: int) -> bool:
    return tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < (major, minor)


def _out_of_range(options: argparse.Namespace) -> str | None:
    """Which option is a number, or a time, that Spark or the source could do nothing with."""
    for name, (least, most) in _RANGES.items():
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            wanted = f"{least} or more" if most == math.inf else f"from {least} to {most}"
            return f"--{name.replace('_', '-')} must be {wanted}, not {value:g}"
    if _TIME.fullmatch(options.trigger.strip()) is None:
        return f"--trigger must be a number and a unit, such as '2 seconds' or '1 minute', not {options.trigger!r}"
    return None


def _look_at_schedule(file: Path) -> None:
    """End the program where nobody could read it, and tell where nothing comes for a while."""
    try:
        schedule = read_schedule(file)
    except BadInputError as error:
        _give_up(str(error))
    wait_s = schedule.began_unix_s - time.time()
    if wait_s > 0.0:
        begins = datetime.datetime.fromtimestamp(schedule.began_unix_s, tz=datetime.UTC)
        _tell(
            f"the schedule {file} begins at {begins:%Y-%m-%d %H:%M:%S} UTC: no record comes before, in {wait_s:.0f} s"
        )


def _not_for_real_time(options: argparse.Namespace) -> str | None:
    """Why Spark would refuse these options in real-time mode."""
    if _older_than(4, 1):
        return f"--mode real-time needs Spark 4.1 or newer, not {pyspark.__version__}"
    for name in ("source", "sink"):
        if getattr(options, name) != "kafka":
            return f"--mode real-time needs --{name} kafka, not {getattr(options, name)}"
    if options.state_provider != "rocksdb":
        return "--mode real-time needs --state-provider rocksdb"
    if options.max_records_per_batch is not None:
        return "--mode real-time takes records as they come; leave out --max-records-per-batch"
    found = _TIME.fullmatch(options.trigger.strip())
    if found is not None and float(found["number"]) * _UNIT_S[found["unit"].lower()] < _SHORTEST_REAL_TIME_S:
        return (
            f"--mode real-time needs --trigger '{_SHORTEST_REAL_TIME_S:g} seconds' or longer, not {options.trigger!r}"
        )
    return None


def session_of(options: argparse.Namespace) -> SparkSession:
    """The session, with its settings for state, once a broker listens where one is needed."""
    if options.source == "embedded":
        _look_at_schedule(options.schedule)
    if "kafka" in (options.source, options.sink):
        _wait_for_broker(options)
    # Spark would take the first python3 on the path for its workers, which need not know this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName(options.app_name)
        .config("spark.sql.shuffle.partitions", options.state_partitions)
        .config("spark.sql.streaming.stateStore.providerClass", STATE_PROVIDERS[options.state_provider])
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        # Over TCP every task of a Python source was seen to take some 40 ms longer.
        .config("spark.python.unix.domain.socket.enabled", "true")
    )
    if options.mode == "real-time":
        builder = builder.config("spark.sql.streaming.stateStore.checkpointFormatVersion", 2)
    if options.master is not None:
        builder = builder.master(options.master)
    spark = builder.getOrCreate()
    if "kafka" in (options.source, options.sink):
        _look_for_connector(spark, options)
    return spark


def _look_for_connector(spark: SparkSession, options: argparse.Namespace) -> None:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", options.brokers)
    try:
        reader.option("subscribe", options.topic or options.out_topic).load()
    except AnalysisException as error:
        if _NO_CONNECTOR.search(str(error)) is None:
            raise
        scala = "2.12" if _older_than(4, 0) else "2.13"
        package = f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{pyspark.__version__}"
        spark.stop()
        _give_up(
            "Spark has no connector for Kafka; start the program with it: "
            f"PYSPARK_SUBMIT_ARGS='--packages {package} pyspark-shell'"
        )


def _wait_for_broker(options: argparse.Namespace) -> None:
    """Spark itself would say nothing for minutes, and then give up."""
    end_s = time.monotonic() + options.wait_for_broker
    is_told = False
    while not any(_listens(address) for address in options.brokers.split(",")):
        if time.monotonic() >= end_s:
            _give_up(
                f"no broker listens at {options.brokers}, after {options.wait_for_broker:g} s: start it, correct "
                f"--brokers, or wait longer (--wait-for-broker)"
            )
        if not is_told:
            _tell(f"no broker listens at {options.brokers}; waiting for it, up to {options.wait_for_broker:g} s")
            is_told = True
        time.sleep(_LOOK_S)


def _listens(address: str) -> bool:
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return False
    try:
        with socket.create_connection((found["host"], int(found["port"])), timeout=_CONNECT_S) as connection:
            # Where nobody listens, the system can connect a port of this machine with itself.
            return bool(connection.getsockname() != connection.getpeername())
    except (OSError, OverflowError):
        return False


def _tell(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()


def _give_up(sentence: str) -> NoReturn:
    """End the program as it ends for options that are wrong."""
    _tell(sentence)
    raise SystemExit(2)


def missing_for_python_state() -> str | None:
    """What `transformWithState` needs and this interpreter has not; None: nothing."""
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.protobuf") is None:
        return "Spark's transformWithState needs the package protobuf; install it: pip install 'tidewise[spark]'"
    return None


def records_of(spark: SparkSession, options: argparse.Namespace, kind: RecordKind, *, reading: int = 1) -> DataFrame:
    """The stream of records of this kind; `reading`: which time it is that one query reads them."""
    if options.source == "kafka":
        raw = _kafka(spark, options, most=options.max_records_per_batch)
        name = "dead_letters" if reading == 1 else f"dead_letters_of_reading_{reading}"
        return decoded(raw, kind, options.encoding, too_large_bytes=options.too_large_bytes, observed_as=name)
    from tidewise.jobs.embedded import NAME, EmbeddedSource  # noqa: PLC0415 - older Sparks have no such sources

    spark.dataSource.register(EmbeddedSource)
    reader = spark.readStream.format(NAME).option("schedule", str(options.schedule.resolve()))
    reader = reader.option("records", kind.name).option("seed", options.seed).option("partitions", options.partitions)
    reader = reader.option("late_share", options.late_share).option("late_most_s", options.late_most_s)
    if options.max_records_per_batch is not None:
        reader = reader.option("max_records_per_batch", options.max_records_per_batch)
    return reader.load()


def worked(rounds: int) -> Column:
    """True, after so many rounds of SHA-256 over the record, which stand for the work of a real job."""
    if rounds == 0:
        return F.lit(True)  # noqa: FBT003 - a literal of SQL
    digest = F.sha2(F.col("ordinal").cast("string"), 256)
    return F.reduce(F.sequence(F.lit(1), F.lit(rounds)), digest, lambda text, _: F.sha2(text, 256)) != ""


def _kafka(spark: SparkSession, options: argparse.Namespace, *, most: int | None) -> DataFrame:
    """The topic as Kafka has it, bytes and where they lay; `most` records in a batch, None: all there are."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", options.brokers)
    reader = reader.option("subscribe", options.topic).option("startingOffsets", options.begin)
    if most is not None:
        reader = reader.option("maxOffsetsPerTrigger", most)
    return reader.load()


def writer_of(
    results: DataFrame,
    options: argparse.Namespace,
    *,
    output_mode: str,
    key: str | tuple[str, ...] | None = None,
    partition_by: tuple[str, ...] = (),
) -> DataStreamWriter:
    """The results on their way to the sink; `output_mode` is for sinks that take any: files can only be added to.

    `key`: the columns that become the key of a Kafka record. `partition_by`: those by which files lie in folders.
    """
    if options.sink == "kafka":
        parts = [F.col(name).cast("string") for name in ((key,) if isinstance(key, str) else key or ())]
        results = results.select(
            *([F.concat_ws(" ", *parts).alias("key")] if parts else []),
            F.to_json(F.struct(*results.columns)).alias("value"),
        )
    writer = results.writeStream.option("checkpointLocation", str(options.checkpoint.resolve()))
    writer = writer.queryName(options.app_name).outputMode("update" if options.mode == "real-time" else output_mode)
    if options.mode == "real-time":
        writer = writer.trigger(realTime=options.trigger)  # type: ignore[call-overload] # PySpark's types forgot it
    else:
        writer = writer.trigger(processingTime=options.trigger)
    if options.sink == "files":
        writer = writer.partitionBy(*partition_by) if partition_by else writer
        return writer.outputMode("append").format("parquet").option("path", str(options.out.resolve()))
    if options.sink == "foreachbatch":
        return writer.foreachBatch(BatchFolders(options.out.resolve()))
    if options.sink == "kafka":
        writer = writer.format("kafka").option("kafka.bootstrap.servers", options.brokers)
        return writer.option("topic", options.out_topic)
    return writer.format("noop")


def keep_dead_letters(spark: SparkSession, options: argparse.Namespace, kind: RecordKind) -> StreamingQuery | None:
    """Where `--dead-letters` asks for it, a second query that writes what cannot be decoded, and why, as Parquet.

    It reads and decodes the topic once more, at its own pace, and its checkpoint lies in its own folder. Its batches
    are seldom, and so have no limit, with which it would fall behind for ever.
    """
    if options.dead_letters is None:
        return None
    folder = options.dead_letters.resolve()
    raw = _kafka(spark, options, most=None)
    bad = dead_letters(raw, kind, options.encoding, too_large_bytes=options.too_large_bytes)
    writer = bad.writeStream.format("parquet").option("path", str(folder))
    writer = writer.option("checkpointLocation", str(folder / "_checkpoint")).trigger(processingTime="10 seconds")
    return writer.queryName(f"{options.app_name} dead letters").start()


def wait(options: argparse.Namespace, *queries: StreamingQuery | None) -> None:
    """Block until one of the queries ends, or until the time given is over, and stop all; a failure is raised.

    A topic that is not there, and what a query itself refuses, end the program with a sentence.
    """
    running = [query for query in queries if query is not None]
    end_s = math.inf if options.seconds is None else time.monotonic() + options.seconds
    try:
        while time.monotonic() < end_s and not any(query.awaitTermination(_LOOK_S) for query in running):
            pass
    except StreamingQueryException as error:
        own = _OWN_REASON.search(str(error))
        sentence = _missing_topic(options, str(error)) if own is None else own["sentence"]
        if sentence is None:
            raise
        _give_up(sentence)
    for query in running:
        query.stop()


def _missing_topic(options: argparse.Namespace, failure: str) -> str | None:
    """Which topic is not there, where that made a query fail."""
    if "UnknownTopicOrPartitionException" not in failure:
        return None
    is_sink = f"Topic {options.out_topic} not present in metadata" in failure
    option, topic = ("--out-topic", options.out_topic) if is_sink else ("--topic", options.topic)
    return f"there is no topic {topic!r} at {options.brokers}: make it, or correct {option}"


class BatchFolders:
    """A sink for foreachBatch that a replay does not harm: each batch is a folder, put in place whole or not at all."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        target, mark = self._out / f"batch={batch_id}", uuid.uuid4().hex
        fresh, old = (self._out / f"_{role}-{batch_id}-{mark}" for role in ("fresh", "old"))
        results.write.parquet(str(fresh))
        if target.exists():
            # Between these two moves the batch is missing, but it is not committed yet: it would be replayed.
            target.rename(old)
        fresh.rename(target)
        shutil.rmtree(old, ignore_errors=True)
