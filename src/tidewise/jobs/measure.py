"""Runs the queries of a benchmark on one warm Spark: a request is a line of JSON, and so is what came of it.

`python -m tidewise.jobs.measure --benchmark nexmark --folder FOLDER` says that it is ready, and then reads requests
until there are no more.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidewise.core import TidewiseError
from tidewise.host.processes import TreeCpu
from tidewise.jobs.measure_request import BENCHMARKS, RunRequest, schedule_of
from tidewise.jobs.program import STATE_PROVIDERS, options_of, parsed, writer_of
from tidewise.jobs.query import Query
from tidewise.jobs.query_program import reading
from tidewise.jobs.records.kinds import KINDS
from tidewise.jobs.schedule import write_schedule
from tidewise_agent.jvm import DriverJvm

_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_FILES = "files"
_MOST_STAGES = 5_000
_CAUSE = re.compile(r"(?:terminated with exception: |An error occurred while calling \S+\n: )(.*)", re.DOTALL)
"""What Spark and Py4J write before the reason."""
_OF_PYTHON = re.compile(r"^\w[\w.]*(?:Error|Exception): .+$", re.MULTILINE)
"""The last line of a traceback."""
_OF_JAVA = re.compile(r"An error occurred while calling .*\n: (?:\w+\.)*(.+)")
"""How Py4J tells a failure that PySpark has no words for."""
_STATE = re.compile(r"(?: SQLSTATE: \w+)+$")
_WORDS = 300
"""How much of a failure is told."""


def queries_of(benchmark: str) -> Mapping[str, Query]:
    """The queries of a benchmark by their names."""
    found: Mapping[str, Query] = importlib.import_module(f"tidewise.jobs.{benchmark}.queries").QUERIES
    return found


class Measuring:
    """A session that answers requests; the state of a query that has ended is forgotten before the next one."""

    def __init__(self, spark: SparkSession, *, benchmark: str, folder: Path, brokers: str | None, readers: int) -> None:
        self._spark = spark
        self._benchmark = benchmark
        self._folder = folder
        self._brokers = brokers
        self._readers = readers
        self._jvm = DriverJvm(spark.sparkContext)
        self._count = 0

    def answer(self, request: RunRequest) -> dict[str, object]:
        """What was seen; where it failed, why."""
        self._count += 1
        checkpoint = self._folder / f"checkpoint-{self._count}" if request.checkpoint is None else None
        place = checkpoint or Path(request.checkpoint or "")
        self._clear_up()
        try:
            if request.repartition is not None:
                return self._repartitioned(request.repartition, place)
            return self._run(request, place)
        except Exception as error:  # noqa: BLE001 - whatever a query fails by is its answer, and the next one goes on
            return {"error": _reason(error)}
        finally:
            if checkpoint is not None:
                shutil.rmtree(checkpoint, ignore_errors=True)

    def _run(self, request: RunRequest, checkpoint: Path) -> dict[str, object]:
        for name, value in {
            "spark.sql.shuffle.partitions": str(request.state_partitions),
            "spark.sql.streaming.stateStore.providerClass": STATE_PROVIDERS[request.state_store],
            _CHANGELOG: str(request.changelog).lower(),
        }.items():
            self._spark.conf.set(name, value)
        query = queries_of(self._benchmark)[request.query]
        options = self._options(request, query, checkpoint)
        results = query.make(reading(self._spark, options, KINDS[self._benchmark]))
        writer = writer_of(results, options, output_mode=query.output_mode, partition_by=query.partition_by)
        cpu, began_s = TreeCpu(os.getpid()), time.monotonic()
        running = writer.trigger(availableNow=True).start()
        if not running.awaitTermination(max(1, round(request.at_most_s))):
            running.stop()
            return {"error": f"not done within {request.at_most_s:g} s"}
        seconds, cpu_s = time.monotonic() - began_s, cpu.used_s()
        return {
            "seconds": seconds,
            "cpu_s": cpu_s,
            "checkpoint_bytes": _size(checkpoint) - _size(checkpoint / _FILES),
            "batches": [json.loads(one.json) for one in running.recentProgress],
            "stages": self._stages(running),
        }

    def _options(self, request: RunRequest, query: Query, checkpoint: Path) -> argparse.Namespace:
        words = ["--checkpoint", str(checkpoint), "--max-records-per-batch", str(request.events_per_batch)]
        if query.partition_by:
            # How it writes is what such a query is about; of the others, results are thrown away.
            words += ["--sink", "files", "--out", str(checkpoint / _FILES)]
        if request.topic is not None:
            words += ["--source", "kafka", "--brokers", str(self._brokers), "--topic", request.topic]
        else:
            file = self._folder / f"schedule-{request.events}-{request.events_per_s:g}.json"
            write_schedule(file, schedule_of(request.events, request.events_per_s))
            words += ["--schedule", str(file), "--partitions", str(self._readers)]
        return parsed(options_of("a query that is measured"), words)

    def _stages(self, running: StreamingQuery) -> list[dict[str, Any]]:
        # What Spark tells its listeners it tells them a little later.
        self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # noqa: SLF001 - the only way in
        return self._jvm.stages_of(str(running.runId), most=_MOST_STAGES, most_jobs=_MOST_STAGES)

    def _repartitioned(self, partitions: int, checkpoint: Path) -> dict[str, object]:
        began_s = time.monotonic()
        self._jvm.repartition_state(self._spark, str(checkpoint), partitions)
        return {"seconds": time.monotonic() - began_s, "checkpoint_bytes": _size(checkpoint)}

    def _clear_up(self) -> None:
        """No state and no garbage of the query before, which Spark would keep for a minute."""
        java = self._spark.sparkContext._jvm  # noqa: SLF001 - the only way in
        assert java is not None  # noqa: S101 - a classic session has one
        stores = java.org.apache.spark.sql.execution.streaming.state
        getattr(getattr(stores, "StateStore$"), "MODULE$").stop()
        java.java.lang.System.gc()


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _reason(error: Exception) -> str:
    """The first line of what is behind it, without the names that Spark gives to what failed; of Python its last."""
    found = _CAUSE.search(str(error)) or _OF_JAVA.search(str(error))
    text = found[1] if found else str(error)
    of_python = _OF_PYTHON.findall(text) if "Traceback (most" in text else []
    line = of_python[-1] if of_python else text.strip().partition("\n")[0]
    reason = _STATE.sub("", " ".join(line.split()))[:_WORDS]
    if found is not None or isinstance(error, PySparkException | TidewiseError):
        return reason
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__


def main(arguments: list[str] | None = None) -> None:
    """Answer each line of standard input by one on standard output."""
    parser = argparse.ArgumentParser(description="Measures the queries of a benchmark, one request after the other.")
    parser.add_argument("--benchmark", choices=BENCHMARKS, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="for checkpoints and schedules")
    parser.add_argument("--cores", type=int, default=2, help="tasks at a time")
    parser.add_argument("--brokers", help="addresses of the Kafka that holds the topics of requests")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark")
    options = parser.parse_args(arguments)
    answers = _own_output()
    spark = _session(options.cores, dict(setting.split("=", 1) for setting in options.conf))
    measuring = Measuring(
        spark,
        benchmark=options.benchmark,
        folder=options.folder.resolve(),
        brokers=options.brokers,
        readers=options.cores,
    )
    _say(answers, {"ready": True})
    for line in sys.stdin:
        _say(answers, measuring.answer(RunRequest(**json.loads(line))))
    spark.stop()


def _say(answers: TextIO, answer: Mapping[str, object]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _own_output() -> TextIO:
    """Standard output for the answers alone: what Java or a worker says goes where errors go."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def _session(cores: int, conf: Mapping[str, str]) -> SparkSession:
    # Spark would take the first python3 on the path for its workers, which need not know this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{cores}]").appName("tidewise bench")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.python.unix.domain.socket.enabled": "true",
        # What is looked at when a query has ended has to be there still.
        "spark.sql.streaming.numRecentProgressUpdates": str(_MOST_STAGES),
        "spark.ui.retainedJobs": str(_MOST_STAGES),
        "spark.ui.retainedStages": str(_MOST_STAGES),
        **conf,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    main()
