"""What an engine says of itself and of its job: the tests that run first, and those of the whole record at the end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tidewise.core import JobStatus, Observation
from tidewise.testing.engine_suite import EngineSuite
from tidewise.testing.session import Session


class EngineReportTests(EngineSuite):
    """A job that nothing happens to."""

    def test_it_has_a_name_and_offers_each_mechanism_once(self, session: Session) -> None:
        assert session.engine.name.strip(), "the name is empty"
        offered = [cost.mechanism for cost in session.engine.changes]
        assert offered, "it offers no mechanism of change"
        assert len(set(offered)) == len(offered), f"a mechanism is offered twice: {offered}"

    def test_its_clock_keeps_its_word(self, session: Session) -> None:
        clock = session.engine.clock
        before_s = clock.now_s()
        clock.wait_until(before_s - 1.0)
        clock.wait_until(before_s + self.poll_s)
        assert clock.now_s() >= before_s + self.poll_s, "wait_until came back too early"

    def test_it_reports_soon(self, session: Session) -> None:
        latest = session.new_reports(1, within_s=self.report_wait_s)[-1]
        assert latest.time_s <= session.now_s + 1e-6, "a report comes from the future"

    def test_what_was_launched_is_what_is_observed(self, session: Session) -> None:
        session.expect_observed(within_s=self.report_wait_s)
        session.wait_for(
            "a report of what is observed",
            lambda: bool(session.reports) and session.reports[-1].configuration == session.job.observed(),
            within_s=self.report_wait_s,
        )

    def test_a_calm_job_under_load_has_a_latency(self, session: Session) -> None:
        self._expect_calm(session)
        for report in session.new_reports(3, within_s=3 * self.report_wait_s):
            assert report.input_rate_per_s > 0.0, "nothing arrives: the suite needs a load that lasts"
            assert report.status is JobStatus.RUNNING, f"a job that nothing happens to is {report.status}"
            assert report.latency_p95_s is not None, f"a calm job has no latency: {report}"
            assert report.latency_p95_s > 0.0, "records come out when they come in: no latency was measured"


class EngineRecordTests(EngineSuite):
    """What all reports of the session add up to; after a run of the whole suite, over changes and failures as well."""

    def test_reports_are_in_order_and_given_once(self, session: Session) -> None:
        session.new_reports(2, within_s=self.report_wait_s)
        session.new_reports(2, within_s=self.report_wait_s)
        times_s = [report.time_s for report in session.reports]
        assert times_s == sorted(set(times_s)), "reports are out of order or given twice"

    def test_reports_leave_no_time_out(self, session: Session) -> None:
        session.new_reports(5, within_s=5 * self.report_wait_s)
        self._expect_contiguous(session.reports)

    def test_nothing_is_lost_or_invented(self, session: Session) -> None:
        self._expect_calm(session)
        quiet = [session.reports[-1], *session.new_reports(5, within_s=5 * self.report_wait_s)]
        arrived = sum(report.window_s * report.input_rate_per_s for report in quiet[1:])
        invented = -sum(_missing(earlier, later) for earlier, later in pairwise(quiet))
        slack = self.accounting_tolerance_share * arrived + self._accounting_slack(quiet)
        assert invented <= slack, f"of {arrived:g} records, {arrived + invented:g} are processed or waiting"
        # Over failures and changes records may be processed twice, so that there only too few are wrong. They count
        # from wherever most are missing: a long record must not make up for what is lost at one moment.
        lost = 0.0
        for earlier, later in pairwise(session.reports):
            tolerated = self.accounting_tolerance_share * later.window_s * later.input_rate_per_s
            lost = max(0.0, lost + _missing(earlier, later) - tolerated)
            assert lost <= self._accounting_slack(session.reports), (
                f"by {later.time_s:g} s, {lost:g} records have arrived that are neither processed nor waiting"
            )

    def _accounting_slack(self, reports: Sequence[Observation]) -> float:
        return self.accounting_tolerance_s * max(report.input_rate_per_s for report in reports)


def _missing(earlier: Observation, later: Observation) -> float:
    """What arrived in the later window and is neither processed nor waiting at its end."""
    kept = later.window_s * later.processed_rate_per_s + later.backlog_records - earlier.backlog_records
    return later.window_s * later.input_rate_per_s - kept
