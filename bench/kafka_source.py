"""What the benchmarks on Kafka share: a broker with topics that are filled, and the jars that Spark needs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidewise.experiments.produce import Produced, Production, produce
from tidewise.jobs.records.encoding import Encoding
from tidewise.jobs.schedule import Schedule
from tidewise.kafka.broker import LocalBroker

PARTITIONS = 2


@contextmanager
def local_broker() -> Iterator[tuple[LocalBroker, Path]]:
    """A broker, and a folder that is removed with it."""
    with tempfile.TemporaryDirectory(prefix="tidewise-bench-") as name:
        broker = LocalBroker.up(Path(name) / "kafka", tell=lambda sentence: print(sentence, flush=True))
        try:
            yield broker, Path(name)
        finally:
            broker.down()


def fill(broker: LocalBroker, topic: str, *, job: str, encoding: Encoding, records: int, per_s: float) -> Produced:
    """Put so many records into a new topic; by their event times, so many of them came in each second until now."""
    seconds = records / per_s
    whole = int(seconds) + 1
    schedule = Schedule(began_unix_s=time.time() - whole, rates_per_s=(records / whole,) * whole, after="stop")
    production = Production(
        job=job, brokers=broker.address, topic=topic, partitions=PARTITIONS, encoding=encoding, at_once=True
    )
    return produce(production, schedule, began_unix_s=schedule.began_unix_s)
