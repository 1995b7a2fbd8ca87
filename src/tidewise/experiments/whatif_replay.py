"""Replays what was recorded in a simulator, change by change and failure by failure, and says how far off that is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tidewise.core import (
    REACH,
    ChangeRequest,
    ImpossibleChangeError,
    Mechanism,
    Meter,
    Observation,
    Origin,
    Parameter,
    Reason,
    TemporaryError,
)
from tidewise.engines.simulator import SimulatedJob, Simulator, SimulatorProfile
from tidewise.engines.simulator.physics import capacity_per_s
from tidewise.engines.simulator.profile import FailureProfile, MechanismProfile
from tidewise.experiments.record import ChangeRecord, FaultRecord
from tidewise.experiments.whatif_recording import Outage, Recording

Floats = NDArray[np.float64]

WELL, ROUGHLY = 0.15, 0.3
"""Errors up to which a fit explains a run well, and roughly."""
_LONGEST_WINDOW_S, _SHORTEST_WINDOW_S, _WINDOWS = 60.0, 30.0, 20
_INTERVALS = 3.0
"""Commit intervals that a window holds at least: what a report says jumps with every batch."""
_SEEN_SHARE = 0.5
"""Of a window, what has to be known of it."""
_REASON = Reason(code="recorded", sentence="The recorded run was changed at this time.")
_NO_LIMIT_S = 1e9
_SHORTEST_SHARE = 0.2
"""Of an outage: the batches in it are not let take more than the rest."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Replayed:
    """What a simulated job reported, and what it used."""

    observations: tuple[Observation, ...]
    meter: Meter
    left_out: int
    """Recorded changes that the simulated job could not take."""


def replay(profile: SimulatorProfile, recording: Recording, *, seed: int, until_s: int | None = None) -> Replayed:
    """The recorded load with the recorded changes and failures, from the start up to this time.

    Outages and the gaps of changes last as long as they did: how long others will be is not what a replay is to show.
    """
    seconds = recording.duration_s if until_s is None else min(until_s, recording.duration_s)
    simulator = Simulator(
        profile=_as_recorded(profile, recording),
        rates_per_s=recording.rates_per_s[:seconds],
        seed=seed,
        report_every_s=_report_every_s(recording),
        deployed_for=scaled_by(recording.changes),
    )
    job = simulator.launch(recording.start)
    left_out = 0
    for number, (at_s, one) in enumerate(_happenings(recording)):
        if at_s >= seconds:
            break
        simulator.clock.wait_until(at_s)
        if isinstance(one, FaultRecord):
            job.inject(one.kind)
        elif not _changed(job, simulator, one, number, until_s=float(seconds)):
            left_out += 1
    simulator.clock.wait_until(float(seconds))
    told = job.reports()
    # Simulated batches begin on the second, and reports that keep step with them always see the same of them.
    reports = told if recording.is_simulated else [_at_any_moment(one) for one in told]
    return Replayed(observations=tuple(reports), meter=job.meter(), left_out=left_out)


def _at_any_moment(report: Observation) -> Observation:
    """The report with the backlog that is seen on average, be it just before or just after a commit (Little's law).

    Only while the job keeps up: what it is behind by more than a batch is there at every moment.
    """
    if report.latency_p50_s is None:
        return report
    usual = report.input_rate_per_s * report.latency_p50_s
    if abs(usual - report.backlog_records) > report.input_rate_per_s * batch_period_s(report):
        return report
    return replace(report, backlog_records=usual)


def _report_every_s(recording: Recording) -> int:
    """As often as batches end: of several in a report, a simulated job tells the latency of the middle one."""
    if recording.is_simulated:
        return recording.report_every_s
    shortest_s = min(one.commit_interval_s for one in recording.configurations)
    return max(1, min(recording.report_every_s, math.floor(shortest_s)))


def _happenings(recording: Recording) -> list[tuple[float, FaultRecord | ChangeRecord]]:
    """What was done to the job, in order."""
    felt = {outage.fault for outage in recording.outages}
    faults = [one for one in recording.faults if one not in felt]
    faults += [
        FaultRecord(at_s=outage.begins_s, kind=_outage_kind(number)) for number, outage in enumerate(recording.outages)
    ]
    faults += [
        FaultRecord(at_s=max(0.0, (one.finished_at_s or one.requested_at_s) - one.gap_s), kind=_gap_kind(number))
        for number, one in enumerate(recording.changes)
        if one.gap_s > 0.0
    ]
    happenings: list[tuple[float, FaultRecord | ChangeRecord]] = [(one.at_s, one) for one in faults]
    happenings += [(one.requested_at_s, one) for one in recording.changes]
    return sorted(happenings, key=lambda happening: happening[0])


def _outage_kind(number: int) -> str:
    return f"outage-{number}"


def _gap_kind(number: int) -> str:
    return f"gap-{number}"


def _as_recorded(profile: SimulatorProfile, recording: Recording) -> SimulatorProfile:
    """The profile with each outage and each gap as a failure of its own, which lasts as long as it did."""
    failures = dict(profile.failures)
    for number, outage in enumerate(recording.outages):
        failures[_outage_kind(number)] = profile.failures.get(outage.fault.kind, FailureProfile()).model_copy(
            update={
                "detection_s": 0.0,
                "downtime_s": downtime_s(profile, recording, outage),
                "downtime_spread_share": 0.0,
                "executor_away_s": None,
            }
        )
    for number, change in enumerate(recording.changes):
        cost = profile.mechanisms.get(change.mechanism, MechanismProfile(gap_s=0.0))
        failures[_gap_kind(number)] = FailureProfile(
            downtime_s=change.gap_s, replays=cost.replays, warm_up=cost.warm_up
        )
    nothing = {"gap_s": 0.0, "gap_s_per_state_gib": 0.0, "failure_share": 0.0}
    mechanisms = {name: cost.model_copy(update=nothing) for name, cost in profile.mechanisms.items()}
    return profile.model_copy(update={"failures": failures, "mechanisms": mechanisms})


def downtime_s(profile: SimulatorProfile, recording: Recording, outage: Outage) -> float:
    """How long nothing was processed: a real job of batches is said to be down until some time after its first one."""
    if profile.batch is None or recording.is_simulated:
        return outage.lasted_s
    begun_s = outage.begins_s
    during = [one for one in recording.observations if begun_s < one.time_s - one.window_s / 2 <= outage.ends_s]
    configuration = during[-1].configuration if during else recording.start
    done = sum(one.processed_rate_per_s * one.window_s for one in during)
    capacity = capacity_per_s(profile.capacity, configuration, configuration.executors)
    worked_s = profile.batch.fixed_s + done / max(1e-9, capacity)
    return max(_SHORTEST_SHARE * outage.lasted_s, outage.lasted_s - worked_s)


def batch_period_s(report: Observation) -> float:
    """From one batch to the next, by how far apart the latencies of their records lie: they wait 0 to one period."""
    interval_s = report.configuration.commit_interval_s
    if report.latency_p50_s is None or report.latency_p95_s is None:
        return interval_s
    return max(interval_s, (report.latency_p95_s - report.latency_p50_s) / 0.45)


def _changed(job: SimulatedJob, simulator: Simulator, change: ChangeRecord, number: int, *, until_s: float) -> bool:
    """Whether the job took the change, as soon as the one before it has ended."""
    now_s = simulator.clock.now_s()
    request = ChangeRequest(
        request_id=f"recorded-{number}",
        origin=Origin.OPERATOR,
        source=change.source,
        target=change.target,
        mechanism=change.mechanism,
        requested_at_s=now_s,
        deadline_s=now_s + _NO_LIMIT_S,
        reason=_REASON,
    )
    while now_s < until_s:
        try:
            job.change(request)
        except TemporaryError:
            now_s += 1.0
            simulator.clock.wait_until(now_s)
        except ImpossibleChangeError:
            return False
        else:
            return True
    return False


def scaled_by(changes: Sequence[ChangeRecord]) -> Mechanism | None:
    """The mechanism that carried most changes of the number of executors; None where there was none."""
    able = Counter(change.mechanism for change in changes if Parameter.EXECUTORS in REACH[change.mechanism])
    return able.most_common(1)[0][0] if able else None


# How far off ------------------------------------------------------------------------------------------------------


class Figure(StrEnum):
    """What a replay is held against the run by."""

    LATENCY_P50 = "latency p50"
    LATENCY_P95 = "latency p95"
    BACKLOG = "backlog"
    BUSY_SHARE = "busy share"


JUDGED = (Figure.LATENCY_P95, Figure.BACKLOG, Figure.BUSY_SHARE)


def window_s(recording: Recording) -> float:
    """How long the windows are whose means are compared."""
    interval_s = max(one.commit_interval_s for one in recording.configurations)
    usual_s = min(_LONGEST_WINDOW_S, max(_SHORTEST_WINDOW_S, recording.duration_s / _WINDOWS))
    return max(usual_s, _INTERVALS * interval_s, _INTERVALS * recording.report_every_s)


def windows_of(
    observations: Sequence[Observation],
    *,
    width_s: float,
    seconds: float,
    passed_over: Sequence[tuple[float, float]] = (),
) -> dict[Figure, Floats]:
    """The mean of each figure over each whole window; NaN where too little of it is known.

    Second by second: a second has the backlog and busy share of the report in whose window it lies, and the latency of
    what ARRIVED in it, which the reports tell later. `passed_over`: seconds between two such times do not count.
    """
    middles = np.arange(int(seconds)) + 0.5
    counts = np.ones(len(middles), dtype=np.bool_)
    for begins_s, ends_s in passed_over:
        counts &= (middles < begins_s) | (middles >= ends_s)
    ends = np.array([one.time_s for one in observations])
    # Without output, a report repeats the latency of what was output last.
    output = [one for one in observations if one.latency_p50_s is not None and one.processed_rate_per_s > 0.0]
    # A job works its records off in their order: none has arrived later than those that were output after it.
    arrived = np.maximum.accumulate([one.time_s - (one.latency_p50_s or 0.0) for one in output])
    columns: dict[Figure, tuple[Floats, Sequence[float | None]]] = {
        Figure.LATENCY_P50: (arrived, [one.latency_p50_s for one in output]),
        Figure.LATENCY_P95: (arrived, [one.latency_p95_s for one in output]),
        Figure.BACKLOG: (ends, [one.backlog_records for one in observations]),
        Figure.BUSY_SHARE: (ends, [one.busy_share for one in observations]),
    }
    count = int(seconds // width_s)
    places = (middles // width_s).astype(np.int64)
    found = {}
    for figure, (until_s, column) in columns.items():
        told = np.array([*(np.nan if value is None else value for value in column), np.nan], dtype=np.float64)
        values = told[np.searchsorted(until_s, middles)]
        used = counts & np.isfinite(values) & (places < count)
        weight = np.bincount(places[used], minlength=count)
        total = np.bincount(places[used], weights=values[used], minlength=count)
        known = weight >= _SEEN_SHARE * width_s
        found[figure] = np.where(known, total / np.maximum(1, weight), np.nan)
    return found


class Trust(StrEnum):
    """How far what a fit says can be relied on."""

    WELL = "well"
    ROUGHLY = "roughly"
    NOT = "not"


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """How far a replay was off: mean absolute error over windows, over the mean of what was recorded."""

    errors: dict[Figure, float | None]
    """None: nothing was recorded of it, or it was always 0."""
    windows: int

    @property
    def trust(self) -> Trust:
        """By what was promised: latency and backlog. A busy share that is off makes it rough at most.

        Busy shares of real jobs rest on a guess at the fixed cost of a batch, and jump with it.
        """
        late = [error for figure in (Figure.LATENCY_P95, Figure.BACKLOG) if (error := self.errors[figure]) is not None]
        if self.errors[Figure.LATENCY_P95] is None or max(late) > ROUGHLY:
            return Trust.NOT
        return Trust.WELL if max(*late, self.errors[Figure.BUSY_SHARE] or 0.0) <= WELL else Trust.ROUGHLY


def misfit(recorded: dict[Figure, Floats], simulated: dict[Figure, Floats], *, first: int = 0) -> Misfit:
    """From this window on; one that only one of the two knows does not count."""
    errors: dict[Figure, float | None] = {}
    windows = 0
    for figure in Figure:
        seen, made = recorded[figure][first:], simulated[figure][first:]
        both = np.isfinite(seen) & np.isfinite(made)
        mean = float(seen[both].mean()) if both.any() else 0.0
        errors[figure] = float(np.abs(made - seen)[both].mean()) / mean if mean > 0.0 else None
        windows = max(windows, int(both.sum()))
    return Misfit(errors=errors, windows=windows)
