"""What every engine that measures copies beside its job has to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tidewise.core import (
    Configuration,
    JobStatus,
    Observation,
    ProfileOutcome,
    ProfileRequest,
    Purpose,
    Usage,
    at_least_s,
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
    calm: Observation
    """The last report before it."""
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


class EngineProfileTests(EngineSuite):
    """Copies are measured and paid for once, and the job does not notice."""

    @pytest.fixture(scope="class")
    @classmethod
    def profiled(cls, session: Session) -> Profiled:
        """One profile for most of the tests, because copies are launched for it."""
        suite = cls()
        suite._expect_profiles(session)
        # The job must be known to keep up before, so that it can be told whether it does meanwhile.
        calm = session.reports[-1]
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
        outcome = suite._outcome_of_profile(session, request)
        return Profiled(
            request=request,
            outcome=outcome,
            before=before,
            calm=calm,
            meanwhile=session.reports[known:],
            after=session.job.observed(),
            core_s=_profiling(session).core_s - spent.core_s,
            seconds=session.now_s - request.requested_at_s,
        )

    def test_a_profile_leaves_the_job_alone(self, profiled: Profiled) -> None:
        assert profiled.after == profiled.before, "the profile has changed the job"
        moved = [report for report in profiled.meanwhile if report.configuration != profiled.before]
        assert not moved, f"the job was changed while the copies ran: {moved[0]}"

    def test_the_job_goes_on_while_its_copies_run(self, profiled: Profiled) -> None:
        meanwhile = profiled.meanwhile
        assert meanwhile, "the job did not report while the copies ran"
        stood_still = [report for report in meanwhile if report.status is not JobStatus.RUNNING]
        assert not stood_still, f"the job stood still for its copies: {stood_still[0]}"
        most_s = self.calm_backlog_s
        behind = [one for one in meanwhile if one.backlog_records > most_s * max(1.0, one.input_rate_per_s)]
        assert not behind, f"the job fell behind while the copies ran: {behind[0]}"
        # What the copies process is their own: counted as the job's, records would have been processed twice.
        arrived = sum(report.window_s * report.input_rate_per_s for report in meanwhile)
        processed = sum(report.window_s * report.processed_rate_per_s for report in meanwhile)
        came_off = profiled.calm.backlog_records - meanwhile[-1].backlog_records
        slack = self.accounting_tolerance_share * arrived + self.accounting_tolerance_s * max(
            report.input_rate_per_s for report in meanwhile
        )
        assert abs(processed - arrived - came_off) <= slack, (
            f"{arrived:g} records arrived while the copies ran and {came_off:g} came off the backlog, but the job says "
            f"that it processed {processed:g}"
        )

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

    def test_a_copy_that_is_broken_shows_its_recovery(self, session: Session) -> None:
        self._expect_profiles(session)
        request = session.profile_request(
            session.job.observed(),
            settle_s=self.profile_settle_s,
            measure_s=self.profile_measure_s,
            within_s=self.profile_deadline_s + self.profile_recovery_limit_s,
            recovery_limit_s=self.profile_recovery_limit_s,
        )
        session.drain()
        known = len(session.reports)
        session.job.profile(request)
        measured = self._outcome_of_profile(session, request).measurements[0]
        assert measured.recovery_s is not None, f"the copy was to be broken, and no recovery was measured: {measured}"
        value = measured.recovery_s
        least_s = at_least_s(value)
        # The recovery is told in whole seconds.
        assert least_s <= self.profile_recovery_limit_s + 1.0, f"a copy was not given up at its limit: {measured}"
        down = [report for report in session.reports[known:] if report.status is JobStatus.DOWN]
        assert not down, f"the job went down with its copy: {down[0]}"

    def test_a_candidate_that_may_not_run_is_a_result(self, session: Session) -> None:
        self._expect_profiles(session)
        before = session.job.observed()
        request = session.profile_request(
            before.with_executors(before.executors + 1000),
            settle_s=self.profile_settle_s,
            measure_s=self.profile_measure_s,
            within_s=self.profile_deadline_s,
        )
        session.job.profile(request)
        (measured,) = self._outcome_of_profile(session, request).measurements
        assert measured.configuration == request.candidates[0]
        assert measured.detail.strip() or measured.processed_rate_per_s > 0.0, (
            f"a copy that showed nothing does not say why: {measured}"
        )
        assert session.job.observed() == before, "the profile has changed the job"

    def _expect_profiles(self, session: Session) -> None:
        """A job that runs as it should, of an engine that measures copies."""
        if not self.supports_profiles:
            pytest.skip("the engine does not measure copies")
        session.expect_observed(within_s=self.recovery_deadline_s)
        self._expect_calm(session)

    def _outcome_of_profile(self, session: Session, request: ProfileRequest) -> ProfileOutcome:
        within_s = request.deadline_s - request.requested_at_s
        return session.wait_for(
            "the end of a profile",
            lambda: session.job.profile_outcome(request.request_id),
            within_s=within_s + self.profile_end_s,
        )


def _profiling(session: Session) -> Usage:
    return session.job.meter().get(Purpose.PROFILING, Usage())
