"""How fast each job is on one core, what a batch costs before its first record, and what a key of state takes."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from bench.kafka_source import PARTITIONS, fill, local_broker
from bench.page import table
from tidewise.jobs import tsw, ysb
from tidewise.jobs.program import STATE_PROVIDERS, options_of, parsed, records_of, writer_of
from tidewise.jobs.records.encoding import Encoding
from tidewise.jobs.schedule import Schedule, write_schedule
from tidewise.kafka.broker import LocalBroker
from tidewise.kafka.jars import connector_conf

_REPEATS = 3
_COLD_BATCHES = 2
"""The first batches of a query are slower than the others."""
_EVENTS_PER_S = 10_000.0
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    name: str
    batches: dict[int, int]
    """How many batches of which size: small ones and large ones."""
    results: Callable[[SparkSession, DataFrame], DataFrame]


@dataclass(slots=True)
class _Seen:
    """One job from one source."""

    seconds: dict[int, list[float]] = field(default_factory=dict)
    """Medians of the repeats, by the size of the batches."""

    def line(self) -> tuple[float, float]:
        """Records per second beyond the first, and the fixed cost of a batch."""
        (small, small_s), (large, large_s) = sorted(
            (rows, float(np.median(each))) for rows, each in self.seconds.items()
        )
        per_record_s = (large_s - small_s) / (large - small)
        return 1.0 / per_record_s, max(0.0, small_s - small * per_record_s)

    def per_second(self) -> list[float]:
        """Of each repeat: records per second of large batches, their fixed cost included."""
        large = max(self.seconds)
        return [large / each_s for each_s in self.seconds[large]]


def _views(spark: SparkSession, events: DataFrame) -> DataFrame:
    return ysb.views_per_campaign(events, ysb.ads_of(spark, seed=0), sliding=False)


def _sliding_views(spark: SparkSession, events: DataFrame) -> DataFrame:
    return ysb.views_per_campaign(events, ysb.ads_of(spark, seed=0), sliding=True)


def _top_speeds(_spark: SparkSession, records: DataFrame) -> DataFrame:
    return tsw.top_speeds(records)


_JOBS = {
    "YSB, tumbling": _Job(name="ysb", batches={5_000: 8, 100_000: 5}, results=_views),
    "YSB, sliding by 1 s": _Job(name="ysb", batches={5_000: 8, 100_000: 5}, results=_sliding_views),
    "TSW": _Job(name="tsw", batches={1_000: 8, 20_000: 5}, results=_top_speeds),
}
_SOURCES = ("json", "avro", "embedded")


def measure(_traces: Path | None) -> str:
    """Every job from every source, three times in turn, after a first round that does not count."""
    with local_broker() as (broker, folder):
        for job in {one.name: one for one in _JOBS.values()}.values():
            for rows, batches in job.batches.items():
                for encoding in get_args(Encoding):
                    _fill(broker, job, encoding, rows, batches)
        spark = _session()
        try:
            bench = _Bench(spark=spark, address=broker.address, folder=folder)
            seen = {(title, source): _Seen() for title in _JOBS for source in _SOURCES}
            for repeat in range(-1, _REPEATS):
                for (title, source), one in seen.items():
                    for rows in _JOBS[title].batches:
                        took_s = bench.batches_s(_JOBS[title], source, rows)
                        if repeat >= 0:
                            one.seconds.setdefault(rows, []).append(float(np.median(took_s)))
                    if repeat >= 0:
                        print(f"{title}, {source}: {one.per_second()[-1]:,.0f} records/s", flush=True)
            states = {title: bench.state(job) for title, job in _JOBS.items()}
        finally:
            spark.stop()
    return _page(seen, states)


def _page(seen: dict[tuple[str, str], _Seen], states: dict[str, tuple[int, float]]) -> str:
    rows = []
    for (title, source), one in seen.items():
        rate, fixed_s = one.line()
        each = one.per_second()
        rows.append(
            [
                title,
                source,
                f"{np.median(each):,.0f}",
                f"{min(each):,.0f} to {max(each):,.0f}",
                f"{rate:,.0f}",
                f"{1000 * fixed_s:.0f} ms",
            ]
        )
    head = ["job", "source", "records/s per core", "of the repeats", "beyond the fixed cost", "fixed cost of a batch"]
    ratios = ", ".join(
        f"{title} {np.median(seen[title, 'avro'].per_second()) / np.median(seen[title, 'json'].per_second()):.2f}"
        for title in _JOBS
    )
    held = "; ".join(f"{title} {size:,.0f} bytes ({keys:,} rows of state)" for title, (keys, size) in states.items())
    return (
        f"Warm, on local[1], {_REPEATS} repeats in turn after one that does not count, a topic of {PARTITIONS} "
        "partitions that is full already, noop sink, RocksDB; large batches of 100,000 (TSW: 20,000) records, small "
        "ones of 5,000 (1,000). The broker and Python's workers have the other core. `embedded` is the source "
        "without a broker, which makes its records in Python.\n\n"
        + table(head, rows)
        + f"\n\nAvro against JSON, as ratios: {ratios}. State on disk per row: {held}."
    )


def _fill(broker: LocalBroker, job: _Job, encoding: Encoding, rows: int, batches: int) -> None:
    topic = _topic(job, encoding, rows)
    done = fill(broker, topic, job=job.name, encoding=encoding, records=rows * batches, per_s=_EVENTS_PER_S)
    print(f"{topic}: {done.report.acknowledged:,} records", flush=True)


def _topic(job: _Job, encoding: str, rows: int) -> str:
    return f"{job.name}-{encoding}-{rows}"


def _session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.master("local[1]")
        .appName("job-speed")
        .config("spark.jars", connector_conf()["spark.jars"])
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", 1)
        .config("spark.sql.streaming.stateStore.providerClass", STATE_PROVIDERS["rocksdb"])
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """A warm session, and where its queries find their records and keep their checkpoints."""

    spark: SparkSession
    address: str
    folder: Path

    def batches_s(self, job: _Job, source: str, rows: int) -> list[float]:
        """Seconds of each warm batch of this size."""
        warm = self._progress(job, source, rows)[_COLD_BATCHES:]
        return [one["durationMs"]["triggerExecution"] / 1000 for one in warm]

    def state(self, job: _Job) -> tuple[int, float]:
        """Rows of state after the last large batch, and bytes on disk of each."""
        self.spark.conf.set(_CHANGELOG, "false")  # so that every batch leaves its whole state as files
        try:
            last = self._progress(job, "avro", max(job.batches))[-1]["stateOperators"][0]
        finally:
            self.spark.conf.set(_CHANGELOG, "true")
        return last["numRowsTotal"], last["customMetrics"]["rocksdbSstFileSize"] / max(1, last["numRowsTotal"])

    def _progress(self, job: _Job, source: str, rows: int) -> list[Any]:
        """What Spark says of each batch, until all records are taken."""
        options = self._options(job, source, rows)
        records = records_of(self.spark, options, {"ysb": ysb.KIND, "tsw": tsw.KIND}[job.name])
        writer = writer_of(job.results(self.spark, records), options, output_mode="update")
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(300):
            query.stop()
            raise TimeoutError(f"{job.name} from {source} did not end within 300 s")
        return [one for one in query.recentProgress if one["numInputRows"] == rows]

    def _options(self, job: _Job, source: str, rows: int) -> Namespace:
        checkpoint = self.folder / f"checkpoint-{time.time_ns()}"
        words = ["--checkpoint", str(checkpoint), "--max-records-per-batch", str(rows)]
        if source == "embedded":
            words += ["--schedule", str(self._schedule(job, rows)), "--partitions", str(PARTITIONS)]
        else:
            words += ["--source", "kafka", "--brokers", self.address, "--topic", _topic(job, source, rows)]
            words += ["--encoding", source]
        return parsed(options_of("a benchmark"), words)

    def _schedule(self, job: _Job, rows: int) -> Path:
        file = self.folder / f"{job.name}-{rows}.json"
        if not file.exists():
            seconds = max(1, int(rows * job.batches[rows] / _EVENTS_PER_S))
            rates = (rows * job.batches[rows] / seconds,) * seconds
            write_schedule(file, Schedule(began_unix_s=time.time() - seconds, rates_per_s=rates, after="stop"))
        return file
