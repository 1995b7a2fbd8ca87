"""A clock, a job, policies and a journal that do exactly what a test tells them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tidewise.control import GuardSettings, Loop, LoopSettings
from tidewise.control.codec import decode, encode
from tidewise.core import (
    ChangeCost,
    ChangeOutcome,
    ChangeRequest,
    ChangeStatus,
    Configuration,
    ConfigurationSpace,
    Decision,
    Forecast,
    Forecaster,
    JobStatus,
    JournalEvent,
    Keep,
    LatencyMethod,
    Mechanism,
    Meter,
    NotReadyError,
    Observation,
    Policy,
    Prices,
    ProfileMeasurement,
    ProfileOutcome,
    ProfileRequest,
    Promises,
    Reason,
    Reconfigure,
    Situation,
    TemporaryError,
)

WINDOW_S = 10.0
PER_EXECUTOR_PER_S = 100.0

LIVE = ChangeCost(mechanism=Mechanism.LIVE, gap_s=0.0, preparation_s=5.0)
HANDOVER = ChangeCost(mechanism=Mechanism.HANDOVER, gap_s=2.0, preparation_s=30.0, runs_double=True)
SPACE = ConfigurationSpace(
    executors=tuple(range(1, 13)),
    cores_per_executor=(1.0, 2.0),
    memory_mib_per_executor=(1024, 2048),
    changes=(LIVE, HANDOVER),
)
PROMISES = Promises(latency_p95_s=2.0)
PRICES = Prices()


def config(executors: int, *, cores: float = 1.0, memory_mib: int = 1024) -> Configuration:
    return Configuration(executors=executors, cores_per_executor=cores, memory_mib_per_executor=memory_mib)


def because(code: str = "test") -> Reason:
    return Reason(code=code, sentence="The test wants it.")


def observation(
    time_s: float,
    configuration: Configuration,
    *,
    rate_per_s: float = 100.0,
    latency_s: float | None = 1.0,
    status: JobStatus = JobStatus.RUNNING,
    window_s: float = WINDOW_S,
    backlog: float = 0.0,
) -> Observation:
    return Observation(
        time_s=time_s,
        window_s=window_s,
        configuration=configuration,
        status=status,
        input_rate_per_s=rate_per_s,
        processed_rate_per_s=0.0 if latency_s is None else rate_per_s,
        backlog_records=backlog,
        latency_p95_s=latency_s,
        latency_method=None if latency_s is None else LatencyMethod.SIMULATED,
    )


@dataclass
class FakeClock:
    time_s: float = 0.0

    def now_s(self) -> float:
        return self.time_s

    def wait_until(self, time_s: float) -> None:
        self.time_s = max(self.time_s, time_s)


@dataclass
class ScriptedPolicy:
    """Decides as the test says."""

    script: Callable[[Situation], Decision] = lambda _situation: Keep(reason=because("keep"))
    history_s: float = 300.0
    name: str = "scripted"
    learned: list[Observation] = field(default_factory=list)

    def learn(self, observation: Observation) -> None:
        self.learned.append(observation)

    def decide(self, situation: Situation) -> Decision:
        return self.script(situation)


def follow(situation: Situation) -> Decision:
    """As many executors as the latest rate needs."""
    wanted = math.ceil(situation.latest.input_rate_per_s / PER_EXECUTOR_PER_S)
    target = situation.space.with_at_least(situation.intended, wanted)
    if target == situation.intended:
        return Keep(reason=because("enough"))
    return Reconfigure(target=target, reason=because("follow"))


@dataclass
class LastValue:
    """The simplest forecaster."""

    name: str = "last-value"
    learned: list[Observation] = field(default_factory=list)

    def learn(self, observation: Observation) -> None:
        self.learned.append(observation)

    def forecast(self, *, horizon_s: float, step_s: float) -> Forecast:
        if not self.learned:
            raise NotReadyError("no data")
        latest, steps = self.learned[-1], math.ceil(horizon_s / step_s)
        path = (latest.input_rate_per_s,) * steps
        return Forecast(made_at_s=latest.time_s, step_s=step_s, levels=(0.5,), paths_per_s=(path,), model=self.name)


def build_loop(
    policy: Policy | None = None,
    *,
    forecaster: Forecaster | None = None,
    settings: LoopSettings | None = None,
    guard_settings: GuardSettings | None = None,
    space: ConfigurationSpace = SPACE,
) -> Loop:
    return Loop(
        run="test",
        policy=policy or ScriptedPolicy(),
        space=space,
        promises=PROMISES,
        prices=PRICES,
        forecaster=forecaster,
        settings=settings,
        guard_settings=guard_settings or GuardSettings(cooldown_s=None),
    )


@dataclass
class FakeJob:
    """An engine that counts what it does, and misbehaves where told to."""

    clock: FakeClock
    load: Callable[[float], float] = lambda _time_s: 100.0
    configuration: Configuration = field(default_factory=lambda: config(1))
    change_takes_s: float = 15.0
    profile_takes_s: float = 60.0
    errors: list[Exception] = field(default_factory=list)
    """Raised by the next calls of `change` and `profile`, one each."""
    endings: list[tuple[ChangeStatus, Configuration | None]] = field(default_factory=list)
    """How the next changes end, and with what running (None: target or source as it should be)."""
    mute: bool = False
    """Whether reports raise TemporaryError."""
    begun: list[ChangeRequest] = field(default_factory=list)
    profiles_begun: list[ProfileRequest] = field(default_factory=list)
    outcomes: dict[str, ChangeOutcome] = field(default_factory=dict)
    _on: tuple[ChangeRequest, float] | None = None
    _profiles: dict[str, float] = field(default_factory=dict)
    _timeline: list[tuple[float, Configuration]] = field(default_factory=list)
    _reported_until_s: float = 0.0

    def _advance(self) -> None:
        if self._on is None or self.clock.time_s < self._on[1]:
            return
        request, ended_s = self._on
        self._on = None
        status, runs = self.endings.pop(0) if self.endings else (ChangeStatus.APPLIED, None)
        if runs is None:
            runs = request.target if status is ChangeStatus.APPLIED else request.source
        self.configuration = runs
        self._timeline.append((ended_s, runs))
        self.outcomes[request.request_id] = ChangeOutcome(
            request_id=request.request_id, status=status, finished_at_s=ended_s, configuration=runs, detail="As told."
        )

    @property
    def busy(self) -> bool:
        self._advance()
        return self._on is not None

    def observed(self) -> Configuration:
        self._advance()
        return self.configuration

    def reports(self) -> Sequence[Observation]:
        self._advance()
        if self.mute:
            raise TemporaryError("no line to the job")
        found = []
        while self._reported_until_s + WINDOW_S <= self.clock.time_s:
            self._reported_until_s += WINDOW_S
            found.append(self._observe(self._reported_until_s))
        return found

    def _observe(self, time_s: float) -> Observation:
        runs = self._timeline[0][1] if self._timeline and self._timeline[0][0] <= time_s else None
        for at_s, configuration in self._timeline:
            if at_s <= time_s:
                runs = configuration
        if runs is None:
            runs = self.begun[0].source if self.begun else self.configuration
        rate = self.load(time_s)
        late = rate > runs.executors * PER_EXECUTOR_PER_S
        return observation(time_s, runs, rate_per_s=rate, latency_s=10.0 if late else 1.0)

    def change(self, request: ChangeRequest) -> None:
        self._advance()
        if any(request.request_id == known.request_id for known in self.begun):
            return
        if self.errors:
            raise self.errors.pop(0)
        if self._on is not None:
            raise TemporaryError("another change is on")
        assert self.clock.time_s < request.deadline_s, "a change must not begin after its deadline"
        self.begun.append(request)
        self._on = (request, self.clock.time_s + self.change_takes_s)

    def change_outcome(self, request_id: str) -> ChangeOutcome | None:
        self._advance()
        return self.outcomes.get(request_id)

    def profile(self, request: ProfileRequest) -> None:
        if request.request_id in self._profiles:
            return
        if self.errors:
            raise self.errors.pop(0)
        self.profiles_begun.append(request)
        self._profiles[request.request_id] = self.clock.time_s + self.profile_takes_s

    def profile_outcome(self, request_id: str) -> ProfileOutcome | None:
        ends_s = self._profiles.get(request_id)
        if ends_s is None or self.clock.time_s < ends_s:
            return None
        request = next(each for each in self.profiles_begun if each.request_id == request_id)
        measurements = tuple(
            ProfileMeasurement(
                configuration=each,
                input_rate_per_s=1.0,
                processed_rate_per_s=1.0,
                latency_p50_s=None,
                latency_p95_s=1.0,
                busy_share=0.5,
            )
            for each in request.candidates
        )
        return ProfileOutcome(request_id=request_id, finished_at_s=ends_s, measurements=measurements)

    def inject(self, fault: str) -> None:
        raise NotImplementedError(fault)

    def meter(self) -> Meter:
        return {}

    def stop(self) -> None:
        pass


class Crash(BaseException):
    """The controller is dead: nothing of it may catch this."""


@dataclass
class ListJournal:
    """Keeps JSON in memory; crashes at the write it is told to, before or after it."""

    rows: list[tuple[str, str]] = field(default_factory=list)
    appends: int = 0
    crash_before: int | None = None
    crash_after: int | None = None

    def append(self, events: Iterable[JournalEvent]) -> None:
        self.appends += 1
        rows = [encode(event) for event in events]
        if self.appends == self.crash_before:
            raise Crash
        self.rows.extend(rows)
        if self.appends == self.crash_after:
            raise Crash

    def read(self) -> Iterator[JournalEvent]:
        for line, (kind, body) in enumerate(self.rows):
            yield decode(kind, body, where=f"line {line}")

    def close(self) -> None:
        pass
