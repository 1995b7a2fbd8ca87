"""Requests to an engine and what became of them; every request has an id, so that none is carried out twice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidewise.core.checks import require, require_finite, require_share, require_text
from tidewise.core.configuration import Configuration, Mechanism
from tidewise.core.decision import Reason
from tidewise.core.estimate import Censored, Measured


class Origin(StrEnum):
    """Who asked for a change."""

    POLICY = "policy"
    OPERATOR = "operator"
    """A person, by a manual override."""
    ROLLBACK = "rollback"
    """The control loop, undoing a change that went wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequest:
    """Move a job from one configuration to another."""

    request_id: str
    origin: Origin
    source: Configuration
    """What was meant to run when the request was made; where a rollback leads."""
    target: Configuration
    mechanism: Mechanism
    requested_at_s: float
    deadline_s: float
    """When the target has to run at the latest, on the clock of the run."""
    reason: Reason
    undoes: str | None = None
    """The id of the request that this one rolls back."""

    def __post_init__(self) -> None:
        require_text("request_id", self.request_id)
        require_finite("requested_at_s", self.requested_at_s)
        require_finite("deadline_s", self.deadline_s, above=self.requested_at_s)
        require(
            (self.origin is Origin.ROLLBACK) == (self.undoes is not None),
            "a rollback, and nothing else, names the request it undoes",
        )


class ChangeStatus(StrEnum):
    """How a request ended."""

    APPLIED = "applied"
    FAILED = "failed"
    """The engine gave up; the job runs in some configuration, normally the old one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOutcome:
    """The end of a request, as the engine tells it."""

    request_id: str
    status: ChangeStatus
    finished_at_s: float
    configuration: Configuration
    """What runs now."""
    gap_s: float = 0.0
    """How long the job gave no output because of it."""
    detail: str = ""
    """For a failure: one sentence on what went wrong."""

    def __post_init__(self) -> None:
        require_text("request_id", self.request_id)
        require_finite("finished_at_s", self.finished_at_s)
        require_finite("gap_s", self.gap_s, least=0.0)
        require(
            self.status is ChangeStatus.APPLIED or bool(self.detail.strip()),
            "a failed change has to say what went wrong",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """Measure configurations in copies beside the job."""

    request_id: str
    candidates: tuple[Configuration, ...]
    settle_s: float
    measure_s: float
    inject_failure: bool
    recovery_limit_s: float
    """When a copy that has not recovered is given up."""
    requested_at_s: float
    deadline_s: float
    reason: Reason

    def __post_init__(self) -> None:
        require_text("request_id", self.request_id)
        require(len(self.candidates) > 0, "a profile needs at least one candidate")
        require_finite("settle_s", self.settle_s, least=0.0)
        require_finite("recovery_limit_s", self.recovery_limit_s, above=0.0)
        require_finite("measure_s", self.measure_s, above=0.0)
        require_finite("requested_at_s", self.requested_at_s)
        require_finite("deadline_s", self.deadline_s, above=self.requested_at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileMeasurement:
    """What one copy showed."""

    configuration: Configuration
    input_rate_per_s: float
    processed_rate_per_s: float
    latency_p50_s: float | None
    latency_p95_s: float | None
    busy_share: float | None
    recovery_s: Measured | None = None
    """None: no failure was injected."""
    detail: str = ""
    """Set where the copy died: a result as well."""

    def __post_init__(self) -> None:
        require_finite("input_rate_per_s", self.input_rate_per_s, least=0.0)
        require_finite("processed_rate_per_s", self.processed_rate_per_s, least=0.0)
        known = [value for value in (self.latency_p50_s, self.latency_p95_s) if value is not None]
        for value in known:
            require_finite("latency", value, least=0.0)
        require(known == sorted(known), f"latency percentiles must ascend, not {known}")
        if self.busy_share is not None:
            require_share("busy_share", self.busy_share)
        if self.recovery_s is not None and not isinstance(self.recovery_s, Censored):
            require_finite("recovery_s", self.recovery_s, least=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOutcome:
    """The end of a profile: one measurement per candidate, in their order."""

    request_id: str
    finished_at_s: float
    measurements: tuple[ProfileMeasurement, ...]

    def __post_init__(self) -> None:
        require_text("request_id", self.request_id)
        require_finite("finished_at_s", self.finished_at_s)
