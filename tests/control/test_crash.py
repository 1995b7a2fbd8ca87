"""Kills the controller at every point at which a crash could make it act twice, or not at all."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidewise.control import GuardSettings, Loop, LoopSettings, Runner, RunnerSettings, SqliteJournal
from tidewise.core import (
    ChangeFinished,
    ChangeRequest,
    ChangeRequested,
    ChangeStatus,
    Configuration,
    Decision,
    JournalEvent,
    Overridden,
    OverrideLifted,
    Profile,
    ProfileRequest,
    Situation,
)

from .fakes import Crash, FakeClock, FakeJob, ListJournal, ScriptedPolicy, because, build_loop, config, follow

END_S = 1500.0
PEOPLE: tuple[tuple[float, type], ...] = ((500.0, Overridden), (800.0, OverrideLifted))


def load(time_s: float) -> float:
    """Up, up again, an override, a change that fails half-way, and down in the end."""
    return 100.0 if time_s < 100 else 400.0 if time_s < 300 else 800.0 if time_s < 1000 else 200.0


def decide(situation: Situation) -> Decision:
    if not situation.profiles and situation.latest.time_s >= 100.0:
        return Profile(candidates=(config(2),), reason=because("learn"), settle_s=10, measure_s=20)
    return follow(situation)


@dataclass
class CrashingJob(FakeJob):
    """Dies with the controller right after the n-th request has arrived at the engine."""

    calls: int = 0
    crash_after_call: int | None = None
    spans: list[tuple[float, float]] = field(default_factory=list)

    def _arrived(self) -> None:
        self.calls += 1
        if self.calls == self.crash_after_call:
            raise Crash

    def change(self, request: ChangeRequest) -> None:
        before = len(self.begun)
        super().change(request)
        if len(self.begun) > before:
            self.spans.append((self.clock.time_s, self.clock.time_s + self.change_takes_s))
        self._arrived()

    def profile(self, request: ProfileRequest) -> None:
        super().profile(request)
        self._arrived()


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.job = CrashingJob(clock=self.clock, load=load)
        # The change after the override fails half-way, so that a rollback is part of the story.
        self.job.endings = [(ChangeStatus.APPLIED, None)] * 3 + [(ChangeStatus.FAILED, config(9))]
        self.journal = ListJournal()
        self.loop = self.fresh_loop()
        self.crashes = 0

    @staticmethod
    def fresh_loop() -> Loop:
        settings = LoopSettings(
            decide_every_s=30.0, deadline_minimum_s=100.0, probation_s=90.0, grace_s=20.0, back_off_s=100.0
        )
        return build_loop(ScriptedPolicy(decide), settings=settings, guard_settings=GuardSettings(cooldown_s=None))

    def run(self, *, downtime_s: float = 0.0) -> None:
        while True:
            self.loop = self.fresh_loop()
            runner = Runner(
                job=self.job,
                loop=self.loop,
                journal=self.journal,
                clock=self.clock,
                settings=RunnerSettings(poll_every_s=10.0),
            )
            try:
                for time_s, kind in (*PEOPLE, (END_S, type(None))):
                    if self.clock.time_s < time_s:
                        runner.run(time_s)
                    # A person whose wish is not in the journal has seen it fail, and says it again.
                    if kind is Overridden and not self.has(kind):
                        runner.override(config(11), by="ada")
                    elif kind is OverrideLifted and not self.has(kind):
                        runner.lift(by="ada")
                runner.run(END_S)
            except Crash:
                self.crashes += 1
                assert self.crashes < 10
                self.clock.time_s += downtime_s
                continue
            return

    def has(self, kind: type) -> bool:
        return any(name == kind.__name__ for name, _ in self.journal.rows)

    def end(self) -> tuple[object, ...]:
        state = self.loop.state
        return self.job.configuration, state.observed, state.requested, state.override, state.paused_by, state.profile

    def check(self) -> None:
        asked = [event.request for event in self.journal.read() if isinstance(event, ChangeRequested)]
        begun = [request.request_id for request in self.job.begun]
        assert len(begun) == len(set(begun)), "a request was carried out twice"
        assert set(begun) <= {request.request_id for request in asked}, "something was done that is not written down"
        assert all(request in asked for request in self.job.begun)
        assert len(self.job.profiles_begun) == len({each.request_id for each in self.job.profiles_begun})
        spans = sorted(self.job.spans)
        assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(spans)), "overlapping"
        replayed = self.fresh_loop()
        replayed.replay(self.journal.read())
        assert replayed.state == self.loop.state


def undisturbed() -> World:
    world = World()
    world.run()
    world.check()
    return world


def test_the_story_has_every_kind_of_change_in_it() -> None:
    world = undisturbed()
    assert {request.origin.value for request in world.job.begun} == {"policy", "operator", "rollback"}
    assert len(world.job.profiles_begun) == 1
    assert world.job.configuration == config(2)


@pytest.mark.parametrize("downtime_s", [0.0, 47.0])
@pytest.mark.parametrize("moment", ["crash_before", "crash_after"])
def test_a_crash_at_any_write_changes_neither_what_is_done_nor_how_it_ends(moment: str, downtime_s: float) -> None:
    calm = undisturbed()
    for number in range(1, calm.journal.appends + 1):
        world = World()
        setattr(world.journal, moment, number)
        world.run(downtime_s=downtime_s)
        assert world.crashes == 1
        world.check()
        assert world.end() == calm.end(), f"after a crash at write {number}"


@pytest.mark.parametrize("downtime_s", [0.0, 47.0, 300.0])
def test_a_crash_between_the_engine_and_the_controller_acts_once(downtime_s: float) -> None:
    calm = undisturbed()
    for number in range(1, calm.job.calls + 1):
        world = World()
        world.job.crash_after_call = number
        world.run(downtime_s=downtime_s)
        assert world.crashes == 1
        world.check()
        assert world.end() == calm.end(), f"after a crash at call {number}"


def test_two_crashes_in_a_row_are_survived() -> None:
    calm = undisturbed()
    for number in range(5, calm.journal.appends, 7):
        world = World()
        world.journal.crash_after = number
        world.journal.crash_before = number + 1
        world.run()
        assert world.crashes == 2
        world.check()
        assert world.end() == calm.end()


# The same with a real process, a real file and a real SIGKILL.


class DyingJournal:
    """Kills its own process at the n-th write, before or after it."""

    def __init__(self, path: Path, number: int, moment: str) -> None:
        self._journal = SqliteJournal(path)
        self._left, self._moment = number, moment

    def append(self, events: Iterable[JournalEvent]) -> None:
        self._left -= 1
        if self._left == 0 and self._moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        self._journal.append(events)
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def read(self) -> Iterator[JournalEvent]:
        return iter(list(self._journal.read()))

    def close(self) -> None:
        self._journal.close()


class FileJob(FakeJob):
    """An engine that outlives the controller: what it was asked to do stands in a file."""

    log: Path

    def change(self, request: ChangeRequest) -> None:
        known = self.log.read_text().split() if self.log.exists() else []
        if request.request_id not in known:
            with self.log.open("a") as file:
                file.write(f"{request.request_id}\n")
        super().change(request)


def controlled(folder: Path, number: int, moment: str, *, runs: Configuration, from_s: float) -> Loop:
    """What the child process does: 200 s of a run, from a given time on."""
    clock = FakeClock(time_s=from_s)
    job = FileJob(clock=clock, load=lambda _: 500.0, configuration=runs)
    job.log = folder / "engine.log"
    loop = World.fresh_loop()
    journal = DyingJournal(folder / "run.journal", number, moment)
    Runner(job=job, loop=loop, journal=journal, clock=clock).run(from_s + 200.0)
    journal.close()
    return loop


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 5, 9, 12, 14])
def test_a_controller_killed_by_the_system_resumes_from_its_file(tmp_path: Path, number: int, moment: str) -> None:
    program = (
        "import sys; from pathlib import Path;"
        "from control.test_crash import controlled; from control.fakes import config;"
        f"controlled(Path(sys.argv[1]), {number}, {moment!r}, runs=config(1), from_s=0.0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with SqliteJournal.open_readonly(tmp_path / "run.journal") as journal:
        written = list(journal.read())
    runs = next((each.outcome.configuration for each in written if isinstance(each, ChangeFinished)), config(1))
    loop = controlled(tmp_path, 10_000, "never", runs=runs, from_s=210.0)
    log = (tmp_path / "engine.log").read_text().split()
    with SqliteJournal.open_readonly(tmp_path / "run.journal") as journal:
        after = list(journal.read())
    assert after[: len(written)] == written
    asked = [event.request.request_id for event in after if isinstance(event, ChangeRequested)]
    assert len(log) == len(set(log))
    assert set(log) <= set(asked)
    assert loop.state.observed == config(5)
