"""The agent itself: one per driver process."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from tidewise_agent import VERSION
from tidewise_agent.files import write_whole
from tidewise_agent.jvm import DriverJvm
from tidewise_agent.link import Link, Message
from tidewise_agent.queries import ManagedQuery, Recipe
from tidewise_agent.spec import OWNER_VARIABLE, AgentSpec

REPLAYABLE_SOURCES = frozenset(
    {"kafka", "rate", "rate-micro-batch", "parquet", "json", "csv", "text", "orc", "xml", "avro", "delta", "iceberg"}
)
"""Sources that can be read twice without anybody noticing; files that are cleaned up after reading are not."""
_JOINS_GROUP = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
"""Where true, as before Spark 3.4, the driver joins the consumer group; else nobody does, whatever the group is named:
the driver asks for offsets only, and executors are assigned their partitions."""
_WATCH_S = 1.0
_WATCH_CLOSELY_S = 0.25
_DETAILS_EVERY_S = 10.0
_ASK_AGAIN_S = 5.0
_HOLD_AFTER_FAILURE_S = 60.0
_SLOWEST_EXIT_S = 8.0


class Agent:
    """Reports what the driver does, and moves its queries when it is asked to."""

    def __init__(self, spec: AgentSpec) -> None:
        self._spec = spec
        self._context: Any = None
        self._jvm: DriverJvm | None = None
        self._sessions: list[Any] = []
        self.queries: list[ManagedQuery] = []
        self.forgotten: set[str] = set()
        """Runs that had ended when the program said that it knows."""
        self.unmanaged: list[Any] = []
        """Queries that were started without the agent, as the program holds them."""
        self.standby = spec.standby
        """Whether queries are to warm up only; no longer once they were told to start."""
        self._introduced = False
        self._target = spec.executors
        self._watching_closely_until_s = 0.0
        self._hold: threading.Timer | None = None
        self._operating = threading.RLock()
        self._own_cpu_s = 0.0
        self._failure: str | None = None
        self.source_formats: set[str] = set()
        self.cleans_sources = False
        self.kafka_group: str | None = None
        """The consumer group that the program's Kafka readers name; None: Spark makes up one for each query."""
        self._link = Link(host=spec.host, port=spec.port, hello=self._hello, handle=self._handle)
        if spec.ends_unix_s is not None:
            # From the beginning: a copy that never gets a context must leave as well.
            last = threading.Timer(max(0.0, spec.ends_unix_s - time.time()), self._retire)
            last.daemon = True
            last.start()

    @property
    def spec(self) -> AgentSpec:
        return self._spec

    # What the hooks tell

    def context_created(self, context: Any) -> None:
        """The program has a context: introduce it to the controller and watch it."""
        self._context = context
        self._jvm = DriverJvm(context)
        # What ran on an earlier context went down with it.
        self._sessions, self.queries, self.unmanaged = [], [], []
        self._leave_identity(self._jvm)
        if self._target is not None:
            # A first request makes ours the number that Spark counts from.
            with self._telling("executors-not-requested"):
                self._jvm.request_executors(self._target)
        if self._introduced:
            self._link.send("hello", **self._hello())
            return
        self._introduced = True
        self._link.start()
        threading.Thread(target=self._watch, name="tidewise-watch", daemon=True).start()
        self._watch_for_the_end()

    def _leave_identity(self, jvm: DriverJvm) -> None:
        """Before any query can start: whoever wants to take over has to know what must be dead first."""
        identity = {"pid": os.getpid(), "jvm_pid": jvm.pid(), "spark_application": jvm.application_id}
        write_whole(Path(self._spec.identity_file), json.dumps(identity))

    def _watch_for_the_end(self) -> None:
        original = sys.excepthook

        def remember(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self._failure = f"{kind.__name__}: {error}"
            original(kind, error, trace)

        sys.excepthook = remember
        atexit.register(self._say_goodbye)

    def problem(self, code: str, sentence: str) -> None:
        """Something of the agent does not work; the program goes on."""
        self._link.send("problem", code=code, sentence=sentence)

    def start_query(self, writer: Any, recipe: Recipe) -> Any:
        """Start, or warm up, what the program asked to start; gives what it would have been given."""
        jvm = self._jvm_or_raise()
        session = writer._spark
        self.listen_to(session)
        default_root = session.conf.get("spark.sql.streaming.checkpointLocation", None)
        query = ManagedQuery(writer=writer, recipe=recipe, spec=self._spec, jvm=jvm, default_root=default_root)
        shared = self._why_partitions_would_be_taken(session)
        query.why_alone = self._why_not_twice(query, shared=shared)
        if self.standby and query.why_alone is not None:
            raise RuntimeError(query.why_alone)
        writer._tidewise_query = query
        try:
            started = query.start_warm_up() if self.standby else query.start(gone=frozenset(self._spec.gone))
        except BaseException:
            # The program may try again with the same writer, and then needs the lease as well.
            del writer._tidewise_query
            raise
        query.user_object = writer._sq(started)
        query.user_object._tidewise_query = query
        # A program may start what has failed anew, by another writer.
        others = [one for one in self.queries if one.key != query.key or one.java_query.isActive()]
        self.queries = [*others, query]
        self._link.send("query", **query.describe())
        if shared is not None:
            self.problem("kafka-group-shared", shared)
        if query.checkpoint is None:
            self.problem(
                "no-checkpoint",
                "A query was started without a checkpoint location, so it can be watched but not moved: give its "
                'writer .option("checkpointLocation", "...").',
            )
        return query.user_object

    def watch_query(self, user_object: Any) -> None:
        """Report a query that ran before the agent came; how it was built is not known, so it cannot be moved."""
        recipe = Recipe(name=user_object.name, trigger={"unknown": True})
        query = ManagedQuery(writer=None, recipe=recipe, spec=self._spec, jvm=self._jvm_or_raise(), default_root=None)
        query.user_object, query.java_query = user_object, user_object._jsq
        query.run_ids.add(str(user_object.runId))
        self.queries.append(query)
        self._link.send("query", **query.describe())

    def _why_not_twice(self, query: ManagedQuery, *, shared: str | None) -> str | None:
        """Why no second application may run this query beside the first one; None where it may."""
        if shared is not None:
            return shared
        if not query.is_movable:
            return (
                f"the query {query.key} cannot be moved (it has no checkpoint location, or a trigger that is not a "
                "processing time), so a successor would write its sink a second time"
            )
        allowed = REPLAYABLE_SOURCES | set(self._spec.replayable_sources)
        strange = sorted(self.source_formats - allowed)
        if strange or self.cleans_sources:
            what = "a source that cleans up what it has read" if self.cleans_sources else ", ".join(strange)
            return (
                f"{what} may not be read a second time, so a successor cannot warm up beside this job; name it under "
                "replayable_sources in the job file if reading it twice is harmless"
            )
        return None

    def _why_partitions_would_be_taken(self, session: Any) -> str | None:
        """Why a second application may not read beside this one; None where it may."""
        if self.kafka_group is None or str(session.conf.get(_JOINS_GROUP, "false")).lower() != "true":
            return None
        return (
            f"a successor cannot read beside this job, and there is no handover and no standby: its Kafka reader sets "
            f"kafka.group.id to {self.kafka_group!r} and {_JOINS_GROUP} is true, so that both would join one group and "
            "each get a part of the partitions; leave out the one or the other"
        )

    def managed(self, user_object: Any) -> ManagedQuery | None:
        """The query behind what the program holds, also where it got it from `spark.streams`."""
        known: ManagedQuery | None = getattr(user_object, "_tidewise_query", None)
        if known is not None:
            return known
        run_id = str(user_object._jsq.runId().toString())
        return next((query for query in self.queries if run_id in query.run_ids), None)

    # What Spark tells

    def listen_to(self, session: Any) -> None:
        """Hear of the queries of a session; a second call changes nothing."""
        if not any(known is session for known in self._sessions):
            self._sessions.append(session)
            with self._telling("no-listener"):
                self._jvm_or_raise().listen(session, _Listener(self))
            for key, value in self._spec.conf.items():
                # The program may have given its session another value, which would win.
                if key.startswith("spark.sql."):
                    with self._telling("setting-not-taken"):
                        session.conf.set(key, value)

    def progressed(self, text: str) -> None:
        with self._own_work():
            content = json.loads(text)
            query = self._query_of(str(content["runId"]))
            if query is not None and str(content["runId"]) in query.run_ids:
                if query.ledger is not None and query.lease is not None and not query.warming:
                    with self._telling("ledger"):
                        query.ledger.catch_up(epoch=query.lease.epoch)
                self._link.send("progress", query=query.key, progress=text, received=time.time())
            elif query is not None:
                took_ms = content.get("durationMs", {}).get("triggerExecution")
                self._link.send(
                    "warm", query=query.key, batch=content["batchId"], rows=content["numInputRows"], took_ms=took_ms
                )

    def idle(self, run_id: str) -> None:
        with self._own_work():
            query = self._query_of(run_id)
            if query is not None and run_id in query.run_ids:
                self._link.send("idle", query=query.key)

    def terminated(self, run_id: str, exception: str | None) -> None:
        query = self._query_of(run_id)
        if query is not None and run_id in query.run_ids and not query.moving:
            self._link.send("terminated", query=query.key, exception=exception, by_program=query.user_stopped)

    def _query_of(self, run_id: str) -> ManagedQuery | None:
        for query in self.queries:
            if run_id in query.run_ids:
                return query
        for query in self.queries:
            if query.java_query is not None and str(query.java_query.runId().toString()) == run_id:
                return query
        return None

    # What the controller asks

    def _hello(self) -> Message:
        jvm = self._jvm_or_raise()
        return {
            "protocol": VERSION,
            "token": self._spec.token,
            "application": self._spec.application,
            "pid": os.getpid(),
            "jvm_pid": jvm.pid(),
            "spark_application": jvm.application_id,
            "spark_version": jvm.spark_version,
            "master": jvm.master,
            "standby": self.standby,
            "target": self._target,
            "executors": jvm.working_executor_ids(),
            "queries": [query.describe() for query in self.queries],
        }

    def _handle(self, operation: str, arguments: Message) -> Message:
        operations: dict[str, Callable[..., Message]] = {
            "scale": self._scale,
            "drain": self._drain,
            "start": self._start,
            "stop-warm-up": self._stop_warm_up,
            "repartition": self._repartition,
            "retire": self._retire,
            "describe": self._describe,
        }
        if operation not in operations:
            raise ValueError(f"the agent knows no operation {operation!r}")
        with self._operating:
            return operations[operation](**arguments)

    def _describe(self) -> Message:
        jvm = self._jvm_or_raise()
        return {
            "queries": [query.describe() for query in self.queries],
            "executors": jvm.working_executor_ids(),
            "own_cpu_s": self._own_cpu_s,
            "jvm_cpu_s": jvm.cpu_s(),
            "python_cpu_s": time.process_time(),
            "can_drain": all(jvm.can_end_after_batch(query.java_query) for query in self.queries),
            "can_repartition": all(jvm.can_repartition_state(session) for session in self._sessions),
        }

    def _scale(self, executors: int) -> Message:
        jvm = self._jvm_or_raise()
        self._target = executors
        self._watching_closely_until_s = time.monotonic() + 120.0
        if not jvm.request_executors(executors):
            raise RuntimeError("the cluster manager did not take the request for executors")
        present = most_work_first(jvm.executor_ids(), jvm.worked_ms())
        leaving = present[executors:]
        told = jvm.decommission(leaving, "tidewise: fewer executors are needed") if leaving else []
        return {"present": present, "leaving": told}

    def _drain(self, *, within_s: float, hold_s: float) -> Message:
        """Stop every query between batches; without another word of the controller they go on after `hold_s`."""
        movable = [query for query in self.queries if query.is_movable and not query.user_stopped]
        if not movable:
            raise RuntimeError("the program has no query that can be moved")
        try:
            return {"queries": self._drain_all(movable, within_s)}
        finally:
            # Also where it failed, some of them stand still.
            self._hold_for(hold_s)

    def _hold_for(self, seconds: float) -> None:
        if self._hold is not None:
            self._hold.cancel()
        self._hold = threading.Timer(seconds, self._go_on_alone)
        self._hold.daemon = True
        self._hold.start()

    @staticmethod
    def _drain_all(movable: list[ManagedQuery], within_s: float) -> dict[str, Any]:
        deadline_s = time.monotonic() + within_s
        with ThreadPoolExecutor(max_workers=len(movable)) as pool:
            drained = pool.map(lambda query: query.drain(deadline_s=deadline_s), movable)
            return {query.key: asdict(stopped) for query, stopped in zip(movable, drained, strict=True)}

    def _start(self, *, commit_interval_s: float | None = None, gone: tuple[str, ...] = ()) -> Message:
        """Start every query that was drained or warms up, all or none."""
        if self._spec.copy is not None:
            raise RuntimeError("a copy is only measured: it never starts the program's own queries")
        if self._hold is not None:
            self._hold.cancel()
            self._hold = None
        self.standby = False
        started: list[ManagedQuery] = []
        waiting = [query for query in self.queries if query.is_movable and not query.user_stopped]
        self._settle_what_the_program_stopped()
        try:
            for query in waiting:
                if query.warming:
                    query.stop_warm_up()
                if query.waits:
                    if commit_interval_s is not None:
                        query.interval_s = commit_interval_s
                    query.start(gone=frozenset(gone))
                    started.append(query)
        except BaseException:
            for query in started:
                query.drain(deadline_s=time.monotonic() + 5.0)
            # Should the controller not come back to it, the queries must not stand still for ever.
            self._hold_for(_HOLD_AFTER_FAILURE_S)
            raise
        for query in started:
            self._link.send("query", **query.describe())
            threading.Thread(target=query.remove_scratch, name="tidewise-sweep", daemon=True).start()
        return {"started": [query.key for query in started]}

    def _settle_what_the_program_stopped(self) -> None:
        """A query that the program stopped while it was being moved is not started again: nobody need wait for it."""
        for query in self.queries:
            if query.user_stopped:
                query.settle()

    def _stop_warm_up(self) -> Message:
        with ThreadPoolExecutor(max_workers=max(1, len(self.queries))) as pool:
            list(pool.map(ManagedQuery.stop_warm_up, self.queries))
        return {}

    def _repartition(self, *, partitions: int) -> Message:
        """Cut the state of every drained query that has one anew; the queries stay stopped."""
        jvm = self._jvm_or_raise()
        done = []
        for query in self.queries:
            if query.is_movable and query.checkpoint is not None and query.has_state:
                session = query.writer._spark
                if not jvm.can_repartition_state(session):
                    raise RuntimeError(
                        f"Spark {jvm.spark_version} cannot cut state anew (4.2 and newer can): leave state_partitions "
                        "as it is"
                    )
                jvm.repartition_state(session, query.checkpoint, partitions)
                query.complete_sink_log()
                done.append(query.key)
        if not done:
            raise ValueError("no query of the program has state that could be cut anew")
        return {"repartitioned": done}

    def _retire(self) -> Message:
        """End the process: another application has taken over, or nobody needs this one any more."""
        if self._hold is not None:
            self._hold.cancel()
        for query in self.queries:
            query.retired = True
            query.moving = True
        threading.Thread(target=self._leave, name="tidewise-leave", daemon=True).start()
        return {}

    def _leave(self) -> None:
        self._link.close(within_s=1.0)
        stopping = threading.Thread(target=self._stop_context, daemon=True)
        stopping.start()
        stopping.join(timeout=_SLOWEST_EXIT_S)
        # Not sys.exit: what the program would do after its queries is its successor's to do.
        os._exit(0)

    def _stop_context(self) -> None:
        with contextlib.suppress(Exception):  # it ends either way
            for query in self.queries:
                query.remove_scratch()
            self._jvm_or_raise().stop()

    def _go_on_alone(self) -> None:
        """The controller drained the queries and then fell silent."""
        with self._operating:
            if any(query.retired for query in self.queries):
                return
            self.problem("went-on-alone", "No word came after the queries were stopped, so they are started again.")
            with self._telling("not-started-again"):
                self._start()  # which holds again where it fails

    # Watching

    def _watch(self) -> None:
        known: list[str] | None = None
        details_at_s = time.monotonic() + _DETAILS_EVERY_S
        missing_since_s: float | None = None
        while True:
            now_s = time.monotonic()
            close = now_s < self._watching_closely_until_s
            time.sleep(_WATCH_CLOSELY_S if close else _WATCH_S)
            try:
                with self._own_work():
                    present = self._jvm_or_raise().working_executor_ids()
                    if present != known:
                        known = present
                        self._link.send("executors", ids=present, target=self._target)
                    missing_since_s = self._ask_again(len(present), missing_since_s)
                    if now_s >= details_at_s:
                        details_at_s = now_s + _DETAILS_EVERY_S
                        self._tell_details()
            except Exception as error:  # noqa: BLE001 -- the context may be going down; the program is not to notice
                if self._context is None or self._context._jsc is None:
                    continue  # stopped by the program, which may make another
                self.problem("watch", f"{type(error).__name__}: {error}")
                time.sleep(_DETAILS_EVERY_S)

    def _ask_again(self, present: int, missing_since_s: float | None) -> float | None:
        """Spark's own allocation may have lowered the number; ask again for what is missing."""
        if self._target is None or present >= self._target:
            return None
        now_s = time.monotonic()
        if missing_since_s is None:
            return now_s
        if now_s - missing_since_s >= _ASK_AGAIN_S:
            self._jvm_or_raise().request_executors(self._target)
            return now_s
        return missing_since_s

    def _tell_details(self) -> None:
        jvm = self._jvm_or_raise()
        self._link.send("details", executors=jvm.executors(), at=time.time())
        for query in self.queries:
            if not query.warming and not query.moving and query.java_query is not None:
                stages = jvm.stages_of(str(query.java_query.runId().toString()))
                self._link.send("stages", query=query.key, stages=stages)

    def _say_goodbye(self) -> None:
        self._link.send("ending", failure=self._failure)
        self._link.close(within_s=1.0)

    def _jvm_or_raise(self) -> DriverJvm:
        if self._jvm is None:
            raise RuntimeError("the program has no Spark context yet")
        return self._jvm

    @contextlib.contextmanager
    def _telling(self, code: str) -> Iterator[None]:
        """What goes wrong inside is told to the controller and to nobody else."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- fails open: the program goes on as without the agent
            self.problem(code, f"{type(error).__name__}: {error}")

    @contextlib.contextmanager
    def _own_work(self) -> Iterator[None]:
        began_s = time.thread_time()
        try:
            yield
        finally:
            self._own_cpu_s += time.thread_time() - began_s


class _Listener:
    """Implements Spark's listener for Python, taking each event as one text instead of field by field."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    # The names are those of the Java interface.

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to tell: the agent started it."""

    def onQueryProgress(self, event: Any) -> None:
        self._agent.progressed(str(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:
        self._agent.idle(str(event.runId().toString()))

    def onQueryTerminated(self, event: Any) -> None:
        exception = event.exception()
        self._agent.terminated(str(event.runId().toString()), str(exception.get()) if exception.isDefined() else None)

    class Java:
        """Read by Py4J."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def most_work_first(executor_ids: Iterable[str], worked_ms: Mapping[str, float]) -> list[str]:
    """Executors in the order in which they are worth keeping; of two that did as much, the older one first.

    Whoever did most has the state of most partitions and has compiled most code: another would have to load and
    compile it while a batch waits.
    """
    return sorted(executor_ids, key=lambda name: (-worked_ms.get(name, 0.0), int(name)))


def this_process_is_ours() -> bool:
    """Whether the agent may work here: in the program itself, and not in what the program starts."""
    return os.environ.get(OWNER_VARIABLE) in (None, str(os.getpid()))
