"""Loop, journal and engine together through whatever may happen; what the room promises are the invariants."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidewise.control import GuardSettings, Loop, LoopSettings, Runner, RunnerSettings
from tidewise.core import (
    ChangeOutcome,
    ChangeRequest,
    ChangeRequested,
    ChangeStatus,
    Configuration,
    Decided,
    Decision,
    JobStatus,
    Keep,
    Mechanism,
    Observation,
    Origin,
    PermanentError,
    Profile,
    ProfileRequested,
    Reconfigure,
    Reported,
    Situation,
    TemporaryError,
)

from .fakes import SPACE, Crash, FakeClock, FakeJob, LastValue, ListJournal, ScriptedPolicy, because, build_loop, config
from .fakes import observation as observe

QUOTA_CORES = 14.0
GUARDS = GuardSettings(
    quota_cores=QUOTA_CORES,
    largest_step_executors=5,
    cooldown_s={Mechanism.LIVE: 20.0, Mechanism.HANDOVER: 60.0},
    fresh_within_s=60.0,
    down_within_s=30.0,
)
SETTINGS = LoopSettings(
    decide_every_s=30.0,
    deadline_minimum_s=60.0,
    deadline_factor=1.0,
    probation_s=90.0,
    grace_s=10.0,
    broken_reports=2,
    back_off_s=100.0,
    back_off_most_s=400.0,
    shortfall_s=120.0,
    catch_up_s=300.0,
    forecast_horizon_s=120.0,
    profiles_kept=3,
    bars_kept=3,
)


class MachineJob(FakeJob):
    """An engine that also loses, delays and invents things."""

    lied: ChangeOutcome | None = None
    late: list[Observation]
    latency_s: float | None = 1.0
    status: JobStatus = JobStatus.RUNNING
    missing: int = 0
    """Executors that are being replaced."""
    backlog: float = 0.0

    def observed(self) -> Configuration:
        runs = super().observed()
        return runs.with_executors(max(1, runs.executors - self.missing))

    def _observe(self, time_s: float) -> Observation:
        return observe(
            time_s,
            self.observed(),
            rate_per_s=self.load(time_s),
            latency_s=self.latency_s,
            status=self.status,
            backlog=self.backlog,
        )

    def reports(self) -> list[Observation]:
        found = [*super().reports(), *self.late]
        self.late.clear()
        return found

    def change_outcome(self, request_id: str) -> ChangeOutcome | None:
        lied, self.lied = self.lied, None
        return lied or super().change_outcome(request_id)


class ControlRoom(RuleBasedStateMachine):
    @initialize(executors=st.integers(1, 12))
    def begin(self, executors: int) -> None:
        self.clock = FakeClock()
        self.job = MachineJob(clock=self.clock, configuration=config(executors))
        self.job.late = []
        self.journal = ListJournal()
        self.wanted: Decision = Keep(reason=because("keep"))
        self.restart()

    def fresh_loop(self) -> Loop:
        return build_loop(
            ScriptedPolicy(self.decide, history_s=200.0),
            forecaster=LastValue(),
            settings=SETTINGS,
            guard_settings=GUARDS,
        )

    def decide(self, _situation: Situation) -> Decision:
        return self.wanted

    def restart(self) -> None:
        self.loop = self.fresh_loop()
        self.runner = Runner(
            job=self.job,
            loop=self.loop,
            journal=self.journal,
            clock=self.clock,
            settings=RunnerSettings(poll_every_s=10.0),
        )
        self.runner.start()

    @rule(
        executors=st.integers(1, 20),
        memory_mib=st.sampled_from([1024, 2048]),
        mechanism=st.sampled_from([None, Mechanism.LIVE, Mechanism.REPARTITION]),
    )
    def want_change(self, executors: int, memory_mib: int, mechanism: Mechanism | None) -> None:
        target = config(executors, memory_mib=memory_mib)
        self.wanted = Reconfigure(target=target, reason=because("want"), mechanism=mechanism)

    @rule()
    def want_profile(self) -> None:
        self.wanted = Profile(candidates=(config(2),), reason=because("learn"), settle_s=5, measure_s=5)

    @rule()
    def want_nothing(self) -> None:
        self.wanted = Keep(reason=because("keep"))

    @rule(wait_s=st.floats(0.0, 150.0))
    def go_on(self, wait_s: float) -> None:
        self.runner.run(self.clock.time_s + wait_s)

    @rule(wait_s=st.floats(0.0, 150.0))
    def sleep_through(self, wait_s: float) -> None:
        """A tick that comes late."""
        self.clock.time_s += wait_s
        self.runner.step()

    @rule(latency_s=st.sampled_from([1.0, 1.0, 9.0, None]), status=st.sampled_from(JobStatus))
    def the_job_behaves(self, latency_s: float | None, status: JobStatus) -> None:
        self.job.latency_s, self.job.status = latency_s, status

    @rule(executors=st.integers(0, 3))
    def the_engine_replaces(self, executors: int) -> None:
        self.job.missing = executors

    @rule(backlog=st.sampled_from([0.0, 0.0, 1e3, 1e6]), rate_per_s=st.sampled_from([0.0, 80.0, 100.0, 500.0]))
    def the_load_is(self, backlog: float, rate_per_s: float) -> None:
        self.job.backlog, self.job.load = backlog, lambda _time_s: rate_per_s

    @rule(executors=st.integers(1, 12))
    def somebody_else_changes_the_job(self, executors: int) -> None:
        self.job.configuration = config(executors)

    @rule(mute=st.booleans())
    def reports_stop_or_come_back(self, mute: bool) -> None:
        self.job.mute = mute

    @rule(age_s=st.floats(0.0, 300.0))
    def an_old_report_arrives(self, age_s: float) -> None:
        self.job.late.append(observe(self.clock.time_s - age_s, config(12)))

    @rule(
        error=st.sampled_from(["temporary", "temporary", "permanent"]),
    )
    def the_engine_refuses(self, error: str) -> None:
        self.job.errors.append(TemporaryError("busy") if error == "temporary" else PermanentError("never"))

    @rule(executors=st.none() | st.integers(1, 12), status=st.sampled_from(ChangeStatus))
    def the_next_change_ends(self, executors: int | None, status: ChangeStatus) -> None:
        self.job.endings.append((status, None if executors is None else config(executors)))

    @rule(takes_s=st.sampled_from([0.0, 5.0, 15.0, 500.0]))
    def changes_take(self, takes_s: float) -> None:
        self.job.change_takes_s = takes_s

    @rule(request_id=st.sampled_from(["test-1", "test-2", "nobody"]), status=st.sampled_from(ChangeStatus))
    def a_wrong_outcome_is_told(self, request_id: str, status: ChangeStatus) -> None:
        open_id = None if self.loop.state.change is None else self.loop.state.change.request.request_id
        if request_id != open_id:
            self.job.lied = ChangeOutcome(
                request_id=request_id,
                status=status,
                finished_at_s=self.clock.time_s,
                configuration=config(1),
                detail="A lie.",
            )

    @rule()
    def pause(self) -> None:
        self.runner.pause(by="ada")

    @rule()
    def resume(self) -> None:
        self.runner.resume(by="ada")

    @rule(executors=st.integers(1, 20))
    def override(self, executors: int) -> None:
        self.runner.override(config(executors), by="ada")

    @rule()
    def lift(self) -> None:
        self.runner.lift(by="ada")

    @rule(writes=st.integers(1, 6), after=st.booleans(), downtime_s=st.sampled_from([0.0, 30.0, 400.0]))
    def crash(self, writes: int, after: bool, downtime_s: float) -> None:
        number = self.journal.appends + writes
        self.journal.crash_before, self.journal.crash_after = (None, number) if after else (number, None)
        try:
            self.runner.run(self.clock.time_s + 60.0)
        except Crash:
            self.journal.crash_before = self.journal.crash_after = None
            self.clock.time_s += downtime_s
            self.restart()
        self.journal.crash_before = self.journal.crash_after = None

    def teardown(self) -> None:
        """However it went, an override that stands is brought about once the engine works."""
        if not hasattr(self, "job"):
            return
        self.job.errors.clear()
        self.job.endings.clear()
        self.job.late.clear()
        self.job.mute, self.job.lied, self.job.missing, self.job.change_takes_s = False, None, 0, 5.0
        self.job.latency_s, self.job.status = 1.0, JobStatus.RUNNING
        self.wanted = Keep(reason=because("keep"))
        self.runner.run(self.clock.time_s + 2500.0)
        override = self.loop.state.override
        if override is not None:
            assert self.loop.state.override_in_force
            assert self.job.configuration == SPACE.nearest(override.target)
        self.no_rollback_while_the_job_is_down_or_a_person_has_decided()
        self.at_most_one_change_is_on_in_the_journal()

    def begun(self) -> list[ChangeRequest]:
        return self.job.begun

    @invariant()
    @precondition(lambda self: hasattr(self, "job"))
    def never_acts_twice_nor_unwritten(self) -> None:
        asked = {e.request.request_id: e.request for e in self.journal.read() if isinstance(e, ChangeRequested)}
        ids = [request.request_id for request in self.begun()]
        assert len(ids) == len(set(ids))
        assert all(asked.get(request.request_id) == request for request in self.begun())
        profiles = {e.request.request_id for e in self.journal.read() if isinstance(e, ProfileRequested)}
        assert {request.request_id for request in self.job.profiles_begun} <= profiles

    @invariant()
    @precondition(lambda self: hasattr(self, "job"))
    def never_outside_bounds_or_quota(self) -> None:
        for request in self.begun():
            assert request.target in SPACE
            assert request.target.total_cores <= QUOTA_CORES

    @invariant()
    @precondition(lambda self: hasattr(self, "job"))
    def never_down_on_stale_data_and_every_decision_has_a_reason(self) -> None:
        latest: Observation | None = None
        decision: Decided | None = None
        for event in self.journal.read():
            if isinstance(event, Reported):
                newer = latest is None or event.observation.time_s > latest.time_s
                if newer and event.observation.time_s <= event.at_s + event.observation.window_s:
                    latest = event.observation
            elif isinstance(event, Decided):
                decision = event
                assert event.decision.reason.sentence
                assert all(verdict.reason.sentence for verdict in event.verdicts)
            elif isinstance(event, ChangeRequested):
                assert decision is not None
                assert not decision.vetoed
                self._check_reduction(event, latest)

    @staticmethod
    def _check_reduction(event: ChangeRequested, latest: Observation | None) -> None:
        request = event.request
        if request.origin is Origin.OPERATOR or not request.target.takes_less_than(request.source):
            return
        assert latest is not None
        assert event.at_s - latest.time_s <= 30.0
        if request.origin is Origin.POLICY:
            assert latest.status is not JobStatus.DOWN
            assert latest.latency_p95_s is not None or latest.is_idle

    @invariant()
    @precondition(lambda self: hasattr(self, "job"))
    def no_rollback_while_the_job_is_down_or_a_person_has_decided(self) -> None:
        replayed = self.fresh_loop()
        for event in self.journal.read():
            if isinstance(event, ChangeRequested) and event.request.origin is Origin.ROLLBACK:
                latest = replayed.state.latest
                assert latest is None or latest.status is not JobStatus.DOWN
                assert replayed.state.override is None
            replayed.replay([event])

    @invariant()
    @precondition(lambda self: hasattr(self, "job"))
    def what_is_meant_is_what_runs_but_for_missing_executors(self) -> None:
        state = self.loop.state
        if state.observed is None or state.requested is not None or state.intended == state.observed:
            return
        latest = state.latest
        down = latest is not None and latest.status is not JobStatus.RUNNING
        assert state.intended is not None
        assert down or state.intended == state.observed.with_executors(state.intended.executors)
        assert down or state.intended.executors > state.observed.executors

    @invariant()
    @precondition(lambda self: hasattr(self, "job"))
    def at_most_one_change_is_on_in_the_journal(self) -> None:
        replayed = self.fresh_loop()
        for event in self.journal.read():
            if isinstance(event, ChangeRequested):
                assert replayed.state.requested is None
            replayed.replay([event])
        assert replayed.state == self.loop.state
        assert replayed.unfinished() == self.loop.unfinished()

    @invariant()
    @precondition(lambda self: hasattr(self, "job"))
    def memory_is_bounded(self) -> None:
        state = self.loop.state
        assert len(state.profiles) <= 3
        assert len(state.bars) <= 3
        if state.history:
            assert state.history[-1].time_s - state.history[0].time_s <= 200.0


ControlRoom.TestCase.settings = settings(
    max_examples=40,  # the slow proofs have many more
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestControlRoom = ControlRoom.TestCase
