"""What every engine has to keep besides changes: failures, profiles, the meter and the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tidewise.core import (
    ChangeCost,
    ChangeStatus,
    Configuration,
    Observation,
    PermanentError,
    ProfileOutcome,
    ProfileRequest,
    Purpose,
    Usage,
    total,
)
from tidewise.testing.engine_suite import EngineSuite
from tidewise.testing.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """A profile that was asked for twice while it was on, and what happened meanwhile."""

    request: ProfileRequest
    outcome: ProfileOutcome
    before: Configuration
    """What the job ran when the profile began."""
    meanwhile: Sequence[Observation]
    """The reports of the job while the copies ran."""
    after: Configuration
    core_s: float
    """What the meter said of profiling at the end, less what it had said at the beginning."""
    seconds: float
    """From the request to the outcome."""

    @property
    def candidate(self) -> Configuration:
        return self.request.candidates[0]


class EngineOperationTests(EngineSuite):
    """Failures are told and overcome, copies are measured, everything is paid for once, and the end is an end."""

    # Faults

    def test_an_unknown_fault_is_refused(self, session: Session) -> None:
        with pytest.raises(PermanentError):
            session.job.inject("no such fault, ever")

    def test_the_job_recovers_from_a_fault(self, session: Session) -> None:
        fault = self.fault(session.engine)
        if fault is None:
            pytest.skip("the engine knows no fault")
        session.expect_observed(within_s=self.recovery_deadline_s)
        steady = self._expect_steady(session)
        known = len(session.reports)
        session.job.inject(fault)
        session.wait_for(
            f"a report that tells of the fault {fault!r}",
            lambda: self._tells_of_a_fault(session.reports[known:], steady),
            within_s=self.recovery_deadline_s,
        )
        self._expect_calm(session)
        session.expect_observed(within_s=self.recovery_deadline_s)

    # Profiles

    @pytest.fixture(scope="class")
    @classmethod
    def profiled(cls, session: Session) -> Profiled:
        """One profile for all of its tests, because copies are launched for it."""
        suite = cls()
        if not suite.supports_profiles:
            pytest.skip("the engine does not measure copies")
        session.expect_observed(within_s=suite.recovery_deadline_s)
        before = session.job.observed()
        request = session.profile_request(
            before.with_executors(before.executors + 1),
            settle_s=suite.profile_settle_s,
            measure_s=suite.profile_measure_s,
            within_s=suite.profile_deadline_s,
        )
        session.drain()
        known, spent = len(session.reports), _profiling(session)
        session.job.profile(request)
        session.job.profile(request)  # while it is on
        outcome = session.wait_for(
            "the end of a profile",
            lambda: session.job.profile_outcome(request.request_id),
            within_s=suite.profile_deadline_s,
        )
        return Profiled(
            request=request,
            outcome=outcome,
            before=before,
            meanwhile=session.reports[known:],
            after=session.job.observed(),
            core_s=_profiling(session).core_s - spent.core_s,
            seconds=session.now_s - request.requested_at_s,
        )

    def test_a_profile_leaves_the_job_alone(self, profiled: Profiled) -> None:
        assert profiled.after == profiled.before, "the profile has changed the job"
        moved = [report for report in profiled.meanwhile if report.configuration != profiled.before]
        assert not moved, f"the job was changed while the copies ran: {moved[0]}"

    def test_a_profile_measures_its_candidates(self, profiled: Profiled) -> None:
        outcome = profiled.outcome
        assert outcome.request_id == profiled.request.request_id
        assert [measured.configuration for measured in outcome.measurements] == [profiled.candidate]
        measured = outcome.measurements[0]
        # The job copes with the load, and the copy has an executor more.
        assert not measured.detail.strip(), f"the copy died: {measured.detail}"
        assert measured.input_rate_per_s > 0.0, "the copy was given no input"
        assert measured.processed_rate_per_s > 0.0, "the copy processed nothing"
        assert measured.latency_p95_s is not None, f"a copy that copes has no latency: {measured}"
        assert measured.latency_p95_s > 0.0, "records come out of the copy when they come in: it was not measured"

    def test_a_profile_is_made_and_paid_for_once(self, session: Session, profiled: Profiled) -> None:
        cores, share = profiled.candidate.total_cores, self.meter_tolerance_share
        least = (1.0 - share) * cores * profiled.request.measure_s
        assert profiled.core_s >= least, f"{cores:g} cores were measured for {profiled.core_s:g} core-seconds"
        seconds = profiled.seconds + self.meter_tolerance_s
        most = (1.0 + share) * (cores + self.profile_overhead_cores) * seconds
        assert profiled.core_s <= most, (
            f"{cores:g} cores took {profiled.core_s:g} core-seconds in {profiled.seconds:g} s: "
            "asked for twice, the profile was made twice"
        )
        session.pass_time(self.stop_wait_s)
        spent = _profiling(session)
        session.job.profile(profiled.request)  # when it has ended
        for _ in range(2):
            again = session.job.profile_outcome(profiled.request.request_id)
            assert again == profiled.outcome, "asked for again, the outcome of a profile changed"
            session.pass_time(self.stop_wait_s)
        assert _profiling(session) == spent, "asked for again after its end, a profile was paid for again"

    # The meter

    def test_the_meter_grows_and_never_goes_back(self, session: Session) -> None:
        before = dict(session.job.meter())
        for _ in range(3):
            session.pass_time(self.poll_s)
            now = session.job.meter()
            for purpose, usage in before.items():
                assert now[purpose].core_s >= usage.core_s, f"{purpose}: cores went back"
                assert now[purpose].memory_mib_s >= usage.memory_mib_s, f"{purpose}: memory went back"
            before = dict(now)
        session.wait_for(
            "a meter that grows",
            lambda: total(session.job.meter()).core_s > total(before).core_s,
            within_s=self.report_wait_s,
        )
        assert session.job.meter()[Purpose.EXECUTORS].core_s > 0.0, "executors cost nothing"

    def test_the_meter_counts_what_the_configuration_takes(self, session: Session) -> None:
        self._expect_metered(session)
        move = self._quickest_to_other_cores(session)
        if move is None:
            return  # there is but one size to meter
        cost, target = move
        request = session.change_request(target, cost.mechanism, within_s=self.change_deadline_s)
        session.job.change(request)
        outcome = session.outcome_of(request)
        assert outcome.status is ChangeStatus.APPLIED, f"it failed: {outcome.detail}"
        self._expect_metered(session)

    # The end

    def test_stop_ends_the_job_once(self) -> None:
        session = Session(self.make_engine(), self.start_configuration(), poll_s=self.poll_s)
        session.new_reports(1, within_s=self.report_wait_s)
        session.job.stop()
        session.job.stop()
        session.pass_time(self.stop_wait_s)
        session.drain()
        spent, known = total(session.job.meter()), len(session.reports)
        longest_s = max(report.window_s for report in session.reports)
        session.pass_time(2 * longest_s + 3 * self.poll_s)
        assert total(session.job.meter()) == spent, "a stopped job goes on to cost"
        assert not session.reports[known:], f"a stopped job goes on to report: {session.reports[known]}"

    def _tells_of_a_fault(self, since: Sequence[Observation], steady: Sequence[Observation]) -> bool:
        if self._standstills(since, steady=steady, latency_factor=self.disturbed_latency_factor):
            return True
        longest = max(report.backlog_records for report in steady)
        return not self.fault_has_downtime and any(
            report.configuration != steady[-1].configuration or report.backlog_records > 1.5 * longest + 1.0
            for report in since
        )

    def _expect_metered(self, session: Session) -> None:
        """In calm operation, executors cost what the configuration gives them; drivers are a purpose of their own."""
        session.expect_observed(within_s=self.recovery_deadline_s)
        self._expect_calm(session)
        configuration = session.job.observed()
        before, from_s = session.job.meter()[Purpose.EXECUTORS], session.now_s
        session.pass_time(self.meter_span_s)
        after, seconds = session.job.meter()[Purpose.EXECUTORS], session.now_s - from_s
        assert session.job.observed() == configuration, "the configuration changed, though nobody asked for it"
        for unit, given, metered in (
            ("core-seconds", configuration.total_cores, after.core_s - before.core_s),
            ("MiB-seconds", configuration.total_memory_mib, after.memory_mib_s - before.memory_mib_s),
        ):
            slack = given * (self.meter_tolerance_share * seconds + self.meter_tolerance_s)
            assert abs(metered - given * seconds) <= slack, (
                f"in {seconds:g} s, {configuration} took {given * seconds:g} {unit}, but the meter says {metered:g}"
            )

    def _quickest_to_other_cores(self, session: Session) -> tuple[ChangeCost, Configuration] | None:
        cores = session.job.observed().total_cores
        for cost in sorted(session.engine.changes, key=lambda offered: offered.duration_s):
            for target in self._targets_of(session, cost):
                if target.total_cores != cores:
                    return cost, target
        return None


def _profiling(session: Session) -> Usage:
    return session.job.meter().get(Purpose.PROFILING, Usage())
