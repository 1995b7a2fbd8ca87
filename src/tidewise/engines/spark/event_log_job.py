"""A program that runs without the agent, seen through its event log: the same reports, and no way to change it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from tidewise.core import Configuration, JobStatus, Observation
from tidewise.engines.spark.event_log import STREAMING, Event, EventLog
from tidewise.engines.spark.latency import LatencyChoice
from tidewise.engines.spark.operators import StageSample, logged_operators
from tidewise.engines.spark.progress import BatchProgress, UnreadableProgressError, parse_progress
from tidewise.engines.spark.reports import ExecutorSample, Reporter

PROGRESS = f"{STREAMING}QueryProgressEvent"
_STARTED = f"{STREAMING}QueryStartedEvent"
_IDLE = f"{STREAMING}QueryIdleEvent"
_TERMINATED = f"{STREAMING}QueryTerminatedEvent"

_DRIVER = "driver"
_MIB = 1 << 20
_DEFAULT_MEMORY = "1g"
_OVERHEAD_SHARE = 0.1
_LEAST_OVERHEAD_MIB = 384
_MEMORY = re.compile(r"(\d+)([bkmgtp]?)b?")
_MIB_OF = {"b": 1 / _MIB, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2, "p": 1024.0**3}
_FEWEST_BATCHES = 4
_BATCHES_JUDGED = 200
_FEWEST_WAITED = 3
_BOUND_BY_TRIGGER = 0.9
"""A batch that takes less than this share of the time to the next one was waited for by its trigger."""
_STAGES_KEPT = 12
_TASKS_KEPT = 2000
_PROBLEMS_KEPT = 20

Shape = Callable[[Configuration], Configuration]
"""What was seen, as a configuration of the job's space."""


@dataclass(slots=True)
class _Stage:
    """A stage of a batch while its tasks end."""

    query_id: str
    batch_id: int
    run_ms: list[float] = field(default_factory=list)
    total_run_ms: float = 0.0
    rows: int = 0
    shuffled_rows: int = 0
    sample: StageSample | None = None


@dataclass(slots=True)
class _Work:
    """What the tasks used since the last sample."""

    since_s: float | None = None
    cpu_s: float = 0.0
    run_s: float = 0.0
    gc_s: float = 0.0


class LoggedJob:
    """Takes the events of a log in their order and gives reports.

    Times are seconds since the application began. What runs is told by the executors that came and went and by the
    application's settings. CPU is that of the tasks, without Python workers.
    """

    EVENTS = (
        "SparkListenerApplicationStart",
        "SparkListenerApplicationEnd",
        "SparkListenerEnvironmentUpdate",
        "SparkListenerExecutorAdded",
        "SparkListenerExecutorRemoved",
        "SparkListenerJobStart",
        "SparkListenerJobEnd",
        "SparkListenerStageCompleted",
        "SparkListenerTaskEnd",
        _STARTED,
        PROGRESS,
        _IDLE,
        _TERMINATED,
    )
    """What has to be read of a log."""

    def __init__(
        self,
        *,
        window_s: float,
        commit_interval_s: float,
        latency: LatencyChoice = LatencyChoice.AUTO,
        shape: Shape = lambda seen: seen,
    ) -> None:
        """`commit_interval_s`: that of the trigger, see `judge_interval_s`."""
        self._window_s = window_s
        self._reporter = Reporter(window_s=window_s, latency=latency)
        self._interval_s = commit_interval_s
        self._shape = shape
        self.name = ""
        """Of the application."""
        self.began_unix_s: float | None = None
        self.ended: str | None = None
        """Why nothing more will come; None while something may."""
        self.batches = 0
        self._latest_unix_s = 0.0
        self._conf: Mapping[str, str] = {}
        self._slots: dict[str, int] = {}  # by executor
        self._configuration: Configuration | None = None
        self._queries: set[str] = set()  # that run
        self._status: JobStatus | None = None
        self._jobs: dict[int, tuple[int, ...]] = {}
        self._stages: dict[int, _Stage] = {}
        self._done: dict[str, list[StageSample]] = {}
        self._work = _Work()
        self._problems: list[str] = []
        self._takers: dict[str, Callable[[Event], None]] = {
            "SparkListenerApplicationStart": self._application_started,
            "SparkListenerApplicationEnd": self._application_ended,
            "SparkListenerEnvironmentUpdate": self._environment,
            "SparkListenerExecutorAdded": self._executor_added,
            "SparkListenerExecutorRemoved": self._executor_removed,
            "SparkListenerJobStart": self._job_started,
            "SparkListenerJobEnd": self._job_ended,
            "SparkListenerStageCompleted": self._stage_completed,
            "SparkListenerTaskEnd": self._task_ended,
            _STARTED: self._query_started,
            PROGRESS: self._progressed,
            _IDLE: self._query_idle,
            _TERMINATED: self._query_terminated,
        }

    # What is known.

    @property
    def configuration(self) -> Configuration | None:
        """What runs; None before the first executor has come."""
        return self._configuration

    @property
    def latest_s(self) -> float:
        """The time of the latest event."""
        return 0.0 if self.began_unix_s is None else max(0.0, self._latest_unix_s - self.began_unix_s)

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be read, newest last."""
        return tuple(self._problems)

    def now_s(self, unix_s: float) -> float:
        """A time of the wall clock on that of the application."""
        return 0.0 if self.began_unix_s is None else unix_s - self.began_unix_s

    def observations(self, now_s: float) -> list[Observation]:
        """The reports of the windows that have ended since the last call, oldest first, each once."""
        return self._reporter.observations(now_s)

    def take(self, event: Event) -> None:
        """One event; one that is not as Spark writes it is noted and passed by."""
        take = self._takers.get(str(event.get("Event")))
        if take is None:
            return
        try:
            take(event)
        except UnreadableProgressError as error:
            self._note(str(error))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self._note(f"a {event.get('Event')} is not as Spark writes it: {type(error).__name__}: {error}")

    def _note(self, sentence: str) -> None:
        self._problems = [*self._problems, sentence][-_PROBLEMS_KEPT:]

    def _at(self, unix_ms: float) -> float:
        """A time of an event, on the application's clock."""
        unix_s = float(unix_ms) / 1000.0
        if not math.isfinite(unix_s) or unix_s <= 0.0:
            raise ValueError(f"{unix_ms} is no time")
        if self.began_unix_s is None:
            self.began_unix_s = unix_s
        self._latest_unix_s = max(self._latest_unix_s, unix_s)
        return unix_s - self.began_unix_s

    # The application.

    def _application_started(self, event: Event) -> None:
        self._at(event["Timestamp"])
        self.name = str(event.get("App Name", ""))

    def _application_ended(self, event: Event) -> None:
        self._at(event["Timestamp"])
        self.ended = "the application has ended"

    def _environment(self, event: Event) -> None:
        properties = event["Spark Properties"]
        # Since Spark 4 a mapping; lists of pairs before.
        pairs = properties.items() if isinstance(properties, dict) else properties
        self._conf = {str(key): str(value) for key, value in pairs}

    def _executor_added(self, event: Event) -> None:
        at_s = self._at(event["Timestamp"])
        self._slots[str(event["Executor ID"])] = max(1, int(event["Executor Info"]["Total Cores"]))
        self._tell_configuration(at_s)

    def _executor_removed(self, event: Event) -> None:
        at_s = self._at(event["Timestamp"])
        self._slots.pop(str(event["Executor ID"]), None)
        self._tell_configuration(at_s)

    def _tell_configuration(self, at_s: float) -> None:
        """What runs from this time on; nothing while that is not known."""
        # In local mode the driver is the executor; elsewhere it is none.
        is_local = self._conf.get("spark.master", "").startswith("local") and _DRIVER in self._slots
        slots = [count for name, count in self._slots.items() if is_local or name != _DRIVER]
        if not slots:
            return
        seen = Configuration(
            executors=len(slots),
            slots_per_executor=max(slots),
            cores_per_executor=float(max(slots)),
            memory_mib_per_executor=_memory_mib(self._conf, is_local=is_local),
            commit_interval_s=self._interval_s,
        )
        self._configuration = self._shape(seen)
        self._reporter.configuration(self._configuration, at_s)

    # Queries.

    def _query_started(self, event: Event) -> None:
        self._queries.add(str(event["id"]))
        if self._status is None:
            self._work = _Work()  # what ran before the first query is none of its work

    def _query_idle(self, event: Event) -> None:
        query_id = str(event["id"])
        self._queries.add(query_id)
        at_s = self._moment(event.get("timestamp"))
        if self._status is not None:
            self._is(JobStatus.RUNNING, at_s)
            self._reporter.idle(query_id, at_s)

    def _moment(self, text: object) -> float:
        """A time as progress reports write it, on the application's clock."""
        shell = {"id": "-", "runId": "-", "timestamp": text}
        return self._at(1000.0 * parse_progress(json.dumps(shell)).began_unix_s)

    def _query_terminated(self, event: Event) -> None:
        query_id = str(event["id"])
        self._queries.discard(query_id)
        if self._status is None:
            return
        if self._queries:
            self._reporter.ended(query_id)
            return
        # One that somebody stopped is down because it was asked for.
        self._is(JobStatus.DOWN if event.get("exception") else JobStatus.CHANGING, self.latest_s)

    def _progressed(self, event: Event) -> None:
        progress = parse_progress(json.dumps(with_rows(event["progress"])))
        self._at(1000.0 * progress.began_unix_s)
        self._at(1000.0 * progress.committed_unix_s)
        self._queries.add(progress.query_id)
        self.batches += progress.executed
        if self._status is None:
            # Reports begin with the first batch.
            self._work.since_s = self.now_s(progress.began_unix_s)
            self._tell_configuration(self._work.since_s)
        if self._configuration is not None:
            self._batch(progress)

    def _batch(self, progress: BatchProgress) -> None:
        committed_s = self.now_s(progress.committed_unix_s)
        self._is(JobStatus.RUNNING, self.now_s(progress.began_unix_s))
        if progress.executed:
            self._reporter.batch(progress, committed_s)
        else:
            self._reporter.idle(progress.query_id, self.now_s(progress.began_unix_s))
        self._sample(committed_s)

    def _is(self, status: JobStatus, at_s: float) -> None:
        if status is not self._status:
            self._status = status
            self._reporter.status(status, at_s)

    # Tasks and stages.

    def _job_started(self, event: Event) -> None:
        properties = event.get("Properties") or {}
        query_id, batch = properties.get("sql.streaming.queryId"), properties.get("streaming.sql.batchId")
        if query_id is None or batch is None:
            return
        stages = tuple(int(stage) for stage in event["Stage IDs"])
        self._jobs[int(event["Job ID"])] = stages
        for stage in stages:
            self._stages[stage] = _Stage(query_id=str(query_id), batch_id=int(batch))

    def _task_ended(self, event: Event) -> None:
        metrics = event.get("Task Metrics")
        self._at(event["Task Info"]["Finish Time"])
        if not metrics:
            return
        run_ms = float(metrics["Executor Run Time"])
        cpu_ns = float(metrics["Executor CPU Time"]) + float(metrics.get("Executor Deserialize CPU Time", 0))
        self._work.cpu_s += max(0.0, cpu_ns) / 1e9
        self._work.run_s += max(0.0, run_ms) / 1e3
        self._work.gc_s += max(0.0, float(metrics.get("JVM GC Time", 0))) / 1e3
        stage = self._stages.get(int(event["Stage ID"]))
        if stage is None:
            return
        shuffled = int((metrics.get("Shuffle Read Metrics") or {}).get("Total Records Read", 0))
        stage.shuffled_rows += shuffled
        stage.rows += shuffled + int((metrics.get("Input Metrics") or {}).get("Records Read", 0))
        stage.total_run_ms += run_ms
        if len(stage.run_ms) < _TASKS_KEPT:
            stage.run_ms.append(run_ms)

    def _stage_completed(self, event: Event) -> None:
        info = event["Stage Info"]
        stage = self._stages.get(int(info["Stage ID"]))
        if stage is None or info.get("Completion Time") is None or info.get("Submission Time") is None:
            return
        self._at(info["Completion Time"])
        usual_ms = median(stage.run_ms) if stage.run_ms else 0.0
        stage.sample = StageSample(
            stage_id=int(info["Stage ID"]),
            name=str(info.get("Stage Name", "")),
            operators=logged_operators(info.get("RDD Info") or ()),
            seconds=max(0.0, (float(info["Completion Time"]) - float(info["Submission Time"])) / 1e3),
            tasks=int(info["Number of Tasks"]),
            rows=stage.rows,
            skew=max(stage.run_ms) / usual_ms if usual_ms > 0.0 else None,
            batch_id=stage.batch_id,
            is_done=True,
            run_s=stage.total_run_ms / 1e3,
            shuffled_rows=stage.shuffled_rows,
        )

    def _job_ended(self, event: Event) -> None:
        at_s = self._at(event["Completion Time"])
        succeeded = (event.get("Job Result") or {}).get("Result") == "JobSucceeded"
        # A stage that was skipped has no sample; all of the job's are forgotten.
        stages = [self._stages.pop(stage, None) for stage in self._jobs.pop(int(event["Job ID"]), ())]
        told = [stage for stage in stages if stage is not None and stage.sample is not None]
        if not succeeded or not told:
            return
        query_id = told[0].query_id
        samples = [*self._done.get(query_id, []), *(stage.sample for stage in told if stage.sample is not None)]
        self._done[query_id] = sorted(samples, key=lambda sample: sample.stage_id)[-_STAGES_KEPT:]
        self._reporter.stages(query_id, self._done[query_id], at_s)

    def _sample(self, at_s: float) -> None:
        """How much of their CPU the executors used since the last sample, if that was long enough ago."""
        work, runs = self._work, self._configuration
        if runs is None or work.since_s is None or at_s - work.since_s < self._window_s:
            return
        given_s = (at_s - work.since_s) * runs.total_cores
        sample = ExecutorSample(
            executors=runs.executors,
            cpu_share=work.cpu_s / given_s,
            gc_share=work.gc_s / work.run_s if work.run_s > 0.0 else None,
        )
        self._reporter.executors(sample, at_s)
        self._work = _Work(since_s=at_s)


def with_rows(progress: Mapping[str, Any]) -> dict[str, Any]:
    """A progress report as its listeners get it: a log leaves out the rows of all sources together."""
    rows = sum(int(source.get("numInputRows", 0)) for source in progress.get("sources") or ())
    return {"numInputRows": rows, **progress}


def judge_interval_s(log: EventLog) -> float | None:
    """The interval of the trigger, which a log does not tell, from when batches began; None where they are too few.

    0 where each begins when the one before has ended. `log` is read for this alone.
    """
    batches: list[BatchProgress] = []
    for event in log.events((PROGRESS,)):
        try:
            progress = parse_progress(json.dumps(with_rows(event["progress"])))
        except (UnreadableProgressError, KeyError, TypeError, ValueError, AttributeError):
            continue  # told when it is read for its reports
        if progress.executed:
            batches.append(progress)
        if len(batches) >= _BATCHES_JUDGED:
            break
    if len(batches) < _FEWEST_BATCHES:
        return None
    apart = [
        (later.began_unix_s - earlier.began_unix_s, earlier.duration_s)
        for earlier, later in pairwise(sorted(batches, key=lambda one: (one.query_id, one.began_unix_s)))
        if earlier.run_id == later.run_id
    ]
    waited = [between_s for between_s, took_s in apart if took_s < _BOUND_BY_TRIGGER * between_s]
    # A program that has just started is slow: its first batches are no sign that none is ever waited for.
    if len(waited) < _FEWEST_WAITED:
        return 0.0
    usual_s = median(waited)
    return float(round(usual_s)) if usual_s >= 1.0 else round(usual_s, 1)


def _memory_mib(conf: Mapping[str, Any], *, is_local: bool) -> int:
    """The memory of an executor, overhead included; that of the driver where it is the executor."""
    of = _DRIVER if is_local else "executor"
    heap_mib = _amount_mib(str(conf.get(f"spark.{of}.memory", _DEFAULT_MEMORY)), "b")
    overhead = conf.get(f"spark.{of}.memoryOverhead")
    if overhead is not None:
        overhead_mib = _amount_mib(str(overhead), "m")
    else:
        share = float(conf.get(f"spark.{of}.memoryOverheadFactor", _OVERHEAD_SHARE))
        overhead_mib = 0.0 if is_local else max(_LEAST_OVERHEAD_MIB, share * heap_mib)
    return max(1, round(heap_mib + overhead_mib))


def _amount_mib(text: str, unit: str) -> float:
    """MiB of an amount as Spark's settings have it; `unit`: that of a bare number."""
    found = _MEMORY.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is no amount of memory")
    return float(found[1]) * _MIB_OF[found[2] or unit]
