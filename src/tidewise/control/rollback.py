"""Whether a change is taken back, and by what way; never while the job is down or a person has decided."""

from __future__ import annotations

from dataclasses import dataclass

from tidewise.control.lifecycle import Change, Phase
from tidewise.control.state import State
from tidewise.core import (
    ChangeRequest,
    Configuration,
    ConfigurationSpace,
    ImpossibleChangeError,
    JobStatus,
    Keep,
    Mechanism,
    Origin,
    Reason,
    Reconfigure,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WayBack:
    """What to do about a change that went wrong."""

    decision: Keep | Reconfigure
    source: Configuration
    """Where the way back begins."""
    undoes: str


def promise_broken(state: State) -> Reason | None:
    """Why the latest report is the one too many for the change on probation; None: it is not."""
    change = state.change
    if change is None or change.phase is not Phase.ON_PROBATION or change.probation is None:
        return None
    # Equal, not above: where the rollback was refused, further reports do not ask for it again.
    if change.probation.broken_in_a_row != state.settings.broken_reports:
        return None
    if not change.kept_before or change.request.source.takes_less_than(change.request.target):
        return None
    sentence = (
        f"The latency promise was kept before the change and is broken in {change.probation.broken_in_a_row} reports "
        "in a row since, so the job goes back to where it was."
    )
    return Reason(code="promise-broken", sentence=sentence)


def way_back(
    state: State,
    change: Change,
    reason: Reason,
    *,
    now_s: float,
    space: ConfigurationSpace,
    known_within_s: float | None,
) -> WayBack | None:
    """The way back from a change, or why it is not gone; None: there is none to go."""
    undone, observed = change.request, state.observed
    if undone.origin is Origin.ROLLBACK:
        return None  # The way back is not taken back: two configurations would take turns for ever.
    if state.override is not None:
        return None  # A person said so: it is brought about, again and again if need be, until it is lifted.
    # Where the source runs, the engine may still be leaving it for the target.
    source = undone.target if observed is None or observed == undone.source else observed
    why_not = _why_not(state, undone, source=source, now_s=now_s, known_within_s=known_within_s)
    if why_not is not None:
        withheld = Reason(
            code="rollback-withheld", sentence=f"{reason.sentence} But {why_not}.", evidence=reason.evidence
        )
        return WayBack(decision=Keep(reason=withheld), source=source, undoes=undone.request_id)
    mechanism = _same_way(space, undone, source=source)
    decision = Reconfigure(target=undone.source, reason=reason, mechanism=mechanism)
    return WayBack(decision=decision, source=source, undoes=undone.request_id)


def _why_not(
    state: State, undone: ChangeRequest, *, source: Configuration, now_s: float, known_within_s: float | None
) -> str | None:
    latest = state.latest
    if latest is not None and latest.status is JobStatus.DOWN:
        return "the job is down, and a change would only add to that"
    if not undone.source.takes_less_than(source):
        return None
    fresh = latest is not None and (known_within_s is None or now_s - latest.time_s <= known_within_s)
    if latest is not None and fresh and not state.promises.broken_by(latest):
        return None
    return (
        f"{undone.source} is less than {source}, and nothing is taken from a job while its promise is broken or not "
        "known to be kept"
    )


def _same_way(space: ConfigurationSpace, undone: ChangeRequest, *, source: Configuration) -> Mechanism | None:
    """The mechanism of the change, which whoever asked for it chose with its costs in mind; None if it cannot."""
    try:
        return space.change(source, undone.source, undone.mechanism).mechanism
    except ImpossibleChangeError:
        return None
