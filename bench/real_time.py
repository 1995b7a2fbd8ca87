"""Real-time mode against micro-batches, side by side: how late results are when somebody reads the output topic."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
import numpy as np

from bench.kafka_source import PARTITIONS, local_broker
from bench.page import table
from tidewise.experiments.produce import Production, produce
from tidewise.jobs.schedule import Schedule
from tidewise.kafka import topics
from tidewise.kafka.jars import connector_conf

_RATE_PER_S = 1_000.0
_WARM_UP_S, _MEASURED_S = 20, 25
_REPEATS = 2
_SLOTS = 6
"""Real-time mode needs as many as source and shuffle have partitions together; the machine need not have the cores."""
_STARTS_WITHIN_S = 120.0
_STOPS_WITHIN_S = 30.0
_GOAL_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Query:
    program: str
    kind: str
    event_unix_s: Callable[[dict[str, object], Schedule], float]
    """When the newest event that a result stands for happened."""


def _of_ordinal(result: dict[str, object], schedule: Schedule) -> float:
    ordinal = int(str(result["ordinal"]))
    return float(schedule.pieces(ordinal, ordinal + 1).times_us(np.array([ordinal]))[0]) / 1e6


def _of_last_update(result: dict[str, object], _schedule: Schedule) -> float:
    return np.datetime64(str(result["last_update"]).removesuffix("Z"), "ms").astype(np.int64).item() / 1000


_QUERIES = {
    "stateless (every record's ordinal)": _Query(program="copy", kind="clicks", event_unix_s=_of_ordinal),
    "YSB, tumbling windows": _Query(program="ysb", kind="ysb", event_unix_s=_of_last_update),
}
_MODES = {"micro-batch": "0 seconds", "real-time": "5 seconds"}


@dataclass
class _Reader:
    """Somebody who reads the output topic, and looks at the clock for each result."""

    address: str
    topic: str
    results: list[tuple[float, dict[str, object]]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        settings = {"bootstrap.servers": self.address, "group.id": "reader", "fetch.wait.max.ms": 10}
        consumer = confluent_kafka.Consumer(settings | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.assign([confluent_kafka.TopicPartition(self.topic, number, 0) for number in range(PARTITIONS)])
        while not self.stop.is_set():
            for message in consumer.consume(500, 0.05):
                if message.error() is None:
                    self.results.append((time.time(), json.loads(message.value() or b"{}")))
        consumer.close()


def measure(_traces: Path | None) -> str:
    """Each query in each mode, in turn."""
    latencies: dict[tuple[str, str], list[np.ndarray]] = {}
    refused: dict[tuple[str, str], str] = {}
    with local_broker() as (broker, folder):
        jars = connector_conf()["spark.jars"]
        for repeat in range(_REPEATS):
            for title, query in _QUERIES.items():
                for mode in _MODES:
                    if (title, mode) in refused:
                        continue
                    place = folder / f"{query.program}-{mode}-{repeat}"
                    place.mkdir()
                    found = _run(query, mode, broker.address, place, jars)
                    if isinstance(found, str):
                        refused[title, mode] = found
                        continue
                    latencies.setdefault((title, mode), []).append(found)
                    print(f"{title}, {mode}: p50 {_ms(found, 50)}, p99 {_ms(found, 99)}", flush=True)
    return _page(latencies, refused)


def _ms(latencies_s: np.ndarray, percentile: float) -> str:
    return f"{1000 * np.percentile(latencies_s, percentile):,.0f} ms"


def _page(latencies: dict[tuple[str, str], list[np.ndarray]], refused: dict[tuple[str, str], str]) -> str:
    rows = []
    for title in _QUERIES:
        for mode in _MODES:
            if (title, mode) in refused:
                rows.append([title, mode, refused[title, mode], "", "", "", ""])
                continue
            each = latencies[title, mode]
            together = np.concatenate(each)
            goal = mode == "real-time" and title.startswith("stateless")
            reached = ("yes" if np.percentile(together, 99) <= _GOAL_S else "NO") if goal else ""
            of_repeats = ", ".join(_ms(one, 99) for one in each)
            aim = f"p99 {1000 * _GOAL_S:.0f} ms" if goal else ""
            rows.append([title, mode, _ms(together, 50), _ms(together, 99), of_repeats, aim, reached])
    head = ["query", "mode", "p50", "p99", "p99 of each repeat", "goal", "reached"]
    return (
        f"From the time of an event until a reader of the output topic has the result: the producer's and the "
        f"broker's share included. Kafka to Kafka, {_RATE_PER_S:,.0f} records/s in {PARTITIONS} partitions, "
        f"local[{_SLOTS}] with producer, broker and reader on the same machine; {_MEASURED_S} s each after "
        f"{_WARM_UP_S} s that do not count, {_REPEATS} times in turn. Micro-batches follow each other without a pause "
        "(0 s trigger); real-time mode checkpoints every 5 s.\n\n" + table(head, rows)
    )


def _run(query: _Query, mode: str, address: str, folder: Path, jars: str) -> np.ndarray | str:
    """Latencies of all results of the measured time; or why Spark refuses to run this."""
    source, sink = f"{folder.name}-in", f"{folder.name}-out"
    for topic in (source, sink):
        topics.create(address, topic, PARTITIONS)
    reader = _Reader(address, sink)
    thread = threading.Thread(target=reader.run, daemon=True)
    with (folder / "log").open("wb") as log:
        words = [sys.executable, "-m", f"tidewise.jobs.{query.program}", "--master", f"local[{_SLOTS}]"]
        words += ["--source", "kafka", "--sink", "kafka", "--brokers", address, "--topic", source]
        words += ["--out-topic", sink, "--mode", mode, "--trigger", _MODES[mode]]
        words += ["--checkpoint", str(folder / "checkpoint")]
        conf = f"--conf spark.jars={jars} --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1"
        environment = os.environ | {"PYSPARK_SUBMIT_ARGS": f"{conf} pyspark-shell", "SPARK_LOCAL_IP": "127.0.0.1"}
        program = subprocess.Popen(words, stdout=log, stderr=log, env=environment)  # noqa: S603 -- our own program
    try:
        commits, until_s = folder / "checkpoint" / "offsets", time.monotonic() + _STARTS_WITHIN_S
        production = Production(job=query.kind, brokers=address, topic=source, processes=1)
        while not commits.exists() or not any(commits.iterdir()):
            if program.poll() is not None:
                return _why(folder / "log")
            if time.monotonic() > until_s:
                raise TimeoutError(f"{query.program} in {mode} mode did not start; see {folder / 'log'}")
            produce(production, Schedule(began_unix_s=0.0, rates_per_s=(10.0,), after="stop"))
        thread.start()
        rates = (_RATE_PER_S,) * (_WARM_UP_S + _MEASURED_S)
        done = produce(production, Schedule(began_unix_s=0.0, rates_per_s=rates, after="stop"))
        time.sleep(3.0)
    finally:
        program.terminate()
        program.wait(_STOPS_WITHIN_S)
        reader.stop.set()
    thread.join(10.0)
    begin_unix_s = done.schedule.began_unix_s + _WARM_UP_S
    end_unix_s = begin_unix_s + _MEASURED_S
    found = []
    for read_unix_s, result in reader.results:
        event_unix_s = query.event_unix_s(result, done.schedule)
        if begin_unix_s <= event_unix_s < end_unix_s:
            found.append(read_unix_s - event_unix_s)
    return np.array(found)


def _why(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if "Exception" in line]
    return f"refused: {(lines or ['it ended'])[-1][:200]}"
