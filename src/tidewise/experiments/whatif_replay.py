"""Replays what was recorded in a simulator, change by change and failure by failure, and says how far off that is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tidewise.core import (
    REACH,
    ChangeRequest,
    ImpossibleChangeError,
    JobStatus,
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
from tidewise.experiments.whatif_recording import TAIL, Outage, Recording, outputs

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

WELL, ROUGHLY = 0.15, 0.3
"""Errors up to which a fit explains a run well, and roughly."""
_LONGEST_WINDOW_S, _SHORTEST_WINDOW_S, _WINDOWS = 60.0, 30.0, 20
_INTERVALS = 3.0
"""Commit intervals that a window holds at least: what a report says jumps with every batch."""
_SEEN_SHARE = 0.5
"""Of a window, what has to be known of it."""
_REASON = Reason(code="recorded", sentence="The recorded run was changed at this time.")
_NO_LIMIT_S = 1e9
_FAILURE_LASTS_S, _CHANGE_LASTS_S, _DISTURBED_SHARE = 120.0, 20.0, 0.25
"""How long the end of an outage, and of a change, is felt; and of how much of a window, for it not to be calm."""
_PARTS = 4
"""Of a second, in which latencies are looked at: simulated batches keep step with seconds."""
_SHORTEST_SHARE = 0.2
"""Of an outage: the batches in it are not let take more than the rest."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Replayed:
    """What a simulated job reported, and what it used."""

    observations: tuple[Observation, ...]
    meter: Meter
    left_out: int
    """Recorded changes that the simulated job could not take."""


def replay(
    profile: SimulatorProfile,
    recording: Recording,
    *,
    seed: int,
    until_s: int | None = None,
    known_until_s: float = math.inf,
) -> Replayed:
    """The recorded load with the recorded changes and failures, from the start up to this time.

    Outages and the gaps of changes last as long as they did, those that end later than `known_until_s` as long as the
    profile says.
    """
    seconds = recording.duration_s if until_s is None else min(until_s, recording.duration_s)
    simulator = Simulator(
        profile=_as_recorded(profile, recording, known_until_s),
        rates_per_s=recording.rates_per_s[:seconds],
        seed=seed,
        report_every_s=_report_every_s(recording),
        deployed_for=scaled_by(recording.changes),
    )
    job = simulator.launch(recording.start)
    left_out = 0
    for number, (at_s, one) in enumerate(_happenings(recording, known_until_s)):
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


def _happenings(recording: Recording, known_until_s: float) -> list[tuple[float, FaultRecord | ChangeRecord]]:
    """What was done to the job, in order."""
    known = [(number, one) for number, one in enumerate(recording.outages) if one.ends_s <= known_until_s]
    felt = {outage.fault for _, outage in known}
    faults = [one for one in recording.faults if one not in felt]
    faults += [FaultRecord(at_s=outage.begins_s, kind=_outage_kind(number)) for number, outage in known]
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


def _as_recorded(profile: SimulatorProfile, recording: Recording, known_until_s: float) -> SimulatorProfile:
    """The profile with each outage and each gap as a failure of its own, which lasts as long as it did."""
    failures = dict(profile.failures)
    coldest = max((one.warm_up for one in profile.failures.values()), key=lambda one: one.duration_s)
    for number, outage in enumerate(recording.outages):
        kind = profile.failures.get(outage.fault.kind, FailureProfile())
        failures[_outage_kind(number)] = kind.model_copy(
            update={
                "detection_s": 0.0,
                "downtime_s": downtime_s(profile, recording, outage),
                "downtime_spread_share": 0.0,
                "executor_away_s": None,
                "plans_after_s": None if recording.is_simulated else planned_after_s(recording, outage),
                # Where nobody is left, all that comes is new.
                "warm_up": coldest
                if 0 < executors_at(recording, outage.begins_s) <= kind.executors_lost
                else kind.warm_up,
            }
        )
    for number, change in enumerate(recording.changes):
        cost = profile.mechanisms.get(change.mechanism, MechanismProfile(gap_s=0.0))
        gap_s = change.gap_s if (change.finished_at_s or change.requested_at_s) <= known_until_s else cost.gap_s
        failures[_gap_kind(number)] = FailureProfile(downtime_s=gap_s, replays=cost.replays, warm_up=cost.warm_up)
    nothing = {"gap_s": 0.0, "gap_s_per_state_gib": 0.0, "failure_share": 0.0}
    mechanisms = {name: cost.model_copy(update=nothing) for name, cost in profile.mechanisms.items()}
    return profile.model_copy(update={"failures": failures, "mechanisms": mechanisms})


def planned_after_s(recording: Recording, outage: Outage) -> float:
    """How long into an outage it was settled what the first batch after it holds, by what that left over."""
    first = next((one for one in recording.observations if _is_output(one, outage)), None)
    if first is None:
        return outage.lasted_s
    second, left = min(recording.duration_s, round(first.time_s)), first.backlog_records
    while left > 0.0 and second > outage.begins_s:
        second -= 1
        left -= float(recording.rates_per_s[second])
    return max(0.0, second - outage.begins_s)


def _is_output(report: Observation, outage: Outage) -> bool:
    return report.processed_rate_per_s > 0.0 and report.time_s - report.window_s / 2 > outage.begins_s


def executors_at(recording: Recording, at_s: float) -> int:
    """How many there were at this time, by the last report before it."""
    before = [one for one in recording.observations if one.time_s <= at_s]
    return before[-1].configuration.executors if before else recording.start.executors


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
    return max(interval_s, (report.latency_p95_s - report.latency_p50_s) / TAIL)


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


def in_batches(recording: Recording, profile: SimulatorProfile) -> bool:
    """Whether the busy share is told by batches: what a real job of batches reports rests on a guess that jumps."""
    return profile.batch is not None and not recording.is_simulated


def windows_of(
    observations: Sequence[Observation],
    *,
    width_s: float,
    seconds: float,
    passed_over: Sequence[tuple[float, float]] = (),
    in_batches: bool = False,
) -> dict[Figure, Floats]:
    """Each figure over each whole window; NaN where too little of it is known.

    Latencies are those of what ARRIVED in the window, half and 95 % of whose seconds had no longer ones; the others are
    means. `passed_over`: seconds between two such times do not count. `in_batches`: the busy share is the share of time
    in which a batch was on, as the latencies tell it; else it is as reported.
    """
    middles = np.arange(int(seconds)) + 0.5
    counts = np.ones(len(middles), dtype=np.bool_)
    for begins_s, ends_s in passed_over:
        counts &= (middles < begins_s) | (middles >= ends_s)
    chosen = np.searchsorted([one.time_s for one in observations], middles)
    busy = _in_batch(observations) if in_batches else [one.busy_share for one in observations]
    late = _latency_by_arrival(observations, int(seconds))
    late[~counts] = np.nan
    columns = {
        Figure.BACKLOG: _told([one.backlog_records for one in observations])[chosen],
        Figure.BUSY_SHARE: _told(busy)[chosen],
    }
    for column in columns.values():
        column[~counts] = np.nan
    found: dict[Figure, list[float]] = {figure: [] for figure in Figure}
    for here in _windows(int(seconds), width_s):
        waited = late[here]
        waited = waited[np.isfinite(waited)]
        is_known = len(waited) >= _SEEN_SHARE * width_s * _PARTS
        for figure, share in ((Figure.LATENCY_P50, 0.5), (Figure.LATENCY_P95, 0.95)):
            found[figure].append(float(np.quantile(waited, share)) if is_known else np.nan)
        for figure, column in columns.items():
            known = column[here]
            known = known[np.isfinite(known)]
            found[figure].append(float(known.mean()) if len(known) >= _SEEN_SHARE * width_s else np.nan)
    return {figure: np.array(values) for figure, values in found.items()}


def _windows(seconds: int, width_s: float) -> list[slice]:
    """The seconds of each whole window."""
    edges = [round(number * width_s) for number in range(int(seconds // width_s) + 1)]
    return [slice(begin, end) for begin, end in pairwise(edges)]


def _told(column: Sequence[float | None]) -> Floats:
    """With one more, for what came after the last report."""
    return np.array([*(np.nan if value is None else value for value in column), np.nan], dtype=np.float64)


def _latency_by_arrival(observations: Sequence[Observation], seconds: int) -> Floats:
    """How long what arrived in each part of each second waited; NaN where that was never told.

    A job works its records off in their order: the first of those that a report tells of waited longest.
    """
    found = np.full(seconds * _PARTS, np.nan)
    before_s, first = 0.0, 0
    for output in outputs(observations):
        if output is None or output.last_arrived_s <= before_s:
            continue
        last_s = output.last_arrived_s
        end = min(len(found), max(first, math.floor(last_s * _PARTS + 0.5)))
        passed = ((np.arange(first, end) + 0.5) / _PARTS - before_s) / (last_s - before_s)
        found[first:end] = output.latency_p50_s + output.half_s * (1.0 - 2.0 * passed)
        before_s, first = last_s, end
    return found.reshape(seconds, _PARTS)


def _in_batch(observations: Sequence[Observation]) -> list[float | None]:
    """The share of each report in which a batch was on; None while the job was down, or stood still."""
    shares: list[float | None] = []
    last: float | None = None
    for one in observations:
        if one.status is not JobStatus.RUNNING:
            shares.append(None)
            continue
        if one.latency_p50_s is None or one.latency_p95_s is None:
            shares.append(None)  # output is due and none comes: nobody tells what is on
            continue
        if one.processed_rate_per_s > 0.0:
            period_s = batch_period_s(one)
            last = min(1.0, max(0.0, one.latency_p50_s / period_s - 0.5)) if period_s > 0.0 else 1.0
        shares.append(last)
    return shares


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
        """By what was promised: latency and backlog. A busy share that is off makes it rough at most."""
        late = [error for figure in (Figure.LATENCY_P95, Figure.BACKLOG) if (error := self.errors[figure]) is not None]
        if self.errors[Figure.LATENCY_P95] is None or max(late) > ROUGHLY:
            return Trust.NOT
        return Trust.WELL if max(*late, self.errors[Figure.BUSY_SHARE] or 0.0) <= WELL else Trust.ROUGHLY


def disturbed(recording: Recording, *, width_s: float) -> Flags:
    """For each whole window, whether much of it came soon after a failure or a change."""
    seconds = np.zeros(recording.duration_s, dtype=np.bool_)
    for fault in recording.faults:
        ended_s = max((one.ends_s for one in recording.outages if one.fault == fault), default=fault.at_s)
        seconds[int(fault.at_s) : int(ended_s + _FAILURE_LASTS_S)] = True
    for change in recording.changes:
        ended_s = change.finished_at_s or change.requested_at_s
        seconds[int(change.requested_at_s) : int(ended_s + _CHANGE_LASTS_S)] = True
    windows = _windows(recording.duration_s, width_s)
    return np.array([seconds[here].mean() > _DISTURBED_SHARE for here in windows], dtype=np.bool_)


def misfit(recorded: dict[Figure, Floats], simulated: dict[Figure, Floats], *, counts: Flags | None = None) -> Misfit:
    """Of the windows that count, all if not given; one that only one of the two knows does not."""
    errors: dict[Figure, float | None] = {}
    windows = 0
    for figure in Figure:
        seen, made = recorded[figure], simulated[figure]
        both = np.isfinite(seen) & np.isfinite(made) & (True if counts is None else counts)
        mean = float(seen[both].mean()) if both.any() else 0.0
        errors[figure] = float(np.abs(made - seen)[both].mean()) / mean if mean > 0.0 else None
        windows = max(windows, int(both.sum()))
    return Misfit(errors=errors, windows=windows)
