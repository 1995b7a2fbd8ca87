"""What both kinds of processing tell of the seconds they worked through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidewise.engines.simulator.latency import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Some seconds in sum, as a report shows them; latencies are those of the output that came in them."""

    processed: float
    busy_share: float
    cpu_s: float
    latency_p50_s: float | None = None
    latency_p95_s: float | None = None
    latency_p99_s: float | None = None
    worked_s: float = 0.0
    """Of the median latency, what the operators took."""
    queued_s: float = 0.0
    """Of the median latency, what was waited because the job had more to do than it could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesColumns:
    """One value per second; latencies are those of the records that ARRIVED in it, NaN if they were never output."""

    processed_rate_per_s: Floats
    backlog_records: Floats
    busy_share: Floats
    cpu_s: Floats
    latency_p50_s: Floats
    latency_p95_s: Floats
    latency_p99_s: Floats


class Processing(Protocol):
    """How records get through a job: in a continuous flow, or in batches."""

    @property
    def backlog_records(self) -> float:
        """Records that have arrived and are not committed."""

    def interrupt(self, at_s: float, *, replays: bool, commit_interval_s: float) -> float:
        """Stop; answers when processing really stopped, which is later where a batch is let finish."""

    def slow_down(self, from_s: float, until_s: float, share: float) -> None:
        """What is in the works goes on at a share of its speed for a while."""

    def plan(self, at_s: float) -> None:
        """While the job is down, settle at this time what it takes first when it comes up again."""

    def restored(self, at_s: float) -> None:
        """The job comes up again at this time."""

    def run(self, first: int, stop: int, commit_interval_s: float) -> None:
        """Work through the seconds from `first` up to, not including, `stop`."""

    def stretch(self, first: int, stop: int) -> Stretch:
        """What a report over these seconds can say."""

    def series(self) -> SeriesColumns:
        """Every second that was worked through."""
