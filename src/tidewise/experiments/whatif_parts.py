"""What a recorded run shows of a job directly: memory, CPU, changes, failures, the driver and the controller."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from pydantic import BaseModel
from scipy import optimize

from tidewise.core import (
    ChangeCost,
    ChangeOutcome,
    ChangeStatus,
    JobStatus,
    Mechanism,
    Observation,
    Purpose,
    Usage,
)
from tidewise.engines.simulator import SimulatorProfile
from tidewise.engines.simulator.profile import OUT_OF_MEMORY, FailureProfile, FixedResources, MechanismProfile
from tidewise.experiments.record import ChangeRecord, FaultRecord
from tidewise.experiments.spark_batch_fit import CpuFit, fit_cpu
from tidewise.experiments.spark_measurement import Batch, Stretch
from tidewise.experiments.whatif_recording import UNTOLD, Recording
from tidewise.experiments.whatif_replay import (
    batch_period_s,
    downtime_s,
    executors_at,
    in_batches,
    planned_after_s,
    scaled_by,
)
from tidewise.qos.gaps import GapModel

Place = tuple[str, ...]
"""Where a parameter stands in a profile: ("batch", "fixed_s")."""

_LEVEL_SD = 1.0
"""How far off the other profile's word for a time may be, as a spread of its logarithm."""
_SPREAD = 0.2
"""From one time to the next, before it was seen three times."""
_FEWEST_FOR_SPREAD = 3
_ROOM = 0.99
"""Of the share of memory that is not felt: what ran without trouble is put just below it."""
_FEWEST_FOR_CPU = 10
_FELT_WITHIN_S = 60.0
_UNUSUAL = 1.2
"""Times the worst latency before: what is more is because of what has happened."""
_STRETCH_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One parameter of the profile, and how sure it is."""

    path: Place
    value: float
    log_sd: float
    """Spread of the logarithm of the estimate."""
    basis: str
    """What it rests on, in words."""


@dataclass(slots=True)
class Parts:
    """A profile in the making."""

    profile: SimulatorProfile
    values: list[Value] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    """What the run does not show, in words that follow "assumed:"."""

    def put(self, path: Place, value: float, *, log_sd: float, basis: str) -> None:
        """Set a parameter that the run shows; a later word of it goes before an earlier one."""
        self.values = [value for value in self.values if value.path != path]
        self.profile = with_value(self.profile, path, value)
        self.values.append(Value(path=path, value=value, log_sd=log_sd, basis=basis))


def with_value(profile: SimulatorProfile, path: Place, value: object) -> SimulatorProfile:
    """The profile with another value at this place."""
    changed = _replaced(profile, path, value)
    if not isinstance(changed, SimulatorProfile):
        raise TypeError(f"{'.'.join(path)} is no place in a profile")
    return changed


def value_at(profile: SimulatorProfile, path: Place) -> float:
    """The number at this place."""
    part: object = profile
    for name in path:
        part = part[name] if isinstance(part, dict) else getattr(part, name)
    if not isinstance(part, int | float):
        raise TypeError(f"{'.'.join(path)} is no number of a profile")
    return float(part)


def _replaced(part: object, path: Place, value: object) -> object:
    if not path:
        return value
    name, *rest = path
    if isinstance(part, dict):
        return {**part, name: _replaced(part[name], tuple(rest), value)}
    if isinstance(part, BaseModel):
        return part.model_copy(update={name: _replaced(getattr(part, name), tuple(rest), value)})
    raise TypeError(f"{name} is no part of {part!r}")


def running(recording: Recording, until_s: float) -> list[Observation]:
    """The reports of a job that was up."""
    return [one for one in recording.observations if one.status is JobStatus.RUNNING and one.time_s <= until_s]


# Resources --------------------------------------------------------------------------------------------------------


def put_standing(parts: Parts, recording: Recording) -> None:
    """Driver and controller, as they were metered."""
    for purpose, name in ((Purpose.DRIVER, "driver"), (Purpose.CONTROLLER, "controller")):
        used = recording.meter.get(purpose, Usage())
        if recording.metered_s <= 0.0 or used == Usage():
            parts.assumed.append(f"what the {name} takes")
            continue
        resources = FixedResources(
            cores=used.core_s / recording.metered_s, memory_mib=used.memory_mib_s / recording.metered_s
        )
        parts.profile = parts.profile.model_copy(update={name: resources})


def put_cpu(parts: Parts, recording: Recording, until_s: float) -> bool:
    """CPU by the record, by the batch and at rest; whether it tells how fast records are."""
    known = [one for one in running(recording, until_s) if one.cpu_share is not None and one.window_s >= 1.0]
    if len(known) < _FEWEST_FOR_CPU:
        parts.assumed.append("the CPU that records cost")
        return False
    cpu = _cpu_in_batches(known) if parts.profile.batch is not None else _cpu_in_flow(known)
    if cpu.cpu_s_per_record <= 0.0:
        parts.assumed.append("the CPU that records cost")
        return False
    basis = f"{len(known)} reports"
    tells_speed = in_batches(recording, parts.profile)
    if tells_speed:
        # What a core has time for: of a real job of batches, nothing else tells its speed at low load.
        speed = 1.0 / cpu.cpu_s_per_record
        parts.profile = with_value(parts.profile, ("capacity", "records_per_core_s"), speed)
    parts.put(("capacity", "cpu_s_per_record"), cpu.cpu_s_per_record, log_sd=0.05, basis=basis)
    parts.profile = with_value(parts.profile, ("capacity", "idle_cpu_share"), min(1.0, cpu.idle_share))
    if parts.profile.batch is not None:
        parts.profile = with_value(parts.profile, ("batch", "fixed_cpu_s"), cpu.fixed_cpu_s)
    return tells_speed


def _cpu_in_batches(reports: Sequence[Observation]) -> CpuFit:
    """Over a minute each: in a single report, the CPU of a batch and its commit may be apart."""
    stretches = []
    by_minute = groupby(reports, key=lambda one: (one.configuration, one.time_s // _STRETCH_S))
    for (configuration, _), group in by_minute:
        told = list(group)
        seconds = sum(one.window_s for one in told)
        count = max(1, round(sum(one.window_s / max(1e-3, batch_period_s(one)) for one in told)))
        rows = round(sum(one.processed_rate_per_s * one.window_s for one in told) / count)
        stretches.append(
            Stretch(
                executors=configuration.executors,
                rate_per_s=sum(one.input_rate_per_s * one.window_s for one in told) / seconds,
                seconds=round(seconds),
                batches=(Batch(rows=rows, duration_s=0.0),) * count,
                executors_cpu_s=sum((one.cpu_share or 0.0) * configuration.total_cores * one.window_s for one in told),
                driver_cpu_s=0.0,
                controller_cpu_s=0.0,
                machine_cpu_s=0.0,
                latency_p50_s=None,
                latency_p95_s=None,
                latency_p99_s=None,
                state_mib=None,
            )
        )
    return fit_cpu(stretches, reports[-1].configuration.cores_per_executor)


def _cpu_in_flow(reports: Sequence[Observation]) -> CpuFit:
    used = np.array([(one.cpu_share or 0.0) * one.configuration.total_cores for one in reports])
    done = np.array([one.processed_rate_per_s for one in reports])
    worked = done > 0.0
    per_record = float(np.median(used[worked] / done[worked])) if worked.any() else 0.0
    return CpuFit(idle_share=0.0, fixed_cpu_s=0.0, cpu_s_per_record=per_record, explained=0.0)


def put_memory(parts: Parts, recording: Recording, until_s: float) -> None:
    """What fills an executor; what ran without running out of memory had enough of it."""
    reports = running(recording, until_s)
    states = [(1.0, one.input_rate_per_s, one.state_mib) for one in reports if one.state_mib is not None]
    if states:
        table = np.array(states)
        (base, per_rate), _ = optimize.nnls(table[:, :2], table[:, 2])
        parts.profile = with_value(parts.profile, ("memory", "state_base_mib"), float(base))
        parts.profile = with_value(parts.profile, ("memory", "state_mib_per_record_per_s"), float(per_rate))
    else:
        parts.assumed.append("the size of the state")
    memory = parts.profile.memory
    filled = [
        one.memory_share * one.configuration.memory_mib_per_executor
        - (one.state_mib or 0.0) / one.configuration.executors
        for one in reports
        if one.memory_share is not None
    ]
    if filled:
        # How it divides among the executor and its tasks, no run shows that has one number of slots.
        slots = float(np.median([one.configuration.slots_per_executor for one in reports]))
        factor = max(0.0, float(np.median(filled))) / max(1.0, memory.executor_base_mib + memory.slot_mib * slots)
        parts.profile = with_value(parts.profile, ("memory", "slot_mib"), factor * memory.slot_mib)
        base_mib = factor * memory.executor_base_mib
        parts.put(("memory", "executor_base_mib"), base_mib, log_sd=0.05, basis=f"{len(filled)} reports")
    else:
        parts.assumed.append("the memory that an executor needs")
    parts.assumed.append("what happens when memory is full, and how slow an executor becomes before")
    if not any(one.kind == OUT_OF_MEMORY for one in recording.faults):
        _make_room(parts, recording, until_s)


def _make_room(parts: Parts, recording: Recording, until_s: float) -> None:
    """Where a JVM fills whatever it is given, the share that is reported says nothing of what it needs."""
    memory = parts.profile.memory
    worst = 1.0
    for one in running(recording, until_s):
        configuration = one.configuration
        state_mib = memory.state_base_mib + memory.state_mib_per_record_per_s * float(recording.rates_per_s.max())
        room_mib = _ROOM * memory.knee_share * configuration.memory_mib_per_executor
        room_mib -= state_mib / configuration.executors
        needs_mib = memory.executor_base_mib + memory.slot_mib * configuration.slots_per_executor
        worst = min(worst, max(0.0, room_mib) / max(1.0, needs_mib))
    if worst < 1.0:
        parts.values = [value for value in parts.values if value.path[0] != "memory"]
        fitting = {
            "executor_base_mib": memory.executor_base_mib * worst,
            "slot_mib": memory.slot_mib * worst,
        }
        parts.profile = parts.profile.model_copy(update={"memory": memory.model_copy(update=fitting)})
        parts.assumed.append(
            "that memory was not felt, since nothing ran out of it (a JVM fills what it is given, so that the reports "
            "do not tell what it needs)"
        )


# Changes ----------------------------------------------------------------------------------------------------------


def put_changes(parts: Parts, recording: Recording, until_s: float) -> None:
    """How long executors take to come and go, and what each mechanism costs."""
    made = [one for one in recording.changes if one.finished_at_s is not None and one.finished_at_s <= until_s]
    _put_live(parts, made, _returns_s(recording, until_s))
    profile = parts.profile
    gaps = GapModel(
        (
            *profile.changes,
            *(
                ChangeCost(mechanism=mechanism, gap_s=max(one.gap_s for one in made if one.mechanism is mechanism))
                for mechanism in dict.fromkeys(one.mechanism for one in recording.changes)
                if mechanism not in profile.mechanisms and any(one.mechanism is mechanism for one in made)
            ),
        )
    )
    used = {one.mechanism for one in made if one.mechanism is not Mechanism.LIVE}
    for one in made:
        if one.mechanism in used:
            gaps.learn(one.mechanism, _outcome(one))
    mechanisms = dict(profile.mechanisms)
    for mechanism in {one.mechanism for one in recording.changes} - set(mechanisms):
        mechanisms[mechanism] = MechanismProfile(gap_s=0.0)
    if recording.plan.get("handover") is False and Mechanism.HANDOVER not in used:
        mechanisms.pop(Mechanism.HANDOVER, None)
    parts.profile = profile.model_copy(update={"mechanisms": mechanisms})
    for mechanism in sorted(used):
        mine = [one for one in made if one.mechanism is mechanism]
        belief = gaps.gap(mechanism)
        gap_s, log_sd = float(belief.median[0]), float(belief.log_sd[0])
        path = ("mechanisms", mechanism, "gap_s")
        parts.put(path, gap_s, log_sd=log_sd / math.sqrt(len(mine) + 1), basis=_times(len(mine)))
        parts.profile = with_value(parts.profile, (*path[:2], "gap_spread_share"), min(1.0, log_sd))
        prepared = [(one.finished_at_s or 0.0) - one.requested_at_s - one.gap_s for one in mine]
        prepared_s = max(0.0, float(np.median(prepared)))
        parts.profile = with_value(parts.profile, (*path[:2], "preparation_s"), prepared_s)
    unused = [mechanism for mechanism in mechanisms if mechanism not in used and mechanism is not Mechanism.LIVE]
    if unused:
        parts.assumed.append(f"how long a change takes by {_listed(unused)}")


def _returns_s(recording: Recording, until_s: float) -> list[float]:
    """How long executors that a failure took away were missed, where no change was under way."""
    found = []
    for fault in recording.faults:
        reports = [one for one in recording.observations if one.time_s <= until_s]
        before = [one.configuration.executors for one in reports if one.time_s <= fault.at_s]
        after = [one for one in reports if fault.at_s < one.time_s <= fault.at_s + _FELT_WITHIN_S]
        disturbed = any(
            one.requested_at_s < fault.at_s + _FELT_WITHIN_S and (one.finished_at_s or math.inf) > fault.at_s
            for one in recording.changes
        )
        if not before or disturbed or any(one.status is not JobStatus.RUNNING for one in after):
            continue
        missed = [one for one in after if one.configuration.executors < before[-1]]
        back = [one for one in after if missed and one.time_s > missed[-1].time_s]
        if missed and back:
            found.append((missed[-1].time_s + back[0].time_s) / 2 - fault.at_s)
    return found


def _put_live(parts: Parts, made: Sequence[ChangeRecord], returns_s: Sequence[float]) -> None:
    live = [one for one in made if one.mechanism is Mechanism.LIVE]
    took = [
        (one.target.executors - one.source.executors, (one.finished_at_s or 0.0) - one.requested_at_s) for one in live
    ]
    joins = [*(took_s for more, took_s in took if more > 0), *returns_s]
    leaves = [took_s for more, took_s in took if more < 0]
    if joins:
        start_s, log_sd = blended(parts.profile.live.start_s, joins)
        parts.put(("live", "start_s"), start_s, log_sd=log_sd, basis=_times(len(joins)))
        parts.profile = with_value(parts.profile, ("live", "start_spread_share"), _spread(joins))
    elif Mechanism.LIVE in parts.profile.mechanisms:
        parts.assumed.append("how long an executor takes to come up")
    if leaves:
        leave_s, log_sd = blended(parts.profile.live.leave_s, leaves)
        parts.put(("live", "leave_s"), leave_s, log_sd=log_sd, basis=_times(len(leaves)))


def _outcome(change: ChangeRecord) -> ChangeOutcome:
    return ChangeOutcome(
        request_id="recorded",
        status=ChangeStatus.APPLIED,
        finished_at_s=change.finished_at_s or 0.0,
        configuration=change.target,
        gap_s=change.gap_s,
    )


# Failures ---------------------------------------------------------------------------------------------------------


def put_failures(parts: Parts, recording: Recording, until_s: float) -> None:
    """How soon each kind of failure that was seen is noticed, and how long the job stands still for it."""
    for kind in dict.fromkeys(fault.kind for fault in recording.faults):
        usual = _like(kind, parts.profile.failures)
        outages = [one for one in recording.outages if one.fault.kind == kind and one.ends_s <= until_s]
        happened = [one for one in recording.faults if one.kind == kind and one.at_s + _FELT_WITHIN_S <= until_s]
        if usual is not None and usual.executor_away_s is not None and _goes_on_with_fewer(parts, recording):
            # Its outages are restarts by that mechanism, and not what a job takes that waits for its executor.
            parts.assumed.append(f"how long a job that has to wait for its executor stands still for {kind}")
            continue
        # A job that had lost its last executor stood still until another came, which is not the failure's doing.
        lost = 0 if usual is None else usual.executors_lost
        outages = [one for one in outages if not lost or executors_at(recording, one.begins_s) > lost]
        standstills = [downtime_s(parts.profile, recording, one) for one in outages]
        # A job that goes on all the same: what its records waited longer than usual.
        felt = {one.fault for one in recording.outages}
        lived_through = [one for one in happened if one not in felt]
        standstills += [waited_s for one in lived_through if (waited_s := _waited_longer_s(recording, one)) > 0.0]
        if usual is None:
            usual = FailureProfile(replays=bool(standstills))
            if not standstills:
                parts.assumed.append(f"that {kind} is not felt: the reports do not show that it was")
        elif not standstills:
            parts.assumed.append(f"how long the job stands still for {kind}")
        parts.profile = parts.profile.model_copy(update={"failures": {**parts.profile.failures, kind: usual}})
        if not standstills:
            continue
        usual_s, log_sd = blended(usual.downtime_s or standstills[0], standstills)
        path = ("failures", kind, "downtime_s")
        parts.put(path, usual_s, log_sd=log_sd, basis=_times(len(standstills)))
        parts.profile = with_value(parts.profile, (*path[:2], "downtime_spread_share"), _spread(standstills))
        if outages and in_batches(recording, parts.profile):
            planned_s = float(np.median([planned_after_s(recording, one) for one in outages]))
            parts.profile = with_value(parts.profile, (*path[:2], "plans_after_s"), planned_s)
        detected_s = float(np.median([max(0.0, one.begins_s - one.fault.at_s) for one in outages])) if outages else 0.0
        if kind != UNTOLD and recording.report_every_s <= 2.0 * detected_s:
            parts.profile = with_value(parts.profile, (*path[:2], "detection_s"), detected_s)


def put_warm_up(parts: Parts) -> None:
    """A JVM that has just come up is slow in all it does, however many of them there are.

    Each record is taken to cost as much again as it costs CPU, one after the other, until replays tell better.
    """
    parts.profile = with_value(parts.profile, ("batch", "fixed_warms_up"), value=True)
    cold_s = parts.profile.capacity.cpu_s_per_record
    for table, kinds in (("failures", parts.profile.failures), ("mechanisms", parts.profile.mechanisms)):
        for kind, cost in kinds.items():
            if cost.warm_up.duration_s > 0.0:
                parts.profile = with_value(parts.profile, (table, kind, "warm_up", "cold_s_per_record"), cold_s)
                parts.profile = with_value(parts.profile, (table, kind, "warm_up", "share"), 1.0)


def _goes_on_with_fewer(parts: Parts, recording: Recording) -> bool:
    """Whether the job was deployed so that it need not wait for an executor that is away."""
    mechanism = scaled_by(recording.changes)
    cost = None if mechanism is None else parts.profile.mechanisms.get(mechanism)
    return cost is not None and cost.survives_with_fewer


def _waited_longer_s(recording: Recording, fault: FaultRecord) -> float:
    """By how much the worst latency after a failure exceeds the usual one before; 0 where that is nothing unusual."""
    late = [
        (one.time_s - fault.at_s, one.latency_p95_s) for one in recording.observations if one.latency_p95_s is not None
    ]
    before = [latency_s for since_s, latency_s in late if -_FELT_WITHIN_S <= since_s <= 0.0]
    after = [latency_s for since_s, latency_s in late if 0.0 < since_s <= _FELT_WITHIN_S]
    if not before or not after or max(after) <= _UNUSUAL * max(before):
        return 0.0
    return max(after) - float(np.median(before))


def _like(kind: str, failures: dict[str, FailureProfile]) -> FailureProfile | None:
    """The failure that goes by this name, or by its words in another order, as kill-driver and driver-kill."""
    words = sorted(kind.split("-"))
    return failures.get(kind) or next((one for name, one in failures.items() if sorted(name.split("-")) == words), None)


# Words and numbers ------------------------------------------------------------------------------------------------


def blended(usual: float, seen: Sequence[float]) -> tuple[float, float]:
    """The median of what was seen, held a little by what is usual, and how sure it is."""
    logs = np.log(np.maximum(0.05, np.asarray(seen, dtype=np.float64)))
    spread = max(0.05, _spread(seen))
    known, before = len(logs) / spread**2, 1.0 / _LEVEL_SD**2
    middle = (float(np.median(logs)) * known + math.log(max(0.05, usual)) * before) / (known + before)
    return math.exp(middle), 1.0 / math.sqrt(known + before)


def _spread(values: Sequence[float]) -> float:
    """Standard deviation of the logarithm."""
    positive = [value for value in values if value > 0.0]
    if len(positive) < _FEWEST_FOR_SPREAD:
        return _SPREAD
    return min(1.0, float(np.log(positive).std(ddof=1)))


def _times(count: int) -> str:
    return "seen once" if count == 1 else f"seen {count} times"


def _listed(names: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
