"""The benchmark jobs on a real cluster, read from Kafka while they are moved in every way: their answers stay right."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.jobs import answers
from tests.jobs.running import rows_of
from tests.jobs.test_tsw import firings
from tests.jobs.test_ysb import windows
from tests.soak.catching_up import expect_all_committed
from tests.soak.disturbing import START, Disturber
from tidewise.control import SystemClock
from tidewise.core import Mechanism
from tidewise.engines.spark.audit import audit
from tidewise.engines.spark.cluster import LocalCluster
from tidewise.engines.spark.engine import SparkEngine
from tidewise.engines.spark.program import SparkProgram
from tidewise.experiments.produce import Produced, Production, produce
from tidewise.host.processes import find
from tidewise.jobs.records.encoding import Encoding
from tidewise.jobs.records.kinds import KINDS, Disorder
from tidewise.jobs.records.ysb import campaigns
from tidewise.jobs.schedule import Schedule
from tidewise.kafka.broker import LocalBroker
from tidewise.kafka.jars import connector_conf

_LOG = logging.getLogger(__name__)

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("spark")]

_RATE_PER_S = 300.0
_MOVES = (Mechanism.LIVE, Mechanism.QUERY_RESTART, Mechanism.HANDOVER, Mechanism.REPARTITION)
_DISORDER = Disorder(share=0.3, most_s=1.0)


def test_ysb_counts_right_over_all_four_changes(tmp_path: Path) -> None:
    _moved(tmp_path, "ysb", "json", _right_views)


def test_tsw_fires_right_over_all_four_changes(tmp_path: Path) -> None:
    _moved(tmp_path, "tsw", "avro", _right_speeds)


def _right_views(out: Path, sent: pa.RecordBatch) -> None:
    expected = answers.views_per_campaign(answers.rows(sent), dict(campaigns(0)), slide_ms=answers.WINDOW_MS)
    assert windows(rows_of(out)) == expected


def _right_speeds(out: Path, sent: pa.RecordBatch) -> None:
    # What the watermark has not passed has not fired yet.
    ticks = answers.ticks(sent)
    last_ms = max(tick.at_ms for tick in ticks)
    expected = [one for one in answers.top_speeds(ticks) if one[1] <= last_ms - 20_000]
    found = [one for one in firings(rows_of(out)) if one[1] <= last_ms - 20_000]
    assert len(expected) > 100
    assert found == expected


def _moved(folder: Path, job: str, encoding: Encoding, check: Callable[[Path, pa.RecordBatch], None]) -> None:
    broker = LocalBroker.up(folder / "broker", topics={job: 2})
    try:
        cluster = LocalCluster.up(folder / "cluster")
        try:
            sent = _run(folder, broker, cluster, job, encoding)
        finally:
            cluster.down()
    finally:
        broker.down()
    count, schedule = sent.report.acknowledged, sent.schedule
    assert (sent.report.failed, sent.grew_by) == (0, count)
    batch = KINDS[job].batch(seed=0, first=0, end=count, pieces=schedule.pieces(0, count), disorder=_DISORDER)
    check(folder / "out", batch)
    found = audit(folder / "checkpoint")
    assert found.clean, found.sentences()
    left = find(lambda argv: any(str(folder) in word for word in argv))
    assert not left, f"still running: {left}"


def _run(folder: Path, broker: LocalBroker, cluster: LocalCluster, job: str, encoding: Encoding) -> Produced:
    stop, done = threading.Event(), list[Produced]()
    production = Production(
        job=job, brokers=broker.address, topic=job, encoding=encoding, processes=1, disorder=_DISORDER
    )
    schedule = Schedule(began_unix_s=0.0, step_s=3600.0, rates_per_s=(_RATE_PER_S,), after="stop")
    producing = threading.Thread(target=lambda: done.append(produce(production, schedule, stop=stop)))
    producing.start()
    clock = SystemClock()
    try:
        running = SparkEngine(
            program=_program(folder, broker, job, encoding),
            cluster=cluster,
            home=folder / "job",
            clock=clock,
            repartitions=True,
        ).launch(START)
        try:
            disturber = Disturber(running, clock, seed=1, queries=1, faults=False)
            for mechanism in _MOVES:
                disturber.expect_running(within_s=300.0)
                _LOG.info("%s: %s", job, disturber.change(mechanism))
            disturber.expect_running(within_s=300.0)
            stop.set()
            producing.join(60.0)
            expect_all_committed(running, [folder / "checkpoint"], broker.address)
        finally:
            running.stop()
    finally:
        stop.set()
        producing.join(60.0)
    return done[0]


def _program(folder: Path, broker: LocalBroker, job: str, encoding: Encoding) -> SparkProgram:
    words = ["--source", "kafka", "--brokers", broker.address, "--topic", job, "--encoding", encoding]
    words += ["--sink", "foreachbatch", "--out", str(folder / "out"), "--checkpoint", str(folder / "checkpoint")]
    return SparkProgram(
        command=(sys.executable, "-m", f"tidewise.jobs.{job}", *words),
        folder=folder,
        conf=connector_conf(),
        most_executors=4,
        handover=True,
        launch_deadline_s=300.0,
    )
