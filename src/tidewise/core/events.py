"""What a journal may hold: everything the control loop was told, decided, asked for and got."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from tidewise.core.change import ChangeOutcome, ChangeRequest, Origin, ProfileOutcome, ProfileRequest
from tidewise.core.checks import require, require_finite, require_text
from tidewise.core.configuration import Configuration
from tidewise.core.decision import Decision, Reason
from tidewise.core.forecast import Forecast
from tidewise.core.observation import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """Something that happened."""

    texts: ClassVar[tuple[str, ...]] = ()
    """The fields of an event that must not be blank."""
    at_s: float
    """When, on the clock of the run."""

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s)
        for name in self.texts:
            require_text(name, getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStarted(_Event):
    """A controller began its work, for the first time or after a crash."""

    texts: ClassVar[tuple[str, ...]] = ("version", "policy")
    version: str
    policy: str
    configuration: Configuration
    """What the engine said was running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported(_Event):
    """A report of the engine arrived."""

    at_s: float
    """When it arrived, which may be later than the end of its window."""
    observation: Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked(_Event):
    """Time passed; the only event that is not worth a line in the journal."""


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
class Decided(_Event):
    """A decision of the policy, of an operator or of the loop itself, and what the guards made of it."""

    origin: Origin
    decision: Decision
    verdicts: tuple[GuardVerdict, ...] = ()
    forecast: Forecast | None = None
    """The forecast it rested on."""

    @property
    def vetoed(self) -> bool:
        return any(verdict.verdict is Verdict.VETO for verdict in self.verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequested(_Event):
    """The engine is to carry out a change; written before it is told."""

    request: ChangeRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFinished(_Event):
    """The engine told how a change ended."""

    outcome: ChangeOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeExpired(_Event):
    """A change did not reach its target before its deadline."""

    texts: ClassVar[tuple[str, ...]] = ("request_id",)
    request_id: str
    configuration: Configuration
    """What ran at the deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSettled(_Event):
    """A change came through its time of probation."""

    texts: ClassVar[tuple[str, ...]] = ("request_id",)
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequested(_Event):
    """The engine is to measure configurations beside the job; written before it is told."""

    request: ProfileRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFinished(_Event):
    """The engine told what the copies showed."""

    outcome: ProfileOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileExpired(_Event):
    """A profile gave no result before its deadline."""

    texts: ClassVar[tuple[str, ...]] = ("request_id",)
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInjected(_Event):
    """The experiment broke something on purpose; the loop is not told, the report is."""

    texts: ClassVar[tuple[str, ...]] = ("fault",)
    fault: str
    """Its kind, as the engine names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited(_Event):
    """What a job had committed was checked, after a change, a failure or at the end; the report is told."""

    texts: ClassVar[tuple[str, ...]] = ("after", "checkpoint", "sentence")
    after: str
    """What it was checked after, in words."""
    checkpoint: str
    clean: bool
    """Whether every record was committed once and in order, as far as it could be proved."""
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(_Event):
    """A person told the loop to leave the job alone."""

    texts: ClassVar[tuple[str, ...]] = ("by",)
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(_Event):
    """A person told the loop to act again."""

    texts: ClassVar[tuple[str, ...]] = ("by",)
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overridden(_Event):
    """A person wants this configuration, whatever the policy says, until the override is lifted."""

    texts: ClassVar[tuple[str, ...]] = ("by",)
    by: str
    target: Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideLifted(_Event):
    """The policy decides again."""

    texts: ClassVar[tuple[str, ...]] = ("by",)
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStopped(_Event):
    """The controller ended in order."""

    texts: ClassVar[tuple[str, ...]] = ("reason",)
    reason: str


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
    | Audited
    | Paused
    | Resumed
    | Overridden
    | OverrideLifted
    | ControllerStopped
)
"""Whatever is written down."""
