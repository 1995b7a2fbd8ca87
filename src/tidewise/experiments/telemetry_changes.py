"""What was expected of each change of a run, and what came, told as soon as that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidewise.core import (
    ChangeExpired,
    ChangeFinished,
    ChangeOutcome,
    ChangeRequest,
    ChangeRequested,
    ChangeStatus,
    ControllerStarted,
    Decided,
    JournalEvent,
    Observation,
    Prices,
    Reconfigure,
    Reported,
)
from tidewise.core.telemetry import ChangeRow
from tidewise.experiments.explain import Account, Expected

MINUTE_S = 60.0
_LATE_S = 120.0
"""A window that is not reported so long after its end is not waited for."""
_REPORTS_MOST = 20_000
"""Of the time after one change; beyond any look-ahead at usual intervals."""
_TOLERANCE_S = 1e-3
"""Two times of a run that differ by less are the same."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Open:
    """A change of which it is not known yet what came."""

    request: ChangeRequest
    events: list[JournalEvent]
    """What an account of it needs: the decision, the request, its end, the next one, and the reports."""
    ends_s: float
    """When the time that was looked ahead has passed, or the next change was asked for."""
    reports: list[Observation] = field(default_factory=list)
    outcome: ChangeOutcome | None = None
    has_expired: bool = False
    is_undone: bool = False
    is_superseded: bool = False

    @property
    def applied(self) -> bool:
        return self.outcome is not None and self.outcome.status is ChangeStatus.APPLIED and not self.has_expired

    @property
    def came_to_nothing(self) -> bool:
        """Whether it is known that what was expected of it cannot come."""
        return self.has_expired or (self.outcome is not None and self.outcome.status is ChangeStatus.FAILED)

    def is_known(self, *, now_s: float, reported_s: float) -> bool:
        """Whether all that shows what came of it has been told."""
        if self.came_to_nothing:
            return True
        has_end = self.is_superseded or self.outcome is not None
        return has_end and (reported_s >= self.ends_s or now_s > self.ends_s + _LATE_S)

    def take_report(self, event: Reported) -> None:
        seen = event.observation
        if seen.time_s <= self.ends_s + _TOLERANCE_S and len(self.reports) < _REPORTS_MOST:
            self.reports.append(seen)
            self.events.append(event)

    @property
    def outcome_in_a_word(self) -> str:
        if self.has_expired:
            return "expired"
        if self.outcome is None:
            return "unfinished"
        return "rolled back" if self.is_undone and self.applied else self.outcome.status.value


class ChangesTold:
    """Follows the changes of a journal; holds what has come since the last one only."""

    def __init__(self, *, prices: Prices | None, began_unix_s: float) -> None:
        self._prices = prices
        self._began_unix_s = began_unix_s
        self._open: list[_Open] = []
        self._decided: Decided | None = None
        self._reported_s = float("-inf")

    def take(self, event: JournalEvent) -> list[ChangeRow]:
        """One event in its turn; the changes of which it is known with it what came."""
        if isinstance(event, Reported):
            self._reported_s = max(self._reported_s, event.observation.time_s)
            for one in self._open:
                one.take_report(event)
        elif isinstance(event, Decided):
            self._decided = event
        elif isinstance(event, ChangeRequested):
            self._requested(event)
        elif isinstance(event, ChangeFinished | ChangeExpired):
            self._ended(event)
        known = [one for one in self._open if one.is_known(now_s=event.at_s, reported_s=self._reported_s)]
        return self._tell(known)

    def end(self) -> list[ChangeRow]:
        """The run is over: what is known by now is all that will be."""
        return self._tell(tuple(self._open))

    def _requested(self, event: ChangeRequested) -> None:
        request = event.request
        of_it = self._decided if self._decided is not None and self._decided.at_s == event.at_s else None
        # As the loop writes it, a request has the target and the reason of its decision, as far as guards let it.
        decided = Decided(
            at_s=event.at_s,
            origin=request.origin,
            decision=Reconfigure(target=request.target, reason=request.reason),
            forecast=None if of_it is None else of_it.forecast,
        )
        for one in self._open:
            one.is_superseded = True
            one.is_undone = one.is_undone or request.undoes == one.request.request_id
            one.ends_s = min(one.ends_s, event.at_s)
            one.events += [decided, event]
        began = ControllerStarted(at_s=event.at_s, version="-", policy="-", configuration=request.source)
        over_s = Expected.of(request.reason.evidence).over_s
        self._open.append(_Open(request=request, events=[began, decided, event], ends_s=event.at_s + over_s))

    def _ended(self, event: ChangeFinished | ChangeExpired) -> None:
        request_id = event.outcome.request_id if isinstance(event, ChangeFinished) else event.request_id
        for one in self._open:
            if one.request.request_id != request_id:
                continue
            one.events.append(event)
            if isinstance(event, ChangeFinished):
                one.outcome = event.outcome
            else:
                one.has_expired = True

    def _tell(self, known: Sequence[_Open]) -> list[ChangeRow]:
        told = [self._row(one) for one in known]
        self._open = [one for one in self._open if one not in known]
        return told

    def _row(self, one: _Open) -> ChangeRow:
        request, outcome = one.request, None if one.has_expired else one.outcome
        account = Account(one.events, prices=self._prices)
        step = account.steps[0]
        expected, came = step.expected, account.came(step) if one.applied else None
        return ChangeRow(
            at_unix_s=self._began_unix_s + step.at_s,
            request_id=request.request_id,
            origin=request.origin.value,
            mechanism=request.mechanism.value,
            source=str(request.source),
            target=str(request.target),
            source_executors=request.source.executors,
            target_executors=request.target.executors,
            outcome=one.outcome_in_a_word,
            took_s=None if outcome is None else max(0.0, outcome.finished_at_s - request.requested_at_s),
            gap_s=None if outcome is None else outcome.gap_s,
            reason_code=request.reason.code,
            sentence=request.reason.sentence,
            expected_rate_per_s=expected.expected_rate_per_s,
            expected_latency_p95_s=expected.expected_latency_p95_s,
            expected_recovery_s=expected.expected_recovery_s,
            expected_cost_per_hour=expected.cost_per_hour,
            came_rate_per_s=None if came is None else highest_minute_per_s(one.reports, since_s=step.at_s),
            came_latency_p95_s=None if came is None else came.latency_p95_s,
            came_cost_per_hour=None if came is None else came.cost_per_hour,
        )


def highest_minute_per_s(reports: Sequence[Observation], *, since_s: float) -> float | None:
    """The highest mean load of a minute among windows that begin at this time or later; None where there are none.

    Where less than a minute was reported: the mean of that.
    """
    windows = [one for one in reports if one.time_s - one.window_s >= since_s - _TOLERANCE_S]
    if not windows:
        return None
    best, first, arrived, lasted_s = None, 0, 0.0, 0.0
    for one in windows:
        arrived += one.load_per_s * one.window_s
        lasted_s += one.window_s
        while lasted_s - windows[first].window_s >= MINUTE_S - _TOLERANCE_S:
            arrived -= windows[first].load_per_s * windows[first].window_s
            lasted_s -= windows[first].window_s
            first += 1
        if lasted_s >= MINUTE_S - _TOLERANCE_S:
            best = max(best or 0.0, arrived / lasted_s)
    return max(0.0, arrived / lasted_s) if best is None else best
