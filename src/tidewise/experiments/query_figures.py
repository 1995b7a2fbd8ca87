"""What was seen of the runs of a query becomes the figures that are published: medians over the repeats."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from tidewise.engines.spark.operators import stage_names
from tidewise.engines.spark.progress import BatchProgress, parse_progress
from tidewise.experiments.query_process import Answer

COLD_BATCHES = 1
"""The first batch of a run makes the state stores and plans the query; it is no batch like the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSize:
    """The state of one operator when it was largest."""

    operator: str
    rows: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFigures:
    """One stage of a query, over all batches of a run."""

    name: str
    seconds: float
    """From its first task to its last, in all batches together."""
    run_s: float
    """In its tasks, all of them together."""
    rows: int
    tasks: int
    """In one batch."""
    skew: float | None
    """The longest task over the mean one, of the median batch; None where no task took any time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """One run of a query to the end of its events."""

    seconds: float
    cpu_s: float | None
    """Of everything: driver, executor and Python's workers; None where the system does not tell."""
    batches_s: tuple[float, ...]
    """Of each batch with events, but for the first."""
    commit_s: float
    """Committing state in one batch, all tasks together; the median."""
    fixed_s: float | None
    """A batch of very few events; None where that was not measured."""
    state: tuple[StateSize, ...]
    checkpoint_bytes: int
    stages: tuple[StageFigures, ...]


def run_figures(answer: Answer, few: Answer | None) -> RunFigures:
    """The figures of a run, and of one with very few events in each batch."""
    batches = _batches(answer)
    with_events = [batch for batch in batches if batch.rows > 0]
    warm = with_events[COLD_BATCHES:] or with_events
    return RunFigures(
        seconds=float(answer["seconds"]),
        cpu_s=answer["cpu_s"],
        batches_s=tuple(batch.duration_s for batch in warm),
        commit_s=median(sum(one.commit_ms for one in batch.state) / 1000.0 for batch in warm) if warm else 0.0,
        fixed_s=None if few is None else _fixed_s(few),
        state=_largest(batches),
        checkpoint_bytes=int(answer["checkpoint_bytes"]),
        stages=_stages(answer["stages"], {batch.batch_id for batch in with_events}),
    )


def batch_durations_s(answer: Answer) -> list[float]:
    """Of each batch with events, in their order."""
    return [batch.duration_s for batch in _batches(answer) if batch.rows > 0]


def _batches(answer: Answer) -> list[BatchProgress]:
    return [parse_progress(json.dumps(one)) for one in answer["batches"]]


def _fixed_s(few: Answer) -> float | None:
    warm = batch_durations_s(few)[COLD_BATCHES:]
    return median(warm) if warm else None


def _largest(batches: Sequence[BatchProgress]) -> tuple[StateSize, ...]:
    """After the batch that left most rows, by operator."""
    with_state = [batch for batch in batches if batch.state]
    largest = max(with_state, key=lambda batch: (batch.state_rows or 0, batch.state_bytes or 0), default=None)
    if largest is None:
        return ()
    return tuple(StateSize(operator=one.name, rows=one.rows, memory_bytes=one.memory_bytes) for one in largest.state)


def _stages(entries: Sequence[Any], batches: set[int]) -> tuple[StageFigures, ...]:
    """By name, in the order in which rows come to them; of the batches with events only."""
    by_name: dict[str, list[Any]] = {}
    for batch in sorted(batches):
        own = [entry for entry in entries if entry["batch"] == batch]
        for name, entry in zip(stage_names([entry["operators"] for entry in own]), own, strict=True):
            by_name.setdefault(name, []).append(entry)
    return tuple(_stage(name, own) for name, own in by_name.items())


def _stage(name: str, entries: Sequence[Any]) -> StageFigures:
    skews = [entry["longest_ms"] * entry["tasks"] / entry["run_ms"] for entry in entries if entry["run_ms"]]
    return StageFigures(
        name=name,
        seconds=sum(max(0, (entry["ended_ms"] or 0) - (entry["began_ms"] or 0)) for entry in entries) / 1000.0,
        run_s=sum(entry["run_ms"] for entry in entries) / 1000.0,
        rows=sum(entry["rows"] for entry in entries),
        tasks=round(median(entry["tasks"] for entry in entries)),
        skew=median(skews) if skews else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFigures:
    """What came of a query: its repeats, or why there are none."""

    name: str
    sentence: str
    """What it answers."""
    events: int
    runs: tuple[RunFigures, ...]
    error: str | None = None

    @property
    def seconds(self) -> float | None:
        """To finish all events."""
        return self._median(lambda run: run.seconds)

    @property
    def cpu_s(self) -> float | None:
        return self._median(lambda run: run.cpu_s)

    @property
    def cores(self) -> float | None:
        """How many cores were busy."""
        return self._median(lambda run: None if run.cpu_s is None else run.cpu_s / run.seconds)

    @property
    def per_s(self) -> float | None:
        """Events per second."""
        return self._median(lambda run: self.events / run.seconds)

    @property
    def per_core_s(self) -> float | None:
        """Events per second of CPU time."""
        return self._median(lambda run: self.events / run.cpu_s if run.cpu_s else None)

    @property
    def per_core_range(self) -> tuple[float, float] | None:
        """The least and the most of the repeats."""
        each = [self.events / run.cpu_s for run in self.runs if run.cpu_s]
        return (min(each), max(each)) if each else None

    @property
    def batch_p50_s(self) -> float | None:
        return self._batch_s(50)

    @property
    def batch_p95_s(self) -> float | None:
        return self._batch_s(95)

    @property
    def fixed_s(self) -> float | None:
        return self._median(lambda run: run.fixed_s)

    @property
    def state_rows(self) -> int | None:
        """All operators together; None for a query that keeps no state."""
        return sum(one.rows for one in self.runs[-1].state) if self.runs and self.runs[-1].state else None

    @property
    def state_bytes(self) -> int | None:
        """In memory, as Spark counts it."""
        return sum(one.memory_bytes for one in self.runs[-1].state) if self.runs and self.runs[-1].state else None

    @property
    def stages(self) -> tuple[StageFigures, ...]:
        """Of the run that took the median time."""
        ordered = sorted(self.runs, key=lambda run: run.seconds)
        return ordered[len(ordered) // 2].stages if ordered else ()

    def _median(self, figure: Callable[[RunFigures], float | None]) -> float | None:
        known = [value for run in self.runs if (value := figure(run)) is not None]
        return median(known) if known else None

    def _batch_s(self, percentile: float) -> float | None:
        every = [seconds for run in self.runs for seconds in run.batches_s]
        return float(np.percentile(every, percentile)) if every else None
