"""A journal of a small run, as a controller would have written it, for tests to read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tidewise.control import SqliteJournal
from tidewise.core import (
    ChangeFinished,
    ChangeOutcome,
    ChangeRequest,
    ChangeRequested,
    ChangeSettled,
    ChangeStatus,
    Configuration,
    ControllerStarted,
    Decided,
    FaultInjected,
    JobStatus,
    JournalEvent,
    Keep,
    LatencyMethod,
    Mechanism,
    Observation,
    Origin,
    Reason,
    Reconfigure,
    Reported,
)
from tidewise.core.decision import Evidence

BEGAN_S = 20.0
"""When control begins, on the clock of the run."""


def config(executors: int) -> Configuration:
    return Configuration(executors=executors)


def report(
    at_s: float,
    *,
    executors: int = 4,
    rate_per_s: float = 1000.0,
    latency_s: float | None = 1.0,
    status: JobStatus = JobStatus.RUNNING,
    busy_share: float = 0.5,
) -> Reported:
    """A window of ten seconds that ends so long after control began."""
    observation = Observation(
        time_s=BEGAN_S + at_s,
        window_s=10.0,
        configuration=config(executors),
        status=status,
        input_rate_per_s=rate_per_s,
        processed_rate_per_s=rate_per_s,
        backlog_records=0.0,
        latency_p50_s=latency_s,
        latency_p95_s=latency_s,
        latency_p99_s=latency_s,
        latency_method=LatencyMethod.EVENT_TIME if latency_s is not None else None,
        busy_share=busy_share,
        cpu_share=busy_share,
    )
    return Reported(at_s=BEGAN_S + at_s, observation=observation)


def keep(at_s: float, evidence: Evidence | None = None) -> Decided:
    reason = Reason(code="fine", sentence="All is well.", evidence=evidence or {})
    return Decided(at_s=BEGAN_S + at_s, origin=Origin.POLICY, decision=Keep(reason=reason))


def change(
    at_s: float, *, source: int, target: int, took_s: float | None = 5.0, evidence: Evidence | None = None
) -> list[JournalEvent]:
    """A decision, its request and, unless `took_s` is None, its end."""
    reason = Reason(code="cheaper", sentence="Fewer executors are enough.", evidence=evidence or {})
    decision = Reconfigure(target=config(target), reason=reason)
    request = ChangeRequest(
        request_id=f"run-{at_s:g}",
        origin=Origin.POLICY,
        source=config(source),
        target=config(target),
        mechanism=Mechanism.LIVE,
        requested_at_s=BEGAN_S + at_s,
        deadline_s=BEGAN_S + at_s + 120.0,
        reason=reason,
    )
    events: list[JournalEvent] = [
        Decided(at_s=BEGAN_S + at_s, origin=Origin.POLICY, decision=decision),
        ChangeRequested(at_s=BEGAN_S + at_s, request=request),
    ]
    if took_s is not None:
        ended_s = BEGAN_S + at_s + took_s
        outcome = ChangeOutcome(
            request_id=request.request_id,
            status=ChangeStatus.APPLIED,
            finished_at_s=ended_s,
            configuration=config(target),
        )
        events.append(ChangeFinished(at_s=ended_s, outcome=outcome))
    return events


EXPECTED: Evidence = {
    "rate_per_s": 1000.0,
    "expected_rate_per_s": 1050.0,
    "expected_rate_high_per_s": 1100.0,
    "look_ahead_s": 100.0,
    "expected_latency_p95_s": 1.0,
    "expected_latency_p95_high_s": 1.5,
    "expected_recovery_s": 20.0,
    "expected_recovery_high_s": 40.0,
    "cost_per_hour": 0.09,
    "cost_per_hour_before": 0.18,
    "saving_per_hour": 0.09,
    "change_cost": 0.001,
    "keeps_probability": 0.97,
    "calibration": 1.25,
    "backlog_records": 12,
}


def a_run() -> list[JournalEvent]:
    """Ten minutes: a change at 100 s from four executors to two, after which latency is too high in two windows."""
    events: list[JournalEvent] = [
        ControllerStarted(at_s=BEGAN_S, version="1", policy="tidewise", configuration=config(4))
    ]
    for at_s in range(10, 610, 10):
        if at_s == 110:
            events += change(100.0, source=4, target=2, evidence=EXPECTED)
            events.append(FaultInjected(at_s=BEGAN_S + 400.0, fault="kill-driver"))
        events.append(
            report(
                float(at_s),
                executors=4 if at_s <= 110 else 2,
                rate_per_s=1200.0 if at_s == 150 else 1000.0,
                latency_s=2.0 if at_s in {160, 170} else 1.0,
            )
        )
        if at_s % 60 == 0:
            events.append(keep(float(at_s)))
    settled = ChangeSettled(at_s=BEGAN_S + 500.0, request_id="run-100")
    return sorted([*events, settled], key=lambda event: event.at_s)


def write_journal(folder: Path, events: Iterable[JournalEvent]) -> Path:
    """The folder of a run that is on, with this journal."""
    folder.mkdir(parents=True, exist_ok=True)
    with SqliteJournal(folder / "journal.sqlite") as journal:
        journal.append(events)
    return folder
