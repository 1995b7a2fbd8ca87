"""A quiet Spark for the length of a sweep: nothing of its log reaches the terminal, and no process is left behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote

from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.host.java import find_java
from tidewise.host.spark_home import find_spark

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]  # ships no types
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

_ANSWER_S = 5.0
"""How long a master may take to accept a connection."""
_END_S = 60.0
"""How long Java may take to end by itself."""
_LOOPBACK = ("127.0.0.1", "localhost")
_MASTER = re.compile(r"local(\[(\d+|\*)(, *\d+)?\])?|spark://[^:,]+:\d+(,[^:,]+:\d+)*|yarn|k8s://.+")
_READ_FILE = re.compile(r"file:/+(\S.*?\.parquet)\b")
_GONE_PATH = re.compile(r"Path does not exist: file:/+(\S.*?)\. SQLSTATE")
_GONE = "FileNotFoundException"
_CAUSED_BY = re.compile(r"^\s*Caused by: [\w.$]+: (.+)$", re.MULTILINE)
_CAUSE = re.compile(r"^(?:: )?(?:\w+\.)*(\w+(?:Error|Exception): .+)$", re.MULTILINE)


@contextmanager
def spark_context(master: str, *, jars: Sequence[Path] = ()) -> Iterator[SparkContext]:
    """The Spark that runs in this process already, or a new one on this master with these jars, stopped at the end.

    Java ends with it, unless it was there before: a program whose own Spark has stopped keeps its Java.

    BadInputError where Spark or Java is missing; TemporaryError where nobody listens at the master's address.
    """
    if not _MASTER.fullmatch(master):
        raise BadInputError(f"there is no Spark master {master!r}: write local[*] or spark://127.0.0.1:7077")
    find_spark()
    find_java()
    try:
        from pyspark import SparkContext  # noqa: PLC0415 - an optional extra: only those who sweep need it
    except ImportError as error:
        raise BadInputError("PySpark is not installed: pip install 'tidewise[spark]'") from error
    # Not the active session: that belongs to a thread, and a context needs none.
    running = SparkContext._active_spark_context  # noqa: SLF001 - getOrCreate() would start one
    if running is not None:
        yield running
        return
    _require_listener(master)
    # Spark would take the first python3 on the path for its workers, which need not know this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = _conf(master, jars)
    with tempfile.TemporaryFile() as log, _interrupts_kept(), _java(conf, log) as gateway:
        context = _start(conf, gateway)
        try:
            yield context
        finally:
            _stop(context)


@contextmanager
def spark_session(master: str, *, jars: Sequence[Path] = ()) -> Iterator[SparkSession]:
    """A session on such a Spark."""
    with spark_context(master, jars=jars):
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an optional extra: looked for by spark_context

        yield SparkSession.builder.getOrCreate()


def cause(text: str) -> str:
    """The cause in an error of Spark, without the pages around it."""
    causes = _CAUSE.findall(text)
    # The last is what was raised in the worker; the lines before it say by whom.
    return str(causes[-1]) if causes else next(iter(text.splitlines()), "for an unknown reason")


class UnreadableFileError(PermanentError):
    """A file of a table is damaged or gone; names it."""


@contextmanager
def spark_told(called: str) -> Iterator[None]:
    """What Spark raises becomes a sentence: UnreadableFileError where it is about a file, else PermanentError.

    `called`: what Spark gives up, as in "the compaction".
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with PySpark; no types
    from pyspark.errors import PySparkException  # noqa: PLC0415 - whoever has a session has it

    try:
        yield
    except (PySparkException, Py4JError) as error:
        told = str(error)
        raise unreadable_file(told) or PermanentError(f"Spark gave {called} up: {cause(told)}") from error


def unreadable_file(told: str) -> UnreadableFileError | None:
    """The file that Spark could not read, by what it says; None where that is about something else."""
    gone, read = _GONE_PATH.search(told), _READ_FILE.search(told)
    found = gone or read
    if found is None:
        return None
    path = f"/{unquote(found[1])}"
    if gone is not None or _GONE in told:
        return UnreadableFileError(f"{path} was taken away while it was read: try it again")
    # The last cause is the first that went wrong; those before it say by whom it was noticed.
    why = _READ_FILE.sub("it", (_CAUSED_BY.findall(told) or [cause(told)])[-1])
    return UnreadableFileError(f"{path} cannot be read ({why}): bring it back from a copy, or take it away")


def told_error(error: Exception) -> str:
    """What went wrong in a function of the caller's, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Spark answers Ctrl-C by cancelling its jobs, also when it has none any more: afterwards all is as before."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextmanager
def _java(conf: SparkConf, log: IO[bytes]) -> Iterator[JavaGateway]:
    """The Java of this process, or a new one that ends here."""
    from pyspark import SparkContext  # noqa: PLC0415 - looked for by the caller
    from pyspark.errors import PySparkException  # noqa: PLC0415 - the same
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - the same

    there = SparkContext._gateway  # noqa: SLF001 - nothing else says whether there is one
    if there is not None:
        yield there
        return
    try:
        gateway = launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]  # it has no types
    except (PySparkException, OSError) as error:
        log.seek(0)
        told = log.read().decode(errors="replace").strip()
        raise PermanentError(f"Spark could not be started: {cause(told or str(error))}") from error
    try:
        yield gateway
    finally:
        # Or the next would call the Java that has ended.
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - nothing else takes them back
        _end_java(gateway)


def _start(conf: SparkConf, gateway: JavaGateway) -> SparkContext:
    from pyspark import SparkContext  # noqa: PLC0415 - looked for by the caller

    try:
        return SparkContext(conf=conf, gateway=gateway)
    except Exception as error:
        raise PermanentError(
            f"Spark could not be started on {conf.get('spark.master')}: {cause(str(error))}"
        ) from error


def _conf(master: str, jars: Sequence[Path]) -> SparkConf:
    from pyspark import SparkConf  # noqa: PLC0415 - looked for by the caller

    conf = SparkConf().setMaster(master).setAppName("tidewise").set("spark.ui.enabled", "false")
    # Or an empty folder would be left wherever somebody asks for tables.
    conf = conf.set("spark.sql.warehouse.dir", str(Path(tempfile.gettempdir()) / "tidewise-warehouse"))
    if jars:
        conf = conf.set("spark.jars", ",".join(str(jar) for jar in jars))
    if _is_here(master):
        conf = conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    return conf


def _stop(context: SparkContext) -> None:
    with warnings.catch_warnings():
        # That Java was killed is told by whoever waits for its answers.
        warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)
        context.stop()


def _end_java(gateway: JavaGateway) -> None:
    """Spark would keep its Java process until Python ends."""
    with suppress(OSError):  # it may have ended by itself
        gateway.shutdown()
    process = gateway.proc
    if process is None:
        return
    process.stdin.close()
    try:
        process.wait(timeout=_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


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
