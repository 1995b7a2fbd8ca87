"""What every engine has to keep besides changes and profiles: failures, the meter and the end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tidewise.core import (
    ChangeCost,
    ChangeStatus,
    Configuration,
    Observation,
    PermanentError,
    Purpose,
    total,
)
from tidewise.testing.engine_suite import EngineSuite
from tidewise.testing.session import Session


class EngineOperationTests(EngineSuite):
    """Failures are told and overcome, everything is paid for, and the end is an end."""

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
