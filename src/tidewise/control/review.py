"""How a proposed change is led past the guards, and what guards may know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tidewise.control.bars import Bar
from tidewise.control.settings import GuardSettings
from tidewise.core import (
    ChangeCost,
    Configuration,
    ConfigurationSpace,
    GuardVerdict,
    Mechanism,
    Observation,
    Origin,
    Reason,
    Verdict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change that somebody wants."""

    origin: Origin
    source: Configuration
    """What is meant to run now."""
    target: Configuration
    mechanism: Mechanism | None = None
    """How; None leaves it to the engine's order of preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the guards may know of the loop."""

    now_s: float
    latest: Observation | None
    """The latest report; None before the first."""
    requested: Configuration | None
    """Where a change that is on leads; None while none is on."""
    paused_by: str | None
    overridden_by: str | None
    last_change_finished_at_s: float | None
    bars: Mapping[Configuration, Bar]
    """The targets that went wrong."""
    space: ConfigurationSpace
    settings: GuardSettings

    @property
    def age_s(self) -> float | None:
        """How old the latest report is; None before the first."""
        return None if self.latest is None else max(0.0, self.now_s - self.latest.time_s)

    def fits_quota(self, *, cores: float, memory_mib: float) -> bool:
        most_cores, most_memory_mib = self.settings.quota_cores, self.settings.quota_memory_mib
        # A thousandth of a core is no reason to refuse: 0.1 + 0.2 cores are within a quota of 0.3.
        return (most_cores is None or cores <= most_cores + 1e-3) and (
            most_memory_mib is None or memory_mib <= most_memory_mib
        )

    def within_quota(self, configuration: Configuration) -> bool:
        return self.fits_quota(cores=configuration.total_cores, memory_mib=configuration.total_memory_mib)


@dataclass(frozen=True, slots=True, kw_only=True)
class Veto:
    """The change must not be."""

    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Alter:
    """The change may be, but only like this."""

    target: Configuration
    reason: Reason


class Guard(Protocol):
    """One filter. Pure: the same proposal and facts give the same answer."""

    @property
    def name(self) -> str:
        """How the guard is called in the journal."""

    @property
    def binds(self) -> frozenset[Origin]:
        """Whose changes it looks at."""

    def look(self, proposal: Proposal, facts: Facts) -> Alter | Veto | None:
        """None lets the change pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What the guards made of a proposal."""

    target: Configuration
    """The target after all alterations."""
    cost: ChangeCost | None
    """By what it would be carried out; None where it was vetoed."""
    verdicts: tuple[GuardVerdict, ...]


def review(proposal: Proposal, facts: Facts, guards: Sequence[Guard]) -> Review:
    """Lead a proposal past the guards that bind its origin."""
    verdicts: list[GuardVerdict] = []
    for guard in guards:
        if proposal.origin not in guard.binds:
            continue
        answer = guard.look(proposal, facts)
        if isinstance(answer, Veto):
            verdicts.append(GuardVerdict(guard=guard.name, verdict=Verdict.VETO, reason=answer.reason))
            return Review(target=proposal.target, cost=None, verdicts=tuple(verdicts))
        if isinstance(answer, Alter):
            proposal = replace(proposal, target=answer.target)
            verdict = GuardVerdict(guard=guard.name, verdict=Verdict.ALTER, reason=answer.reason, target=answer.target)
            verdicts.append(verdict)
    cost = facts.space.change(proposal.source, proposal.target, proposal.mechanism)
    return Review(target=proposal.target, cost=cost, verdicts=tuple(verdicts))
