"""The control loop: pure decisions inside, input and output around it, a journal beside it."""

from tidewise.control.bars import Bar
from tidewise.control.clock import SystemClock
from tidewise.control.commands import ApplyChange, Command, Handled, Input, StartProfile
from tidewise.control.guards import ADVISED, GUARDS
from tidewise.control.journal import Durability, SqliteJournal
from tidewise.control.lifecycle import EDGES, Change, Phase, Step
from tidewise.control.loop import Loop
from tidewise.control.probation import Probation
from tidewise.control.review import Alter, Facts, Guard, Proposal, Review, Veto, review
from tidewise.control.runner import Runner, RunnerSettings
from tidewise.control.settings import AbsoluteWindow, Blackout, DailyWindow, GuardSettings, LoopSettings
from tidewise.control.state import Override, State

__all__ = [
    "ADVISED",
    "EDGES",
    "GUARDS",
    "AbsoluteWindow",
    "Alter",
    "ApplyChange",
    "Bar",
    "Blackout",
    "Change",
    "Command",
    "DailyWindow",
    "Durability",
    "Facts",
    "Guard",
    "GuardSettings",
    "Handled",
    "Input",
    "Loop",
    "LoopSettings",
    "Override",
    "Phase",
    "Probation",
    "Proposal",
    "Review",
    "Runner",
    "RunnerSettings",
    "SqliteJournal",
    "StartProfile",
    "State",
    "Step",
    "SystemClock",
    "Veto",
    "review",
]
