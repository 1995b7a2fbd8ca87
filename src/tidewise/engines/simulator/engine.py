"""The simulator as an engine: one load, one profile, one seed, and a clock that jumps."""

from __future__ import annotations

import numpy as np

from tidewise.core import (
    Censored,
    ChangeCost,
    Configuration,
    Measured,
    Mechanism,
    PermanentError,
    ProfileMeasurement,
    ProfileOutcome,
    ProfileRequest,
    Purpose,
)
from tidewise.core.checks import require
from tidewise.engines.simulator.job import SimulatedJob
from tidewise.engines.simulator.latency import Floats
from tidewise.engines.simulator.profile import SimulatorProfile

_CALM_S = 15
"""A copy has recovered when its latency has been back for this long."""


class SimulatedClock:
    """Time that passes only when somebody waits for it, and then at once."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._jobs: list[SimulatedJob] = []

    def now_s(self) -> float:
        return self._now_s

    def wait_until(self, time_s: float) -> None:
        if time_s <= self._now_s:
            return
        self._now_s = time_s
        for job in self._jobs:
            job.advance(int(time_s))

    def carry(self, job: SimulatedJob) -> None:
        """Let this job live by this clock."""
        self._jobs.append(job)


class Simulator:
    """An engine that models a cluster. Everything it says is simulated, and its name says so."""

    def __init__(
        self,
        *,
        profile: SimulatorProfile,
        rates_per_s: Floats,
        seed: int,
        report_every_s: int = 10,
        controlled: bool = True,
        deployed_for: Mechanism | None = None,
    ) -> None:
        """`controlled`: whether the controller's own resources are paid for as well.

        `deployed_for`: the mechanism by which the job is going to be changed, where it has to be deployed for that.
        """
        require(len(rates_per_s) > 0, "the simulator needs a load of at least one second")
        require(
            bool(np.isfinite(rates_per_s).all()) and float(rates_per_s.min()) >= 0.0,
            "the rates of a load must be finite and not negative",
        )
        require(report_every_s >= 1, f"reports can come every second at most, not every {report_every_s} s")
        self._profile = profile
        self._rates = np.asarray(rates_per_s, dtype=np.float64)
        self._seed = seed
        self._report_every_s = report_every_s
        self._controlled = controlled
        self._deployed_for = deployed_for
        self._clock = SimulatedClock()

    @property
    def name(self) -> str:
        return f"simulator ({self._profile.name})"

    @property
    def changes(self) -> tuple[ChangeCost, ...]:
        return self._profile.changes

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(self._profile.failures)

    @property
    def clock(self) -> SimulatedClock:
        return self._clock

    def launch(self, configuration: Configuration) -> SimulatedJob:
        """Start the job; the load begins when the clock stands at 0, so there is one job to a simulator."""
        if self._clock.now_s() > 0.0:
            raise PermanentError("the load of this simulator has begun: make a new simulator for another job")
        job = SimulatedJob(
            profile=self._profile,
            rates_per_s=self._rates,
            configuration=configuration,
            seed=self._seed,
            report_every_s=self._report_every_s,
            controlled=self._controlled,
            deployed_for=self._deployed_for,
            profiler=lambda request: self._profile_copies(job, request),
        )
        self._clock.carry(job)
        return job

    def _profile_copies(self, job: SimulatedJob, request: ProfileRequest) -> ProfileOutcome:
        """Run the copies to their end right away; the outcome is handed out when their time has come."""
        start = int(self._clock.now_s())
        measurements = []
        end = start
        for number, candidate in enumerate(request.candidates):
            measurement, seconds = self._copy(candidate, request, start, number)
            job.charge(Purpose.PROFILING, candidate, seconds)
            measurements.append(measurement)
            end = max(end, start + seconds)
        return ProfileOutcome(request_id=request.request_id, finished_at_s=float(end), measurements=tuple(measurements))

    def _copy(
        self, candidate: Configuration, request: ProfileRequest, start: int, number: int
    ) -> tuple[ProfileMeasurement, int]:
        profiling = self._profile.profiling
        up_s = int(profiling.deploy_s)
        rates = self._rates[start + up_s :]
        first = int(request.settle_s)
        last = min(len(rates), first + int(request.measure_s))
        if last <= first:
            return ProfileMeasurement(
                configuration=candidate,
                input_rate_per_s=0.0,
                processed_rate_per_s=0.0,
                latency_p50_s=None,
                latency_p95_s=None,
                busy_share=None,
                detail="the load ended before the copy could be measured",
            ), up_s
        end = min(len(rates), last + int(profiling.recovery_limit_s)) if request.inject_failure else last
        copy = SimulatedJob(
            profile=self._profile,
            rates_per_s=rates[:end],
            configuration=candidate,
            seed=self._seed * 1000 + start + number,
            report_every_s=self._report_every_s,
            controlled=False,
            deployed_for=self._deployed_for,
            profiler=self._refuse_copies_of_copies,
        )
        # The worst moment is just before the next commit; the copy was launched at a commit.
        interval_s = max(1.0, candidate.commit_interval_s)
        breaks = last + int(interval_s - last % interval_s) - 1 if request.inject_failure else end
        copy.advance(min(breaks, end))
        if request.inject_failure and breaks < end:
            copy.inject(next(iter(self._profile.failures)))
        copy.advance(end)
        series = copy.series()
        span = slice(first, last)
        p50, p95 = series["latency_p50_s"][span], series["latency_p95_s"][span]
        known = bool(np.isfinite(p50).all())
        recovery: Measured | None = None
        seconds = up_s + end
        if request.inject_failure:
            recovery = _recovery_s(series["latency_p50_s"], series["up"], breaks, p50, profiling.recovery_limit_s)
            if isinstance(recovery, float):
                seconds = up_s + breaks + int(recovery) + _CALM_S
        return ProfileMeasurement(
            configuration=candidate,
            input_rate_per_s=float(series["input_rate_per_s"][span].mean()),
            processed_rate_per_s=float(series["processed_rate_per_s"][span].mean()),
            latency_p50_s=float(np.median(p50)) if known else None,
            latency_p95_s=float(np.quantile(p95, 0.95)) if known else None,
            busy_share=float(series["busy_share"][span].mean()),
            recovery_s=recovery,
        ), seconds

    def _refuse_copies_of_copies(self, request: ProfileRequest) -> ProfileOutcome:
        raise PermanentError(f"a copy cannot be profiled itself ({request.request_id})")


def _recovery_s(latency: Floats, up: Floats, breaks: int, before: Floats, limit_s: float) -> Measured:
    """From the failure until the latency has been back at 2x its level for 15 s; cut off at the limit."""
    level = 2.0 * float(np.median(before)) if np.isfinite(before).all() else np.inf
    bad = ~(latency[breaks:] <= level) | (up[breaks:] < 0.5)
    if not np.isfinite(level):
        return Censored(at_least=limit_s)
    if not bad.any():
        return 0.0
    calm = 0
    for second in range(int(np.argmax(bad)), len(bad)):
        calm = 0 if bad[second] else calm + 1
        if calm == _CALM_S:
            return float(second + 1 - _CALM_S)
    return Censored(at_least=limit_s)
