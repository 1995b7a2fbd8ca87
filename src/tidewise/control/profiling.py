"""Whether a profile may be run; profiles do not touch the job, so fewer guards concern them."""

from __future__ import annotations

from tidewise.control.guards import AdviceOnlyGuard, FreshDataGuard, OverrideGuard, PausedGuard
from tidewise.control.review import Facts, Proposal
from tidewise.core import Configuration, GuardVerdict, Origin, Profile, Reason, Verdict, format_duration

_GUARDS = (PausedGuard(), OverrideGuard(), FreshDataGuard())


def review_profile(
    decision: Profile, facts: Facts, *, intended: Configuration, profile_on: str | None, profiled_s: float
) -> tuple[GuardVerdict, ...]:
    """The veto against a profile, or nothing. `profiled_s`: for how long profiles have been on so far.

    Candidates are measured as they are or not at all: a result for an altered one would answer another question.
    """
    proposal = Proposal(origin=Origin.POLICY, source=intended, target=intended)
    for guard in _GUARDS:
        answer = guard.look(proposal, facts)
        if answer is not None:
            return (GuardVerdict(guard=guard.name, verdict=Verdict.VETO, reason=answer.reason),)
    veto = (
        _one_profile(profile_on)
        or _bounds(decision, facts)
        or _quota(decision, facts, intended=intended)
        or _budget(decision, facts, profiled_s=profiled_s)
        or _advice_only(proposal, facts)
    )
    return () if veto is None else (veto,)


def _veto(guard: str, reason: Reason) -> GuardVerdict:
    return GuardVerdict(guard=guard, verdict=Verdict.VETO, reason=reason)


def _advice_only(proposal: Proposal, facts: Facts) -> GuardVerdict | None:
    guard = AdviceOnlyGuard()
    answer = guard.look(proposal, facts)
    return None if answer is None else _veto(guard.name, answer.reason)


def _one_profile(profile_on: str | None) -> GuardVerdict | None:
    if profile_on is None:
        return None
    sentence = f"The profile {profile_on} is on, and only one may be on at a time."
    return _veto("one-profile", Reason(code="profile-on", sentence=sentence, evidence={"request_id": profile_on}))


def _bounds(decision: Profile, facts: Facts) -> GuardVerdict | None:
    for candidate in decision.candidates:
        if candidate not in facts.space:
            sentence = f"{candidate} is not in the job's space, so no copy of the job may have it."
            return _veto("bounds", Reason(code="out-of-bounds", sentence=sentence))
    return None


def _quota(decision: Profile, facts: Facts, *, intended: Configuration) -> GuardVerdict | None:
    # All copies run at once, and the job beside them.
    everything = (intended, *decision.candidates)
    cores = sum(each.total_cores for each in everything)
    memory_mib = sum(each.total_memory_mib for each in everything)
    if facts.fits_quota(cores=cores, memory_mib=memory_mib):
        return None
    sentence = f"The job and {len(decision.candidates)} copies of it together would be more than the quota."
    evidence = {"cores": cores, "memory_mib": memory_mib}
    return _veto("quota", Reason(code="over-quota", sentence=sentence, evidence=evidence))


def _budget(decision: Profile, facts: Facts, *, profiled_s: float) -> GuardVerdict | None:
    settings = facts.settings
    cores = sum(each.total_cores for each in decision.candidates)
    memory_mib = sum(each.total_memory_mib for each in decision.candidates)
    if _is_over(cores, settings.profile_cores) or _is_over(memory_mib, settings.profile_memory_mib):
        sentence = f"{len(decision.candidates)} copies of the job together would be more than profiles may have."
        evidence = {"cores": cores, "memory_mib": memory_mib}
        return _veto("profile-budget", Reason(code="over-profile-budget", sentence=sentence, evidence=evidence))
    takes_s = decision.settle_s + decision.measure_s
    if _is_over(profiled_s + takes_s, settings.profile_time_s):
        sentence = (
            f"Profiles have been on for {format_duration(profiled_s)}; another {format_duration(takes_s)} would be "
            "more than their budget of time."
        )
        evidence = {"profiled_s": profiled_s, "takes_s": takes_s}
        return _veto("profile-budget", Reason(code="over-profile-time", sentence=sentence, evidence=evidence))
    return None


def _is_over(wanted: float, most: float | None) -> bool:
    # As in a quota, a thousandth is no reason to refuse.
    return most is not None and wanted > most + 1e-3
