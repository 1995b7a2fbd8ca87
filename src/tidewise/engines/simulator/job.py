"""A simulated job: executors that come and go, changes, failures and the meter, around the flow of its records."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tidewise.core import (
    ChangeOutcome,
    ChangeRequest,
    ChangeStatus,
    Configuration,
    ImpossibleChangeError,
    JobStatus,
    LatencyMethod,
    Mechanism,
    Meter,
    Observation,
    PermanentError,
    ProfileOutcome,
    ProfileRequest,
    Purpose,
    TemporaryError,
)
from tidewise.engines.simulator.batches import MicroBatches
from tidewise.engines.simulator.conditions import Conditions
from tidewise.engines.simulator.flow import ContinuousFlow
from tidewise.engines.simulator.latency import Floats
from tidewise.engines.simulator.meter import ResourceMeter
from tidewise.engines.simulator.physics import capacity_per_s, memory_share, speed_under_pressure
from tidewise.engines.simulator.profile import OUT_OF_MEMORY, MechanismProfile, SimulatorProfile, WarmUp
from tidewise.engines.simulator.stretch import Processing

_LOOK_AT_MEMORY_EVERY_S = 10
"""State grows over minutes; looking at it every second would cost half of the simulator's speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    request: ChangeRequest
    gap_s: float = 0.0
    runs_double: bool = False


class SimulatedJob:
    """A running job on the port `RunningJob`, in simulated time.

    Deterministic: the same profile, load, seed and calls give the same reports. Time passes only by `advance`.
    """

    def __init__(
        self,
        *,
        profile: SimulatorProfile,
        rates_per_s: Floats,
        configuration: Configuration,
        seed: int,
        report_every_s: int,
        controlled: bool,
        deployed_for: Mechanism | None,
        profiler: Callable[[ProfileRequest], ProfileOutcome],
    ) -> None:
        self._profile = profile
        self._rates = rates_per_s
        self._arrived: list[float] = np.concatenate(([0.0], np.cumsum(rates_per_s))).tolist()
        self._report_every_s = report_every_s
        self._controlled = controlled
        deployment = profile.mechanisms.get(deployed_for) if deployed_for is not None else None
        self._deployment = deployment if deployment is not None and deployment.survives_with_fewer else None
        self._profiler = profiler
        self._random = np.random.default_rng([seed, 2])
        self._conditions = Conditions()
        self._processing = _processing(profile, rates_per_s, self._conditions, seed)
        self._meter = ResourceMeter()
        self._configuration = configuration
        self._running = configuration.executors
        self._paid = configuration
        self._now = 0
        self._stopped = False
        self._state_mib = profile.memory.state_base_mib
        self._memory_share = 0.0
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._event_count = 0
        self._change: _Change | None = None
        self._known_changes: set[str] = set()
        self._outcomes: dict[str, ChangeOutcome] = {}
        self._profiles: dict[str, ProfileOutcome] = {}
        self._reports: list[Observation] = []
        self._stretches: list[tuple[int, int, int, float, float, float, float]] = []
        self._down: list[tuple[float, float]] = []

    # The port ---------------------------------------------------------------------------------------------------

    def observed(self) -> Configuration:
        """What really runs now: the executors that are there, in the configuration they were started with."""
        if self._running == self._configuration.executors:
            return self._configuration
        return self._configuration.with_executors(max(1, self._running))

    def reports(self) -> Sequence[Observation]:
        """The reports since the last call, oldest first, each once."""
        given, self._reports = self._reports, []
        return given

    def change(self, request: ChangeRequest) -> None:
        """Begin to move the job; see the port for what may be relied upon."""
        if request.request_id in self._known_changes:
            return
        self._refuse_if_stopped()
        if self._change is not None:
            raise TemporaryError(f"the change {self._change.request.request_id} is still on")
        cost = self._profile.mechanisms.get(request.mechanism)
        offered = [offer for offer in self._profile.changes if offer.mechanism is request.mechanism]
        if cost is None or not offered:
            raise ImpossibleChangeError(f"the profile {self._profile.name} does not offer {request.mechanism}")
        if not offered[0].can_carry(self._configuration, request.target):
            differing = ", ".join(sorted(self._configuration.differs_from(request.target)))
            raise ImpossibleChangeError(f"{request.mechanism} cannot change {differing}")
        self._refuse_if_too_large(request.target, double=cost.runs_double)
        self._known_changes.add(request.request_id)
        if request.mechanism is Mechanism.LIVE:
            self._change = _Change(request=request)
            self._scale_live(request.target)
        else:
            gap = cost.gap_s * self._spread(cost.gap_spread_share)
            gap += cost.gap_s_per_state_gib * self._state_mib / 1024
            self._change = _Change(request=request, gap_s=gap, runs_double=cost.runs_double)
            self._at(self._now + cost.preparation_s, lambda at_s: self._begin_gap(at_s, cost))

    def change_outcome(self, request_id: str) -> ChangeOutcome | None:
        return self._outcomes.get(request_id)

    def profile(self, request: ProfileRequest) -> None:
        """Begin to measure copies beside the job; they run on the same input and are paid for."""
        if request.request_id in self._profiles:
            return
        self._refuse_if_stopped()
        self._profiles[request.request_id] = self._profiler(request)

    def profile_outcome(self, request_id: str) -> ProfileOutcome | None:
        outcome = self._profiles.get(request_id)
        return outcome if outcome is not None and outcome.finished_at_s <= self._now else None

    def inject(self, fault: str) -> None:
        """Break something on purpose, now."""
        kind = self._profile.failures.get(fault)
        if kind is None:
            known = ", ".join(self._profile.failures)
            raise PermanentError(f"the profile {self._profile.name} knows no fault {fault!r}; it knows {known}")
        noticed_s = self._now + kind.detection_s
        self._conditions.impaired_until_s = noticed_s
        self._conditions.impaired_share = kind.serving_share
        self._at(noticed_s, lambda at_s: self._break_down(at_s, fault))

    def meter(self) -> Meter:
        return self._meter.reading()

    def stop(self) -> None:
        self._stopped = True

    # Beyond the port ----------------------------------------------------------------------------------------------

    def charge(self, purpose: Purpose, configuration: Configuration, seconds: float) -> None:
        """Pay for something that runs beside the job."""
        self._meter.add_executors(purpose, configuration, seconds)
        self._meter.add_fixed(purpose, self._profile.driver, seconds)

    def advance(self, until_s: int) -> None:
        """Let time pass up to this second, or to the end of the load."""
        until_s = min(until_s, len(self._rates))
        while self._now < until_s and not self._stopped:
            self._fire_events()
            stop = min(until_s, self._now + _LOOK_AT_MEMORY_EVERY_S - self._now % _LOOK_AT_MEMORY_EVERY_S)
            stop = min(stop, self._now + self._report_every_s - self._now % self._report_every_s)
            if self._events:
                stop = max(self._now + 1, min(stop, math.ceil(self._events[0][0])))
            self._run(stop)
            if self._now % self._report_every_s == 0:
                self._report()
        self._fire_events()

    def series(self) -> dict[str, Floats]:
        """Every second of the run so far, by the names that a run's record has for its columns."""
        columns = self._processing.series()
        count = len(columns.busy_share)
        stretches = np.array(self._stretches).reshape(-1, 7)
        lengths = (stretches[:, 1] - stretches[:, 0]).astype(int)
        executors, cores, memory, share, state = (np.repeat(stretches[:, column], lengths) for column in range(2, 7))
        up = np.ones(count)
        for start, end in self._down:
            first, last = round(start), round(end)
            up[first:last] = 0.0
        capacity = self._profile.capacity
        used = columns.processed_rate_per_s * capacity.cpu_s_per_record / np.maximum(cores, 1e-9)
        cpu = np.minimum(1.0, capacity.idle_cpu_share + used)
        silent = self._rates[:count] <= 0.0  # nobody waits in a second in which nothing arrives
        return {
            "second": np.arange(count, dtype=np.float64),
            "input_rate_per_s": self._rates[:count],
            "processed_rate_per_s": columns.processed_rate_per_s,
            "backlog_records": columns.backlog_records,
            "latency_p50_s": np.where(silent, np.nan, columns.latency_p50_s),
            "latency_p95_s": np.where(silent, np.nan, columns.latency_p95_s),
            "latency_p99_s": np.where(silent, np.nan, columns.latency_p99_s),
            "up": up,
            "busy_share": columns.busy_share,
            "cpu_share": cpu,
            "memory_share": share,
            "state_mib": state,
            "executors": executors,
            "cores": cores,
            "memory_mib": memory,
        }

    # What happens -------------------------------------------------------------------------------------------------

    def _at(self, time_s: float, happen: Callable[[float], None]) -> None:
        self._event_count += 1
        heapq.heappush(self._events, (time_s, self._event_count, happen))

    def _fire_events(self) -> None:
        while self._events and self._events[0][0] <= self._now:
            time_s, _, happen = heapq.heappop(self._events)
            happen(time_s)

    def _run(self, stop: int) -> None:
        first, profile = self._now, self._profile
        seconds = stop - first
        rate = self._mean_rate(first, stop)
        wanted_state = profile.memory.state_base_mib + profile.memory.state_mib_per_record_per_s * rate
        self._state_mib += (wanted_state - self._state_mib) * min(1.0, seconds / profile.memory.state_horizon_s)
        self._memory_share = memory_share(profile.memory, self._configuration, self._running, self._state_mib)
        speed = speed_under_pressure(profile.memory, self._memory_share)
        capacity = capacity_per_s(profile.capacity, self._configuration, self._running)
        self._conditions.capacity_per_s = capacity * speed
        self._processing.run(first, stop, self._configuration.commit_interval_s)
        self._meter.add_executors(Purpose.EXECUTORS, self._paid, seconds)
        self._meter.add_fixed(Purpose.DRIVER, profile.driver, seconds)
        if self._controlled:
            self._meter.add_fixed(Purpose.CONTROLLER, profile.controller, seconds)
        if self._change is not None and self._change.runs_double:
            self._meter.add_executors(Purpose.DOUBLE_RUNNING, self._change.request.target, seconds)
            self._meter.add_fixed(Purpose.DOUBLE_RUNNING, profile.driver, seconds)
        paid = self._paid
        self._stretches.append(
            (first, stop, self._running, paid.total_cores, paid.total_memory_mib, self._memory_share, self._state_mib)
        )
        self._now = stop
        if self._memory_share >= 1.0 and stop >= self._conditions.down_until_s:
            self._break_down(float(stop), OUT_OF_MEMORY)

    def _break_down(self, at_s: float, fault: str) -> None:
        kind = self._profile.failures[fault]
        if kind.executor_away_s is not None and self._deployment is not None and self._running > 1:
            self._restart_with_fewer(at_s, at_s - kind.detection_s + kind.executor_away_s, self._deployment)
            return
        if kind.downtime_s > 0 or kind.replays:
            downtime = kind.downtime_s * self._spread(kind.downtime_spread_share)
            self._go_down(at_s, downtime, JobStatus.DOWN, kind.warm_up, replays=kind.replays)
        lost = min(kind.executors_lost, self._running - 1)
        if lost > 0:
            self._running -= lost
            self._at(at_s + self._start_up_s(), lambda _: self._join(lost))

    def _restart_with_fewer(self, at_s: float, back_s: float, deployment: MechanismProfile) -> None:
        """The job goes on without the executor that is away, until that is back."""
        self._running -= 1
        up_s = self._restart(at_s, deployment)
        self._at(max(back_s, up_s), lambda now_s: self._take_back(now_s, deployment))

    def _take_back(self, at_s: float, deployment: MechanismProfile) -> None:
        # A change or another failure in the meantime may have brought it back already.
        if self._running < self._configuration.executors and self._change is None:
            self._running += 1
            self._restart(at_s, deployment)

    def _restart(self, at_s: float, deployment: MechanismProfile) -> float:
        gap_s = deployment.gap_s * self._spread(deployment.gap_spread_share)
        self._go_down(at_s, gap_s, JobStatus.DOWN, deployment.warm_up, replays=deployment.replays)
        return self._conditions.down_until_s

    def _go_down(self, at_s: float, duration_s: float, status: JobStatus, warm_up: WarmUp, *, replays: bool) -> float:
        interval_s = self._configuration.commit_interval_s
        begins_s = self._processing.interrupt(at_s, replays=replays, commit_interval_s=interval_s)
        self._conditions.go_down(begins_s, duration_s, status, warm_up)
        self._processing.restored(self._conditions.down_until_s)
        self._down.append((begins_s, self._conditions.down_until_s))
        return begins_s

    def _scale_live(self, target: Configuration) -> None:
        more = target.executors - self._running
        if more > 0:
            self._paid = target
            self._at(self._now + self._start_up_s(), lambda at_s: self._finish_live(at_s, target))
        else:
            self._at(self._now + self._profile.live.leave_s, lambda at_s: self._finish_live(at_s, target))

    def _finish_live(self, at_s: float, target: Configuration) -> None:
        self._configuration = self._paid = target
        self._running = target.executors
        self._finish_change(at_s, 0.0)

    def _join(self, executors: int) -> None:
        self._running = min(self._configuration.executors, self._running + executors)

    def _begin_gap(self, at_s: float, cost: MechanismProfile) -> None:
        change = self._change
        if change is None:
            return
        target = change.request.target
        at_s = max(at_s, self._conditions.down_until_s)  # a failure in the meantime has to be over first
        begins_s = self._go_down(at_s, change.gap_s, JobStatus.CHANGING, cost.warm_up, replays=cost.replays)
        self._paid = target
        self._change = replace(change, runs_double=False)
        self._at(begins_s + change.gap_s, lambda end_s: self._end_gap(end_s, change))

    def _end_gap(self, at_s: float, change: _Change) -> None:
        self._configuration = self._paid = change.request.target
        self._running = change.request.target.executors
        self._finish_change(at_s, change.gap_s)

    def _finish_change(self, at_s: float, gap_s: float) -> None:
        if self._change is None:
            return
        request_id = self._change.request.request_id
        self._outcomes[request_id] = ChangeOutcome(
            request_id=request_id,
            status=ChangeStatus.APPLIED,
            finished_at_s=at_s,
            configuration=self._configuration,
            gap_s=gap_s,
        )
        self._change = None

    # Small things -------------------------------------------------------------------------------------------------

    def _mean_rate(self, first: int, stop: int) -> float:
        return max(0.0, (self._arrived[stop] - self._arrived[first]) / (stop - first))

    def _spread(self, share: float) -> float:
        return math.exp(share * float(self._random.standard_normal())) if share > 0 else 1.0

    def _start_up_s(self) -> float:
        return self._profile.live.start_s * self._spread(self._profile.live.start_spread_share)

    def _refuse_if_stopped(self) -> None:
        if self._stopped:
            raise PermanentError("the job has been stopped")

    def _refuse_if_too_large(self, target: Configuration, *, double: bool) -> None:
        cluster = self._profile.cluster_cores
        wanted = target.total_cores + (self._paid.total_cores if double else 0.0)
        if cluster is not None and wanted > cluster:
            raise PermanentError(f"the cluster has {cluster:g} cores, and the change needs {wanted:g}")

    def _report(self) -> None:
        stop = self._now
        first = stop - self._report_every_s
        stretch = self._processing.stretch(first, stop)
        capacity = self._profile.capacity
        fixed_cpu_s = self._profile.batch.fixed_cpu_s * stretch.batches if self._profile.batch is not None else 0.0
        cores = max(1, self._running) * self._configuration.cores_per_executor
        used = (stretch.processed * capacity.cpu_s_per_record + fixed_cpu_s) / (stop - first)
        known = stretch.latency_p50_s is not None
        self._reports.append(
            Observation(
                time_s=float(stop),
                window_s=float(stop - first),
                configuration=self.observed(),
                status=self._conditions.status_at(float(stop)),
                input_rate_per_s=self._mean_rate(first, stop),
                processed_rate_per_s=max(0.0, stretch.processed) / (stop - first),
                backlog_records=self._processing.backlog_records,
                latency_p50_s=stretch.latency_p50_s,
                latency_p95_s=stretch.latency_p95_s,
                latency_p99_s=stretch.latency_p99_s,
                latency_method=LatencyMethod.SIMULATED if known else None,
                busy_share=min(1.0, stretch.busy_share),
                cpu_share=min(1.0, capacity.idle_cpu_share + used / cores),
                memory_share=self._memory_share,
                state_mib=self._state_mib,
            )
        )


def _processing(profile: SimulatorProfile, rates: Floats, conditions: Conditions, seed: int) -> Processing:
    if profile.batch is not None:
        return MicroBatches(profile=profile, batch=profile.batch, rates=rates, conditions=conditions, seed=seed)
    return ContinuousFlow(profile=profile, rates=rates, conditions=conditions, seed=seed)
