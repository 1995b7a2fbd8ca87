"""One query of the program: how it was built, where it stands, how it is stopped between batches and started again."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidewise_agent.jvm import DriverJvm
from tidewise_agent.lease import Lease, bookkeeping_folder, local_path
from tidewise_agent.ledger import Ledger
from tidewise_agent.scratch import (
    clone_checkpoint,
    note_scratch,
    numbers_in,
    output_of,
    owner_of,
    remove,
    remove_scratch,
)
from tidewise_agent.sink_log import fill_sink_log
from tidewise_agent.spec import AgentSpec

_POLL_S = 0.005
_FILE_FORMATS = {"parquet", "json", "csv", "orc", "text", "avro", "xml", None}
"""None: Spark's default, which is Parquet."""
_WARM_UP_ENDS_WITHIN_S = 20.0
_IDLE_AHEAD_S = 0.5
"""An idle query whose next trigger is further away than this can be stopped at once: no batch can begin meanwhile."""


@dataclass
class Recipe:
    """How the program built a query, gathered from the calls on its writer."""

    format: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    output_mode: str | None = None
    name: str | None = None
    trigger: dict[str, Any] = field(default_factory=dict)
    has_foreach_batch: bool = False
    path: str | None = None
    table: str | None = None
    sources: tuple[str, ...] = ()
    """The formats that the program reads streams from, all of its queries together."""

    @property
    def has_processing_time_trigger(self) -> bool:
        return all(value is None for key, value in self.trigger.items() if key != "processingTime")


@dataclass(frozen=True)
class Stopped:
    """How a query was stopped."""

    how: str
    """between-batches, idle, stopped (by Spark's own stop) or ended (it had ended already)."""
    cut: bool
    """Whether a batch was logged and not committed: it will be replayed."""
    seconds: float
    last_batch: int | None


class ManagedQuery:
    """A query that can be moved."""

    def __init__(
        self, *, writer: Any, recipe: Recipe, spec: AgentSpec, jvm: DriverJvm, default_root: str | None
    ) -> None:
        self.writer = writer
        self.recipe = recipe
        self._spec = spec
        self._jvm = jvm
        self.checkpoint = _checkpoint_of(recipe, default_root)
        self.user_object: Any = None
        """The StreamingQuery that the program holds; what it points to changes under its hands."""
        self.java_query: Any = None
        self.interval_s = self._interval_s()
        self.moving = False
        self.warming = False
        self.waits = False
        """Whether it was stopped by the agent and is to be started again, here or elsewhere."""
        self.user_stopped = False
        self.why_alone: str | None = None
        """Why no second application may run it beside this one; None where one may."""
        self.retired = False
        self.settled = threading.Condition()
        self.run_ids: set[str] = set()
        """The runs of the real query, or of a copy's; progress of any other run is a warm-up's."""
        self.lease: Lease | None = None
        self.ledger: Ledger | None = None
        self._scratch: Path | None = None
        if self.checkpoint is not None and spec.lease:
            folder = bookkeeping_folder(self.checkpoint, state_folder=spec.state_folder)
            self.lease = Lease(folder, application=spec.application, run=spec.run, processes=(os.getpid(), jvm.pid()))
            local = local_path(self.checkpoint)
            if local is not None:
                self.ledger = Ledger(folder, local, application=spec.application)

    @property
    def key(self) -> str:
        return self.checkpoint or self.recipe.name or "unnamed"

    @property
    def is_movable(self) -> bool:
        return self.checkpoint is not None and self.recipe.has_processing_time_trigger

    @property
    def is_on_the_move(self) -> bool:
        """Whether it stands still only because it is being moved."""
        return self.moving and not self.user_stopped

    @property
    def has_state(self) -> bool:
        """Whether the checkpoint holds state; taken for granted where that cannot be seen."""
        local = local_path(self.checkpoint or "")
        return local is None or (local / "state").is_dir()

    def describe(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "name": self.recipe.name,
            "checkpoint": self.checkpoint,
            "sink": "foreachBatch" if self.recipe.has_foreach_batch else self.recipe.format or "default",
            "sink_path": self.recipe.path or self.recipe.options.get("path"),
            "table": self.recipe.table,
            "sources": list(self.recipe.sources),
            "trigger": {key: value for key, value in self.recipe.trigger.items() if value is not None},
            "interval_s": self.interval_s,
            "movable": self.is_movable,
            "why_alone": self.why_alone,
            "warming": self.warming,
            "active": self.java_query is not None and bool(self.java_query.isActive()),
        }

    # Starting

    def start(self, *, gone: frozenset[str] = frozenset()) -> Any:
        """Start the program's own query, under the lease."""
        if self.lease is not None:
            self.lease.claim_or_refuse(gone=gone)
        try:
            if self.recipe.has_processing_time_trigger and self.interval_s is not None:
                self.writer._jwrite = self.writer._jwrite.trigger(self._jvm.trigger(self.interval_s))
            started = self._started()
        except BaseException:
            if self.lease is not None:
                self.lease.release()
            raise
        self._now_runs(started)
        self.run_ids.add(str(started.runId().toString()))
        self.warming = self.waits = False
        return started

    def _started(self) -> Any:
        java_writer = self.writer._jwrite
        if self.recipe.table is not None:
            return java_writer.toTable(self.recipe.table)
        return java_writer.start(self.recipe.path) if self.recipe.path is not None else java_writer.start()

    def start_warm_up(self) -> Any:
        """Run the same query from the same position and state, on a scratch checkpoint, into a sink that keeps none."""
        local = local_path(self.checkpoint or "")
        if self.checkpoint is None or local is None:
            raise RuntimeError("a checkpoint that is not on a local disk cannot be cloned to warm up on")
        copy = self._spec.copy
        name = f"warm-{self._spec.application}" if copy is None else f"copy-{copy}"
        self._scratch = local / "_tidewise" / name
        for earlier in (local / "_tidewise").glob("warm-*"):
            # What was killed while it warmed up could not clear up after itself.
            if owner_of(earlier) in {self._spec.application, *self._spec.gone}:
                remove(earlier)
        note_scratch(Path(self._spec.identity_file).parent, self._scratch)
        if copy is None or not self._scratch.exists():
            clone_checkpoint(local, self._scratch)
        writer = self.writer._df.writeStream
        if self.recipe.has_foreach_batch or self.recipe.format in _FILE_FORMATS:
            # Writing files takes code that has to warm up as well: they go where nobody looks.
            writer = writer.foreachBatch(_write_to(output_of(self._scratch)))
            java_writer = writer._jwrite
        else:
            java_writer = writer._jwrite.format("noop")
        java_writer = java_writer.option("checkpointLocation", str(self._scratch))
        # A warm-up has to be quick; a copy is measured, so it keeps the interval that it is to be measured with.
        trigger = self._jvm.trigger(0.0 if copy is None else self.interval_s or 0.0)
        started = java_writer.outputMode(self.recipe.output_mode or "append").trigger(trigger).start()
        self.warming = True
        self._now_runs(started)
        if copy is not None:
            self.run_ids.add(str(started.runId().toString()))
        return started

    def stop_warm_up(self) -> None:
        """Between batches, so that the Python workers that have warmed up as well outlive it."""
        if self.warming and self.java_query is not None:
            with self.settled:
                self.moving = True
            self._end(self.java_query, time.monotonic() + _WARM_UP_ENDS_WITHIN_S)
            self.waits = True
        self.warming = False

    def complete_sink_log(self) -> None:
        """After a repartition: a file sink's log lacks the batch that Spark adds, which would stop the query later."""
        place = self.recipe.path or self.recipe.options.get("path")
        local = None if place is None or self.recipe.has_foreach_batch else local_path(place)
        if local is not None and self.checkpoint is not None:
            checkpoint = local_path(self.checkpoint)
            if checkpoint is not None:
                fill_sink_log(local / "_spark_metadata", last_batch=max(numbers_in(checkpoint / "commits"), default=-1))

    def remove_scratch(self) -> None:
        """Nothing is left of the warm-up."""
        if self._scratch is not None:
            remove_scratch(self._scratch)
            self._scratch = None

    def _now_runs(self, java_query: Any) -> None:
        with self.settled:
            self.java_query = java_query
            if self.user_object is not None:
                self.user_object._jsq = java_query
            self.moving = False
            self.settled.notify_all()

    def settle(self) -> None:
        """End a move that led nowhere: whoever waits for the query sees what became of it."""
        with self.settled:
            self.moving = False
            self.settled.notify_all()

    # Stopping

    def drain(self, *, deadline_s: float) -> Stopped:
        """Stop between two batches if that can be had by the deadline (monotonic), else at once; let the lease go."""
        began_s = time.monotonic()
        query = self.java_query
        with self.settled:
            self.moving = True
            self.waits = True
        how = "ended"
        if query.isActive():
            how = self._end(query, deadline_s)
        logs = self._jvm.logged_and_committed(query)
        if self.ledger is not None:
            self.ledger.catch_up(epoch=self.lease.epoch if self.lease else None)
        if self.lease is not None:
            self.lease.release()
        return Stopped(
            how=how,
            cut=logs is not None and logs[0] > logs[1],
            seconds=time.monotonic() - began_s,
            last_batch=logs[1] if logs is not None else None,
        )

    def _end(self, query: Any, deadline_s: float) -> str:
        run_id = str(query.runId().toString())
        quiet_since_s = time.monotonic()
        patience_s = max(3.0, 2 * (self.interval_s or 0.0))
        gentle = self._jvm.can_end_after_batch(query)
        while gentle and time.monotonic() < deadline_s and query.isActive():
            if self._jvm.running_jobs_of(run_id):
                self._jvm.end_after_batch(query)
                if query.awaitTermination(max(1, round((deadline_s - time.monotonic()) * 1000))):
                    return "between-batches"
                break
            if self._is_idle(query, quiet_for_s=time.monotonic() - quiet_since_s, patience_s=patience_s):
                query.stop()
                return "idle"
            time.sleep(_POLL_S)
        query.stop()
        return "stopped"

    def _is_idle(self, query: Any, *, quiet_for_s: float, patience_s: float) -> bool:
        """Whether no batch is on and none can begin before a stop takes effect."""
        interval_s = self.interval_s or 0.0
        if interval_s > 2 * _IDLE_AHEAD_S:
            # Triggers fall on multiples of the interval since the epoch.
            ahead_s = interval_s - time.time() % interval_s
            if ahead_s > _IDLE_AHEAD_S and not query.status().isTriggerActive():
                return interval_s - time.time() % interval_s > _IDLE_AHEAD_S / 2
        return quiet_for_s > patience_s and not query.status().isDataAvailable()

    def _interval_s(self) -> float | None:
        if not self.recipe.has_processing_time_trigger:
            return None
        if self._spec.commit_interval_s is not None:
            return self._spec.commit_interval_s
        text = self.recipe.trigger.get("processingTime")
        return self._jvm.interval_s(text) if text else 0.0


def _write_to(folder: Path) -> Callable[[Any, int], None]:
    def write(frame: Any, _batch: int) -> None:
        try:
            frame.write.mode("overwrite").parquet(str(folder))
        except Exception:  # noqa: BLE001 -- a column that files cannot hold: the rest of the query still warms up
            frame.write.mode("overwrite").format("noop").save()

    return write


def _checkpoint_of(recipe: Recipe, default_root: str | None) -> str | None:
    named = recipe.options.get("checkpointlocation")
    if named:
        return named
    if default_root and recipe.name:
        return f"{default_root.rstrip('/')}/{recipe.name}"
    return None
