"""What a run's record and series need of its journal, kept in memory while it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from tidewise.core import (
    ChangeExpired,
    ChangeFinished,
    ChangeOutcome,
    ChangeRequest,
    ChangeRequested,
    ChangeStatus,
    Decided,
    Forecast,
    Journal,
    JournalEvent,
)
from tidewise.experiments.record import ChangeRecord
from tidewise.workload import Rates

FAILED_DECISIONS = {"policy-failed", "forecaster-failed"}
"""The reasons by which the loop says that somebody raised an error instead of deciding."""
FORECAST_SHOWN_S = 600.0
"""Reports show the load beside what had been forecast for it this long before."""


@dataclass(slots=True)
class Ledger:
    """A journal that also keeps in memory what a run's record and series need of it."""

    journal: Journal
    failed_decisions: int = 0
    _requests: dict[str, ChangeRequest] = field(default_factory=dict)
    _ends: dict[str, ChangeOutcome] = field(default_factory=dict)
    _forecasts: list[Forecast] = field(default_factory=list)

    def append(self, events: Iterable[JournalEvent]) -> None:
        written = tuple(events)
        self.journal.append(written)
        for event in written:
            self.note(event)

    def note(self, event: JournalEvent) -> None:
        """Keep in memory what is needed of an event that is written already."""
        if isinstance(event, Decided):
            self.failed_decisions += event.decision.reason.code in FAILED_DECISIONS
            if event.forecast is not None:
                self._forecasts.append(event.forecast)
        elif isinstance(event, ChangeRequested):
            self._requests[event.request.request_id] = event.request
        elif isinstance(event, ChangeFinished):
            self._finished(event.outcome)
        elif isinstance(event, ChangeExpired):
            late = ChangeOutcome(
                request_id=event.request_id,
                status=ChangeStatus.FAILED,
                finished_at_s=event.at_s,
                configuration=event.configuration,
                detail="the target did not run before the deadline",
            )
            self._ends.setdefault(event.request_id, late)

    def settle(self, outcome_of: Callable[[str], ChangeOutcome | None]) -> None:
        """Ask the engine once more how each change ended: nobody waits for one that missed its deadline."""
        for request_id in self._requests:
            outcome = outcome_of(request_id)
            if outcome is not None:
                self._finished(outcome)

    def _finished(self, outcome: ChangeOutcome) -> None:
        """What the loop made of a change stays, a missed deadline being a failure; its gap and end are the engine's."""
        known = self._ends.get(outcome.request_id)
        if known is not None:
            outcome = replace(outcome, status=known.status, detail=known.detail or outcome.detail)
        self._ends[outcome.request_id] = outcome

    def read(self) -> Iterable[JournalEvent]:
        return self.journal.read()

    def close(self) -> None:
        self.journal.close()

    def changes(self, *, since_s: float = 0.0) -> tuple[ChangeRecord, ...]:
        """Every change that was asked for, with its end; in seconds since this time of the run's clock."""
        records = []
        for request_id, request in self._requests.items():
            end = self._ends.get(request_id)
            asked_s = request.requested_at_s - since_s
            records.append(
                ChangeRecord(
                    requested_at_s=asked_s,
                    finished_at_s=None if end is None else max(end.finished_at_s - since_s, asked_s),
                    mechanism=request.mechanism,
                    origin=request.origin,
                    source=request.source,
                    target=request.target,
                    status=None if end is None else end.status,
                    gap_s=0.0 if end is None else end.gap_s,
                    reason=request.reason.sentence,
                )
            )
        return tuple(records)

    def forecast_per_s(self, duration_s: int, *, since_s: float = 0.0) -> Rates:
        """For each second, the median that had been forecast for it `FORECAST_SHOWN_S` before; NaN where none was."""
        shown = np.full(duration_s, np.nan)
        for forecast in self._forecasts:
            path = forecast.path()
            step = min(len(path) - 1, int(FORECAST_SHOWN_S // forecast.step_s))
            begin = max(0, int(forecast.made_at_s - since_s + step * forecast.step_s))
            shown[begin : begin + int(forecast.step_s)] = path[step]
        return shown
