"""What an engine reports of a running job over one window of time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidewise.core.checks import require, require_finite, require_share, require_text
from tidewise.core.configuration import Configuration


class JobStatus(StrEnum):
    """What the job was doing at the end of the window."""

    RUNNING = "running"
    CHANGING = "changing"
    """In the gap of a change that was asked for."""
    DOWN = "down"
    """Not processing, though nobody asked for it."""


class LatencyMethod(StrEnum):
    """How the latencies of a report were obtained."""

    SIMULATED = "simulated"
    EVENT_TIME = "event-time"
    """Commit time less event time."""
    WAIT_BATCH_BACKLOG = "wait-batch-backlog"
    """Half the wait for the trigger, the batch, and the time to work the backlog off."""


class OperatorKind(StrEnum):
    """What an operator does with its records, as far as that decides how it is scaled."""

    CONTINUOUS = "continuous"
    """Each record for itself: filters, projections, sources, sinks."""
    WINDOW = "window"
    """Groups of records, with state: aggregates, deduplication, arbitrary state."""
    JOIN = "join"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorReport:
    """One operator of the job (on Spark a stage of the micro-batch) over the window of a report."""

    name: str
    kind: OperatorKind
    channels: int
    """How many of it ran side by side: its slots or tasks at a time."""
    input_rate_per_s: float
    """Records that came to it, per second."""
    throughput_per_channel_per_s: float | None
    """Records per second of one channel while it works; None where it had nothing to do."""
    latency_s: float | None
    """What it adds to the latency of a record; None where it is not known."""

    def __post_init__(self) -> None:
        require_text("the name of an operator", self.name)
        require(self.channels >= 1, f"an operator has at least one channel, not {self.channels}")
        require_finite("input_rate_per_s", self.input_rate_per_s, least=0.0)
        if self.throughput_per_channel_per_s is not None:
            require_finite("throughput_per_channel_per_s", self.throughput_per_channel_per_s, above=0.0)
        if self.latency_s is not None:
            require_finite("latency_s", self.latency_s, least=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One report. What is unknown is None; a window in which output was due and none came has no latency."""

    time_s: float
    """End of the window, on the clock of the run."""
    window_s: float
    """Length of the window."""
    configuration: Configuration
    """What really runs, which need not be what was asked for."""
    status: JobStatus
    input_rate_per_s: float
    """Records that arrived, per second."""
    processed_rate_per_s: float
    """Records that were processed, per second, replayed ones included."""
    backlog_records: float
    """Records that have arrived and are not committed."""
    latency_p50_s: float | None = None
    """Arrival to output, of the records whose output came in this window, or came last where none was due in it."""
    latency_p95_s: float | None = None
    latency_p99_s: float | None = None
    latency_method: LatencyMethod | None = None
    busy_share: float | None = None
    """Share of the window in which the job worked on records; 1 means saturated. The fixed cost of a batch, which does
    not grow with the load, is left out, so that the rate at which the job would be saturated can be told from it."""
    cpu_share: float | None = None
    """CPU used over CPU given."""
    memory_share: float | None = None
    """Memory used over memory given, on the fullest executor."""
    state_mib: float | None = None
    arrival_rate_per_s: float | None = None
    """How fast records came in the window, as far as that is known by its end; None: as `input_rate_per_s`, which on
    engines that tell late what has arrived also makes up for what earlier reports had guessed."""
    operators: tuple[OperatorReport, ...] = ()
    """The job's operators in the order of its records' way; empty where they cannot be told apart."""

    def __post_init__(self) -> None:
        require_finite("time_s", self.time_s)
        require_finite("window_s", self.window_s, above=0.0)
        require_finite("input_rate_per_s", self.input_rate_per_s, least=0.0)
        require_finite("processed_rate_per_s", self.processed_rate_per_s, least=0.0)
        require_finite("backlog_records", self.backlog_records, least=0.0)
        if self.arrival_rate_per_s is not None:
            require_finite("arrival_rate_per_s", self.arrival_rate_per_s, least=0.0)
        latencies = (self.latency_p50_s, self.latency_p95_s, self.latency_p99_s)
        known = [value for value in latencies if value is not None]
        for value in known:
            require_finite("latency", value, least=0.0)
        require(known == sorted(known), f"latency percentiles must ascend, not {known}")
        require(not known or self.latency_method is not None, "a latency needs the method by which it was obtained")
        for name in ("busy_share", "cpu_share"):
            share = getattr(self, name)
            if share is not None:
                require_share(name, share)
        if self.memory_share is not None:
            require_finite("memory_share", self.memory_share, least=0.0)
        if self.state_mib is not None:
            require_finite("state_mib", self.state_mib, least=0.0)

    @property
    def load_per_s(self) -> float:
        """How fast records come: what forecasts learn from. What adds up with the backlog is `input_rate_per_s`."""
        return self.input_rate_per_s if self.arrival_rate_per_s is None else self.arrival_rate_per_s

    @property
    def is_idle(self) -> bool:
        """Whether the job runs and there is nothing for it to do: no latency is no bad sign then."""
        return self.status is JobStatus.RUNNING and self.input_rate_per_s <= 0.0 and self.backlog_records <= 0.0

    @property
    def true_rate_per_s(self) -> float | None:
        """Records per second if the job were always busy; None while it idles or the share is unknown."""
        if self.busy_share is None or self.busy_share <= 0.0 or self.processed_rate_per_s <= 0.0:
            return None
        return self.processed_rate_per_s / self.busy_share
