"""Profiles without Spark: begun once, refused in time, ended by whoever has the right to, and always with a result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engines.spark.stub_fleet import RATE_PER_S, START, Stage, stage
from tidewise.core import (
    Censored,
    ChangeRequest,
    Configuration,
    JobStatus,
    Mechanism,
    Origin,
    PermanentError,
    Purpose,
    Reason,
    TemporaryError,
)
from tidewise.engines.spark.application import Application
from tidewise.engines.spark.book import Book
from tidewise.engines.spark.copies import nothing_measured
from tidewise.engines.spark.copy_record import CopyRecord
from tidewise.engines.spark.engine import SparkEngine, offered_changes
from tidewise.engines.spark.fleet import Fleet
from tidewise.engines.spark.job import SparkJob
from tidewise.engines.spark.latency import LatencyChoice
from tidewise.engines.spark.master import ClusterManager
from tidewise.engines.spark.measured_copy import MeasuredCopy, measures_for_s
from tidewise.host.processes import wait_until
from tidewise_agent.scratch import note_scratch

TWO = START.with_executors(2)


def test_a_copy_is_measured_and_gone(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        on.copies.begin(on.request(TWO))
        application = on.wait_for_a_copy()
        process = application.process
        (measured,) = on.outcome().measurements
        assert (measured.configuration, measured.detail) == (TWO, "")
        assert measured.input_rate_per_s == pytest.approx(RATE_PER_S, rel=0.3)
        assert measured.processed_rate_per_s == pytest.approx(RATE_PER_S, rel=0.4)
        assert measured.latency_p95_s is not None
        assert measured.latency_p95_s > 0.0
        assert measured.recovery_s is None
        assert not process.is_alive()
        assert on.copies_alive() == []
        assert wait_until(lambda: not on.copies.is_on, deadline_s=5.0)
        # What the copy processed is not the job's.
        reports = on.fleet.reporter.observations(on.fleet.clock.now_s())
        assert max(report.processed_rate_per_s for report in reports) < 1.5 * RATE_PER_S


def test_a_request_is_carried_out_once_however_often_it_is_made(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        request = on.request(START)
        for _ in range(3):
            on.copies.begin(request)
        ended = on.outcome()
        launched = on.fleet.book.launched
        on.copies.begin(request)
        time.sleep(0.3)
        assert on.outcome() == ended
        assert on.fleet.book.launched == launched == 2, "more than the job and one copy"
        # A controller that comes later reads the same book.
        found = Book.read(tmp_path / "job").profile_outcome("p")
        assert found == ended


def test_one_profile_at_a_time_and_none_beside_a_change(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        on.copies.begin(on.request(START, measure_s=5.0))
        with pytest.raises(TemporaryError, match="another profile is on"):
            on.copies.begin(on.request(START, name="q"))
        on.copies.end("enough")
        on.outcome()
        on.fleet.book = on.fleet.book.having(change="r")
        with pytest.raises(TemporaryError, match="the job is being changed"):
            on.copies.begin(on.request(START, name="q"))
        on.fleet.book = on.fleet.book.having(change=None)
        on.fleet.set_status(JobStatus.DOWN)
        with pytest.raises(TemporaryError, match="driver replaced"):
            on.copies.begin(on.request(START, name="q"))
        assert on.fleet.book.profile_outcome("q") is None


def test_a_program_that_may_not_run_beside_itself_has_no_copies(tmp_path: Path) -> None:
    with stage(tmp_path, handover=False) as on, pytest.raises(PermanentError, match="handover = true in the job file"):
        on.copies.begin(on.request(START))


def test_a_source_that_may_not_be_read_twice_is_told_as_the_agent_tells_it(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        facts = on.fleet.active.queries["c"]
        on.fleet.active.queries["c"] = replace(facts, why_alone="socket may not be read a second time")
        with pytest.raises(PermanentError, match="cannot be measured: socket may not be read a second time"):
            on.copies.begin(on.request(START))
        on.fleet.active.queries["c"] = replace(facts, checkpoint="s3://bucket/checkpoint")
        with pytest.raises(PermanentError, match="not on a local disk"):
            on.copies.begin(on.request(START))
        on.fleet.active.queries["c"] = replace(facts, movable=False)
        with pytest.raises(PermanentError, match="a trigger that is not a processing time"):
            on.copies.begin(on.request(START))
        on.cluster.blind = "its web interface does not answer"
        with pytest.raises(PermanentError, match="whether copies find room"):
            on.copies.begin(on.request(START))
        assert on.fleet.book.profile_on is None
        assert on.fleet.book.launched == 1


def test_copies_run_side_by_side_where_there_is_room(tmp_path: Path) -> None:
    with stage(tmp_path, room=4) as on:
        on.copies.begin(on.request(START, TWO, measure_s=1.5))
        outcome = on.outcome()
        assert [one.configuration for one in outcome.measurements] == [START, TWO]
        assert all(one.processed_rate_per_s > 0.0 for one in outcome.measurements)
        assert on.cluster.most_copies == 2


def test_copies_run_one_after_the_other_where_there_is_not(tmp_path: Path) -> None:
    with stage(tmp_path, room=3) as on:
        on.copies.begin(on.request(TWO, START, TWO))
        outcome = on.outcome()
        assert all(one.processed_rate_per_s > 0.0 for one in outcome.measurements), outcome
        assert on.cluster.most_copies == 1


def test_a_candidate_without_room_is_a_result_and_the_others_go_on(tmp_path: Path) -> None:
    with stage(tmp_path, room=3) as on:
        too_small = replace(START, memory_mib_per_executor=300)
        cut_otherwise = replace(START, state_partitions=7)
        on.copies.begin(on.request(START.with_executors(9), too_small, cut_otherwise, TWO))
        none, small, cut, measured = on.outcome().measurements
        assert none.detail == "the cluster has no room for it beside the job"
        assert "at least" in small.detail
        assert "2 partitions, not 7" in cut.detail
        assert measured.processed_rate_per_s > 0.0
        assert on.copies_alive() == []


def test_a_copy_that_dies_or_does_not_come_up_is_a_result(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        on.copies.begin(on.request(START, measure_s=5.0))
        on.wait_for_a_copy().process.kill()
        assert "the copy died: the program was killed by signal 9" in on.outcome().measurements[0].detail
        on.agents.mute = True
        on.copies.begin(on.request(START, name="q", within_s=2.0))
        assert "had not come up when its time was over: 0 of 1 executors" in on.outcome("q").measurements[0].detail
        assert on.copies_alive() == []


def test_what_cannot_be_measured_by_the_deadline_is_told_and_ended(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        on.copies.begin(on.request(START, measure_s=30.0, within_s=2.0))
        assert "the time of the profile was over before" in on.outcome().measurements[0].detail
        assert on.copies_alive() == []


def test_whoever_wants_the_copies_gone_gets_his_way_and_the_reason_is_told(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        on.copies.begin(on.request(START, TWO.with_executors(3), measure_s=30.0, within_s=60.0))
        process = on.wait_for_a_copy().process
        began_s = time.monotonic()
        on.copies.end("a change of the job needed the room")
        assert time.monotonic() - began_s < 10.0
        assert not process.is_alive()
        assert {one.detail for one in on.outcome().measurements} == {"a change of the job needed the room"}
        on.copies.end("again")  # does nothing


def test_a_driver_that_is_killed_comes_back_on_the_same_scratch_and_its_recovery_is_measured(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        seen: list[str | None] = []
        over = threading.Event()

        def look() -> None:
            while not over.wait(timeout=0.02):
                seen.extend(one.copy for one in on.copies_alive())

        looking = threading.Thread(target=look)
        looking.start()
        on.copies.begin(on.request(START, inject_failure=True, recovery_limit_s=4.0, within_s=30.0))
        try:
            (measured,) = on.outcome().measurements
        finally:
            over.set()
            looking.join()
        assert on.fleet.book.launched == 3, "the driver was to be started a second time"
        assert len(set(seen)) == 1, "the successor was to go on from the scratch checkpoint of the dead one"
        assert measured.processed_rate_per_s > 0.0
        assert isinstance(measured.recovery_s, Censored), "four seconds are too few to be calm for fifteen"
        assert measured.recovery_s.at_least < 4.0
        assert on.copies_alive() == []


def test_of_two_drivers_the_one_that_lives_is_ended_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scratch checkpoint goes with either, and is made anew by whoever still works on it."""
    ended: list[str] = []
    real = Fleet.end

    def end(self: Fleet, application: Application, *, within_s: float = 30.0, keeps_scratch: bool = False) -> bool:
        if application.copy is not None and not keeps_scratch:
            ended.append(application.key)
        return real(self, application, within_s=within_s, keeps_scratch=keeps_scratch)

    monkeypatch.setattr(Fleet, "end", end)
    with stage(tmp_path) as on:
        on.copies.begin(on.request(START, inject_failure=True, recovery_limit_s=1.0))
        on.outcome()
        assert len(ended) == 2
        assert ended == sorted(ended, reverse=True)


def test_the_outcome_is_there_by_the_deadline_however_long_copies_take_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _end_copies_by(monkeypatch, lambda: time.sleep(0.6))
    with stage(tmp_path) as on:
        on.agents.mute = True
        request = on.request(START, within_s=4.0)
        on.copies.begin(request)
        outcome = on.outcome()
        assert "had not come up" in outcome.measurements[0].detail
        assert outcome.finished_at_s < request.deadline_s


def test_a_copy_is_measured_only_when_it_has_caught_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught_up = threading.Event()
    monkeypatch.setattr(CopyRecord, "has_caught_up", lambda _: caught_up.is_set())
    with stage(tmp_path) as on:
        on.copies.begin(on.request(START))
        on.wait_for_a_copy()
        time.sleep(3.0)
        assert on.fleet.book.profile_outcome("p") is None
        at_s = on.fleet.clock.now_s()
        caught_up.set()
        outcome = on.outcome()
        assert outcome.measurements[0].processed_rate_per_s > 0.0
        assert outcome.finished_at_s >= at_s + 0.9
        # One that never does is measured all the same, while there is time for it.
        caught_up.clear()
        on.copies.begin(on.request(START, name="q", within_s=9.0))
        assert on.outcome("q").measurements[0].processed_rate_per_s > 0.0


def test_where_commits_are_rare_copies_are_measured_for_longer(tmp_path: Path) -> None:
    rare = replace(START, commit_interval_s=90.0)
    with stage(tmp_path) as on:
        request = on.request(rare, measure_s=60.0)
        assert measures_for_s(request, START) == 60.0
        assert measures_for_s(request, rare) == 180.0
        on.copies.begin(on.request(rare, within_s=150.0))
        assert "time of the profile was over" in on.outcome().measurements[0].detail
        assert on.fleet.book.launched == 1, "a copy was started that could not be measured in time"


@pytest.mark.parametrize("how", ["cut", "died"])
def test_a_copy_that_ends_before_it_is_broken_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with stage(tmp_path) as on:

        def end_early(self: MeasuredCopy, application: Application) -> None:
            if how == "cut":
                on.copies.cut_short("somebody wants it gone")
            else:
                application.process.kill()
            self._pass(application, until_s=on.fleet.clock.now_s() + 5.0)

        monkeypatch.setattr(MeasuredCopy, "_wait_for_the_worst_moment", end_early)
        on.copies.begin(on.request(START, inject_failure=True))
        (measured,) = on.outcome().measurements
        assert measured.processed_rate_per_s > 0.0, "what was measured before is a result"
        assert measured.recovery_s is None
        assert ("somebody wants it gone" if how == "cut" else "the copy died") in measured.detail


def test_what_goes_wrong_with_one_candidate_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path) as on:
        tiny = replace(START, memory_mib_per_executor=200)
        on.copies.begin(on.request(tiny, START))
        refused, measured = on.outcome().measurements
        assert "at least" in refused.detail
        assert measured.processed_rate_per_s > 0.0
        real, asked = on.fleet.has_room_for_copy, []

        def fail_at_the_second(candidate: Configuration) -> bool:
            asked.append(candidate)
            if len(asked) == 2:
                raise ZeroDivisionError("nobody thought of this")
            return real(candidate)

        monkeypatch.setattr(on.fleet, "has_room_for_copy", fail_at_the_second)
        on.copies.begin(on.request(START, TWO, START, name="q"))
        first, *rest = on.outcome("q").measurements
        assert (first.detail, first.processed_rate_per_s > 0.0) == ("", True)
        assert {one.detail for one in rest} == {"ZeroDivisionError: nobody thought of this"}


def test_no_copy_is_started_where_it_is_not_known_to_fit(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        on.cluster.is_silent = True
        on.copies.begin(on.request(START))
        assert on.outcome().measurements[0].detail == "the cluster has no room for it beside the job"
        assert on.fleet.book.launched == 1


def test_a_driver_that_dies_while_a_profile_is_looked_into_is_not_overlooked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage(tmp_path) as on:
        monkeypatch.setattr(on.copies, "_check", lambda _: on.fleet.set_status(JobStatus.DOWN))
        with pytest.raises(TemporaryError, match="driver replaced"):
            on.copies.begin(on.request(START))
        assert not on.copies.is_on
        assert on.fleet.book.profile_on is None


def test_an_interrupted_profile_has_an_outcome_for_each_candidate(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        request = on.request(START, TWO)
        outcome = nothing_measured(request, 12.0, "the controller was restarted")
        assert [one.configuration for one in outcome.measurements] == [START, TWO]
        assert {one.detail for one in outcome.measurements} == {"the controller was restarted"}
        on.fleet.book = on.fleet.book.with_profile(request)
        assert Book.read(tmp_path / "job").profile_on == request
        on.fleet.book = on.fleet.book.with_profile_outcome(outcome)
        assert Book.read(tmp_path / "job").profile_on is None
        assert Book.read(tmp_path / "job").profile_outcome("p") == outcome


# The job as a whole


def _job(on: Stage) -> SparkJob:
    return SparkJob(on.fleet, changes=offered_changes(handover=True, repartitions=False), supervised=False, seed=1)


def test_copies_are_paid_for_as_profiling(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        job = _job(on)
        job.profile(on.request(TWO, measure_s=1.0))
        on.wait_for_a_copy()
        job.forget_spent()
        assert job.profile_outcome("p") is None
        while job.profile_outcome("p") is None:
            meter = job.meter()
            time.sleep(0.05)
        used = meter[Purpose.PROFILING]
        seconds = meter[Purpose.DRIVER].core_s
        # Two executors and a driver for nearly all of the time; the job's own are counted apart, and nothing twice.
        assert used.core_s == pytest.approx(3 * seconds, rel=0.4)
        assert meter[Purpose.EXECUTORS].core_s == pytest.approx(seconds)
        assert Purpose.DOUBLE_RUNNING not in meter
        spent = job.meter()[Purpose.PROFILING]
        time.sleep(0.3)
        assert job.meter()[Purpose.PROFILING] == spent, "copies that are gone go on to cost"


def test_copies_are_paid_for_until_they_are_gone_also_where_the_job_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _end_copies_by(monkeypatch, lambda: time.sleep(1.5))
    with stage(tmp_path) as on:
        job = _job(on)
        job.begin()
        job.profile(on.request(TWO, measure_s=30.0, within_s=60.0))
        on.wait_for_a_copy()
        before = job.meter()[Purpose.PROFILING].core_s
        job.stop()
        # Two executors and a driver, for the better part of a second and a half.
        assert job.meter()[Purpose.PROFILING].core_s - before >= 3.0


def _end_copies_by(monkeypatch: pytest.MonkeyPatch, before: Callable[[], object]) -> None:
    """Something happens before a copy is ended; where it says False, the end cannot be confirmed."""
    real = Application.end

    def end(self: Application, cluster: ClusterManager, *, within_s: float) -> bool:
        if self.copy is not None and before() is False:
            return False
        return real(self, cluster, within_s=within_s)

    monkeypatch.setattr(Application, "end", end)


def _change(on: Stage, executors: int, mechanism: Mechanism = Mechanism.LIVE) -> ChangeRequest:
    now_s = on.fleet.clock.now_s()
    return ChangeRequest(
        request_id=f"to-{executors}",
        origin=Origin.POLICY,
        source=START,
        target=START.with_executors(executors),
        mechanism=mechanism,
        requested_at_s=now_s,
        deadline_s=now_s + 5.0,
        reason=Reason(code="test", sentence="A test wants it."),
    )


def test_a_change_that_needs_the_room_ends_the_profile_and_one_that_does_not_lets_it_run(tmp_path: Path) -> None:
    with stage(tmp_path, room=4) as on:
        job = _job(on)
        job.profile(on.request(TWO, measure_s=30.0, within_s=60.0))
        copy = on.wait_for_a_copy()
        assert wait_until(lambda: not job._copies.is_coming_up, deadline_s=10.0, poll_s=0.02)
        job.change(_change(on, 2))  # which fails, because no agent listens here
        assert wait_until(lambda: job.change_outcome("to-2") is not None, deadline_s=30.0, poll_s=0.05)
        assert copy.is_driver_alive
        with pytest.raises(TemporaryError, match="another profile is on"):
            job.profile(on.request(TWO, name="q"))
        _expect_copies_leave_for(on, job, _change(on, 4))
        assert not copy.is_driver_alive


def _expect_copies_leave_for(on: Stage, job: SparkJob, change: ChangeRequest) -> None:
    """It is put off, shortly, and may be asked for again; nothing else waits meanwhile."""
    began_s = time.monotonic()
    with pytest.raises(TemporaryError, match="the copies of the job are leaving"):
        job.change(change)
    assert time.monotonic() - began_s < 1.0
    assert not job._busy.locked(), "a recovery could not begin"
    assert on.fleet.book.change is None
    assert {one.detail for one in on.outcome().measurements} == {"a change of the job needed the room"}
    assert wait_until(lambda: not job._copies.is_on, deadline_s=10.0)
    assert on.copies_alive() == []


@pytest.mark.parametrize("mechanism", [Mechanism.REDEPLOY, Mechanism.HANDOVER])
def test_a_change_that_starts_executors_anew_has_no_copies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: Mechanism
) -> None:
    _end_copies_by(monkeypatch, lambda: time.sleep(1.5))
    with stage(tmp_path, room=99) as on:
        job = _job(on)
        job.profile(on.request(TWO, measure_s=30.0, within_s=60.0))
        assert wait_until(lambda: any(one.executor_ids for one in on.copies_alive()), deadline_s=10.0, poll_s=0.02)
        assert wait_until(lambda: not job._copies.is_coming_up, deadline_s=10.0, poll_s=0.02)
        _expect_copies_leave_for(on, job, _change(on, 1, mechanism))


def test_a_copy_that_has_not_taken_its_room_yet_is_not_counted_upon_to_leave_some(tmp_path: Path) -> None:
    with stage(tmp_path, room=99) as on:
        on.agents.mute = True
        job = _job(on)
        job.profile(on.request(TWO, measure_s=30.0, within_s=60.0))
        on.wait_for_a_copy()
        assert job._copies.is_coming_up
        _expect_copies_leave_for(on, job, _change(on, 2))


@pytest.mark.parametrize("what", ["change", "recovery"])
def test_no_copy_starts_into_the_room_that_the_job_leaves_for_a_moment(tmp_path: Path, what: str) -> None:
    with stage(tmp_path, room=3) as on:
        on.copies.begin(on.request(TWO, TWO, measure_s=1.0))
        first = on.wait_for_a_copy()
        if what == "change":
            on.fleet.book = on.fleet.book.having(change="r")
        else:
            on.fleet.set_status(JobStatus.CHANGING)
        assert wait_until(lambda: first.key in on.fleet.book.dead, deadline_s=20.0, poll_s=0.02)
        time.sleep(1.5)
        assert on.copies_alive() == []
        assert on.copies.is_on
        on.fleet.book = on.fleet.book.having(change=None)
        on.fleet.set_status(JobStatus.RUNNING)
        assert all(one.processed_rate_per_s > 0.0 for one in on.outcome().measurements)


def test_the_standby_comes_before_the_copies(tmp_path: Path) -> None:
    with stage(tmp_path, room=3) as on:
        job = _job(on)
        job.profile(on.request(TWO, measure_s=30.0, within_s=60.0))
        on.wait_for_a_copy()
        on.fleet.program = replace(on.fleet.program, standby=True)
        job._supervisor.look()
        assert on.outcome().measurements[0].detail == "the job's standby needed the room"
        job._supervisor.look()
        assert on.fleet.standby_key in on.fleet.applications


def test_copies_do_not_leave_for_a_standby_that_would_not_fit_without_them_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage(tmp_path) as on:
        monkeypatch.setattr(on.fleet, "fits", lambda *_: False)
        on.fleet.program = replace(on.fleet.program, standby=True)
        job = _job(on)
        job._supervisor.look()
        job.profile(on.request(START))
        on.wait_for_a_copy()
        job._supervisor.look()
        assert on.outcome().measurements[0].detail == ""


def test_a_copy_whose_end_was_not_confirmed_is_ended_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [False]
    _end_copies_by(monkeypatch, lambda: answers.pop() if answers else True)
    with stage(tmp_path) as on:
        job = _job(on)
        job.profile(on.request(START))
        on.outcome()
        assert wait_until(lambda: not job._copies.is_on, deadline_s=5.0)
        (left,) = on.copies_alive()
        assert left.is_driver_alive
        job._copies.look()
        assert wait_until(lambda: on.copies_alive() == [], deadline_s=5.0)
        assert not left.is_driver_alive


@pytest.mark.parametrize(("how", "why"), [("stop", "stopped"), ("kill", "killed"), ("leave", "left the job")])
def test_nothing_outlives_whoever_watched_it(tmp_path: Path, how: str, why: str) -> None:
    with stage(tmp_path) as on:
        job = _job(on)
        job.profile(on.request(TWO, measure_s=30.0, within_s=60.0))
        copy, own = on.wait_for_a_copy(), on.fleet.active
        getattr(job, how)()
        assert not copy.is_driver_alive
        assert own.is_driver_alive == (how == "leave")
        assert why in on.outcome().measurements[0].detail
        with pytest.raises(PermanentError, match="has ended"):
            job.profile(on.request(TWO, name="q"))


def test_a_job_whose_driver_died_gets_the_room_of_its_copies(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        job = _job(on)
        job.profile(on.request(TWO, measure_s=30.0, within_s=60.0))
        copy = on.wait_for_a_copy()
        on.fleet.active.process.kill()
        job._supervisor.look()
        job._supervisor.stopping = True  # nobody is to start it again here
        assert wait_until(lambda: not copy.is_driver_alive, deadline_s=10.0)
        assert "driver had to be replaced" in on.outcome().measurements[0].detail


def test_the_next_controller_ends_what_it_finds_and_tells_how_the_profile_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody_listens(*_: object, **__: object) -> None:
        raise TemporaryError("no agent is connected")

    monkeypatch.setattr("tidewise.engines.spark.engine._CALL_IN_WITHIN_S", 0.1)
    monkeypatch.setattr(Fleet, "ask", nobody_listens)
    with stage(tmp_path) as on:
        # As a controller leaves it that was killed while a profile was on: what it had written down, and no more.
        request = on.request(START, TWO)
        on.fleet.book = on.fleet.book.with_profile(request)
        record = CopyRecord(START, latency=LatencyChoice.AUTO, measure_s=1.0, launched_s=0.0)
        first, second = (
            on.fleet.launch_copy(START, record=record, ends_unix_s=time.time() + 60.0, scratch=name)
            for name in (None, "copy")
        )
        scratch = [tmp_path / "checkpoint" / "_tidewise" / f"copy-{name}" for name in ("one", "two")]
        for application, folder in zip((first, second), scratch, strict=True):
            folder.mkdir(parents=True)
            note_scratch(application.folder, folder)
        on.fleet.end(first, keeps_scratch=True)  # its driver had been broken, and was to come back
        assert scratch[0].is_dir()
        own = on.fleet.active
        on.fleet.close()
        engine = SparkEngine(program=on.fleet.program, cluster=on.cluster, home=tmp_path / "job", clock=on.fleet.clock)
        job = engine.take_back()
        try:
            assert own.is_driver_alive
            assert not second.is_driver_alive
            assert not any(folder.exists() for folder in scratch)
            outcome = job.profile_outcome("p")
            assert outcome is not None
            assert [one.detail for one in outcome.measurements] == (
                2 * ["the controller was restarted while the profile was on"]
            )
            job.profile(request)  # begun before, so that nothing is
            assert job.profile_outcome("p") == outcome
            assert [one.key for one in job.fleet.applications.values()] == [own.key]
        finally:
            job.leave()


def test_the_next_controller_does_not_wait_for_copies_nor_for_a_profile_that_it_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody_listens(*_: object, **__: object) -> None:
        raise TemporaryError("no agent is connected")

    monkeypatch.setattr("tidewise.engines.spark.engine._CALL_IN_WITHIN_S", 0.1)
    monkeypatch.setattr(Fleet, "ask", nobody_listens)
    asked_by: list[threading.Thread] = []

    def cannot_tell_yet() -> bool:
        asked_by.append(threading.current_thread())
        return len(asked_by) > 2

    with stage(tmp_path) as on:
        record = CopyRecord(START, latency=LatencyChoice.AUTO, measure_s=1.0, launched_s=0.0)
        on.fleet.launch_copy(START, record=record, ends_unix_s=time.time() + 60.0)
        on.fleet.book = on.fleet.book.having(profile={"request_id": "p", "of": "another version"})
        on.fleet.close()
        _end_copies_by(monkeypatch, cannot_tell_yet)
        engine = SparkEngine(program=on.fleet.program, cluster=on.cluster, home=tmp_path / "job", clock=on.fleet.clock)
        job = engine.take_back()
        try:
            assert asked_by.count(threading.current_thread()) == 1, "it waited for a copy to be confirmed dead"
            assert job.fleet.book.profile is None
            assert job.profile_outcome("p") is None
            assert wait_until(lambda: len(job.fleet.applications) == 1, deadline_s=10.0), "nobody looks after it"
        finally:
            job.leave()
