"""What is told of a job to whoever keeps the history of many: flat rows, each kind a table of its own.

A row travels as one line of JSON, an envelope around its fields. Readers know an envelope by its `schema`; fields may
be added to a row (they are null in older ones), and are never renamed, removed or given another meaning.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import ClassVar

from tidewise.core.checks import require, require_finite, require_text

SCHEMA = 1
"""The version of the envelope; a reader sets aside what is newer than it knows."""
METRICS_TOPIC = "metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryRow:
    """What all rows have."""

    kind: ClassVar[str]
    """The table it belongs to."""
    at_unix_s: float
    """When, in seconds since 1970."""

    def __post_init__(self) -> None:
        require_finite("at_unix_s", self.at_unix_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow(TelemetryRow):
    """One report of the job; `at_unix_s` is the end of its window."""

    kind: ClassVar[str] = "report"
    window_s: float
    status: str
    executors: int
    slots_per_executor: int
    cores_per_executor: float
    memory_mib_per_executor: int
    commit_interval_s: float
    state_partitions: int | None
    load_per_s: float
    """How fast records came."""
    input_rate_per_s: float
    processed_rate_per_s: float
    backlog_records: float
    latency_p50_s: float | None = None
    latency_p95_s: float | None = None
    latency_p99_s: float | None = None
    busy_share: float | None = None
    cpu_share: float | None = None
    memory_share: float | None = None
    state_mib: float | None = None
    policy: str | None = None
    promised_latency_p95_s: float | None = None
    promised_recovery_s: float | None = None
    cost_per_hour: float | None = None
    """Of what runs, the driver included, in `currency`."""
    currency: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow(TelemetryRow):
    """A change, told when it is known what came of it; `at_unix_s` is when it was asked for."""

    kind: ClassVar[str] = "change"
    request_id: str
    origin: str
    mechanism: str
    source: str
    """The configuration before, in words."""
    target: str
    source_executors: int
    target_executors: int
    outcome: str
    """applied, failed, expired, rolled back, or unfinished: the run ended before it did."""
    took_s: float | None
    gap_s: float | None
    reason_code: str
    sentence: str
    expected_rate_per_s: float | None = None
    expected_latency_p95_s: float | None = None
    expected_recovery_s: float | None = None
    expected_cost_per_hour: float | None = None
    came_rate_per_s: float | None = None
    """The highest mean of a minute within the time that was looked ahead."""
    came_latency_p95_s: float | None = None
    came_cost_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRow(TelemetryRow):
    """A failure that the job got over, or did not within the time that was watched; `at_unix_s` is when it failed."""

    kind: ClassVar[str] = "recovery"
    failure: str
    took_s: float
    """At least so long, where `is_bound`."""
    is_bound: bool
    rate_per_s: float
    executors: int
    configuration: str
    promised_recovery_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastErrorRow(TelemetryRow):
    """A forecast held against what came; `at_unix_s` is the time that was forecast."""

    kind: ClassVar[str] = "forecast_error"
    model: str
    horizon_s: float
    """How long before it the forecast was made."""
    expected_per_s: float
    low_per_s: float | None
    high_per_s: float | None
    came_per_s: float
    error_share: float
    """|expected - came| / (expected + came), between 0 and 1; 0 where both are nothing."""


ROWS: tuple[type[TelemetryRow], ...] = (ReportRow, ChangeRow, RecoveryRow, ForecastErrorRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A row on its way, with where it comes from: a run numbers its rows, so that one told twice is known again."""

    job: str
    run: str
    """Of one run of the job; no two have the same."""
    line: int
    """From 1 on, in the order in which the run tells its rows."""
    program: str | None
    """The version of the job's program, where it has one."""
    row: TelemetryRow

    def __post_init__(self) -> None:
        require_text("job", self.job)
        require_text("run", self.run)
        require(self.line >= 1, f"lines are numbered from 1 on, not from {self.line}")

    def to_json(self) -> str:
        """One line; numbers that are not finite become null."""
        head = {"schema": SCHEMA, "kind": self.row.kind, "job": self.job, "run": self.run, "line": self.line}
        body = {name: _finite(value) for name, value in asdict(self.row).items()}
        return json.dumps({**head, "program": self.program, **body}, allow_nan=False, ensure_ascii=False)


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def field_names(row: type[TelemetryRow]) -> tuple[str, ...]:
    """The columns of a row, in their order."""
    return tuple(one.name for one in fields(row))
