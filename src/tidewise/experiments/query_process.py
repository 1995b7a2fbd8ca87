"""The process that measures queries: asked one run after the other, and started anew where one took it down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidewise.core import PermanentError
from tidewise.host.daemons import last_line
from tidewise.jobs.measure_request import RunRequest

Answer = Mapping[str, Any]
"""What `tidewise.jobs.measure` says of a run."""

_PROGRAM = ("-m", "tidewise.jobs.measure")
_START_S = 180.0
"""How long Spark may take to start."""
_LATE_S = 60.0
"""How much longer than its run an answer may take."""
_STOP_S = 20.0


class QueryProcess:
    """A Spark that answers requests, one at a time; none runs before the first request, or after the last."""

    def __init__(
        self, *, benchmark: str, cores: int, folder: Path, log: Path, conf: Mapping[str, str], brokers: str | None
    ) -> None:
        """`folder`: for checkpoints; `log`: what Spark says goes there."""
        self._words = ["--benchmark", benchmark, "--cores", str(cores), "--folder", str(folder)]
        self._words += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        self._words += [] if brokers is None else ["--brokers", brokers]
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(at_once=error is not None)

    def ask(self, request: RunRequest) -> Answer:
        """What came of a run; `error` tells why nothing did."""
        process = self._process or self._start()
        assert process.stdin is not None  # noqa: S101 - a pipe
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(asdict(request)) + "\n")
            process.stdin.flush()
        # It looks at the clock itself; this is for one that cannot any more.
        answer = _line(process, within_s=request.at_most_s + _LATE_S)
        return {"error": f"Spark ended with {self._ending(process)}; see {self._log}"} if answer is None else answer

    def _start(self) -> subprocess.Popen[str]:
        """PermanentError where it does not start."""
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            log = self._log.open("ab")
        except OSError as error:
            raise PermanentError(f"the log {self._log} cannot be written: {error.strerror}") from error
        with log:
            process = self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, *_PROGRAM, *self._words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
                start_new_session=True,  # Ctrl-C is for us: we end it
            )
        if _line(process, within_s=_START_S) is None:
            ending = self._ending(process)
            raise PermanentError(f"Spark did not start ({ending}): {last_line(self._log)}")
        return process

    def _ending(self, process: subprocess.Popen[str]) -> str:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)  # it has closed its output, and ends a moment later
        self.stop(at_once=True)
        return f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"

    def stop(self, *, at_once: bool = False) -> None:
        """End it, with all that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            process.wait(0.0 if at_once else _STOP_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                # Its own group: Python and Java; workers end when Java does.
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _line(process: subprocess.Popen[str], *, within_s: float) -> Answer | None:
    """What it says next; None if it has ended, as it is made to do where it says nothing for so long."""
    assert process.stdout is not None  # noqa: S101 - a pipe
    guard = threading.Timer(within_s, process.kill)
    guard.start()
    try:
        line = process.stdout.readline()
    finally:
        guard.cancel()
    if not line.endswith("\n"):
        return None
    found: Answer = json.loads(line)
    return found


def conf_of(*, memory_mib: int, jars: Sequence[str] = ()) -> dict[str, str]:
    """Settings of such a Spark: its memory, and what it needs beside its own."""
    return {"spark.driver.memory": f"{memory_mib}m"} | ({"spark.jars": ",".join(jars)} if jars else {})
