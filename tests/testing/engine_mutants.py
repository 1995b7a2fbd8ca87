"""Engines that each break one promise; `breaks` names the test that has to notice. Run by test_engines.py only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from tidewise.core import (
    ChangeCost,
    ChangeOutcome,
    ChangeRequest,
    ChangeStatus,
    Configuration,
    Engine,
    ImpossibleChangeError,
    JobStatus,
    Meter,
    Observation,
    PermanentError,
    ProfileRequest,
    Purpose,
    TemporaryError,
    Usage,
)
from tidewise.testing import EngineConformance

from .fake_engine import FakeClock, FakeEngine, FakeJob


class OnFake(EngineConformance):
    breaks: ClassVar[str]
    job_type: ClassVar[type[FakeJob]] = FakeJob
    clock_type: ClassVar[type[FakeClock]] = FakeClock

    report_wait_s = 30.0
    change_deadline_s = 60.0
    recovery_deadline_s = 90.0
    profile_deadline_s = 60.0

    def make_engine(self) -> Engine:
        return FakeEngine(self.job_type, self.clock_type)

    def start_configuration(self) -> Configuration:
        return Configuration(executors=3)


class TestNameless(OnFake):
    breaks = "test_it_has_a_name_and_offers_each_mechanism_once"

    def make_engine(self) -> Engine:
        engine = FakeEngine()
        engine.name = " "
        return engine


class HastyClock(FakeClock):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def wait_until(self, time_s: float) -> None:
        self.calls += 1
        if self.calls != 2:  # the second wait comes back at once
            super().wait_until(time_s)


class TestHastyClock(OnFake):
    breaks = "test_its_clock_keeps_its_word"
    clock_type = HastyClock


class Silent(FakeJob):
    def report(self) -> None:
        pass


class TestSilent(OnFake):
    breaks = "test_it_reports_soon"
    job_type = Silent


class Prophet(FakeJob):
    def report(self) -> None:
        super().report()
        self.new[-1] = replace(self.new[-1], time_s=self.now + 1000.0)


class TestProphet(OnFake):
    breaks = "test_it_reports_soon"
    job_type = Prophet


class Forgetful(FakeJob):
    def reports(self) -> Sequence[Observation]:
        return list(self.new)  # gives everything again at every call


class TestForgetful(OnFake):
    breaks = "test_reports_are_in_order_and_given_once"
    job_type = Forgetful


class Disorderly(FakeJob):
    def reports(self) -> Sequence[Observation]:
        if len(self.new) < 2:
            return []
        return list(reversed(super().reports()))


class TestDisorderly(OnFake):
    breaks = "test_reports_are_in_order_and_given_once"
    job_type = Disorderly


class Wilful(FakeJob):
    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration.with_executors(2))


class TestWilful(OnFake):
    breaks = "test_what_was_launched_is_what_is_observed"
    job_type = Wilful


class Misreporting(FakeJob):
    def report(self) -> None:
        super().report()
        self.new[-1] = replace(self.new[-1], configuration=Configuration(executors=9))


class TestMisreporting(OnFake):
    breaks = "test_what_was_launched_is_what_is_observed"
    job_type = Misreporting


class Endless(FakeJob):
    def finish(self, request: ChangeRequest) -> None:
        self.configuration = request.target


class TestEndless(OnFake):
    breaks = "test_each_mechanism_carries_what_it_can"
    job_type = Endless


class Inexact(FakeJob):
    def finish(self, request: ChangeRequest) -> None:
        super().finish(replace(request, target=request.target.with_executors(request.target.executors + 1)))


class TestInexact(OnFake):
    breaks = "test_each_mechanism_carries_what_it_can"
    job_type = Inexact


class Failing(FakeJob):
    def finish(self, request: ChangeRequest) -> None:
        self.pending = None
        self.outcomes[request.request_id] = ChangeOutcome(
            request_id=request.request_id,
            status=ChangeStatus.FAILED,
            finished_at_s=float(self.now),
            configuration=self.configuration,
            detail="no",
        )


class TestFailing(OnFake):
    breaks = "test_each_mechanism_carries_what_it_can"
    job_type = Failing


class SaysSo(FakeJob):
    """Tells that a change is done, but does not do it."""

    def observed(self) -> Configuration:
        return Configuration(executors=3)


class TestSaysSo(OnFake):
    breaks = "test_each_mechanism_carries_what_it_can"
    job_type = SaysSo


class Repeating(FakeJob):
    def known(self, request_id: str) -> bool:
        return self.pending is not None and self.pending.request.request_id == request_id


class TestRepeating(OnFake):
    breaks = "test_a_request_has_one_effect_however_often_it_is_made"
    job_type = Repeating


class Impatient(FakeJob):
    """Refuses to hear a request again while it is on."""

    def known(self, request_id: str) -> bool:
        return request_id in self.outcomes


class TestImpatient(OnFake):
    breaks = "test_a_request_has_one_effect_however_often_it_is_made"
    job_type = Impatient


class Greedy(FakeJob):
    """Takes a second change up while one is on."""

    def change(self, request: ChangeRequest) -> None:
        if not self.known(request.request_id):
            self.pending = None
        super().change(request)


class TestGreedy(OnFake):
    breaks = "test_one_change_at_a_time"
    job_type = Greedy


class Sly(FakeJob):
    """Refuses the second change, and makes it all the same."""

    def change(self, request: ChangeRequest) -> None:
        try:
            super().change(request)
        except TemporaryError:
            if self.pending is not None:
                self.pending.request = replace(self.pending.request, target=request.target)
            raise


class TestSly(OnFake):
    breaks = "test_one_change_at_a_time"
    job_type = Sly


class Boastful(FakeJob):
    """Accepts what it cannot do."""

    def change(self, request: ChangeRequest) -> None:
        try:
            super().change(request)
        except ImpossibleChangeError:
            return


class TestBoastful(OnFake):
    breaks = "test_an_impossible_change_is_refused_and_the_job_stays"
    job_type = Boastful


class Careless(FakeJob):
    """Refuses what it cannot do, after having begun it."""

    def change(self, request: ChangeRequest) -> None:
        try:
            super().change(request)
        except ImpossibleChangeError:
            self.begin(request, ChangeCost(mechanism=request.mechanism, gap_s=1.0))
            raise


class TestCareless(OnFake):
    breaks = "test_an_impossible_change_is_refused_and_the_job_stays"
    job_type = Careless


class Inventive(FakeJob):
    def change_outcome(self, request_id: str) -> ChangeOutcome | None:
        known = super().change_outcome(request_id)
        if known is not None or self.known(request_id):
            return known
        return ChangeOutcome(
            request_id=request_id,
            status=ChangeStatus.APPLIED,
            finished_at_s=0.0,
            configuration=self.configuration,
        )


class TestInventive(OnFake):
    breaks = "test_unknown_ids_have_no_outcome"
    job_type = Inventive


class Agreeable(FakeJob):
    def inject(self, fault: str) -> None:
        if fault == "crash":
            super().inject(fault)


class TestAgreeable(OnFake):
    breaks = "test_an_unknown_fault_is_refused"
    job_type = Agreeable


class Unbreakable(FakeJob):
    def inject(self, fault: str) -> None:
        if fault != "crash":
            raise PermanentError("unknown")


class TestUnbreakable(OnFake):
    breaks = "test_the_job_recovers_from_a_fault"
    job_type = Unbreakable


class Fragile(FakeJob):
    def inject(self, fault: str) -> None:
        super().inject(fault)
        self.down_until = 10**9


class TestFragile(OnFake):
    breaks = "test_the_job_recovers_from_a_fault"
    job_type = Fragile


class Shrunken(FakeJob):
    """Comes back from a failure with an executor less."""

    def inject(self, fault: str) -> None:
        super().inject(fault)
        self.configuration = self.configuration.with_executors(self.configuration.executors - 1)


class TestShrunken(OnFake):
    breaks = "test_the_job_recovers_from_a_fault"
    job_type = Shrunken


class ProfilesInPlace(FakeJob):
    def profile(self, request: ProfileRequest) -> None:
        super().profile(request)
        self.configuration = request.candidates[0]


class TestProfilesInPlace(OnFake):
    breaks = "test_a_profile_leaves_the_job_alone"
    job_type = ProfilesInPlace


class NeverMeasured(FakeJob):
    def profile(self, request: ProfileRequest) -> None:
        super().profile(request)
        self.profiles.clear()


class TestNeverMeasured(OnFake):
    breaks = "test_a_profile_leaves_the_job_alone"
    job_type = NeverMeasured


class FreeProfiles(FakeJob):
    def meter(self) -> Meter:
        return {Purpose.EXECUTORS: Usage(core_s=self.core_s)}


class TestFreeProfiles(OnFake):
    breaks = "test_a_profile_leaves_the_job_alone"
    job_type = FreeProfiles


class Backwards(FakeJob):
    def spend(self) -> None:
        self.core_s += 10.0 if self.now % 2 else -5.0


class TestBackwards(OnFake):
    breaks = "test_the_meter_grows_and_never_goes_back"
    job_type = Backwards


class FreeOfCharge(FakeJob):
    def spend(self) -> None:
        pass


class TestFreeOfCharge(OnFake):
    breaks = "test_the_meter_grows_and_never_goes_back"
    job_type = FreeOfCharge


class Leaking(FakeJob):
    def work(self) -> None:
        super().work()
        self.backlog *= 0.5
        self.processed -= 10.0 if self.status is JobStatus.RUNNING else 0.0


class TestLeaking(OnFake):
    breaks = "test_nothing_is_lost_or_invented"
    job_type = Leaking


class LosesOnFailure(FakeJob):
    """Nothing is lost in quiet times, but a restart throws away what waits."""

    def work(self) -> None:
        super().work()
        if self.status is not JobStatus.RUNNING:
            self.backlog = 0.0


class TestLosesOnFailure(OnFake):
    breaks = "test_nothing_is_lost_or_invented"
    job_type = LosesOnFailure


class Doubling(FakeJob):
    def work(self) -> None:
        before = self.processed
        super().work()
        self.processed += self.processed - before


class TestDoubling(OnFake):
    breaks = "test_nothing_is_lost_or_invented"
    job_type = Doubling


class StopsOnce(FakeJob):
    def stop(self) -> None:
        if self.stopped:
            raise PermanentError("it is stopped already")
        super().stop()


class TestStopsOnce(OnFake):
    breaks = "test_stop_ends_the_job_once"
    job_type = StopsOnce


class Undead(FakeJob):
    def stop(self) -> None:
        pass


class TestUndead(OnFake):
    breaks = "test_stop_ends_the_job_once"
    job_type = Undead
