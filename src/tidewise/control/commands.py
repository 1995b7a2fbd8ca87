"""What goes into the loop and what comes out: events to write down first, commands to carry out afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from tidewise.core import (
    ChangeFinished,
    ChangeRequest,
    ControllerStarted,
    JournalEvent,
    Overridden,
    OverrideLifted,
    Paused,
    ProfileFinished,
    ProfileRequest,
    Reported,
    Resumed,
    Ticked,
)

Input = (
    ControllerStarted
    | Reported
    | Ticked
    | ChangeFinished
    | ProfileFinished
    | Paused
    | Resumed
    | Overridden
    | OverrideLifted
)
"""What the loop may be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyChange:
    """Tell the engine to begin this change."""

    request: ChangeRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProfile:
    """Tell the engine to begin this profile."""

    request: ProfileRequest


Command = ApplyChange | StartProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """What came of one event.

    The events are already in the loop's state: write them down in one transaction before any command is carried out,
    and give the loop up if that fails.
    """

    events: tuple[JournalEvent, ...]
    commands: tuple[Command, ...]
