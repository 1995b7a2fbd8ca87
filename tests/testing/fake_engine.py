"""A small engine that keeps every promise, in parts that a mutant can break one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidewise.core import (
    ChangeCost,
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
    ProfileMeasurement,
    ProfileOutcome,
    ProfileRequest,
    Purpose,
    TemporaryError,
    Usage,
)

RATE_PER_S = 100.0
PER_EXECUTOR_PER_S = 60.0
REPORT_EVERY_S = 5
DOWN_FOR_S = 10

CHANGES = (
    ChangeCost(mechanism=Mechanism.LIVE, gap_s=0.0, preparation_s=4.0),
    ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=6.0),
)


@dataclass(slots=True)
class Pending:
    request: ChangeRequest
    ends_at: int
    stops_job: bool


class FakeJob:
    """One second at a time."""

    def __init__(self, configuration: Configuration) -> None:
        self.now = 0
        self.configuration = configuration
        self.backlog = 0.0
        self.processed = 0.0
        self.down_until = 0
        self.stopped = False
        self.pending: Pending | None = None
        self.outcomes: dict[str, ChangeOutcome] = {}
        self.profiles: dict[str, ProfileOutcome] = {}
        self.core_s = 0.0
        self.memory_mib_s = 0.0
        self.profiling_core_s = 0.0
        self.new: list[Observation] = []

    # Time

    def tick(self) -> None:
        if self.stopped:
            return
        self.now += 1
        self.spend()
        if self.pending is not None and self.now >= self.pending.ends_at:
            self.finish(self.pending.request)
        self.work()
        if self.now % REPORT_EVERY_S == 0:
            self.report()

    def spend(self) -> None:
        self.core_s += self.configuration.total_cores
        self.memory_mib_s += self.configuration.total_memory_mib

    def finish(self, request: ChangeRequest) -> None:
        self.pending = None
        self.configuration = request.target
        self.outcomes[request.request_id] = ChangeOutcome(
            request_id=request.request_id,
            status=ChangeStatus.APPLIED,
            finished_at_s=float(self.now),
            configuration=self.configuration,
        )

    @property
    def status(self) -> JobStatus:
        if self.now < self.down_until:
            return JobStatus.DOWN
        changing = self.pending is not None and self.pending.stops_job
        return JobStatus.CHANGING if changing else JobStatus.RUNNING

    def work(self) -> None:
        self.backlog += RATE_PER_S
        if self.status is JobStatus.RUNNING:
            done = min(self.backlog, self.configuration.executors * PER_EXECUTOR_PER_S)
            self.backlog -= done
            self.processed += done

    def report(self) -> None:
        runs = self.status is JobStatus.RUNNING
        self.new.append(
            Observation(
                time_s=float(self.now),
                window_s=float(REPORT_EVERY_S),
                configuration=self.configuration,
                status=self.status,
                input_rate_per_s=RATE_PER_S,
                processed_rate_per_s=self.processed / REPORT_EVERY_S,
                backlog_records=self.backlog,
                latency_p95_s=0.5 + self.backlog / RATE_PER_S if runs else None,
                latency_method=LatencyMethod.SIMULATED if runs else None,
            )
        )
        self.processed = 0.0

    # The port

    def observed(self) -> Configuration:
        return self.configuration

    def reports(self) -> Sequence[Observation]:
        given, self.new = self.new, []
        return given

    def known(self, request_id: str) -> bool:
        pending = self.pending is not None and self.pending.request.request_id == request_id
        return pending or request_id in self.outcomes

    def change(self, request: ChangeRequest) -> None:
        if self.known(request.request_id):
            return
        if self.pending is not None:
            raise TemporaryError("another change is on")
        cost = next((cost for cost in CHANGES if cost.mechanism is request.mechanism), None)
        if cost is None or not cost.can_carry(self.configuration, request.target):
            raise ImpossibleChangeError("that cannot be done")
        self.begin(request, cost)

    def begin(self, request: ChangeRequest, cost: ChangeCost) -> None:
        self.pending = Pending(request, self.now + int(cost.duration_s), stops_job=cost.gap_s > 0)

    def change_outcome(self, request_id: str) -> ChangeOutcome | None:
        return self.outcomes.get(request_id)

    def profile(self, request: ProfileRequest) -> None:
        if request.request_id in self.profiles:
            return
        ends_at_s = self.now + request.settle_s + request.measure_s
        self.profiling_core_s += request.candidates[0].total_cores * (request.settle_s + request.measure_s)
        measured = tuple(
            ProfileMeasurement(
                configuration=candidate,
                input_rate_per_s=RATE_PER_S,
                processed_rate_per_s=RATE_PER_S,
                latency_p50_s=0.4,
                latency_p95_s=0.5,
                busy_share=None,
                recovery_s=5.0 if request.inject_failure else None,
            )
            for candidate in request.candidates
        )
        self.profiles[request.request_id] = ProfileOutcome(
            request_id=request.request_id, finished_at_s=ends_at_s, measurements=measured
        )

    def profile_outcome(self, request_id: str) -> ProfileOutcome | None:
        outcome = self.profiles.get(request_id)
        return outcome if outcome is not None and outcome.finished_at_s <= self.now else None

    def inject(self, fault: str) -> None:
        if fault != "crash":
            raise PermanentError(f"there is no fault {fault!r}")
        self.down_until = self.now + DOWN_FOR_S

    def meter(self) -> Meter:
        return {
            Purpose.EXECUTORS: Usage(core_s=self.core_s, memory_mib_s=self.memory_mib_s),
            Purpose.PROFILING: Usage(core_s=self.profiling_core_s),
        }

    def stop(self) -> None:
        self.stopped = True


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0
        self.job: FakeJob | None = None

    def now_s(self) -> float:
        return self.now

    def wait_until(self, time_s: float) -> None:
        while self.now < time_s:
            self.now += 1.0
            if self.job is not None:
                self.job.tick()


class FakeEngine:
    """The engine; `job_type` and `clock_type` are where a mutant comes in."""

    changes = CHANGES
    faults = ("crash",)

    def __init__(self, job_type: type[FakeJob] = FakeJob, clock_type: type[FakeClock] = FakeClock) -> None:
        self.name = "fake"
        self.job_type = job_type
        self.clock = clock_type()

    def launch(self, configuration: Configuration) -> FakeJob:
        self.clock.job = self.job_type(configuration)
        return self.clock.job
