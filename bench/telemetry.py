"""How many reports per second and core become tables, from files and from a broker, and what each costs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyspark import SparkContext

from bench.kafka_source import local_broker
from bench.page import table
from tidewise.core.telemetry import METRICS_TOPIC, Envelope, ReportRow
from tidewise.kafka.jars import resolve, spark_connector
from tidewise.kafka.publishing import TopicLines
from tidewise.pipeline.context import spark_session
from tidewise.pipeline.telemetry_stream import FolderSource, KafkaSource, Source, run_stream
from tidewise_agent.proc import stat_of

NAME = "telemetry"
CORES = 2
_REPORT_S = 10
_COLD_BATCHES = 2
"""The first batches of a query are slower than the others."""
_LINES_PER_SEND = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figures:
    """One source, all batches after the cold ones."""

    source: str
    reports: int
    wall_s: float
    cpu_s: float
    slowest_batch_s: float


def measure(_traces: Path | None) -> str:
    """Ten minutes of ten thousand jobs, from files and from a broker."""
    return measure_fleet(jobs=10_000, minutes=10)


def measure_fleet(*, jobs: int, minutes: int, with_broker: bool = True) -> str:
    """A backlog of so many minutes of a fleet that reports every ten seconds; each batch is a minute of it."""
    if minutes <= _COLD_BATCHES:
        raise ValueError(f"{minutes} minutes leave nothing after the {_COLD_BATCHES} batches that do not count")
    figures = []
    with tempfile.TemporaryDirectory(prefix="tidewise-bench-") as name:
        lines = Path(name) / "lines"
        lines.mkdir()
        for number, told in enumerate(_rounds(jobs, minutes)):
            (lines / f"{number:06d}.jsonl").write_text("".join(f"{line}\n" for _, line in told), encoding="utf-8")
        source = FolderSource(folder=lines, files_per_batch=60 // _REPORT_S)
        figures.append(_run("files", source, Path(name) / "tables", jars=()))
    if with_broker:
        with local_broker() as (broker, folder):
            sink = TopicLines(broker.address, METRICS_TOPIC)
            for told in _rounds(jobs, minutes):
                for first in range(0, len(told), _LINES_PER_SEND):
                    sink.send(told[first : first + _LINES_PER_SEND])
            sink.close()
            from_topic = KafkaSource(
                brokers=broker.address, topic=METRICS_TOPIC, records_per_batch=jobs * 60 // _REPORT_S
            )
            figures.append(_run("Kafka", from_topic, folder / "tables", jars=resolve(spark_connector())))
    return _page(figures, jobs=jobs, minutes=minutes)


def _rounds(jobs: int, minutes: int) -> Iterator[list[tuple[str, str]]]:
    """One report of every job, again and again, as a shipper sends them: each with its job."""
    dice = np.random.default_rng(0)
    rounds = minutes * 60 // _REPORT_S
    began_unix_s = time.time() - rounds * _REPORT_S
    for number in range(rounds):
        loads, shares = dice.uniform(100.0, 10_000.0, jobs), dice.uniform(0.1, 0.9, jobs)
        yield [
            (f"job-{job:05d}", _line(job, number, began_unix_s, float(loads[job]), float(shares[job])))
            for job in range(jobs)
        ]


def _line(job: int, number: int, began_unix_s: float, load_per_s: float, share: float) -> str:
    row = ReportRow(
        at_unix_s=began_unix_s + _REPORT_S * (number + 1),
        window_s=float(_REPORT_S),
        status="running",
        executors=1 + job % 8,
        slots_per_executor=2,
        cores_per_executor=2.0,
        memory_mib_per_executor=4096,
        commit_interval_s=5.0,
        state_partitions=16,
        load_per_s=load_per_s,
        input_rate_per_s=load_per_s,
        processed_rate_per_s=load_per_s,
        backlog_records=share * load_per_s,
        latency_p50_s=share,
        latency_p95_s=2.0 * share,
        latency_p99_s=3.0 * share,
        busy_share=share,
        cpu_share=share,
        memory_share=share,
        policy="tidewise",
        promised_latency_p95_s=1.5,
        cost_per_hour=0.4,
        currency="EUR",
    )
    return Envelope(job=f"job-{job:05d}", run=f"run-{job:05d}", line=number + 1, program="1.0", row=row).to_json()


def _run(called: str, source: Source, tables: Path, *, jars: tuple[Path, ...]) -> _Figures:
    with spark_session(f"local[{CORES}]", jars=jars) as session:
        ends: list[tuple[float, float]] = []

        def note(sentence: str) -> None:
            print(f"{called}: {sentence}", flush=True)
            ends.append((time.monotonic(), _cpu_s()))

        taken = run_stream(source, tables, session=session, once=True, tell=note)
    files = sum(1 for _ in tables.glob("*/day=*/bucket=*/batch=*/*.parquet"))
    print(f"{called}: {taken.rows:,} rows in {taken.batches} batches and {files:,} files", flush=True)
    # The first sentence says that it begins; the cold batches come next.
    warm = ends[_COLD_BATCHES:]
    walls = np.diff([at_s for at_s, _ in warm])
    return _Figures(
        source=called,
        reports=sum(taken.batch_rows[_COLD_BATCHES:]),
        wall_s=float(walls.sum()),
        cpu_s=warm[-1][1] - warm[0][1],
        slowest_batch_s=float(walls.max()),
    )


def _cpu_s() -> float:
    """The CPU time that this process and its Java have used so far."""
    gateway = SparkContext._gateway  # noqa: SLF001 - nothing else tells which process it is
    stat = None if gateway is None else stat_of(gateway.proc.pid)
    if stat is None:
        raise RuntimeError("no Java runs for this process, or this system does not tell of it")
    return stat.cpu_s + time.process_time()


def _page(figures: list[_Figures], *, jobs: int, minutes: int) -> str:
    rows = [
        [
            one.source,
            f"{one.reports / one.wall_s:,.0f}",
            f"{one.reports / one.cpu_s:,.0f}",
            f"{1e6 * one.cpu_s / one.reports:,.0f} µs",
            f"{one.slowest_batch_s:.1f} s",
        ]
        for one in figures
    ]
    size = len(_line(0, 0, 1.7e9, 1234.5, 0.5).encode())
    kept_up = all(one.slowest_batch_s < 60.0 for one in figures)
    head = ["source", "reports/s", "reports/s per core", "CPU per report", "slowest minute's worth"]
    return (
        f"{jobs:,} jobs that report every {_REPORT_S} s, {minutes} minutes of them waiting as JSON lines of "
        f"{size} bytes; batches of one minute, local[{CORES}]; CPU is that of Java and Python together; the first "
        f"{_COLD_BATCHES} batches do not count. The broker runs beside it.\n\n"
        + table(head, rows)
        + f"\n\nA minute's worth of reports is in the tables in less than a minute: {'yes' if kept_up else 'no'}."
    )
