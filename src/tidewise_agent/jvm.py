"""What the agent asks of the JVM, in as few calls as possible; each is probed, because most of it is not public."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

from tidewise_agent.proc import stat_of

_BATCH = re.compile(r"\bbatch = (\d+)")
"""How Spark names the batch in the description of its jobs."""
_OPERATOR = re.compile(r'^ *label="(.*)";$', re.MULTILINE)
"""How Spark's drawing of a stage names its parts; the first is the stage itself."""


class DriverJvm:
    """The JVM behind a context."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._jvm = self._context._jvm
        self._java_context = self._context._jsc.sc()
        self._mapper: Any = None
        self._working: set[str] = set()
        self._lock = threading.Lock()

    @property
    def application_id(self) -> str:
        return str(self._context.applicationId)

    @property
    def spark_version(self) -> str:
        return str(self._context.version)

    @property
    def master(self) -> str:
        return str(self._context.master)

    def pid(self) -> int:
        return int(self._jvm.java.lang.ProcessHandle.current().pid())

    def cpu_s(self) -> float | None:
        """CPU time of the whole JVM so far; None where the system does not tell."""
        stat = stat_of(self.pid())
        return None if stat is None else stat.cpu_s

    # Executors

    def executor_ids(self) -> list[str]:
        """The executors that are registered, the driver not among them; none where the driver does all the work."""
        backend = self._java_context.schedulerBackend()
        if not self._jvm.java.lang.Class.forName("org.apache.spark.ExecutorAllocationClient").isInstance(backend):
            return []
        text = backend.getExecutorIds().mkString(",")
        return [name for name in str(text).split(",") if name]

    def working_executor_ids(self) -> list[str]:
        """Those that Spark gives tasks to: an executor is registered first, and warms up without a free core."""
        present = self.executor_ids()
        self._working.intersection_update(present)
        self._working.update(name for name in present if name not in self._working and self._has_begun(name))
        return [name for name in present if name in self._working]

    def _has_begun(self, executor_id: str) -> bool:
        try:
            free = self._java_context.schedulerBackend().getExecutorAvailableCpus(executor_id)
            if free.isDefined() and float(str(free.get())) > 0.0:
                return True
            running = self._java_context.taskScheduler().runningTasksByExecutors().get(executor_id)
            return bool(running.isDefined()) and int(running.get()) > 0
        except Exception:  # noqa: BLE001 -- private names: a version of Spark without them registers and begins at once
            return True

    def request_executors(self, count: int) -> bool:
        nothing = self._jvm.PythonUtils.toScalaMap({})
        return bool(self._java_context.requestTotalExecutors(count, 0, nothing))

    def decommission(self, executor_ids: list[str], reason: str) -> list[str]:
        """Ask executors to move their blocks away and leave; those that were told."""
        gateway = self._context._gateway
        info = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(
            reason, getattr(getattr(self._jvm.scala, "None$"), "MODULE$")
        )
        pairs = gateway.new_array(self._jvm.scala.Tuple2, len(executor_ids))
        for index, name in enumerate(executor_ids):
            pairs[index] = self._jvm.scala.Tuple2(name, info)
        told = self._java_context.schedulerBackend().decommissionExecutors(pairs, False, False)
        return [name for name in str(told.mkString(",")).split(",") if name]

    def executors(self) -> list[dict[str, Any]]:
        """What Spark knows of its executors: tasks, memory, garbage collection."""
        wanted = (
            "id",
            "totalCores",
            "activeTasks",
            "failedTasks",
            "completedTasks",
            "totalDuration",
            "totalGCTime",
            "maxMemory",
            "memoryUsed",
            "addTime",
        )
        found = []
        for entry in self._as_json(self._java_context.statusStore().executorList(True)):
            if entry["id"] != "driver":
                peak = entry.get("peakMemoryMetrics") or {}
                heap, off_heap = peak.get("JVMHeapMemory", 0), peak.get("JVMOffHeapMemory", 0)
                resident = peak.get("ProcessTreeJVMRSSMemory", 0) + peak.get("ProcessTreePythonRSSMemory", 0)
                found.append(
                    {name: entry.get(name) for name in wanted}
                    | {"peakJvmMemory": heap + off_heap, "peakResidentMemory": resident}
                )
        return found

    def worked_ms(self) -> dict[str, float]:
        """How long each executor has worked on tasks; empty where Spark does not tell."""
        try:
            return {str(entry["id"]): float(entry["totalDuration"] or 0.0) for entry in self.executors()}
        except Exception:  # noqa: BLE001 -- private names: a version of Spark without them lets the youngest leave
            return {}

    # Stages

    def stages_of(self, run_id: str, *, most: int = 12, most_jobs: int = 3) -> list[dict[str, Any]]:
        """The stages of the last jobs of a query's run: what they do, time, tasks, rows and skew."""
        store = self._java_context.statusStore()
        jobs = sorted(self._java_context.statusTracker().getJobIdsForGroup(run_id))
        found: dict[int, dict[str, Any]] = {}
        for job in jobs[-most_jobs:]:
            data = self._as_json(store.job(job))
            batch = _BATCH.search(data.get("description") or "")
            for stage in data.get("stageIds", ())[:most]:
                entry = self._stage(store, int(stage))
                if entry is not None:
                    found[int(stage)] = entry | {
                        "batch": None if batch is None else int(batch[1]),
                        "job_done": data.get("status") == "SUCCEEDED",
                    }
        return [found[stage] for stage in sorted(found)][-most:]

    def _stage(self, store: Any, stage: int) -> dict[str, Any] | None:
        data = self._as_json(store.lastStageAttempt(stage))
        if data["status"] != "COMPLETE":
            return None
        quantiles = self._context._gateway.new_array(self._jvm.double, 2)
        quantiles[0], quantiles[1] = 0.5, 1.0
        summary = store.taskSummary(stage, data["attemptId"], quantiles)
        median_ms, longest_ms = self._as_json(summary.get())["executorRunTime"] if summary.isDefined() else (None, None)
        return {
            "stage": stage,
            "name": data.get("name"),
            "operators": self._operators(store, stage),
            "tasks": data["numTasks"],
            "failed_tasks": data["numFailedTasks"],
            "began_ms": data.get("submissionTime"),
            "ended_ms": data.get("completionTime"),
            "run_ms": data["executorRunTime"],
            "cpu_ns": data["executorCpuTime"],
            "gc_ms": data["jvmGcTime"],
            "rows": data["inputRecords"] + data["shuffleReadRecords"],
            "shuffled_rows": data["shuffleReadRecords"],
            "spilled_bytes": data["memoryBytesSpilled"],
            "longest_ms": longest_ms,
            "skew": None if not median_ms else longest_ms / median_ms,
        }

    def _operators(self, store: Any, stage: int) -> list[str]:
        """The operators of the plan that the stage runs, as its rows pass through them; none where nobody tells."""
        try:
            drawing = getattr(getattr(self._jvm.org.apache.spark.ui.scope, "RDDOperationGraph$"), "MODULE$")
            return _OPERATOR.findall(str(drawing.makeDotFile(store.operationGraphForStage(stage))))[1:]
        except Exception:  # noqa: BLE001 -- private names: a version of Spark without them has stages without names
            return []

    def _as_json(self, java_object: Any) -> Any:
        """One call instead of one per field."""
        with self._lock:
            if self._mapper is None:
                mapper = self._jvm.com.fasterxml.jackson.databind.ObjectMapper()
                module = getattr(self._jvm.com.fasterxml.jackson.module.scala, "DefaultScalaModule$")
                mapper.registerModule(getattr(module, "MODULE$"))
                self._mapper = mapper
        return json.loads(self._mapper.writeValueAsString(java_object))

    def stop(self) -> None:
        """Stop the application: its executors leave at once."""
        self._java_context.stop()

    # Queries

    def running_jobs_of(self, run_id: str) -> bool:
        """Whether a job of this query's run is running at this moment."""
        store = self._java_context.statusStore()
        for job in self._java_context.statusTracker().getActiveJobIds():
            group = store.job(job).jobGroup()
            if group.isDefined() and group.get() == run_id:
                return True
        return False

    def end_after_batch(self, java_query: Any) -> bool:
        """Mark a query as ended, as Spark does for AvailableNow: the batch that is on commits, no other begins.

        Only safe while a job of the query runs. False where this version of Spark has no such field.
        """
        found = self._state_of(java_query)
        if found is None:
            return False
        state, terminated = found
        state.set(terminated)
        return True

    def can_end_after_batch(self, java_query: Any) -> bool:
        return self._state_of(java_query) is not None

    def logged_and_committed(self, java_query: Any) -> tuple[int, int] | None:
        """The last batch in the offset log and in the commit log, -1 for none; None where it cannot be told."""
        execution = self.execution_of(java_query)
        try:
            logged = execution.offsetLog().getLatestBatchId()
            committed = execution.commitLog().getLatestBatchId()
        except Exception:  # noqa: BLE001 -- another version of Spark
            return None
        return tuple(int(found.get()) if found.isDefined() else -1 for found in (logged, committed))  # type: ignore[return-value]  # two of them

    @staticmethod
    def execution_of(java_query: Any) -> Any:
        wrapped = str(java_query.getClass().getName()).endswith("StreamingQueryWrapper")
        return java_query.streamingQuery() if wrapped else java_query

    def _state_of(self, java_query: Any) -> tuple[Any, Any] | None:
        execution = self.execution_of(java_query)
        try:
            kind = execution.getClass()
            while kind is not None:
                for declared in kind.getDeclaredFields():
                    if str(declared.getName()) == "state":
                        declared.setAccessible(True)
                        state = declared.get(execution)
                        package = str(state.get().getClass().getPackage().getName())
                        ended = self._jvm.java.lang.Class.forName(f"{package}.TERMINATED$")
                        return state, ended.getField("MODULE$").get(None)
                kind = kind.getSuperclass()
        except Exception:  # noqa: BLE001 -- a private field: any version may lack it, and stop() is what remains
            return None
        return None

    @staticmethod
    def repartition_state(session: Any, checkpoint: str, partitions: int) -> None:
        session._streamingCheckpointManager.repartition(checkpoint, partitions)

    @staticmethod
    def can_repartition_state(session: Any) -> bool:
        return hasattr(type(session), "_streamingCheckpointManager")

    def trigger(self, interval_s: float) -> Any:
        return self._jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(round(interval_s * 1000))

    def interval_s(self, text: str) -> float:
        """An interval as Spark reads it."""
        return float(self._jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(text).intervalMs()) / 1000

    def listen(self, session: Any, listener: Any) -> None:
        """Register a listener of query events, without PySpark's field-by-field conversion of each."""
        from pyspark.java_gateway import ensure_callback_server_started  # noqa: PLC0415 -- only where Spark is

        ensure_callback_server_started(self._context._gateway)  # type: ignore[no-untyped-call]  # PySpark's own
        wrapper = self._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(listener)
        session._jsparkSession.streams().addListener(wrapper)
