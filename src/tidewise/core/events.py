"""What a journal may hold: everything the control loop was told, decided, asked for and got."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidewise.core.change import ChangeOutcome, ChangeRequest, Origin, ProfileOutcome, ProfileRequest
from tidewise.core.checks import require, require_finite, require_text
from tidewise.core.configuration import Configuration
from tidewise.core.decision import Decision, Reason
from tidewise.core.forecast import Forecast
from tidewise.core.observation import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStarted:
    """A controller began its work, for the first time or after a crash."""

    at_s: float
    version: str
    policy: str
    configuration: Configuration
    """What the engine said was running."""

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)
        require_text("version", self.version)
        require_text("policy", self.policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A report of the engine arrived."""

    at_s: float
    """When it arrived, which may be later than the end of its window."""
    observation: Observation

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time passed; the only event that is not worth a line in the journal."""

    at_s: float

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)


class Verdict(StrEnum):
    """What a guard made of a proposed change."""

    ALTER = "alter"
    VETO = "veto"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardVerdict:
    """One guard's objection; guards that let a change pass leave none."""

    guard: str
    verdict: Verdict
    reason: Reason
    target: Configuration | None = None
    """What the guard made of the target, where it altered it."""

    def __post_init__(self) -> None:
        require_text("guard", self.guard)
        require(
            (self.verdict is Verdict.ALTER) == (self.target is not None),
            "an altering verdict, and no other, has a target",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision of the policy, of an operator or of the loop itself, and what the guards made of it."""

    at_s: float
    origin: Origin
    decision: Decision
    verdicts: tuple[GuardVerdict, ...] = ()
    forecast: Forecast | None = None
    """The forecast it rested on."""

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)

    @property
    def vetoed(self) -> bool:
        return any(verdict.verdict is Verdict.VETO for verdict in self.verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequested:
    """The engine is to carry out a change; written before it is told."""

    at_s: float
    request: ChangeRequest

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFinished:
    """The engine told how a change ended."""

    at_s: float
    outcome: ChangeOutcome

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeExpired:
    """A change did not reach its target before its deadline."""

    at_s: float
    request_id: str
    configuration: Configuration
    """What ran at the deadline."""

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)
        require_text("request_id", self.request_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSettled:
    """A change came through its time of probation."""

    at_s: float
    request_id: str

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)
        require_text("request_id", self.request_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequested:
    """The engine is to measure configurations beside the job; written before it is told."""

    at_s: float
    request: ProfileRequest

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFinished:
    """The engine told what the copies showed."""

    at_s: float
    outcome: ProfileOutcome

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileExpired:
    """A profile gave no result before its deadline."""

    at_s: float
    request_id: str

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)
        require_text("request_id", self.request_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInjected:
    """The experiment broke something on purpose; the loop is not told, the report is."""

    at_s: float
    fault: str
    """Its kind, as the engine names it."""

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)
        require_text("fault", self.fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """A person told the loop to leave the job alone."""

    at_s: float
    by: str

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)
        require_text("by", self.by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A person told the loop to act again."""

    at_s: float
    by: str

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)
        require_text("by", self.by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overridden:
    """A person wants this configuration, whatever the policy says, until the override is lifted."""

    at_s: float
    by: str
    target: Configuration

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)
        require_text("by", self.by)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideLifted:
    """The policy decides again."""

    at_s: float
    by: str

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)
        require_text("by", self.by)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStopped:
    """The controller ended in order."""

    at_s: float
    reason: str

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)
        require_text("reason", self.reason)


JournalEvent = (
    ControllerStarted
    | Reported
    | Decided
    | ChangeRequested
    | ChangeFinished
    | ChangeExpired
    | ChangeSettled
    | ProfileRequested
    | ProfileFinished
    | ProfileExpired
    | FaultInjected
    | Paused
    | Resumed
    | Overridden
    | OverrideLifted
    | ControllerStopped
)
"""Whatever is written down."""
