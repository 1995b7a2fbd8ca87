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
    LatencyMethod,
    Meter,
    Observation,
    PermanentError,
    ProfileOutcome,
    ProfileRequest,
    Purpose,
    TemporaryError,
    Usage,
)
from tidewise.testing import EngineConformance

from .fake_engine import RATE_PER_S, REPORT_EVERY_S, FakeClock, FakeEngine, FakeJob


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


class NoLatency(FakeJob):
    def report(self) -> None:
        super().report()
        self.new[-1] = replace(self.new[-1], latency_p95_s=None, latency_method=None)


class TestNoLatency(OnFake):
    breaks = "test_a_calm_job_under_load_has_a_latency"
    job_type = NoLatency


class Patchy(FakeJob):
    """Every second report is missing."""

    def report(self) -> None:
        super().report()
        if self.now // REPORT_EVERY_S % 2:
            self.new.pop()


class TestPatchy(OnFake):
    breaks = "test_reports_leave_no_time_out"
    job_type = Patchy


class Overlapping(FakeJob):
    """Each report tells of half of the last one's window again."""

    def report(self) -> None:
        super().report()
        self.new[-1] = replace(self.new[-1], window_s=1.5 * REPORT_EVERY_S)


class TestOverlapping(OnFake):
    breaks = "test_reports_leave_no_time_out"
    job_type = Overlapping


class SilentWhenDown(FakeJob):
    """Says nothing while it is down, and afterwards not that it was."""

    def report(self) -> None:
        super().report()
        if self.status is JobStatus.DOWN:
            self.new.pop()


class TestSilentWhenDown(OnFake):
    breaks = "test_reports_leave_no_time_out"
    job_type = SilentWhenDown


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


class LiveStops(FakeJob):
    """Says that a live change has no gap, and stops the job for it."""

    def begin(self, request: ChangeRequest, cost: ChangeCost) -> None:
        super().begin(request, cost)
        if self.pending is not None:
            self.pending.stops_job = True


class TestLiveStops(OnFake):
    breaks = "test_a_change_without_a_gap_is_not_felt"
    job_type = LiveStops


class LiveStopsInSecret(LiveStops):
    """The same, with a status that does not say it."""

    def report(self) -> None:
        super().report()
        late_s = 0.5 + self.backlog / RATE_PER_S
        self.new[-1] = replace(
            self.new[-1], status=JobStatus.RUNNING, latency_p95_s=late_s, latency_method=LatencyMethod.SIMULATED
        )


class TestLiveStopsInSecret(OnFake):
    breaks = "test_a_change_without_a_gap_is_not_felt"
    job_type = LiveStopsInSecret


class LiveStopsUnderAMask(LiveStops):
    """The same for longer, with neither a status nor a latency that says it."""

    def begin(self, request: ChangeRequest, cost: ChangeCost) -> None:
        super().begin(request, cost)
        if self.pending is not None:
            self.pending.ends_at += 10

    def report(self) -> None:
        super().report()
        self.new[-1] = replace(
            self.new[-1], status=JobStatus.RUNNING, latency_p95_s=0.5, latency_method=LatencyMethod.SIMULATED
        )


class TestLiveStopsUnderAMask(OnFake):
    breaks = "test_a_change_without_a_gap_is_not_felt"
    job_type = LiveStopsUnderAMask


class LiveFallsSilent(LiveStops):
    """The same, with no report meanwhile."""

    def report(self) -> None:
        super().report()
        if self.status is JobStatus.CHANGING:
            self.new.pop()


class TestLiveFallsSilent(OnFake):
    breaks = "test_a_change_without_a_gap_is_not_felt"
    job_type = LiveFallsSilent


class LiveOwnsUp(FakeJob):
    """Says that a live change has no gap, and afterwards that it had one."""

    def finish(self, request: ChangeRequest) -> None:
        super().finish(request)
        self.outcomes[request.request_id] = replace(self.outcomes[request.request_id], gap_s=3.0)


class TestLiveOwnsUp(OnFake):
    breaks = "test_a_change_without_a_gap_is_not_felt"
    job_type = LiveOwnsUp


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


class KeepsFace(FakeJob):
    """Goes down as others do, but its reports never say it."""

    def report(self) -> None:
        super().report()
        self.new[-1] = replace(
            self.new[-1], status=JobStatus.RUNNING, latency_p95_s=0.1, latency_method=LatencyMethod.SIMULATED
        )


class TestKeepsFace(OnFake):
    breaks = "test_the_job_recovers_from_a_fault"
    job_type = KeepsFace


class TestUnbreakableWithoutDowntime(OnFake):
    breaks = "test_the_job_recovers_from_a_fault"
    job_type = Unbreakable
    fault_has_downtime = False


class ProfilesInPlace(FakeJob):
    def profile(self, request: ProfileRequest) -> None:
        super().profile(request)
        self.configuration = request.candidates[0]


class TestProfilesInPlace(OnFake):
    breaks = "test_a_profile_leaves_the_job_alone"
    job_type = ProfilesInPlace


class StopsForCopies(FakeJob):
    """Lends its executors to the copies."""

    def work(self) -> None:
        if any(outcome.finished_at_s > self.now for outcome in self.profiles.values()):
            self.down_until = self.now + 1
        super().work()


class TestStopsForCopies(OnFake):
    breaks = "test_the_job_goes_on_while_its_copies_run"
    job_type = StopsForCopies


class StarvesForCopies(FakeJob):
    """Goes on, but nearly all that it has goes to the copies."""

    def work(self) -> None:
        super().work()
        if any(outcome.finished_at_s > self.now for outcome in self.profiles.values()):
            self.backlog += 60.0 * RATE_PER_S


class TestStarvesForCopies(OnFake):
    breaks = "test_the_job_goes_on_while_its_copies_run"
    job_type = StarvesForCopies


class CountsItsCopies(FakeJob):
    """What the copies process passes for the job's."""

    def work(self) -> None:
        before = self.processed
        super().work()
        if any(outcome.finished_at_s > self.now for outcome in self.profiles.values()):
            self.processed += self.processed - before


class TestCountsItsCopies(OnFake):
    breaks = "test_the_job_goes_on_while_its_copies_run"
    job_type = CountsItsCopies


class NeverBreaksCopies(FakeJob):
    def profile(self, request: ProfileRequest) -> None:
        super().profile(replace(request, inject_failure=False))


class TestNeverBreaksCopies(OnFake):
    breaks = "test_a_copy_that_is_broken_shows_its_recovery"
    job_type = NeverBreaksCopies


class BreaksTheJob(FakeJob):
    """The failure that was meant for the copy hits the job."""

    def profile(self, request: ProfileRequest) -> None:
        super().profile(request)
        if request.inject_failure:
            self.inject("crash")


class TestBreaksTheJob(OnFake):
    breaks = "test_a_copy_that_is_broken_shows_its_recovery"
    job_type = BreaksTheJob


class EndlessRecovery(FakeJob):
    """Waits for a copy far beyond the limit."""

    def profile_outcome(self, request_id: str) -> ProfileOutcome | None:
        outcome = super().profile_outcome(request_id)
        if outcome is None or outcome.measurements[0].recovery_s is None:
            return outcome
        return replace(outcome, measurements=tuple(replace(one, recovery_s=1e6) for one in outcome.measurements))


class TestEndlessRecovery(OnFake):
    breaks = "test_a_copy_that_is_broken_shows_its_recovery"
    job_type = EndlessRecovery


class RefusesLargeCopies(FakeJob):
    def profile(self, request: ProfileRequest) -> None:
        if request.candidates[0].executors > 100:
            raise PermanentError("there is no room for it")
        super().profile(request)


class TestRefusesLargeCopies(OnFake):
    breaks = "test_a_candidate_that_may_not_run_is_a_result"
    job_type = RefusesLargeCopies


class SaysNothingOfLargeCopies(FakeJob):
    def profile_outcome(self, request_id: str) -> ProfileOutcome | None:
        outcome = super().profile_outcome(request_id)
        if outcome is None or outcome.measurements[0].configuration.executors < 100:
            return outcome
        return replace(
            outcome, measurements=tuple(replace(one, processed_rate_per_s=0.0) for one in outcome.measurements)
        )


class TestSaysNothingOfLargeCopies(OnFake):
    breaks = "test_a_candidate_that_may_not_run_is_a_result"
    job_type = SaysNothingOfLargeCopies


class NeverMeasured(FakeJob):
    def profile(self, request: ProfileRequest) -> None:
        super().profile(request)
        self.profiles.clear()


class TestNeverMeasured(OnFake):
    breaks = "test_a_profile_measures_its_candidates"
    job_type = NeverMeasured


class FreeProfiles(FakeJob):
    def meter(self) -> Meter:
        return {Purpose.EXECUTORS: Usage(core_s=self.core_s)}


class TestFreeProfiles(OnFake):
    breaks = "test_a_profile_is_made_and_paid_for_once"
    job_type = FreeProfiles


class ProfilesEveryCall(FakeJob):
    def profile(self, request: ProfileRequest) -> None:
        self.profiles.pop(request.request_id, None)
        super().profile(request)


class TestProfilesEveryCall(OnFake):
    breaks = "test_a_profile_is_made_and_paid_for_once"
    job_type = ProfilesEveryCall


class ChargesEveryCall(FakeJob):
    """Makes the copies once, but pays for them again while they run."""

    def profile(self, request: ProfileRequest) -> None:
        outcome = self.profiles.get(request.request_id)
        if outcome is not None and self.now < outcome.finished_at_s:
            self.profiling_core_s += request.candidates[0].total_cores * (request.settle_s + request.measure_s)
        super().profile(request)


class TestChargesEveryCall(OnFake):
    breaks = "test_a_profile_is_made_and_paid_for_once"
    job_type = ChargesEveryCall


class ProfilesAgain(FakeJob):
    """Hears a request twice while the copies run, but not when they have ended."""

    def profile(self, request: ProfileRequest) -> None:
        if self.profile_outcome(request.request_id) is not None:
            del self.profiles[request.request_id]
        super().profile(request)


class TestProfilesAgain(OnFake):
    breaks = "test_a_profile_is_made_and_paid_for_once"
    job_type = ProfilesAgain


class MeasuresNothing(FakeJob):
    def profile_outcome(self, request_id: str) -> ProfileOutcome | None:
        outcome = super().profile_outcome(request_id)
        if outcome is None:
            return None
        measured = [replace(one, input_rate_per_s=0.0, processed_rate_per_s=0.0) for one in outcome.measurements]
        return replace(outcome, measurements=tuple(measured))


class TestMeasuresNothing(OnFake):
    breaks = "test_a_profile_measures_its_candidates"
    job_type = MeasuresNothing


class MeasuresNoLatency(FakeJob):
    def profile_outcome(self, request_id: str) -> ProfileOutcome | None:
        outcome = super().profile_outcome(request_id)
        if outcome is None:
            return None
        measured = [replace(one, latency_p50_s=None, latency_p95_s=None) for one in outcome.measurements]
        return replace(outcome, measurements=tuple(measured))


class TestMeasuresNoLatency(OnFake):
    breaks = "test_a_profile_measures_its_candidates"
    job_type = MeasuresNoLatency


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


class Overcharges(FakeJob):
    def spend(self) -> None:
        for _ in range(100):
            super().spend()


class TestOvercharges(OnFake):
    breaks = "test_the_meter_counts_what_the_configuration_takes"
    job_type = Overcharges


class Undercharges(FakeJob):
    def spend(self) -> None:
        self.core_s += 1e-6
        self.memory_mib_s += self.configuration.total_memory_mib


class TestUndercharges(OnFake):
    breaks = "test_the_meter_counts_what_the_configuration_takes"
    job_type = Undercharges


class ForgetsMemory(FakeJob):
    def spend(self) -> None:
        self.core_s += self.configuration.total_cores


class TestForgetsMemory(OnFake):
    breaks = "test_the_meter_counts_what_the_configuration_takes"
    job_type = ForgetsMemory


class ChargesTheStart(FakeJob):
    """Goes on to charge what was launched, whatever runs now."""

    def spend(self) -> None:
        now, self.configuration = self.configuration, Configuration(executors=3)
        super().spend()
        self.configuration = now


class TestChargesTheStart(OnFake):
    breaks = "test_the_meter_counts_what_the_configuration_takes"
    job_type = ChargesTheStart


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


class LosesOnChange(FakeJob):
    """The same at the end of every change."""

    def finish(self, request: ChangeRequest) -> None:
        super().finish(request)
        self.backlog = 0.0


class TestLosesOnChange(OnFake):
    breaks = "test_nothing_is_lost_or_invented"
    job_type = LosesOnChange


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


class WorksOn(FakeJob):
    """Is not paid for any more when it was stopped, but goes on."""

    def tick(self) -> None:
        stopped, self.stopped = self.stopped, False
        core_s, memory_mib_s = self.core_s, self.memory_mib_s
        super().tick()
        self.stopped = stopped
        if stopped:
            self.core_s, self.memory_mib_s = core_s, memory_mib_s


class TestWorksOn(OnFake):
    breaks = "test_stop_ends_the_job_once"
    job_type = WorksOn
