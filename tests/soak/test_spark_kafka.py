"""Changes and kills of a job that reads a topic, and of the broker: none lost, and doubled only where Spark may.

The file sink and the keyed foreachBatch hold every ordinal once; Spark's Kafka sink holds every one at least once.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from pathlib import Path

import confluent_kafka
import pytest

from tests.kafka.feeding import feeding
from tests.soak.catching_up import CATCH_UP_S, expect_all_committed
from tests.soak.disturbing import START, Disturber
from tidewise.control import SystemClock
from tidewise.engines.spark.audit import audit
from tidewise.engines.spark.cluster import LocalCluster
from tidewise.engines.spark.engine import SparkEngine
from tidewise.engines.spark.program import SparkProgram
from tidewise.host.processes import find
from tidewise.jobs.counts import count_losses
from tidewise.kafka import topics
from tidewise.kafka.broker import LocalBroker
from tidewise.kafka.client import quiet_settings
from tidewise.kafka.jars import connector_conf

_LOG = logging.getLogger(__name__)

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("spark")]

_IN, _OUT = "clicks", "copied"
_PARTITIONS = 4
_RATE_PER_S = 400.0
_SINKS = {"files": "checkpoint-files", "batches": "checkpoint-batches"}


def test_changes_kills_and_broker_restarts_lose_and_double_nothing(tmp_path: Path) -> None:
    _soak(tmp_path, events=15, least_s=8 * 60.0, out_topic=False)


def test_the_kafka_sink_loses_nothing_and_its_duplicates_are_counted(tmp_path: Path) -> None:
    _soak(tmp_path, events=6, least_s=3 * 60.0, out_topic=True)


def _soak(folder: Path, *, events: int, least_s: float, out_topic: bool) -> None:
    broker = LocalBroker.up(folder / "broker", topics={_IN: _PARTITIONS, _OUT: _PARTITIONS})
    try:
        cluster = LocalCluster.up(folder / "cluster")
        try:
            _run(folder, broker, cluster, events=events, least_s=least_s, out_topic=out_topic)
        finally:
            cluster.down()
    finally:
        broker.down()
    left = find(lambda argv: any(str(folder) in word for word in argv))
    assert not left, f"still running: {left}"


def _run(
    folder: Path, broker: LocalBroker, cluster: LocalCluster, *, events: int, least_s: float, out_topic: bool
) -> None:
    clock = SystemClock()
    checkpoints = [folder / name for name in (*_SINKS.values(), *(["checkpoint-topic"] if out_topic else []))]
    engine = SparkEngine(
        program=_program(folder, broker, out_topic=out_topic),
        cluster=cluster,
        home=folder / "job",
        clock=clock,
        repartitions=True,
        faults=True,
    )
    with feeding(broker.address, _IN, rate_per_s=_RATE_PER_S) as feed:
        job = engine.launch(START)
        try:
            outside = {
                "broker restarted": lambda: _restart(broker, kill=False),
                "broker killed": lambda: _restart(broker, kill=True),
            }
            disturber = Disturber(job, clock, seed=20261116, queries=len(checkpoints), outside=outside)
            disturber.disturb(events=events, least_s=least_s)
            produced = feed.finish()
            sent = produced.report
            _LOG.info("sent: %d, the latest by %.1f s", sent.acknowledged, sent.acknowledged_late.worst_s)
            # What was due when it was stopped and had not been sent is of no concern: the ordinals before have no hole.
            assert sent.failed == 0, sent.problems
            assert produced.grew_by == sent.acknowledged, "the producer itself lost or doubled"
            expect_all_committed(job, checkpoints, broker.address)
        finally:
            job.stop()
    for sink, checkpoint in _SINKS.items():
        report = count_losses(folder / sink, committed_end=sent.acknowledged)
        _LOG.info("%s: %s", sink, report)
        assert report.clean, report
        assert report.uncommitted == 0, report
        found = audit(folder / checkpoint, sink=folder / sink if sink == "files" else None)
        assert found.clean, found.sentences()
    if out_topic:
        copied = _ordinals(broker.address, _OUT)
        doubled = sum(times - 1 for times in copied.values())
        _LOG.info("%s: %d different ordinals, %d records more than that", _OUT, len(copied), doubled)
        assert set(copied) == set(range(sent.acknowledged)), "Spark's Kafka sink lost records"
        found = audit(folder / "checkpoint-topic")
        assert found.clean, found.sentences()


def _program(folder: Path, broker: LocalBroker, *, out_topic: bool) -> SparkProgram:
    source = ("--brokers", broker.address, "--topic", _IN, *(("--out-topic", _OUT) if out_topic else ()))
    return SparkProgram(
        command=(sys.executable, str(Path(__file__).with_name("two_sinks.py")), str(folder), *source),
        folder=folder,
        conf=connector_conf(),
        most_executors=4,
        handover=True,
        launch_deadline_s=300.0,
        restarts_most=20,
    )


def _restart(broker: LocalBroker, *, kill: bool) -> None:
    """Away for a while, so that batches run into it."""
    broker.stop(kill=kill)
    time.sleep(5.0)
    broker.start()


def _ordinals(address: str, topic: str) -> Counter[int]:
    """How often each ordinal is in the topic."""
    consumer = confluent_kafka.Consumer(
        {**quiet_settings(address), "group.id": "counting", "enable.auto.commit": False, "enable.partition.eof": True}
    )
    reaches = topics.ends(address, topic)
    found: Counter[int] = Counter()
    left = set(reaches)
    until_s = time.monotonic() + CATCH_UP_S
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, number, one.first) for number, one in reaches.items()])
        while left:
            assert time.monotonic() < until_s, f"partitions {sorted(left)} of {topic} cannot be read to their end"
            for message in consumer.consume(5000, timeout=1.0):
                error = message.error()
                value = message.value()
                if error is not None and error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                elif error is None and value is not None:
                    found[int(value)] += 1
    finally:
        consumer.close()
    return found
