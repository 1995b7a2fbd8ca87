"""A simulated job on the port: time that passes, reports, series and the meter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tidewise.core import (
    ChangeOutcome,
    ChangeRequest,
    Configuration,
    LatencyMethod,
    Mechanism,
    Meter,
    Observation,
    PermanentError,
    ProfileOutcome,
    ProfileRequest,
    Purpose,
)
from tidewise.engines.simulator.batches import MicroBatches
from tidewise.engines.simulator.conditions import Conditions
from tidewise.engines.simulator.deployment import Deployment
from tidewise.engines.simulator.flow import ContinuousFlow
from tidewise.engines.simulator.latency import Floats
from tidewise.engines.simulator.meter import ResourceMeter
from tidewise.engines.simulator.operators import Operators
from tidewise.engines.simulator.physics import capacity_per_s, memory_share, speed_under_pressure
from tidewise.engines.simulator.profile import OUT_OF_MEMORY, SimulatorProfile
from tidewise.engines.simulator.stretch import Processing
from tidewise.engines.simulator.timeline import Timeline

_LOOK_AT_MEMORY_EVERY_S = 30
"""State grows over minutes; looking at it every second would cost half of the simulator's speed."""

Copies = Sequence[tuple[Configuration, float]]
"""Configurations that run beside the job, each with the time at which it ends."""


class SimulatedJob:
    """A running job on the port `RunningJob`, in simulated time.

    Deterministic: the same profile, load, seed and calls give the same reports. Time passes only by `advance`, in
    whole seconds: what happens between two of them is felt from the second one on.
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
        profiler: Callable[[ProfileRequest], tuple[ProfileOutcome, Copies]],
    ) -> None:
        self._profile = profile
        self._rates = rates_per_s
        self._arrived: list[float] = np.concatenate(([0.0], np.cumsum(rates_per_s))).tolist()
        self._report_every_s = report_every_s
        self._controlled = controlled
        self._profiler = profiler
        self._conditions = Conditions()
        self._processing = _processing(profile, rates_per_s, self._conditions, seed)
        self._timeline = Timeline()
        self._deployment = Deployment(
            profile=profile,
            configuration=configuration,
            seed=seed,
            deployed_for=deployed_for,
            conditions=self._conditions,
            processing=self._processing,
            timeline=self._timeline,
        )
        self._meter = ResourceMeter()
        self._operators = Operators(profile.operators)
        self._now = 0
        self._stopped = False
        self._deployment.state_mib = profile.memory.state_base_mib
        self._memory_share = 0.0
        self._profiles: dict[str, ProfileOutcome] = {}
        self._copies: list[tuple[Configuration, float]] = []
        self._reports: list[Observation] = []
        self._stretches: list[tuple[int, int, int, float, float, float, float]] = []

    # The port ---------------------------------------------------------------------------------------------------

    def observed(self) -> Configuration:
        """What really runs now."""
        return self._deployment.observed()

    def reports(self) -> Sequence[Observation]:
        """The reports since the last call, oldest first, each once."""
        given, self._reports = self._reports, []
        return given

    def change(self, request: ChangeRequest) -> None:
        """Begin to move the job; see the port for what may be relied upon."""
        if self._deployment.knows(request.request_id):
            return
        self._refuse_if_stopped()
        self._deployment.begin(request, float(self._now))

    def change_outcome(self, request_id: str) -> ChangeOutcome | None:
        return self._deployment.outcome(request_id)

    def profile(self, request: ProfileRequest) -> None:
        """Begin to measure copies beside the job; they run on the same input and are paid for."""
        if request.request_id in self._profiles:
            return
        self._refuse_if_stopped()
        self._profiles[request.request_id], copies = self._profiler(request)
        self._copies.extend(copies)

    def profile_outcome(self, request_id: str) -> ProfileOutcome | None:
        outcome = self._profiles.get(request_id)
        return outcome if outcome is not None and outcome.finished_at_s <= self._now else None

    def inject(self, fault: str) -> None:
        """Break something on purpose, now."""
        kind = self._profile.failures.get(fault)
        if kind is None:
            known = ", ".join(self._profile.failures)
            raise PermanentError(f"the profile {self._profile.name} knows no fault {fault!r}; it knows {known}")
        self._refuse_if_stopped()
        self._deployment.inject(kind, float(self._now))

    def meter(self) -> Meter:
        return self._meter.reading()

    def stop(self) -> None:
        self._stopped = True

    # Beyond the port ----------------------------------------------------------------------------------------------

    def advance(self, until_s: int) -> None:
        """Let time pass up to this second, or to the end of the load."""
        until_s = min(until_s, len(self._rates))
        self._timeline.happen(self._now)
        while self._now < until_s and not self._stopped:
            stop = min(until_s, self._now + _LOOK_AT_MEMORY_EVERY_S - self._now % _LOOK_AT_MEMORY_EVERY_S)
            stop = min(stop, self._now + self._report_every_s - self._now % self._report_every_s)
            stop = int(max(self._now + 1, min(stop, self._timeline.next_second())))
            self._run(stop)
            self._timeline.happen(self._now)
            if self._now % self._report_every_s == 0:
                self._report()

    def series(self) -> dict[str, Floats]:
        """Every second of the run so far, by the names that a run's record has for its columns."""
        columns = self._processing.series()
        count = len(columns.busy_share)
        stretches = np.array(self._stretches).reshape(-1, 7)
        lengths = (stretches[:, 1] - stretches[:, 0]).astype(int)
        executors, cores, memory, share, state = (np.repeat(stretches[:, column], lengths) for column in range(2, 7))
        up = np.ones(count)
        for start, end in self._deployment.down:
            up[round(start) : round(end)] = 0.0
        cpu = self._profile.capacity.idle_cpu_share + columns.cpu_s / np.maximum(cores, 1e-9)
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
            "cpu_share": np.minimum(1.0, cpu),
            "memory_share": share,
            "state_mib": state,
            "executors": executors,
            "cores": cores,
            "memory_mib": memory,
        }

    # What happens -------------------------------------------------------------------------------------------------

    def _run(self, stop: int) -> None:
        first, deployment = self._now, self._deployment
        self._grow_state(self._mean_rate(first, stop), stop - first)
        memory = self._profile.memory
        self._memory_share = memory_share(memory, deployment.configuration, deployment.running, deployment.state_mib)
        capacity = capacity_per_s(self._profile.capacity, deployment.configuration, deployment.running)
        self._conditions.capacity_per_s = capacity * speed_under_pressure(memory, self._memory_share)
        self._conditions.cores = deployment.running * deployment.configuration.cores_per_executor
        self._processing.run(first, stop, deployment.configuration.commit_interval_s)
        self._pay(first, stop)
        paid = deployment.paid
        self._stretches.append(
            (
                first,
                stop,
                deployment.running,
                paid.total_cores,
                paid.total_memory_mib,
                self._memory_share,
                deployment.state_mib,
            )
        )
        self._now = stop
        if self._memory_share >= 1.0 and stop >= self._conditions.down_until_s:
            deployment.break_now(self._profile.failures[OUT_OF_MEMORY], float(stop))

    def _grow_state(self, rate_per_s: float, seconds: int) -> None:
        memory = self._profile.memory
        wanted = memory.state_base_mib + memory.state_mib_per_record_per_s * rate_per_s
        # The exact answer of a first-order lag, however time is cut into stretches.
        share = 1.0 - math.exp(-seconds / memory.state_horizon_s)
        self._deployment.state_mib += (wanted - self._deployment.state_mib) * share

    def _pay(self, first: int, stop: int) -> None:
        seconds, meter, profile = stop - first, self._meter, self._profile
        meter.add_executors(Purpose.EXECUTORS, self._deployment.paid, seconds)
        meter.add_fixed(Purpose.DRIVER, profile.driver, seconds)
        if self._controlled:
            meter.add_fixed(Purpose.CONTROLLER, profile.controller, seconds)
        double = self._deployment.running_double
        if double is not None:
            meter.add_executors(Purpose.DOUBLE_RUNNING, double, seconds)
            meter.add_fixed(Purpose.DOUBLE_RUNNING, profile.driver, seconds)
        if self._copies:
            for configuration, until_s in self._copies:
                running_s = min(float(stop), until_s) - first
                meter.add_executors(Purpose.PROFILING, configuration, running_s)
                meter.add_fixed(Purpose.PROFILING, profile.driver, running_s)
            self._copies = [copy for copy in self._copies if copy[1] > stop]

    def _mean_rate(self, first: int, stop: int) -> float:
        return max(0.0, (self._arrived[stop] - self._arrived[first]) / (stop - first))

    def _refuse_if_stopped(self) -> None:
        if self._stopped:
            raise PermanentError("the job has been stopped")

    def _report(self) -> None:
        stop = self._now
        first = stop - self._report_every_s
        stretch = self._processing.stretch(first, stop)
        observed = self.observed()
        cpu = self._profile.capacity.idle_cpu_share + stretch.cpu_s / (stop - first) / observed.total_cores
        known = stretch.latency_p50_s is not None
        self._reports.append(
            Observation(
                time_s=float(stop),
                window_s=float(stop - first),
                configuration=observed,
                status=self._conditions.status_at(float(stop)),
                input_rate_per_s=self._mean_rate(first, stop),
                processed_rate_per_s=max(0.0, stretch.processed) / (stop - first),
                backlog_records=self._processing.backlog_records,
                latency_p50_s=stretch.latency_p50_s,
                latency_p95_s=stretch.latency_p95_s,
                latency_p99_s=stretch.latency_p99_s,
                latency_method=LatencyMethod.SIMULATED if known else None,
                busy_share=min(1.0, stretch.busy_share),
                cpu_share=min(1.0, cpu),
                memory_share=self._memory_share,
                state_mib=self._deployment.state_mib,
                operators=self._operators.reports(stretch, seconds=stop - first, slots=observed.total_slots),
            )
        )


def _processing(profile: SimulatorProfile, rates: Floats, conditions: Conditions, seed: int) -> Processing:
    if profile.batch is not None:
        return MicroBatches(profile=profile, batch=profile.batch, rates=rates, conditions=conditions, seed=seed)
    return ContinuousFlow(profile=profile, rates=rates, conditions=conditions, seed=seed)
