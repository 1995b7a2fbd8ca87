"""The life of one change as a transition table, so that late, repeated and wrong news cannot confuse the loop."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidewise.control.probation import Probation
from tidewise.core import ChangeRequest, Configuration


class Phase(StrEnum):
    """Where a change is in its life."""

    REQUESTED = "requested"
    """The engine was told, or is about to be; how it ends is not known."""
    ON_PROBATION = "on-probation"
    """Applied, and watched."""
    SETTLED = "settled"
    FAILED = "failed"
    EXPIRED = "expired"
    """Its deadline passed without an end; the engine may still be at it."""
    UNDONE = "undone"
    """A rollback was requested."""
    SUPERSEDED = "superseded"
    """Another change was requested before this one had settled."""


class Step(StrEnum):
    """What can happen to a change."""

    APPLY = "apply"
    FAIL = "fail"
    EXPIRE = "expire"
    SETTLE = "settle"
    UNDO = "undo"
    SUPERSEDE = "supersede"


EDGES: dict[tuple[Phase, Step], Phase] = {
    # The engine says that the target runs, or the reports show it.
    (Phase.REQUESTED, Step.APPLY): Phase.ON_PROBATION,
    # The engine gave up, or could not be told.
    (Phase.REQUESTED, Step.FAIL): Phase.FAILED,
    # The deadline passed, and the reports do not show the target.
    (Phase.REQUESTED, Step.EXPIRE): Phase.EXPIRED,
    # The time of probation passed without a promise broken for good.
    (Phase.ON_PROBATION, Step.SETTLE): Phase.SETTLED,
    # A promise that was kept before is broken since: back to the source.
    (Phase.ON_PROBATION, Step.UNDO): Phase.UNDONE,
    # The load or a person wanted something else before the probation was over.
    (Phase.ON_PROBATION, Step.SUPERSEDE): Phase.SUPERSEDED,
    # The engine gave up half-way: what runs is not the source.
    (Phase.FAILED, Step.UNDO): Phase.UNDONE,
    # The engine gave up with the source running, and something else is tried.
    (Phase.FAILED, Step.SUPERSEDE): Phase.SUPERSEDED,
    # The engine may still be moving: lead it back to the source.
    (Phase.EXPIRED, Step.UNDO): Phase.UNDONE,
    # An expired rollback or override is not led back; something else is tried.
    (Phase.EXPIRED, Step.SUPERSEDE): Phase.SUPERSEDED,
    # Settled changes are history as soon as the next one is requested.
    (Phase.SETTLED, Step.SUPERSEDE): Phase.SUPERSEDED,
}
"""Every legal step; one that is not here changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The latest change and what is known of it."""

    request: ChangeRequest
    phase: Phase = Phase.REQUESTED
    kept_before: bool = False
    """Whether the promise was known to be kept when the change was requested."""
    backlog_before: float = 0.0
    """What waited when the change was requested."""
    ran_before: Configuration | None = None
    """What ran when it was requested: the source, or less where the engine was replacing executors."""
    probation: Probation | None = None
    """Since it was applied; None before, and where it never was."""

    @property
    def on(self) -> bool:
        return self.phase is Phase.REQUESTED

    def may(self, step: Step) -> bool:
        return (self.phase, step) in EDGES
