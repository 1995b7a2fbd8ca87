"""What the bound knows of a trial, second by second: arrivals, failures with their luck, what each choice can do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidewise.core import Mechanism
from tidewise.core.recovery import BEFORE_S, FACTOR
from tidewise.engines.simulator import SimulatorProfile
from tidewise.engines.simulator.chance import Chance
from tidewise.engines.simulator.physics import memory_share, speed_under_pressure
from tidewise.experiments.bound_choices import Choices, capacity_of
from tidewise.experiments.record import FaultRecord
from tidewise.experiments.series import BoolArray, FloatArray

_QUIETEST = 4.0
"""Latency noise is taken at this many standard deviations to the good: a second hardly ever has more luck."""
_FELT_S = 30
"""The simulator looks at the size of the state this often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """One failure, with what this seed makes of it."""

    at_s: int
    noticed_s: int
    up_s: float
    warm_until_s: float
    back_s: float
    """Until when executors that were lost are away."""
    lost: int
    impairs: bool
    """Whether it is felt before it is noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """In which steps a recovery is watched: from before the failure (was the latency usual?) to the limit."""

    first: int
    at: int
    """The step of the failure."""
    up: int
    """The first step that begins with the job up again."""
    last: int


def outages_of(
    profile: SimulatorProfile, faults: Sequence[FaultRecord], seed: int, mechanisms: Sequence[Mechanism]
) -> tuple[Outage, ...]:
    """Every failure of a trial; the shorter downtime where a mechanism lets the job go on with fewer executors."""
    found: list[Outage] = []
    offered = [profile.mechanisms[one] for one in mechanisms if one in profile.mechanisms]
    adaptive = [one for one in offered if one.survives_with_fewer]
    for number, fault in enumerate(faults):
        kind = profile.failures[fault.kind]
        chance = Chance.of_fault(seed, number)
        downtime_s = kind.downtime_s * chance.spread(kind.downtime_spread_share)
        starts_s = profile.live.start_s * chance.spread(profile.live.start_spread_share)
        lost = kind.executors_lost
        warm = kind.warm_up.duration_s
        if kind.executor_away_s is not None:
            for one in adaptive:
                restart_s = one.gap_s * Chance.of_fault(seed, number).spread(one.gap_spread_share)
                if restart_s < downtime_s:
                    downtime_s, lost, warm = restart_s, 0, 0.0
        at_s = int(fault.at_s)
        noticed_s = math.ceil(at_s + kind.detection_s)
        if any(noticed_s < earlier.back_s for earlier in found):
            lost = 0  # there may be none left to lose
        up_s = noticed_s + downtime_s
        found.append(
            Outage(
                at_s=at_s,
                noticed_s=noticed_s,
                up_s=up_s,
                warm_until_s=up_s + warm,
                back_s=math.ceil(noticed_s + starts_s) if lost else float(noticed_s),
                lost=lost,
                impairs=kind.serving_share < 1.0,
            )
        )
    return tuple(found)


class Course:
    """One trial as the bound sees it; arrays have a place for every second, and some more after the end."""

    def __init__(
        self,
        *,
        profile: SimulatorProfile,
        choices: Choices,
        rates_per_s: FloatArray,
        faults: Sequence[FaultRecord],
        outages: Sequence[Outage],
        limit_s: float,
        on_p95: bool,
        recovery_s: float | None,
        step_s: int,
        beyond_s: int,
    ) -> None:
        self.seconds = len(rates_per_s)
        self.step_s = step_s
        self.steps = -(-self.seconds // step_s)
        size = self.steps * step_s + beyond_s
        self.arrivals: FloatArray = np.zeros(size)
        self.arrivals[: self.seconds] = rates_per_s
        self._arrived: FloatArray = np.concatenate(([0.0], np.cumsum(self.arrivals)))
        latency = profile.latency
        at_rest_s = latency.at_rest_s * math.exp(-_QUIETEST * latency.noise_share)
        wait_s = limit_s - at_rest_s * (latency.p95_over_p50 if on_p95 else 1.0)
        self.late_s = max(1, math.ceil(wait_s + 0.5))
        """A second is judged so many seconds later, at a full second: rounded up to it, which is to the good."""
        self.down: BoolArray = np.zeros(size, dtype=np.bool_)
        for outage in outages:
            self.down[outage.noticed_s : round(outage.up_s)] = True
        self.down[self.seconds :] = False
        self.threshold: FloatArray = self._thresholds(limit_s)
        most_lost = max((outage.lost for outage in outages), default=0)
        self._full = np.array(
            [[capacity_of(profile, one, lost) for one in choices.configurations] for lost in range(most_lost + 1)]
        )
        self.capacity = self._capacities(profile, choices, faults, outages, warm=True)
        self.fresh = self._capacities(profile, choices, faults, outages, warm=False)
        """The same for processes that were started after the failure."""
        batch = profile.batch
        self.wait_s = max(0.5, wait_s)
        # A batch that is short enough for its records to be in time has its fixed cost in little time: see bound.py.
        phase_s = 0.0 if batch is not None and batch.noise_share > 0.0 else 1.0
        self.overhead_share = 0.0 if batch is None else min(1.0, 2.0 * batch.fixed_s / (self.wait_s + phase_s))
        """Of the time, what goes into batches and not into records where no second may be bad."""
        calm_s = FACTOR * limit_s * (1.0 if batch is None else 1.5)
        self.windows = () if recovery_s is None else self._windows(outages, recovery_s, calm_s)
        self.renewed = tuple(
            range(outage.at_s, math.ceil(max(outage.warm_until_s, outage.back_s, outage.noticed_s)))
            for outage in outages
            if max(outage.warm_until_s, outage.back_s) > outage.up_s or outage.impairs
        )
        """In which seconds it may make a difference whether processes were started after a failure."""
        self.calm: FloatArray = self._most_in(calm_s)
        """For each step, a backlog with which the latency is back after a failure."""
        self.unusual: FloatArray = self._least_in(self.wait_s) / 2
        """For each step, a backlog with which it may not be usual before one."""

    def paid_s(self, first: int, length: int) -> int:
        return max(0, min(self.seconds, first + length) - first)

    def _thresholds(self, limit_s: float) -> FloatArray:
        """At the end of each second, the backlog beyond which the second `late_s` before is bad; infinite: not judged.

        Seconds in which the job is down are bad for that, and counted once. Those whose records may still be in time
        when the run ends are neither good nor bad.
        """
        size = self.arrivals.size
        threshold = np.full(size, np.inf)
        ends = np.arange(self.late_s - 1, self.seconds)
        arrived_in = ends + 1 - self.late_s
        middle = self._arrived[arrived_in] + self.arrivals[arrived_in] / 2
        threshold[ends] = self._arrived[ends + 1] - middle
        undecided = arrived_in >= self.seconds - limit_s
        threshold[ends[undecided | (self.arrivals[arrived_in] <= 0.0) | self.down[arrived_in]]] = np.inf
        threshold[self.down] = np.inf
        return threshold

    def _capacities(
        self,
        profile: SimulatorProfile,
        choices: Choices,
        faults: Sequence[FaultRecord],
        outages: Sequence[Outage],
        *,
        warm: bool,
    ) -> FloatArray:
        """Records that each choice can process in each second, a row per second."""
        size = self.arrivals.size
        speed = np.ones(size)
        lost = np.zeros(size, dtype=np.int64)
        noticed = sorted(outage.noticed_s for outage in outages)
        for fault, outage in zip(faults, outages, strict=True):
            kind = profile.failures[fault.kind]
            # The next failure that is noticed ends what an earlier one has left.
            over_s = next((second for second in noticed if second > outage.noticed_s), size)
            seconds = np.arange(outage.noticed_s, min(size, math.ceil(outage.warm_until_s) + 1))
            up = np.clip(seconds + 1 - outage.up_s, 0.0, 1.0)
            if warm:
                felt_s = next((second for second in noticed if second > outage.at_s), size)
                impaired = slice(outage.at_s, min(felt_s, outage.noticed_s))
                speed[impaired] = np.minimum(speed[impaired], kind.serving_share)
                lost[outage.noticed_s : int(outage.back_s)] = outage.lost
                if outage.warm_until_s > outage.up_s:
                    done = (seconds + 0.5 - outage.up_s) / (outage.warm_until_s - outage.up_s)
                    share = kind.warm_up.share
                    up *= np.where(seconds < over_s, np.clip(share + (1.0 - share) * done, share, 1.0), 1.0)
            speed[seconds] = np.minimum(speed[seconds], up)
        capacity = self._full[lost] * speed[:, np.newaxis]
        memory = profile.memory
        least, most = state_range(profile, self.arrivals[: self.seconds])
        pressed = [
            index
            for index, one in enumerate(choices.configurations)
            if memory_share(memory, one, one.executors, most) > memory.knee_share
        ]
        if pressed:
            state = np.full(size, least)
            state[: self.seconds] = lowest_state(profile, self.arrivals[: self.seconds])
            for index in pressed:
                one = choices.configurations[index]
                shares = memory_share(memory, one, one.executors, 1.0), memory_share(memory, one, one.executors, 0.0)
                used = shares[1] + (shares[0] - shares[1]) * state
                capacity[:, index] *= [speed_under_pressure(memory, share) for share in used.tolist()]
        return capacity

    def _windows(self, outages: Sequence[Outage], recovery_s: float, calm_s: float) -> tuple[Window, ...]:
        """Recoveries that nothing else cuts off; two that overlap are not watched."""
        found: list[Window] = []
        ends = [*(outage.at_s for outage in outages[1:]), self.seconds]
        late = -1
        for outage, end in zip(outages, ends, strict=True):
            first = max(0, (outage.at_s - BEFORE_S) // self.step_s - 1)
            last = math.ceil((outage.at_s + recovery_s + calm_s) / self.step_s) + 1
            if first > late and last * self.step_s <= end - BEFORE_S:
                up = math.ceil(outage.up_s / self.step_s)
                found.append(Window(first=first, at=outage.at_s // self.step_s, up=up, last=last))
                late = last
        return tuple(found)

    def _arrived_within(self, span_s: float) -> FloatArray:
        """At every full second, what arrived in the time before."""
        times = np.arange(self._arrived.size, dtype=np.float64)
        earlier = np.interp(np.maximum(times - span_s, 0.0), times, self._arrived)
        return np.asarray(self._arrived - earlier)

    def _around(self, span_s: float) -> FloatArray:
        """What arrived within the span, a row per step: at every second of it and of both neighbours."""
        within = self._arrived_within(span_s)
        first = np.arange(self.steps + 1)[:, np.newaxis] * self.step_s
        around = first + np.arange(-self.step_s, self.step_s + 1)
        return np.asarray(within[np.clip(around, 0, within.size - 1)])

    def _most_in(self, span_s: float) -> FloatArray:
        return np.asarray(self._around(span_s).max(axis=1))

    def _least_in(self, span_s: float) -> FloatArray:
        return np.asarray(self._around(span_s).min(axis=1))


def state_range(profile: SimulatorProfile, rates_per_s: FloatArray) -> tuple[float, float]:
    """Between which sizes the state stays."""
    memory = profile.memory
    base, growth = memory.state_base_mib, memory.state_mib_per_record_per_s
    return base, base + growth * float(rates_per_s.max())


def lowest_state(profile: SimulatorProfile, rates_per_s: FloatArray) -> FloatArray:
    """The size of the state, which no configuration changes: the least around each second, which is to the good."""
    memory = profile.memory
    kept = math.exp(-1.0 / memory.state_horizon_s)
    wanted = (memory.state_base_mib + memory.state_mib_per_record_per_s * rates_per_s).tolist()
    states = [memory.state_base_mib]
    for target in wanted:
        states.append(target + (states[-1] - target) * kept)
    padded = np.pad(np.array(states), _FELT_S, mode="edge")
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * _FELT_S + 1)
    return np.asarray(around.min(axis=1)[: rates_per_s.size])
