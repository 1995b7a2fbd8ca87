"""One small Spark for the tests of all jobs, on 127.0.0.1, that leaves no process behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tidewise.kafka.jars import resolve, spark_connector

pytest.register_assert_rewrite("tests.jobs.letters", "tests.jobs.queries", "tests.jobs.real_time", "tests.jobs.running")


CORES = 4
"""Real-time mode wants one for each partition of the source and of the state, all the time."""


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "SPARK_LOCAL_IP", "127.0.0.1")
        patch.setitem(os.environ, "PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.jars", ",".join(str(jar) for jar in resolve(spark_connector())))
        session = builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
        _end_java()


@pytest.fixture(autouse=True)
def format_of_micro_batches() -> Iterator[None]:
    """A test of real-time mode leaves the session with a format of checkpoints that other stores do not know."""
    yield
    session = SparkSession.getActiveSession()
    if session is not None:
        session.conf.unset("spark.sql.streaming.stateStore.checkpointFormatVersion")


def _end_java() -> None:
    """Spark keeps its Java process until Python ends; the next module, and the check for left-overs, want it gone."""
    gateway = SparkContext._gateway
    assert gateway is not None
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    process.wait(timeout=60)
    SparkContext._gateway = SparkContext._jvm = None
