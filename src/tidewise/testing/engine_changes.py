"""What every engine has to keep when it is asked to change a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidewise.core import (
    ChangeCost,
    ChangeStatus,
    Configuration,
    Mechanism,
    PermanentError,
    TemporaryError,
)
from tidewise.testing.engine_suite import EngineSuite
from tidewise.testing.session import Session


class EngineChangeTests(EngineSuite):
    """Changes: done as asked, once, one at a time, at the cost that was said."""

    @pytest.mark.parametrize("mechanism", list(Mechanism))
    def test_each_mechanism_carries_what_it_can(self, session: Session, mechanism: Mechanism) -> None:
        cost = next((cost for cost in session.engine.changes if cost.mechanism is mechanism), None)
        if cost is None:
            pytest.skip(f"{mechanism} is not offered")
        session.expect_observed(within_s=self.recovery_deadline_s)
        request = session.change_request(self._target(session, cost), mechanism, within_s=self.change_deadline_s)
        session.job.change(request)
        outcome = session.outcome_of(request)
        assert outcome.request_id == request.request_id
        assert outcome.status is ChangeStatus.APPLIED, f"it failed: {outcome.detail}"
        assert outcome.configuration == request.target, "another configuration than the target was applied"
        assert outcome.finished_at_s >= request.requested_at_s, "it ended before it began"
        session.expect_observed(within_s=self.report_wait_s)
        self._expect_calm(session)

    def test_a_change_without_a_gap_is_not_felt(self, session: Session) -> None:
        without_gap = [cost for cost in session.engine.changes if cost.gap_s <= 0.0]
        if not without_gap:
            pytest.skip("every mechanism has a gap")
        for cost in without_gap:
            for _ in ("there", "back"):  # joining and leaving
                self._change_unfelt(session, cost)

    def test_a_request_has_one_effect_however_often_it_is_made(self, session: Session) -> None:
        cost = self._quickest(session)
        session.expect_observed(within_s=self.recovery_deadline_s)
        there = session.change_request(self._target(session, cost), cost.mechanism, within_s=self.change_deadline_s)
        session.job.change(there)
        session.job.change(there)  # while it is on
        ended = session.outcome_of(there)
        session.job.change(there)  # when it has ended
        assert session.job.change_outcome(there.request_id) == ended, "the outcome changed"
        session.expect_observed(within_s=self.report_wait_s)
        back = session.change_request(self._target(session, cost), cost.mechanism, within_s=self.change_deadline_s)
        session.job.change(back)
        session.outcome_of(back)
        session.job.change(there)  # when another has undone it
        session.pass_time(cost.duration_s + 2 * self.poll_s)
        assert session.job.change_outcome(there.request_id) == ended, "the outcome changed"
        assert session.job.observed() == back.target, "a repeated request was carried out again"

    def test_one_change_at_a_time(self, session: Session) -> None:
        cost = max(session.engine.changes, key=lambda offered: offered.duration_s)
        session.expect_observed(within_s=self.recovery_deadline_s)
        source = session.job.observed()
        first = session.change_request(self._target(session, cost), cost.mechanism, within_s=self.change_deadline_s)
        session.job.change(first)
        if session.job.change_outcome(first.request_id) is not None:
            pytest.skip(f"{cost.mechanism} ends at once: no second change can come between")
        elsewhere = first.target.with_executors(max(source.executors, first.target.executors) + 1)
        second = session.change_request(elsewhere, cost.mechanism, within_s=self.change_deadline_s)
        with pytest.raises(TemporaryError):
            session.job.change(second)
        assert session.outcome_of(first).status is ChangeStatus.APPLIED, "the first change was disturbed"
        session.expect_observed(within_s=self.report_wait_s)
        session.pass_time(2 * self.poll_s)
        assert session.job.observed() == first.target, "the change that was refused was made all the same"
        assert session.job.change_outcome(second.request_id) is None, "the change that was refused has an outcome"

    def test_an_impossible_change_is_refused_and_the_job_stays(self, session: Session) -> None:
        session.expect_observed(within_s=self.recovery_deadline_s)
        before = session.job.observed()
        impossible = self._impossible(session)
        if not impossible:
            pytest.skip("every mechanism is offered, and each reaches everything")
        for target, mechanism in impossible:
            request = session.change_request(target, mechanism, within_s=self.change_deadline_s)
            with pytest.raises(PermanentError):
                session.job.change(request)
            assert session.job.change_outcome(request.request_id) is None, "a refused change has an outcome"
        session.pass_time(2 * self.poll_s)
        assert session.job.observed() == before, "a refused change moved the job"

    def test_unknown_ids_have_no_outcome(self, session: Session) -> None:
        assert session.job.change_outcome("never-heard-of") is None
        assert session.job.profile_outcome("never-heard-of") is None

    def _change_unfelt(self, session: Session, cost: ChangeCost) -> None:
        session.expect_observed(within_s=self.recovery_deadline_s)
        steady = self._expect_steady(session)
        last_steady = len(session.reports) - 1
        self._wait_for_a_moment_to_change(session, cost)
        request = session.change_request(self._target(session, cost), cost.mechanism, within_s=self.change_deadline_s)
        known = len(session.reports)
        session.job.change(request)
        outcome = session.outcome_of(request)
        assert outcome.status is ChangeStatus.APPLIED, f"it failed: {outcome.detail}"
        assert outcome.gap_s <= 0.0, f"{cost.mechanism} was said to have no gap, and had one of {outcome.gap_s:g} s"
        session.wait_for(
            "a report of the time after a change",
            lambda: (
                bool(session.reports[known:])
                and session.reports[-1].time_s - session.reports[-1].window_s >= outcome.finished_at_s
            ),
            within_s=2 * self.report_wait_s,
        )
        since = session.reports[known:]
        felt = self._standstills(since, steady=steady, latency_factor=self.unfelt_latency_factor)
        assert not felt, f"{cost.mechanism} was said to have no gap, but a report shows one: {felt[0]}"
        # A window may be shorter than the time between two commits: it is the backlog that shows missing output.
        room_s = self.accounting_tolerance_s + max(request.source.commit_interval_s, request.target.commit_interval_s)
        most = max(report.backlog_records + room_s * report.input_rate_per_s for report in steady)
        piled = [report for report in since if report.backlog_records > most]
        assert not piled, f"{cost.mechanism} was said to have no gap, but output is missing: {piled[0]}"
        self._expect_contiguous(session.reports[last_steady:])

    @staticmethod
    def _wait_for_a_moment_to_change(session: Session, cost: ChangeCost) -> None:
        """A status is that of the window's end: begin so that one falls into the change, however short that is."""
        latest = session.reports[-1]
        begin_s = latest.time_s + latest.window_s - cost.duration_s / 2
        while begin_s < session.now_s:
            begin_s += latest.window_s
        session.pass_time(begin_s - session.now_s)

    def _quickest(self, session: Session) -> ChangeCost:
        return min(session.engine.changes, key=lambda offered: offered.duration_s)

    def _impossible(self, session: Session) -> list[tuple[Configuration, Mechanism]]:
        source = session.job.observed()
        offered = {cost.mechanism: cost for cost in session.engine.changes}
        other = source.with_executors(source.executors + 1)
        missing = [(other, mechanism) for mechanism in Mechanism if mechanism not in offered][:1]
        more_memory = replace(source, memory_mib_per_executor=2 * source.memory_mib_per_executor)
        out_of_reach = [
            (more_memory, name) for name, cost in offered.items() if not cost.can_carry(source, more_memory)
        ]
        return missing + out_of_reach
