"""Tidewise in a session that runs already: a notebook sees its own queries as Tidewise sees a job."""

from __future__ import annotations

import secrets
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidewise.core import BadInputError, Configuration, JobStatus, Observation
from tidewise.engines.spark.progress import UnreadableProgressError, parse_progress
from tidewise.engines.spark.reports import ReportDetail, Reporter
from tidewise.engines.spark.switchboard import Message, Switchboard
from tidewise_agent.hooks import attach as attach_agent
from tidewise_agent.spec import AgentSpec

_DEFAULT_MEMORY_MIB = 1024


class Attached:
    """The queries of a session, as reports; nothing is changed in it."""

    def __init__(self, session: Any, *, window_s: float = 5.0) -> None:  # noqa: ANN401 -- a SparkSession
        """BadInputError for a session without a SparkContext, as Spark Connect has it."""
        try:
            context = session.sparkContext
        except Exception as error:
            raise BadInputError(
                "this session has no SparkContext, as with Spark Connect; attach to a classic session instead"
            ) from error
        self._began_unix_s = time.time()
        self._lock = threading.Lock()
        self._reporter = Reporter(window_s=window_s)
        self._configuration = _configuration(context)
        self._problems: list[str] = []
        self._reporter.status(JobStatus.RUNNING, 0.0)
        self._reporter.configuration(self._configuration, 0.0)
        token = secrets.token_hex(16)
        self._switchboard = Switchboard(token=token, heard=self._heard)
        folder = Path(tempfile.mkdtemp(prefix="tidewise-attached-"))
        spec = AgentSpec(
            application=f"attached-{context.applicationId}",
            host=self._switchboard.host,
            port=self._switchboard.port,
            token=token,
            state_folder=str(folder),
            identity_file=str(folder / "identity.json"),
            lease=False,
        )
        self._agent = attach_agent(spec, session)

    def reports(self) -> Sequence[Observation]:
        """The reports since the last call, oldest first, each once."""
        with self._lock:
            return self._reporter.observations(time.time() - self._began_unix_s)

    def detail(self) -> ReportDetail:
        """What is known beyond the last report: phases of the last batch, stages, state."""
        with self._lock:
            return self._reporter.detail()

    def problems(self) -> Sequence[str]:
        """What the agent could not do."""
        with self._lock:
            return tuple(self._problems)

    def _heard(self, _application: str, message: Message) -> None:
        with self._lock:
            kind = message.get("kind")
            now_s = time.time() - self._began_unix_s
            if kind == "progress":
                try:
                    progress = parse_progress(str(message["progress"]))
                except UnreadableProgressError as error:
                    self._problems.append(str(error))
                    return
                if progress.executed:
                    self._reporter.batch(progress, min(now_s, progress.committed_unix_s - self._began_unix_s))
            elif kind == "executors" and message["ids"]:
                self._configuration = self._configuration.with_executors(len(message["ids"]))
                self._reporter.configuration(self._configuration, now_s)
            elif kind == "problem":
                self._problems.append(str(message["sentence"]))


def _configuration(context: Any) -> Configuration:  # noqa: ANN401 -- a SparkContext
    """What the session says of itself; Spark's defaults where it says nothing."""
    conf = context.getConf()
    memory = str(conf.get("spark.executor.memory", f"{_DEFAULT_MEMORY_MIB}m")).lower()
    number, unit = int("".join(filter(str.isdigit, memory)) or _DEFAULT_MEMORY_MIB), memory.strip("0123456789")
    memory_mib = number * 1024 if unit.startswith("g") else number
    slots = int(conf.get("spark.executor.cores", str(context.defaultParallelism)))
    return Configuration(
        executors=1, slots_per_executor=slots, cores_per_executor=float(slots), memory_mib_per_executor=memory_mib
    )
