from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tidewise.control import (
    GuardSettings,
    Loop,
    LoopSettings,
    Phase,
    Runner,
    RunnerSettings,
    SqliteJournal,
    SystemClock,
)
from tidewise.core import (
    ChangeExpired,
    ChangeFinished,
    ChangeOutcome,
    ChangeRequested,
    ChangeStatus,
    Configuration,
    ControllerStarted,
    ControllerStopped,
    Decided,
    FaultInjected,
    Keep,
    Origin,
    PermanentError,
    Profile,
    ProfileFinished,
    Reported,
    Situation,
    TemporaryError,
)

from .fakes import Crash, FakeClock, FakeJob, ListJournal, ScriptedPolicy, because, build_loop, config, follow


class World:
    """A job, a journal and as many controllers as it takes."""

    def __init__(self, *, load: Callable[[float], float] = lambda _: 100.0, executors: int = 1) -> None:
        self.clock = FakeClock()
        self.job = FakeJob(clock=self.clock, load=load, configuration=config(executors))
        self.journal = ListJournal()
        self.policy = ScriptedPolicy(follow)
        self.seen: list[float] = []
        self.loop: Loop
        self.runner = self.controller()

    def controller(self) -> Runner:
        self.loop = build_loop(
            ScriptedPolicy(self.policy.script),
            settings=LoopSettings(decide_every_s=60.0, deadline_minimum_s=100.0),
            guard_settings=GuardSettings(cooldown_s=None),
        )
        self.runner = Runner(
            job=self.job,
            loop=self.loop,
            journal=self.journal,
            clock=self.clock,
            settings=RunnerSettings(poll_every_s=10.0),
            progress=self.seen.append,
        )
        return self.runner

    def events(self, *kinds: type) -> list[object]:
        return [event for event in self.journal.read() if isinstance(event, kinds)]


def test_a_run_follows_the_load_and_writes_everything_down() -> None:
    world = World(load=lambda time_s: 100.0 if time_s < 300 else 500.0)
    world.runner.run(900.0)
    world.runner.finish("the run is over")
    world.runner.finish("again")
    assert world.job.configuration == config(5)
    assert [request.request_id for request in world.job.begun] == ["test-1"]
    assert len(world.events(Reported)) == 90
    decided = world.events(Decided)
    times = [event.at_s for event in decided if isinstance(event, Decided)]
    assert times == [0.0, *(60.0 * number for number in range(1, 16))]
    assert len(world.events(ControllerStarted)) == len(world.events(ControllerStopped)) == 1
    assert world.seen[-1] == 900.0
    assert world.loop.state.change is not None
    assert world.loop.state.change.phase is Phase.SETTLED


def test_a_run_may_be_continued_and_faults_recorded_in_between() -> None:
    world = World()
    world.runner.run(100.0)
    world.runner.record(FaultInjected(at_s=100.0, fault="kill-executor"))
    world.runner.run(200.0)
    assert len(world.events(ControllerStarted)) == 1
    assert len(world.events(FaultInjected)) == 1
    assert len(world.events(Reported)) == 20


def test_a_temporary_refusal_is_tried_again_without_blocking_reports(caplog: pytest.LogCaptureFixture) -> None:
    world = World(load=lambda _: 500.0)
    world.job.errors = [TemporaryError("busy", retry_after_s=15.0), TemporaryError("busy")]
    with caplog.at_level(logging.WARNING):
        world.runner.run(100.0)
    assert "busy" in caplog.text
    assert [request.request_id for request in world.job.begun] == ["test-1"]
    assert len(world.events(Reported)) == 10
    assert len(world.events(ChangeFinished)) == 1


def test_a_refusal_that_never_ends_expires_at_the_deadline_and_acts_never() -> None:
    world = World(load=lambda _: 500.0)
    world.job.errors = [TemporaryError("busy") for _ in range(1000)]
    world.runner.run(170.0)
    assert world.job.begun == []
    expired = world.events(ChangeExpired)
    assert [event.at_s for event in expired if isinstance(event, ChangeExpired)] == [160.0]


def test_a_permanent_refusal_is_a_failed_change() -> None:
    world = World(load=lambda _: 500.0)
    world.job.errors = [PermanentError("no such \udc00 cluster")]
    world.runner.run(100.0)
    (finished,) = world.events(ChangeFinished)
    assert isinstance(finished, ChangeFinished)
    assert finished.outcome.status is ChangeStatus.FAILED
    assert "no such" in finished.outcome.detail
    assert finished.outcome.configuration == config(1)


class _Confused(FakeJob):
    def change_outcome(self, request_id: str) -> ChangeOutcome | None:
        return ChangeOutcome(
            request_id=f"not-{request_id}",
            status=ChangeStatus.APPLIED,
            finished_at_s=self.clock.time_s,
            configuration=config(9),
        )


def test_answers_about_another_request_are_not_written_down() -> None:
    clock, journal = FakeClock(), ListJournal()
    job = _Confused(clock=clock, load=lambda _: 500.0)
    Runner(job=job, loop=build_loop(ScriptedPolicy(follow)), journal=journal, clock=clock).run(150.0)
    assert len(job.begun) == 1
    assert "ChangeFinished" not in [kind for kind, _ in journal.rows]


def test_missing_reports_leave_the_job_alone_and_come_back(caplog: pytest.LogCaptureFixture) -> None:
    world = World(load=lambda time_s: 500.0 if time_s <= 200 else 100.0)
    world.runner.run(200.0)
    world.job.mute = True
    with caplog.at_level(logging.WARNING):
        world.runner.run(500.0)
    last = world.events(Decided)[-1]
    assert isinstance(last, Decided)
    assert last.decision.reason.code == "stale-data"
    assert len(world.job.begun) == 1
    world.job.mute = False
    world.runner.run(700.0)
    assert world.job.configuration == config(1)


def test_people_can_pause_override_lift_and_resume() -> None:
    world = World(load=lambda _: 300.0)
    world.runner.pause(by="ada")
    world.runner.run(100.0)
    assert world.job.begun == []
    world.runner.override(config(7), by="ada")
    world.runner.run(200.0)
    assert world.job.configuration == config(7)
    world.runner.lift(by="ada")
    world.runner.run(300.0)
    assert world.job.configuration == config(7)
    world.runner.resume(by="ada")
    world.runner.run(400.0)
    assert world.job.configuration == config(3)
    assert [request.origin for request in world.job.begun] == [Origin.OPERATOR, Origin.POLICY]


def test_a_profile_runs_beside_the_job_and_its_result_reaches_the_policy() -> None:
    world = World()
    results: list[int] = []

    def decide(situation: Situation) -> Profile | Keep:
        results.append(len(situation.profiles))
        if situation.profiles:
            return Keep(reason=because("known"))
        return Profile(candidates=(config(2),), reason=because("learn"), settle_s=10, measure_s=20)

    world.policy.script = decide
    world.controller().run(300.0)
    assert len(world.job.profiles_begun) == 1
    assert results[-1] == 1


def test_a_profile_refused_for_good_is_a_result_as_well() -> None:
    world = World()
    world.policy.script = lambda _: Profile(candidates=(config(2),), reason=because("learn"))
    world.job.errors = [PermanentError("no room")]
    world.controller().run(70.0)
    (finished,) = world.events(ProfileFinished)
    assert isinstance(finished, ProfileFinished)
    assert finished.outcome.measurements[0].detail == "no room"


@pytest.mark.parametrize("moment", ["crash_before", "crash_after"])
def test_a_runner_whose_journal_failed_refuses_to_go_on_and_has_not_acted(moment: str) -> None:
    world = World(load=lambda _: 500.0)
    world.runner.run(50.0)
    setattr(world.journal, moment, world.journal.appends + 2)  # The report of 60 s, then the decision.
    with pytest.raises(Crash):
        world.runner.run(70.0)
    assert world.job.begun == []
    with pytest.raises(PermanentError, match="new one"):
        world.runner.run(80.0)
    with pytest.raises(PermanentError, match="new one"):
        world.runner.finish("end")
    requested = len(world.events(ChangeRequested))
    assert requested == (1 if moment == "crash_after" else 0)
    world.controller().run(200.0)
    assert world.job.configuration == config(5)
    assert len(world.job.begun) == 1


def test_a_command_whose_deadline_passed_while_nobody_was_there_is_not_begun() -> None:
    world = World(load=lambda _: 500.0)
    world.runner.run(50.0)
    world.journal.crash_after = world.journal.appends + 2
    with pytest.raises(Crash):
        world.runner.run(70.0)
    world.clock.time_s = 500.0
    world.controller().run(500.0)
    assert len(world.events(ChangeExpired)) == 1
    world.runner.run(900.0)
    assert world.job.configuration != config(1)


def test_a_clock_far_behind_the_journal_is_refused_and_one_a_little_behind_is_waited_for() -> None:
    world = World()
    world.runner.run(300.0)
    world.clock.time_s = 100.0
    lines = len(world.journal.rows)
    behind = world.controller()
    for _ in range(2):
        with pytest.raises(PermanentError, match=r"behind the journal|new one"):
            behind.run(400.0)
    assert len(world.journal.rows) == lines
    world.clock.time_s = 280.0
    world.controller().start()
    assert world.clock.time_s == 300.0


def test_a_disk_that_fills_up_stops_the_controller_before_it_acts(tmp_path: Path) -> None:
    world = World(load=lambda time_s: 100.0 + time_s)
    with SqliteJournal(tmp_path / "run.journal") as journal:
        assert journal._connection is not None
        journal._connection.execute("PRAGMA max_page_count = 20")
        runner = Runner(job=world.job, loop=build_loop(world.policy), journal=journal, clock=world.clock)
        with pytest.raises(PermanentError, match="disk is full"):
            runner.run(10_000.0)
        asked = [event.request for event in journal.read() if isinstance(event, ChangeRequested)]
        assert world.job.begun == asked
        assert len(asked) > 0


class _Unreachable(FakeJob):
    def observed(self) -> Configuration:
        raise TemporaryError("not there yet")


def test_a_job_that_cannot_be_seen_yet_leaves_the_journal_untouched() -> None:
    clock, journal = FakeClock(), ListJournal()
    runner = Runner(job=_Unreachable(clock=clock), loop=build_loop(), journal=journal, clock=clock)
    for _ in range(2):
        with pytest.raises(TemporaryError):
            runner.run(10.0)
    assert journal.rows == []


def test_stop_wakes_a_waiting_runner_and_a_message_is_taken_at_once() -> None:
    clock, journal = SystemClock(), ListJournal()
    job = FakeJob(clock=FakeClock())
    stepped = threading.Event()
    runner = Runner(
        job=job, loop=build_loop(), journal=journal, clock=clock, progress=lambda _: stepped.set(), wake=clock.wake
    )
    thread = threading.Thread(target=runner.run, args=(3600.0,))
    thread.start()
    assert stepped.wait(timeout=10.0)
    stepped.clear()
    runner.pause(by="ada")
    assert stepped.wait(timeout=5.0)
    runner.stop()
    thread.join(timeout=5.0)
    assert not thread.is_alive()
    assert "Paused" in [kind for kind, _ in journal.rows]


def test_the_system_clock_never_goes_back_and_waits_no_longer_than_asked() -> None:
    clock = SystemClock(start_s=100.0)
    before_s = clock.now_s()
    assert before_s >= 100.0
    clock.wait_until(before_s + 0.02)
    assert clock.now_s() >= before_s + 0.02
    clock.wait_until(0.0)
    clock.wake()
    clock.wait_until(before_s + 3600.0)
    assert clock.now_s() < before_s + 60.0


def test_a_continued_run_goes_on_where_the_wall_clock_is() -> None:
    clock = SystemClock.since(time.time() - 50.0)
    assert 50.0 <= clock.now_s() < 60.0
