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
from tidewise.experiments.bound_batches import Trade
from tidewise.experiments.bound_choices import Choices, fastest_of
from tidewise.experiments.record import FaultRecord
from tidewise.experiments.series import BoolArray, FloatArray, IntArray

_QUIETEST = 4.0
"""In micro-batches, latency noise is taken at this many standard deviations to the good."""
_FULL_QUEUE = 0.98 / (1.0 - 0.98)
"""Times what short queues take: what they do in a second at whose end something is left to do."""
_SURELY_CALM = 0.25
"""With the arrivals of this part of the limit as backlog, a recovery is surely over."""
_SLACK_S = 1e-9
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judgements:
    """The seconds that may be bad, in the order in which that turns out."""

    judged_in: IntArray
    """The second in which it does."""
    arrived_in: IntArray
    threshold: FloatArray
    """The backlog at the end of that second beyond which it is bad, if it does not turn out at once."""
    at_once: BoolArray
    """Whether it turns out in the same second, by the backlog at its beginning and by its capacity."""
    wait_s: FloatArray
    """How long its records may wait in the queue."""

    seen_in: IntArray
    """At the beginning of which second the backlog tells."""

    def within(self, first: int, length: int) -> slice:
        return slice(*np.searchsorted(self.judged_in, (first, first + length)).tolist())

    def later(self, gap: range, until: int) -> int:
        """How many of the seconds of a gap are judged only from this second on."""
        latest = gap.stop + math.ceil(self.wait_s.max(initial=0.0)) + 2
        arrived_in = self.arrived_in[self.within(until, max(0, latest - until))]
        return int(((arrived_in >= gap.start) & (arrived_in < gap.stop)).sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """What each choice can do, a column each."""

    done: FloatArray
    """Records up to the beginning of each second, if there are always enough."""
    room: FloatArray
    """For each second that is judged, the backlog above which it is bad."""


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
        farthest: int,
        seed: int,
        trades: tuple[Trade, ...],
        cautious: bool = False,
    ) -> None:
        """`cautious`: for a sequence that is to be run: what is not known of recoveries is not taken to the good."""
        self.seconds = len(rates_per_s)
        self.step_s = step_s
        self.steps = -(-self.seconds // step_s)
        size = self.steps * step_s + (farthest + 1) * step_s
        self.arrivals: FloatArray = np.zeros(size)
        self.arrivals[: self.seconds] = rates_per_s
        self.arrived: FloatArray = np.concatenate(([0.0], np.cumsum(self.arrivals)))
        self.down: BoolArray = np.zeros(size, dtype=np.bool_)
        for outage in outages:
            self.down[outage.noticed_s : round(outage.up_s)] = True
        self.down[self.seconds :] = False
        latency = profile.latency
        capacity_noise, latency_noise = noises(profile, self.seconds, seed)
        self._noise: FloatArray = np.ones(size)
        self._noise[: self.seconds] = capacity_noise
        over_median = latency.p95_over_p50 if on_p95 else 1.0
        wait_s = limit_s - over_median * latency.at_rest_s * latency_noise
        if profile.mode == "continuous":
            wait_s -= over_median * latency.queueing_s * _FULL_QUEUE
        self.judged = self._judgements(wait_s, limit_s, batches=profile.mode == "micro-batch")
        most_lost = max((outage.lost for outage in outages), default=0)
        self._full = np.array(
            [[fastest_of(profile, group, lost) for group in choices.fastest] for lost in range(most_lost + 1)]
        )
        self.usual = self._work(self._capacities(profile, choices, faults, outages, warm=True))
        self.fresh = self._work(self._capacities(profile, choices, faults, outages, warm=False))
        """The same for processes that were started after the failure."""
        self.farthest = farthest
        """No change takes more steps."""
        self._downtimes = tuple((outage.noticed_s, outage.up_s) for outage in outages)
        self.trades = trades
        batch = profile.batch
        self.wait_s = max(0.5, limit_s - over_median * latency.at_rest_s * math.exp(-_QUIETEST * latency.noise_share))
        calm_s = FACTOR * limit_s * (1.0 if batch is None else 1.5)
        self.windows = () if recovery_s is None else self._windows(outages, recovery_s, 0.0 if cautious else calm_s)
        self.renewed = tuple(
            range(outage.at_s, math.ceil(max(outage.warm_until_s, outage.back_s, outage.noticed_s)))
            for outage in outages
            if max(outage.warm_until_s, outage.back_s) > outage.up_s or outage.impairs
        )
        """In which seconds it may make a difference whether processes were started after a failure."""
        self.calm: FloatArray = self._least_in(_SURELY_CALM * self.wait_s) if cautious else self._most_in(calm_s)
        """For each step, a backlog with which the latency is back after a failure."""
        self.unusual: FloatArray = self._least_in(self.wait_s) / 2
        """For each step, a backlog with which it may not be usual before one."""
        if cautious:
            self.unusual[:] = np.inf

    def _work(self, capacity: FloatArray) -> Work:
        """From what each choice can process in each second, a row per second."""
        judged = self.judged
        offered, arrivals = capacity[judged.arrived_in], self.arrivals[judged.arrived_in, np.newaxis]
        # Output within the same second; one that ends with nothing to do is taken to be good.
        at_once = np.maximum(offered * (judged.wait_s[:, np.newaxis] + 0.5) - arrivals / 2, offered - arrivals)
        return Work(
            done=np.concatenate((np.zeros((1, capacity.shape[1])), np.cumsum(capacity, axis=0))),
            room=np.where(judged.at_once[:, np.newaxis], at_once, judged.threshold[:, np.newaxis]),
        )

    def up_from(self, time_s: float) -> float:
        """From when on the job is not down by a failure, at this time or later."""
        return max([time_s, *(up_s for noticed_s, up_s in self._downtimes if noticed_s <= time_s < up_s)])

    def paid_s(self, first: int, length: int) -> int:
        return max(0, min(self.seconds, first + length) - first)

    def _judgements(self, wait_s: FloatArray, limit_s: float, *, batches: bool) -> Judgements:
        """When and by what each second is found to be bad, those left out in which the job is down.

        So are those in which nothing arrives, and those whose records may still be in time when the run ends.
        """
        arrived_in = np.arange(self.seconds)
        # Of the records of a second, the one in its middle decides; in batches, at the latest the last one does.
        late_s = np.maximum(1, np.ceil(wait_s + (0.99 if batches else 0.5) - _SLACK_S)).astype(np.int64)
        judged_in = arrived_in + late_s - 1
        judges = (judged_in < self.seconds) & (arrived_in < self.seconds - limit_s)
        judges &= (self.arrivals[arrived_in] > 0.0) & ~self.down[arrived_in]
        judges &= ~self.down[np.minimum(judged_in, self.seconds - 1)]
        order = np.argsort(judged_in[judges], kind="stable")
        arrived_in, judged_in = arrived_in[judges][order], judged_in[judges][order]
        wait_s = wait_s[judges][order]
        middle = self.arrived[arrived_in] + self.arrivals[arrived_in] / 2
        at_once = np.zeros(order.size, dtype=np.bool_) if batches else wait_s < 0.5
        return Judgements(
            judged_in=judged_in,
            arrived_in=arrived_in,
            threshold=self.arrived[judged_in + 1] - middle,
            at_once=at_once,
            wait_s=wait_s,
            seen_in=np.where(at_once, judged_in, judged_in + 1),
        )

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
        capacity = self._full[lost] * (speed * self._noise)[:, np.newaxis]
        memory = profile.memory
        least, most = state_range(profile, self.arrivals[: self.seconds])
        pressed = [
            index
            for index, group in enumerate(choices.fastest)
            if len(group) == 1 and memory_share(memory, group[0], group[0].executors, most) > memory.knee_share
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
        ends = [*(outage.at_s for outage in outages), self.seconds][1:]
        late = -1
        for outage, end in zip(outages, ends, strict=True):
            first = max(0, (outage.at_s - BEFORE_S) // self.step_s - 1)
            last = int((outage.at_s + recovery_s) / self.step_s)
            if calm_s:
                last = math.ceil((outage.at_s + recovery_s + calm_s) / self.step_s) + 1
            if first > late and last * self.step_s <= end - BEFORE_S:
                up = math.ceil(outage.up_s / self.step_s)
                found.append(Window(first=first, at=outage.at_s // self.step_s, up=up, last=last))
                late = last
        return tuple(found)

    def _arrived_within(self, span_s: float) -> FloatArray:
        """At every full second, what arrived in the time before."""
        times = np.arange(self.arrived.size, dtype=np.float64)
        earlier = np.interp(np.maximum(times - span_s, 0.0), times, self.arrived)
        return np.asarray(self.arrived - earlier)

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


def noises(profile: SimulatorProfile, seconds: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """The noise of capacity and of latency in each second, as this seed gives it to every run.

    Batches have a noise of their own, by when they begin, which the bound knows by its mean only: none is given here,
    and the latency's is taken to the good.
    """
    if profile.mode == "micro-batch":
        return np.ones(seconds), np.full(seconds, math.exp(-_QUIETEST * profile.latency.noise_share))
    random = np.random.default_rng([seed, 1])
    capacity = np.clip(1.0 + profile.capacity.noise_share * random.standard_normal(seconds), 0.1, 2.0)
    return capacity, np.exp(profile.latency.noise_share * random.standard_normal(seconds))


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
