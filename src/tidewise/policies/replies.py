"""The replies that every policy gives in the same words: wait, rest, keep, move."""

from __future__ import annotations

from tidewise.core import (
    Configuration,
    Decision,
    Evidence,
    ImpossibleChangeError,
    JobStatus,
    Keep,
    Mechanism,
    Reason,
    Reconfigure,
    Situation,
    format_duration,
)


def keep(code: str, sentence: str, evidence: Evidence | None = None) -> Keep:
    """Leave the job as it is, for this reason."""
    return Keep(reason=Reason(code=code, sentence=sentence, evidence=evidence or {}))


def change_is_on(situation: Situation) -> Keep | None:
    """The reply while a change is on; None while none is."""
    if situation.requested is None:
        return None
    return keep("change-is-on", f"A change to {situation.requested} is on; the next decision waits for its end.")


def not_now(situation: Situation) -> Keep | None:
    """Why nothing can be decided at this moment: a change is on, or the job does not run; None if something can."""
    waiting = change_is_on(situation)
    if waiting is not None:
        return waiting
    if situation.latest.status is not JobStatus.RUNNING:
        return keep("job-not-running", f"The job is {situation.latest.status}; nothing is changed until it runs.")
    return None


def cooling_down(situation: Situation, cooldown_s: float) -> Keep | None:
    """The reply to a decision that comes too soon after the last change; None where it does not."""
    changed_s = situation.last_change_finished_at_s
    left_s = 0.0 if changed_s is None else changed_s + cooldown_s - situation.now_s
    if left_s <= 0.0:
        return None
    return keep("cooling-down", f"The last change was a short time ago: {format_duration(left_s)} to rest.")


def move(
    situation: Situation,
    target: Configuration,
    *,
    mechanism: Mechanism | None,
    code: str,
    sentence: str,
    evidence: Evidence | None = None,
) -> Decision:
    """Reconfigure to the target, unless it is in place already or no mechanism leads there: then Keep, and say so."""
    if target == situation.intended:
        return keep("already-there", f"{sentence} That is what runs.", evidence)
    try:
        situation.space.change(situation.intended, target, mechanism)
    except ImpossibleChangeError as impossible:
        # Asking all the same would only fail again at every decision.
        return keep("unreachable", f"{sentence} It cannot be reached: {impossible}.", evidence)
    reason = Reason(code=code, sentence=sentence, evidence=evidence or {})
    return Reconfigure(target=target, reason=reason, mechanism=mechanism)


def executors(count: int) -> str:
    """A number of executors in words."""
    return "1 executor" if count == 1 else f"{count} executors"


def percent(share: float) -> str:
    """A share as a person would say it."""
    return f"{100 * share:.3g} %"
