"""A quiet Spark for the length of a sweep: nothing of its log reaches the terminal, and no process is left behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.host.java import find_java
from tidewise.host.spark_home import find_spark

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]  # ships no types
    from pyspark import SparkContext

_ANSWER_S = 5.0
"""How long a master may take to accept a connection."""
_END_S = 60.0
"""How long Java may take to end."""
_LOOPBACK = ("127.0.0.1", "localhost")
_MASTER = re.compile(r"local(\[(\d+|\*)(, *\d+)?\])?|spark://[^:,]+:\d+(,[^:,]+:\d+)*|yarn|k8s://.+")
_CAUSE = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception): .+)$", re.MULTILINE)


@contextmanager
def spark_context(master: str) -> Iterator[SparkContext]:
    """The Spark that runs in this process already, or a new one on this master, stopped at the end.

    BadInputError where Spark or Java is missing; TemporaryError where nobody listens at the master's address.
    """
    if not _MASTER.fullmatch(master):
        raise BadInputError(f"there is no Spark master {master!r}: write local[*] or spark://127.0.0.1:7077")
    find_spark()
    find_java()
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an optional extra: only those who sweep need it
    except ImportError as error:
        raise BadInputError("PySpark is not installed: pip install 'tidewise[spark]'") from error
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running.sparkContext
        return
    _require_listener(master)
    # Spark would take the first python3 on the path for its workers, which need not know this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    on_interrupt = signal.getsignal(signal.SIGINT)
    with tempfile.TemporaryFile() as log:
        context, gateway = _start(master, log)
        try:
            yield context
        finally:
            context.stop()
            _end_java(gateway)
            if threading.current_thread() is threading.main_thread():
                # Spark answers Ctrl-C by cancelling its jobs, also when it has none any more.
                signal.signal(signal.SIGINT, on_interrupt)


def cause(text: str) -> str:
    """The cause in an error of Spark, without the pages around it."""
    causes = _CAUSE.findall(text)
    # The last is what was raised in the worker; the lines before it say by whom.
    return str(causes[-1]) if causes else next(iter(text.splitlines()), "for an unknown reason")


def _start(master: str, log: IO[bytes]) -> tuple[SparkContext, JavaGateway]:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - looked for by the caller
    from pyspark.errors import PySparkException  # noqa: PLC0415 - the same
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - the same

    conf = SparkConf().setMaster(master).setAppName("tidewise").set("spark.ui.enabled", "false")
    if _is_here(master):
        conf = conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    try:
        gateway = launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]  # it has no types
    except (PySparkException, OSError) as error:
        log.seek(0)
        told = log.read().decode(errors="replace").strip()
        raise PermanentError(f"Spark could not be started: {cause(told or str(error))}") from error
    try:
        return SparkContext(conf=conf, gateway=gateway), gateway
    except Exception as error:
        _end_java(gateway)
        raise PermanentError(f"Spark could not be started on {master}: {cause(str(error))}") from error


def _end_java(gateway: JavaGateway) -> None:
    """Spark would keep its Java process until Python ends."""
    from pyspark import SparkContext  # noqa: PLC0415 - looked for by the caller

    with suppress(OSError):  # it may have ended by itself
        gateway.shutdown()
    process = gateway.proc
    if process is not None:
        process.stdin.close()
        process.wait(timeout=_END_S)
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - or the next would call the Java that has ended


def _addresses(master: str) -> list[tuple[str, int]]:
    if not master.startswith("spark://"):
        return []
    pairs = (address.rpartition(":") for address in master.removeprefix("spark://").split(","))
    return [(host, int(port)) for host, _, port in pairs]


def _is_here(master: str) -> bool:
    addresses = _addresses(master)
    return all(host in _LOOPBACK for host, _ in addresses) if addresses else master.startswith("local")


def _require_listener(master: str) -> None:
    """Spark itself would try for a minute, and say nothing."""
    addresses = _addresses(master)
    for host, port in addresses:
        try:
            socket.create_connection((host, port), timeout=_ANSWER_S).close()
        except OSError:
            continue
        return
    if addresses:
        raise TemporaryError(
            f"no Spark master listens at {master}: start one (tidewise cluster up) or correct the address"
        )
