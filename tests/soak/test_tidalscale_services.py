"""TidalScale as services with a real broker: a job that does what the topic of decisions says is scaled to its load."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tidewise.core.telemetry import METRICS_TOPIC, Envelope, ReportRow
from tidewise.experiments.forecast_service import (
    FORECAST_TOPIC,
    LONG_TOPIC,
    SHORT_TOPIC,
    ForecastSettings,
    JobForecasts,
    forecast_service,
)
from tidewise.experiments.per_job_services import run_service
from tidewise.experiments.telemetry_target import Target
from tidewise.experiments.tidalscale_service import DECISIONS_TOPIC, DecisionSettings, tidalscale_service
from tidewise.host.processes import find
from tidewise.kafka.broker import LocalBroker
from tidewise.kafka.client import quiet_settings
from tidewise.kafka.jars import resolve, spark_connector
from tidewise.kafka.publishing import TopicLines
from tidewise.pipeline.context import spark_session
from tidewise.pipeline.per_job_query import PerJobService

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("spark")]

_ZERO_UNIX_S = 1_790_000_000.0
_PER_EXECUTOR = 250.0
_BEGINS_S = 240.0
_DECIDES_S = 300.0
_JOBS = ("clicks", "orders", "views")


class Job:
    """A job whose executors bear 250/s each; it reports ten seconds of its own clock at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.executors = 4
        self.backlog = 0.0
        self.rows: list[dict[str, Any]] = []

    def report(self, load_per_s: float) -> tuple[str, str]:
        processed = min(self.executors * _PER_EXECUTOR, load_per_s + self.backlog / 10.0)
        self.backlog = max(0.0, self.backlog + 10.0 * (load_per_s - processed))
        line = len(self.rows) + 1
        row = ReportRow(
            at_unix_s=_ZERO_UNIX_S + 10.0 * line,
            window_s=10.0,
            status="running",
            executors=self.executors,
            slots_per_executor=1,
            cores_per_executor=1.0,
            memory_mib_per_executor=1024,
            commit_interval_s=1.0,
            state_partitions=None,
            load_per_s=load_per_s,
            input_rate_per_s=load_per_s,
            processed_rate_per_s=processed,
            backlog_records=self.backlog,
            cpu_share=processed / (self.executors * _PER_EXECUTOR),
        )
        text = Envelope(job=self.name, run=f"{self.name}-1", line=line, program=None, row=row).to_json()
        self.rows.append(json.loads(text))
        return self.name, text


class Reader:
    """What was told in some topics so far."""

    def __init__(self, address: str, *topics: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {**quiet_settings(address), "group.id": "soak", "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe(list(topics))
        self.told: dict[str, list[dict[str, Any]]] = {topic: [] for topic in topics}

    def read(self, timeout_s: float) -> None:
        for message in self._consumer.consume(500, timeout_s):
            if message.error() is None:
                value = json.loads(message.value() or b"")
                assert (message.key() or b"").decode() == value["job"]
                self.told[message.topic() or ""].append(value)

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def running(service: PerJobService, reads: list[Target], tells: Target, state: Path) -> Iterator[None]:
    """The service, in a thread of its own, with a batch as soon as there is something to read."""
    stop = threading.Event()
    problems: list[BaseException] = []

    def run() -> None:
        try:
            run_service(service, reads=reads, tells=tells, state=state, every_s=0.5, partitions=2, stop=stop)
        except BaseException as problem:  # noqa: BLE001 - raised again in the test's own thread
            problems.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=120.0)
    assert not problems, problems
    assert not thread.is_alive()


def test_a_job_that_does_what_the_topic_says_is_scaled_to_its_load(tmp_path: Path) -> None:
    broker = LocalBroker.up(tmp_path / "broker", topics={METRICS_TOPIC: 2})
    try:
        with spark_session("local[2]", jars=resolve(spark_connector())):
            _scaled(tmp_path, broker.address)
    finally:
        broker.down()
    left = find(lambda argv: any(str(tmp_path) in word for word in argv))
    assert not left, f"still running: {left}"


def _scaled(folder: Path, address: str) -> None:
    metrics = Target.parse(f"kafka://{address}")
    forecasts = Target.parse(f"kafka://{address}/{FORECAST_TOPIC}")
    jobs = [Job(name) for name in _JOBS]
    lines = TopicLines(address, METRICS_TOPIC)
    # An hour and more at 600/s: before anybody reads, so that all of it is one batch.
    lines.send([job.report(600.0) for _ in range(400) for job in jobs])
    with (
        running(forecast_service(ForecastSettings()), [metrics], metrics, folder / "forecast"),
        running(tidalscale_service(DecisionSettings()), [metrics, forecasts], metrics, folder / "tidalscale"),
    ):
        time.sleep(1.0)
        reader = Reader(address, SHORT_TOPIC, LONG_TOPIC, FORECAST_TOPIC, DECISIONS_TOPIC)
        try:
            _wait_for(reader, FORECAST_TOPIC, len(jobs), deadline_s=_BEGINS_S)
            _forecasts_are_those_of_the_object(reader, jobs)
            _wait_for(reader, DECISIONS_TOPIC, len(jobs), deadline_s=_BEGINS_S)
            _follow(reader, lines, jobs)
        finally:
            reader.close()
            lines.close()
    for job in jobs:
        # 1,500/s at 0.6 of 250/s: ten, more while the backlog was worked off.
        assert job.executors >= 8, job.executors
        assert job.rows[-1]["cpu_share"] <= 0.8
        assert job.backlog == 0.0


def _wait_for(reader: Reader, topic: str, count: int, *, deadline_s: float) -> None:
    until_s = time.monotonic() + deadline_s
    while len({told["job"] for told in reader.told[topic]}) < count:
        assert time.monotonic() < until_s, f"{topic} has told of {reader.told[topic]}"
        reader.read(0.5)


def _forecasts_are_those_of_the_object(reader: Reader, jobs: list[Job]) -> None:
    for job in jobs:
        (expected,) = (
            answer for answer in JobForecasts(ForecastSettings()).take(job.rows) if answer["topic"] == FORECAST_TOPIC
        )
        told = next(one for one in reader.told[FORECAST_TOPIC] if one["job"] == job.name)
        assert told["per_s"] == pytest.approx(expected["per_s"])
        assert told["made_at_unix_s"] == expected["made_at_unix_s"]


def _follow(reader: Reader, lines: TopicLines, jobs: list[Job]) -> None:
    """The load rises to 1,500/s, and every job does what is decided, until all of them bear it."""
    begun = {id(told) for told in reader.told[DECISIONS_TOPIC]}
    until_s = time.monotonic() + _DECIDES_S
    while any(job.executors < 8 or job.backlog > 0.0 for job in jobs):
        assert time.monotonic() < until_s, [(job.executors, job.backlog) for job in jobs]
        lines.send([job.report(1500.0) for job in jobs])
        reader.read(1.0)
        for told in reader.told[DECISIONS_TOPIC]:
            if id(told) not in begun and told["kind"] == "reconfigure":
                begun.add(id(told))
                assert told["sentence"]
                next(job for job in jobs if job.name == told["job"]).executors = told["target_executors"]
    lines.send([job.report(1500.0) for job in jobs])
