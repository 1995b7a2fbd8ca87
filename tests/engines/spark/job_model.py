"""A job whose truth is known: batches of a single server, told to a reporter as Spark would tell them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.engines.spark.progress_samples import UNIX_S, a_batch
from tidewise.core import Configuration, JobStatus, Observation
from tidewise.engines.spark.progress import EventTimes
from tidewise.engines.spark.reports import Reporter

_TOLD_AFTER_S = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBatch:
    began_s: float
    committed_s: float
    start: int
    end: int
    latest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelJob:
    """Records come at a rate that changes each second; a batch takes a fixed time and a time for each of its rows."""

    rates_per_s: Sequence[float]
    capacity_per_s: float
    fixed_s: float
    interval_s: float
    most_rows: int | None = None
    slow: Callable[[int], float] = lambda _: 1.0
    """By what the duration of a batch is multiplied, by its number."""

    def arrived(self, at_s: float) -> float:
        second = min(int(at_s), len(self.rates_per_s) - 1)
        return sum(self.rates_per_s[:second]) + self.rates_per_s[second] * (at_s - second)

    def arrival_s(self, position: float) -> float:
        """When the record at this position came."""
        before = 0.0
        for second, rate in enumerate(self.rates_per_s):
            if before + rate >= position and rate > 0.0:
                return second + (position - before) / rate
            before += rate
        return float(len(self.rates_per_s))

    def batches(self) -> list[ModelBatch]:
        made: list[ModelBatch] = []
        now_s, committed = 0.0, 0
        while now_s < len(self.rates_per_s):
            latest = int(self.arrived(now_s))
            end = latest if self.most_rows is None else min(latest, committed + self.most_rows)
            due_s = (now_s // self.interval_s + 1) * self.interval_s if self.interval_s > 0.0 else now_s + 0.01
            if end == committed:
                now_s = due_s
                continue
            work_s = (end - committed) / self.capacity_per_s
            ends_s = now_s + (self.fixed_s + work_s) * self.slow(len(made))
            made.append(ModelBatch(began_s=now_s, committed_s=ends_s, start=committed, end=end, latest=latest))
            now_s, committed = max(due_s, ends_s), end
        return made

    def latencies_s(self, from_s: float, to_s: float) -> list[float]:
        """Of every tenth record of those whose output came in this time, ascending."""
        return sorted(
            batch.committed_s - self.arrival_s(record + 0.5)
            for batch in self.batches()
            if from_s < batch.committed_s <= to_s
            for record in range(batch.start, batch.end, 10)
        )

    def reports(self, reporter: Reporter, *, event_times: bool = False, executors: int = 1) -> list[Observation]:
        """All reports of the run, the reporter being asked each second."""
        reporter.status(JobStatus.RUNNING, 0.0)
        reporter.configuration(Configuration(executors=executors, commit_interval_s=self.interval_s), 0.0)
        untold = list(enumerate(self.batches()))
        given: list[Observation] = []
        for second in range(len(self.rates_per_s) + 1):
            while untold and untold[0][1].committed_s + _TOLD_AFTER_S <= second:
                number, batch = untold.pop(0)
                progress = a_batch(
                    batch_id=number,
                    began_s=batch.began_s,
                    duration_s=batch.committed_s - batch.began_s,
                    start=batch.start,
                    end=batch.end,
                    latest=batch.latest,
                    event_time=self._event_times(batch) if event_times else None,
                )
                reporter.batch(progress, batch.committed_s)
            given += reporter.observations(float(second))
        return given

    def _event_times(self, batch: ModelBatch) -> EventTimes:
        oldest_s, newest_s = self.arrival_s(batch.start), self.arrival_s(batch.end)
        return EventTimes(
            min_unix_s=UNIX_S,  # one record that came late
            avg_unix_s=UNIX_S + (oldest_s + newest_s) / 2,
            max_unix_s=UNIX_S + newest_s,
        )
