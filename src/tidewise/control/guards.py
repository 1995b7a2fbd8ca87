"""The guards: ordered filters between what somebody wants of the job and what the engine is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidewise.control.bars import barring
from tidewise.control.review import Alter, Facts, Guard, Proposal, Veto
from tidewise.core import ImpossibleChangeError, JobStatus, Origin, Reason, format_duration, format_memory

EVERYONE = frozenset(Origin)
POLICY_ONLY = frozenset({Origin.POLICY})
ADVISED = "advised"
"""The code of a veto against what would be done, were it not that only advice was asked for."""


@dataclass(frozen=True, slots=True)
class PausedGuard:
    """A person told the loop to leave the job alone."""

    name: ClassVar[str] = "paused"
    binds: ClassVar[frozenset[Origin]] = POLICY_ONLY

    def look(self, _proposal: Proposal, facts: Facts) -> Veto | None:
        if facts.paused_by is None:
            return None
        sentence = f"{facts.paused_by} paused the control loop, so the policy decides for the record only."
        return Veto(reason=Reason(code="paused", sentence=sentence, evidence={"by": facts.paused_by}))


@dataclass(frozen=True, slots=True)
class OverrideGuard:
    """A person chose the configuration; the policy decides for the record only."""

    name: ClassVar[str] = "override"
    binds: ClassVar[frozenset[Origin]] = POLICY_ONLY

    def look(self, _proposal: Proposal, facts: Facts) -> Veto | None:
        if facts.overridden_by is None:
            return None
        sentence = f"{facts.overridden_by} chose the configuration by hand, and has not lifted that yet."
        return Veto(reason=Reason(code="override", sentence=sentence, evidence={"by": facts.overridden_by}))


def too_old(facts: Facts, within_s: float | None, *, what: str) -> Veto | None:
    """The veto against acting on a report older than this; None as the limit never objects."""
    if within_s is None:
        return None
    if facts.age_s is None:
        return Veto(reason=Reason(code="no-data", sentence=f"There is no report of the job yet, so {what}."))
    if facts.age_s <= within_s:
        return None
    sentence = (
        f"The latest report is {format_duration(facts.age_s)} old, more than {format_duration(within_s)}, so {what}."
    )
    evidence = {"age_s": facts.age_s, "within_s": within_s}
    return Veto(reason=Reason(code="stale-data", sentence=sentence, evidence=evidence))


@dataclass(frozen=True, slots=True)
class FreshDataGuard:
    """A policy that cannot see the job must not move it."""

    name: ClassVar[str] = "fresh-data"
    binds: ClassVar[frozenset[Origin]] = POLICY_ONLY

    def look(self, _proposal: Proposal, facts: Facts) -> Veto | None:
        return too_old(facts, facts.settings.fresh_within_s, what="the policy leaves the job as it is")


@dataclass(frozen=True, slots=True)
class NeverDownBlindGuard:
    """Takes nothing away from a job that is down, gives no output, or of which too little is known."""

    name: ClassVar[str] = "never-down-blind"
    binds: ClassVar[frozenset[Origin]] = POLICY_ONLY

    def look(self, proposal: Proposal, facts: Facts) -> Veto | None:
        if not proposal.target.takes_less_than(proposal.source):
            return None
        latest = facts.latest
        if latest is None:
            sentence = "There is no report of the job yet, so nothing is taken from it."
            return Veto(reason=Reason(code="down-without-data", sentence=sentence))
        if latest.status is JobStatus.DOWN:
            sentence = "The job is down, and nothing is taken from a job that is down."
            return Veto(reason=Reason(code="down-while-down", sentence=sentence, evidence={"time_s": latest.time_s}))
        if latest.latency_p95_s is None and not latest.is_idle:
            sentence = "The job's latest report has work but no latency, so nothing is taken from it."
            evidence = {"input_rate_per_s": latest.input_rate_per_s, "backlog_records": latest.backlog_records}
            return Veto(reason=Reason(code="down-without-latency", sentence=sentence, evidence=evidence))
        return too_old(facts, facts.settings.down_within_s, what="nothing is taken from the job")


@dataclass(frozen=True, slots=True)
class OneChangeGuard:
    """One change at a time, whoever wants the second."""

    name: ClassVar[str] = "one-change"
    binds: ClassVar[frozenset[Origin]] = EVERYONE

    def look(self, _proposal: Proposal, facts: Facts) -> Veto | None:
        if facts.requested is None:
            return None
        sentence = f"A change to {facts.requested} is on, and only one may be on at a time."
        return Veto(reason=Reason(code="change-on", sentence=sentence, evidence={"requested": str(facts.requested)}))


@dataclass(frozen=True, slots=True)
class BoundsGuard:
    """No configuration outside the user's space."""

    name: ClassVar[str] = "bounds"
    binds: ClassVar[frozenset[Origin]] = EVERYONE

    def look(self, proposal: Proposal, facts: Facts) -> Alter | None:
        if proposal.target in facts.space:
            return None
        nearest = facts.space.nearest(proposal.target)
        sentence = f"{proposal.target} is not in the job's space; the nearest configuration that is: {nearest}."
        evidence = {"wanted": str(proposal.target)}
        return Alter(target=nearest, reason=Reason(code="out-of-bounds", sentence=sentence, evidence=evidence))


@dataclass(frozen=True, slots=True)
class QuotaGuard:
    """No more cores and memory than the job may have."""

    name: ClassVar[str] = "quota"
    binds: ClassVar[frozenset[Origin]] = EVERYONE

    def look(self, proposal: Proposal, facts: Facts) -> Alter | Veto | None:
        target = proposal.target
        if facts.within_quota(target):
            return None
        cores, memory_mib = facts.settings.quota_cores, facts.settings.quota_memory_mib
        limits = [] if cores is None else [f"{cores:g} cores"]
        limits += [] if memory_mib is None else [format_memory(memory_mib)]
        evidence = {
            "wanted_cores": target.total_cores,
            "wanted_memory_mib": target.total_memory_mib,
            "quota_cores": cores,
            "quota_memory_mib": memory_mib,
        }
        fitting = [
            count
            for count in facts.space.executors
            if count <= target.executors and facts.within_quota(target.with_executors(count))
        ]
        if not fitting:
            sentence = f"Not even the fewest executors of {target} fit into the quota of {' and '.join(limits)}."
            return Veto(reason=Reason(code="over-quota", sentence=sentence, evidence=evidence))
        sentence = f"{target} is more than the quota of {' and '.join(limits)}; {fitting[-1]} executors are not."
        reason = Reason(code="over-quota", sentence=sentence, evidence=evidence)
        return Alter(target=target.with_executors(fitting[-1]), reason=reason)


@dataclass(frozen=True, slots=True)
class LargestStepGuard:
    """A policy that errs does so in small steps; the quota goes before the step."""

    name: ClassVar[str] = "largest-step"
    binds: ClassVar[frozenset[Origin]] = POLICY_ONLY

    def look(self, proposal: Proposal, facts: Facts) -> Alter | Veto | None:
        most, source, target = facts.settings.largest_step_executors, proposal.source, proposal.target
        if most is None or abs(target.executors - source.executors) <= most:
            return None
        evidence = {"wanted": target.executors, "running": source.executors, "largest_step_executors": most}
        reachable = [
            count
            for count in facts.space.executors
            if abs(count - source.executors) <= most and facts.within_quota(target.with_executors(count))
        ]
        if not reachable:
            sentence = (
                f"From {source.executors} executors, no number of executors that the space and the quota allow is "
                f"within {most} executors, the largest step."
            )
            return Veto(reason=Reason(code="step-too-large", sentence=sentence, evidence=evidence))
        count = min(reachable, key=lambda candidate: abs(candidate - target.executors))
        sentence = (
            f"From {source.executors} to {target.executors} executors is more than {most}, the largest step; "
            f"{count} is as far as it goes."
        )
        reason = Reason(code="step-too-large", sentence=sentence, evidence=evidence)
        return Alter(target=target.with_executors(count), reason=reason)


@dataclass(frozen=True, slots=True)
class NoChangeGuard:
    """A change to what is in place already is none."""

    name: ClassVar[str] = "no-change"
    binds: ClassVar[frozenset[Origin]] = EVERYONE

    def look(self, proposal: Proposal, _facts: Facts) -> Veto | None:
        if proposal.target != proposal.source:
            return None
        sentence = f"Nothing is left to change: {proposal.source} is in place already."
        return Veto(reason=Reason(code="no-change", sentence=sentence))


@dataclass(frozen=True, slots=True)
class PossibleGuard:
    """What no mechanism of the engine can do is not asked of it."""

    name: ClassVar[str] = "possible"
    binds: ClassVar[frozenset[Origin]] = EVERYONE

    def look(self, proposal: Proposal, facts: Facts) -> Veto | None:
        try:
            facts.space.change(proposal.source, proposal.target, proposal.mechanism)
        except ImpossibleChangeError as error:
            sentence = f"The engine cannot do this: {error}."
            return Veto(reason=Reason(code="impossible-change", sentence=sentence))
        return None


@dataclass(frozen=True, slots=True)
class BarredGuard:
    """A target that went wrong is left alone for a while, and so is what gives no more where that was too little."""

    name: ClassVar[str] = "barred"
    binds: ClassVar[frozenset[Origin]] = POLICY_ONLY

    def look(self, proposal: Proposal, facts: Facts) -> Veto | None:
        rate_per_s = None if facts.latest is None else facts.latest.load_per_s
        found = barring(facts.bars, proposal.target, source=proposal.source, rate_per_s=rate_per_s, now_s=facts.now_s)
        if found is None:
            return None
        barred, bar = found
        left = format_duration(bar.until_s - facts.now_s)
        sentence = f"A change to {barred} went wrong not long ago; it may be tried again in {left}."
        if barred != proposal.target:
            sentence = (
                f"{proposal.target} gives no more than {barred}, which was too little; it may be tried in {left}."
            )
        evidence = {"until_s": bar.until_s, "too_little_at_per_s": bar.too_little_at_per_s}
        return Veto(reason=Reason(code="barred", sentence=sentence, evidence=evidence))


@dataclass(frozen=True, slots=True)
class CooldownGuard:
    """Some time to see what the last change did, by the mechanism that the next one would use.

    What only adds to the job, without a gap, need not wait: a load that keeps rising must not be watched.
    """

    name: ClassVar[str] = "cooldown"
    binds: ClassVar[frozenset[Origin]] = POLICY_ONLY

    def look(self, proposal: Proposal, facts: Facts) -> Veto | None:
        waits, finished_at_s = facts.settings.cooldown_s, facts.last_change_finished_at_s
        if not waits or finished_at_s is None:
            return None
        change = facts.space.change(proposal.source, proposal.target, proposal.mechanism)
        mechanism = change.mechanism
        wait_s, since_s = waits.get(mechanism, 0.0), facts.now_s - finished_at_s
        only_adds = change.gap_s == 0.0 and not proposal.target.takes_less_than(proposal.source)
        if since_s >= wait_s or only_adds:
            return None
        sentence = (
            f"The last change ended {format_duration(max(0.0, since_s))} ago, and a change by {mechanism} waits "
            f"{format_duration(wait_s)}."
        )
        evidence = {"since_s": since_s, "cooldown_s": wait_s, "mechanism": mechanism.value}
        return Veto(reason=Reason(code="cooldown", sentence=sentence, evidence=evidence))


@dataclass(frozen=True, slots=True)
class BlackoutGuard:
    """Hours in which policies leave the job alone."""

    name: ClassVar[str] = "blackout"
    binds: ClassVar[frozenset[Origin]] = POLICY_ONLY

    def look(self, _proposal: Proposal, facts: Facts) -> Veto | None:
        for window in facts.settings.blackouts:
            if window.covers(facts.now_s):
                sentence = f"No change may be made now: {window.why}."
                evidence = {"begin_s": window.begin_s, "end_s": window.end_s}
                return Veto(reason=Reason(code="blackout", sentence=sentence, evidence=evidence))
        return None


@dataclass(frozen=True, slots=True)
class AdviceOnlyGuard:
    """The loop only says what it would do."""

    name: ClassVar[str] = "advice-only"
    binds: ClassVar[frozenset[Origin]] = EVERYONE

    def look(self, _proposal: Proposal, facts: Facts) -> Veto | None:
        if not facts.settings.advice_only:
            return None
        sentence = "Only advice was asked for, so the job is left as it is."
        return Veto(reason=Reason(code=ADVISED, sentence=sentence))


GUARDS: tuple[Guard, ...] = (
    PausedGuard(),
    OverrideGuard(),
    FreshDataGuard(),
    NeverDownBlindGuard(),
    OneChangeGuard(),
    BoundsGuard(),
    QuotaGuard(),
    LargestStepGuard(),
    # Once more: bounds or quota may have turned a change that gave into one that takes.
    NeverDownBlindGuard(),
    NoChangeGuard(),
    PossibleGuard(),
    BarredGuard(),
    CooldownGuard(),
    BlackoutGuard(),
    # Last: whatever comes here is what would be done.
    AdviceOnlyGuard(),
)
"""All guards in their order; the first veto ends the review."""
