"""What Spark tells of a job becomes reports: one for each window of time, without a gap between them."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidewise.core import (
    Configuration,
    JobStatus,
    NotReadyError,
    Observation,
    OperatorReport,
    Parameter,
)
from tidewise.core.checks import require_finite
from tidewise.engines.spark.latency import LatencyChoice, Percentiles
from tidewise.engines.spark.operators import StageSample, operators_of
from tidewise.engines.spark.partitions import QueryLag
from tidewise.engines.spark.progress import BatchProgress, StateOperator
from tidewise.engines.spark.query_record import QueryRecord, QueryWindow

Value = TypeVar("Value")

_MIB = 1024.0 * 1024.0
_SHORTEST_S = 0.05
"""No window is shorter: rates over less than this mean nothing."""
_SAMPLE_LASTS_WINDOWS = 3.0
"""For how many windows an executor sample stands when no new one comes."""
_STAGES_LAST_S = 30.0
"""How long the stages that were told last stand for those of now, at least: they are told every ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSample:
    """The executors at one moment, all together unless it says otherwise."""

    executors: int
    cpu_share: float | None = None
    """CPU used over CPU given."""
    memory_share: float | None = None
    """Memory used over memory given, on the fullest executor."""
    gc_share: float | None = None
    """Time in garbage collection over time in tasks."""

    def __post_init__(self) -> None:
        for name in ("cpu_share", "memory_share", "gc_share"):
            share = getattr(self, name)
            if share is not None:
                require_finite(name, share, least=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDetail:
    """The last batch of one query."""

    query_id: str
    name: str | None
    batch_id: int
    rows: int
    durations_ms: Mapping[str, float]
    backlog_known: bool
    """False: a source does not tell what waits beyond the batch, so that input is what was processed."""
    arrival_rate_per_s: float | None
    fixed_cost_s: float | None
    watermark_delay_s: float | None
    state_rows: int | None
    state_mib: float | None
    state: tuple[StateOperator, ...]
    overestimated_records: float
    """Records that were reported to wait and never came, because the load fell away; over the whole run."""
    lag: QueryLag | None
    """What waits in the partitions of its topics; None where it reads no Kafka."""
    dropped_records: int
    """Records that came later than the watermark allows, since this query is watched."""
    observed: Mapping[str, int]
    """What the query counts by `observe`, as NAME.FIGURE, summed since it is watched; whole numbers only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDetail:
    """What is known beyond the last report."""

    time_s: float | None
    """End of the last report; None before the first."""
    queries: tuple[QueryDetail, ...]
    executors: ExecutorSample | None
    stages: tuple[StageSample, ...]

    @property
    def backlog_known(self) -> bool:
        return all(query.backlog_known for query in self.queries)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stages:
    stages: tuple[StageSample, ...]
    at_s: float


class Reporter:
    """Collects what is told and gives it as reports.

    All times are on the clock of the run. Things may be told in any order; what belongs into a window that has been
    given already counts in the next one. Reports begin when the status and the configuration have first been told, and
    end at whole windows from there and at every change of status: each has the status that held during all of it, so
    that no change is too short to be seen. The queries of the job are summed; the latency is that of the worst one, and
    the busy share that of the busiest.
    """

    def __init__(self, *, window_s: float, latency: LatencyChoice = LatencyChoice.AUTO) -> None:
        require_finite("window_s", window_s, above=2 * _SHORTEST_S)
        self._window_s = window_s
        self.latency = latency
        """How latencies are obtained."""
        self._queries: dict[str, QueryRecord] = {}
        self._statuses = _Told[JobStatus]()
        self._configurations = _Told[Configuration]()
        self._samples = _Told[ExecutorSample]()
        self._stages: dict[str, _Stages] = {}
        self._start_s: float | None = None
        self._reported_s = 0.0

    # What is told -------------------------------------------------------------------------------------------------

    def batch(self, progress: BatchProgress, at_s: float) -> None:
        """A batch that was committed at this time, `progress.committed_unix_s` on the clock of the run."""
        require_finite("at_s", at_s)
        configuration = self._configurations.newest
        self._query(progress.query_id).batch(
            progress,
            committed_s=at_s,
            interval_s=0.0 if configuration is None else configuration.commit_interval_s,
            executors=1 if configuration is None else configuration.executors,
        )

    def idle(self, query_id: str, at_s: float) -> None:
        """A trigger of the query found nothing to do."""
        require_finite("at_s", at_s)
        self._query(query_id).idle(at_s)

    def ended(self, query_id: str) -> None:
        """The query has ended for good; what waits for it does not count any more. One that comes back has not."""
        self._queries.pop(query_id, None)
        self._stages.pop(query_id, None)

    def status(self, status: JobStatus, at_s: float) -> None:
        """What the job does from this time on."""
        self._statuses.tell(status, at_s)

    def configuration(self, configuration: Configuration, at_s: float) -> None:
        """What really runs from this time on."""
        before = self._configurations.newest
        self._configurations.tell(configuration, at_s)
        differs = set() if before is None else before.differs_from(configuration) - {Parameter.COMMIT_INTERVAL_S}
        for query in self._queries.values() if differs else ():
            query.forget_costs(same_kind=differs == {Parameter.EXECUTORS})

    def executors(self, sample: ExecutorSample, at_s: float) -> None:
        self._samples.tell(sample, at_s)

    def stages(self, query_id: str, stages: Sequence[StageSample], at_s: float) -> None:
        """The stages of the last batches of a query, in their order."""
        require_finite("at_s", at_s)
        self._stages[query_id] = _Stages(stages=tuple(stages), at_s=at_s)

    # What is given ------------------------------------------------------------------------------------------------

    def observations(self, now_s: float) -> list[Observation]:
        """The reports of the windows that have ended since the last call, oldest first, each once."""
        if self._start_s is None:
            if self._statuses.first_s is None or self._configurations.first_s is None:
                return []
            start_s = max(self._statuses.first_s, self._configurations.first_s)
            self._statuses.pass_by(start_s)
            self._start_s = self._reported_s = start_s
        reports = []
        while (end_s := self._next_end_s(self._start_s)) <= now_s:
            reports.append(self._report(end_s))
        return reports

    def detail(self) -> ReportDetail:
        """What is known beyond the reports, as of now."""
        return ReportDetail(
            time_s=self._reported_s if self._start_s is not None else None,
            queries=tuple(
                _detail(query, query.latest, query.lag(self._reported_s))
                for query in self._queries.values()
                if query.latest is not None
            ),
            executors=self._samples.newest,
            stages=tuple(stage for told in self._stages.values() for stage in told.stages),
        )

    def _query(self, query_id: str) -> QueryRecord:
        if query_id not in self._queries:
            self._queries[query_id] = QueryRecord(choice=self.latency, window_s=self._window_s)
        return self._queries[query_id]

    def _next_end_s(self, start_s: float) -> float:
        soonest_s = self._reported_s + _SHORTEST_S
        whole_s = start_s + self._window_s * (math.floor((soonest_s - start_s) / self._window_s) + 1)
        changes_s = self._statuses.next_change_s()
        return whole_s if changes_s is None else min(whole_s, max(changes_s, soonest_s))

    def _report(self, end_s: float) -> Observation:
        begin_s, self._reported_s = self._reported_s, end_s
        self._configurations.pass_by(end_s)
        status, configuration = self._statuses.current, self._configurations.current
        by_query = {
            query_id: window
            for query_id, query in self._queries.items()
            if (window := query.window(begin_s, end_s, status=status, interval_s=configuration.commit_interval_s))
            is not None
        }
        windows = list(by_query.values())
        self._statuses.pass_one(end_s)
        samples = self._samples.pass_by(end_s)
        lasting_s = 0.0 if status is JobStatus.DOWN else _SAMPLE_LASTS_WINDOWS * self._window_s
        if not samples and self._samples.lasts(end_s - lasting_s):
            samples = [self._samples.current]
        cpu = [sample.cpu_share for sample in samples if sample.cpu_share is not None]
        memory = [sample.memory_share for sample in samples if sample.memory_share is not None]
        window_s = end_s - begin_s
        rates_per_s = {query_id: max(0.0, window.arrived) / window_s for query_id, window in by_query.items()}
        latency = _worst(windows)
        return Observation(
            time_s=end_s,
            window_s=window_s,
            configuration=configuration,
            status=status,
            input_rate_per_s=sum(window.arrived for window in windows) / window_s,
            arrival_rate_per_s=sum(window.arrival_rate_per_s for window in windows),
            processed_rate_per_s=sum(window.processed for window in windows) / window_s,
            backlog_records=max(0.0, sum(window.backlog for window in windows)),
            latency_p50_s=None if latency is None else latency.p50_s,
            latency_p95_s=None if latency is None else latency.p95_s,
            latency_p99_s=None if latency is None else latency.p99_s,
            latency_method=None if latency is None else latency.method,
            busy_share=max((window.busy_share for window in windows), default=None),
            cpu_share=min(1.0, sum(cpu) / len(cpu)) if cpu else None,
            memory_share=max(memory, default=None),
            state_mib=self._state_mib(),
            operators=self._operators(end_s, status, configuration, rates_per_s),
        )

    def _operators(
        self, end_s: float, status: JobStatus, configuration: Configuration, rates_per_s: Mapping[str, float]
    ) -> tuple[OperatorReport, ...]:
        """From the stages that were told last; none while the job does not run, or where they are of long ago."""
        if status is not JobStatus.RUNNING:
            return ()
        lasting_s = max(_STAGES_LAST_S, _SAMPLE_LASTS_WINDOWS * self._window_s)
        slots = configuration.executors * configuration.slots_per_executor
        found: list[OperatorReport] = []
        for query_id, told in self._stages.items():
            query, rate_per_s = self._queries.get(query_id), rates_per_s.get(query_id)
            if query is None or query.latest is None or rate_per_s is None or end_s - told.at_s > lasting_s:
                continue
            name = "" if len(self._stages) == 1 else f"{query.latest.name or query_id} "
            found += operators_of(told.stages, query.latest, name=name, slots=slots, rate_per_s=rate_per_s)
        return tuple(found)

    def _state_mib(self) -> float | None:
        sizes = [
            query.latest.state_bytes
            for query in self._queries.values()
            if query.latest is not None and query.latest.state_bytes is not None
        ]
        return sum(sizes) / _MIB if sizes else None


class _Told(Generic[Value]):
    """Values with the times from which they hold, told in any order and passed in order of time."""

    def __init__(self) -> None:
        self._ahead: list[tuple[float, int, Value]] = []
        self._count = 0
        self._passed: tuple[float, Value] | None = None
        self._newest: tuple[float, Value] | None = None
        self.first_s: float | None = None
        """When the first one that was told began to hold."""

    def tell(self, value: Value, at_s: float) -> None:
        require_finite("at_s", at_s)
        self._count += 1
        insort(self._ahead, (at_s, self._count, value))
        if self.first_s is None:
            self.first_s = at_s
        if self._newest is None or at_s >= self._newest[0]:
            self._newest = at_s, value

    @property
    def newest(self) -> Value | None:
        """The last in time of all that were told."""
        return None if self._newest is None else self._newest[1]

    @property
    def current(self) -> Value:
        """The last that was passed."""
        if self._passed is None:
            raise NotReadyError("nothing has been told yet")
        return self._passed[1]

    def lasts(self, since_s: float) -> bool:
        """Whether the current one is no older than this."""
        return self._passed is not None and self._passed[0] >= since_s

    def pass_by(self, until_s: float) -> list[Value]:
        """Go on to what holds at this time; what was passed on the way."""
        passed = []
        while self._ahead and self._ahead[0][0] <= until_s:
            passed.append(self._pass())
        return passed

    def pass_one(self, until_s: float) -> None:
        """Go on by one, if it holds by this time."""
        if self._ahead and self._ahead[0][0] <= until_s:
            self._pass()

    def next_change_s(self) -> float | None:
        """When the current value gives way to another; what only repeats it is passed."""
        while self._ahead and self._passed is not None and self._ahead[0][2] == self._passed[1]:
            self._pass()
        return self._ahead[0][0] if self._ahead else None

    def _pass(self) -> Value:
        at_s, _, value = self._ahead.pop(0)
        self._passed = at_s, value
        return value


def _worst(windows: Sequence[QueryWindow]) -> Percentiles | None:
    """The latency of the worst query; None where one owes its output, or none has any."""
    known = [window.latency for window in windows if window.latency is not None]
    if not known or any(window.output_missing for window in windows):
        return None
    return max(known, key=lambda latency: latency.p95_s)


def _detail(query: QueryRecord, latest: BatchProgress, lag: QueryLag | None) -> QueryDetail:
    return QueryDetail(
        query_id=latest.query_id,
        name=latest.name,
        batch_id=latest.batch_id,
        rows=latest.rows,
        durations_ms=latest.durations_ms,
        backlog_known=latest.backlog_known,
        arrival_rate_per_s=query.arrival_rate_per_s,
        fixed_cost_s=query.fixed_cost_s,
        watermark_delay_s=latest.watermark_delay_s,
        state_rows=latest.state_rows,
        state_mib=None if latest.state_bytes is None else latest.state_bytes / _MIB,
        state=latest.state,
        overestimated_records=query.overestimated,
        lag=lag,
        dropped_records=query.dropped_records,
        observed=dict(query.observed),
    )
