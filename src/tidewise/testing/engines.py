"""What every engine has to keep, as tests that the simulator, real Spark and anybody's engine can inherit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from tidewise.core import (
    ChangeCost,
    ChangeStatus,
    Configuration,
    Engine,
    JobStatus,
    Mechanism,
    Observation,
    PermanentError,
    Purpose,
    TemporaryError,
    total,
)
from tidewise.testing.session import Session

_EXECUTORS_ONLY = (Mechanism.LIVE, Mechanism.IN_PLACE_RESCALE)


class EngineConformance:
    """Tests of the promises in `tidewise.core.Engine` and `RunningJob`.

    Inherit and say how the engine is made, what to start with and how patient to be; pytest does the rest::

        from tidewise.testing import EngineConformance


        class TestMyEngine(EngineConformance):
            report_wait_s = 60.0

            def make_engine(self) -> Engine:
                return MyEngine(load=constant(1000))

            def start_configuration(self) -> Configuration:
                return Configuration(executors=2)

    The load must last for as long as all of the tests take, and the start has to cope with it: failures are recovered
    from under it. All tests but that of `stop` share one job, and each leaves it running; none depends on another.
    """

    report_wait_s: float = 60.0
    """In this time a report, or a few of them, have to come."""
    change_deadline_s: float = 300.0
    recovery_deadline_s: float = 300.0
    profile_deadline_s: float = 600.0
    profile_settle_s: float = 5.0
    profile_measure_s: float = 10.0
    poll_s: float = 1.0
    """How often to look; on the engine's clock, as all times here."""
    supports_profiles: bool = True
    calm_backlog_s: float = 60.0
    """A job whose backlog is no more than this many seconds of its input keeps up."""
    accounting_tolerance_share: float = 0.02
    """How much of what arrived may be missing from, or too much in, processed + backlog."""
    accounting_tolerance_s: float = 2.0
    """The same, for what is counted in the one but not yet in the other: seconds of the input."""

    def make_engine(self) -> Engine:
        """A new engine, ready to launch one job."""
        raise NotImplementedError("say how your engine is made: override make_engine")

    def start_configuration(self) -> Configuration:
        """What to launch: something that copes with the load, with room for one executor more."""
        raise NotImplementedError("say what to start with: override start_configuration")

    def targets(self, source: Configuration, mechanism: Mechanism) -> Sequence[Configuration]:
        """Where a mechanism may be asked to lead from here; by default to and fro between the start and a neighbour."""
        start = self.start_configuration()
        other_executors = start.executors + (1 if source.executors == start.executors else 0)
        doubled_s = 2 * start.commit_interval_s or 1.0
        other_interval_s = doubled_s if source.commit_interval_s == start.commit_interval_s else start.commit_interval_s
        if mechanism in _EXECUTORS_ONLY:
            return [source.with_executors(other_executors)]
        if mechanism is Mechanism.QUERY_RESTART:
            return [replace(source, commit_interval_s=other_interval_s)]
        if mechanism is Mechanism.REPARTITION and start.state_partitions is not None:
            doubled = 2 * start.state_partitions
            other = doubled if source.state_partitions == start.state_partitions else start.state_partitions
            return [replace(source, state_partitions=other)]
        return [replace(source, executors=other_executors, commit_interval_s=other_interval_s)]

    def fault(self, engine: Engine) -> str | None:
        """The fault to inject; None leaves its test out."""
        return engine.faults[0] if engine.faults else None

    @pytest.fixture(scope="class")
    @classmethod
    def session(cls) -> Iterator[Session]:
        suite = cls()
        session = Session(suite.make_engine(), suite.start_configuration(), poll_s=suite.poll_s)
        yield session
        session.job.stop()

    # What an engine is and reports

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

    def test_reports_are_in_order_and_given_once(self, session: Session) -> None:
        session.new_reports(2, within_s=self.report_wait_s)
        session.new_reports(2, within_s=self.report_wait_s)
        times_s = [report.time_s for report in session.reports]
        assert times_s == sorted(set(times_s)), "reports are out of order or given twice"

    # Changes

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

    # Faults, profiles, money, records

    def test_an_unknown_fault_is_refused(self, session: Session) -> None:
        with pytest.raises(PermanentError):
            session.job.inject("no such fault, ever")

    def test_the_job_recovers_from_a_fault(self, session: Session) -> None:
        fault = self.fault(session.engine)
        if fault is None:
            pytest.skip("the engine knows no fault")
        session.expect_observed(within_s=self.recovery_deadline_s)
        before = self._expect_calm(session)
        known = len(session.reports)
        session.job.inject(fault)
        session.wait_for(
            f"a sign of the fault {fault!r}",
            lambda: self._disturbed(session, before, session.reports[known:]),
            within_s=self.report_wait_s,
        )
        self._expect_calm(session)
        session.expect_observed(within_s=self.recovery_deadline_s)

    def test_a_profile_leaves_the_job_alone(self, session: Session) -> None:
        if not self.supports_profiles:
            pytest.skip("the engine does not measure copies")
        session.expect_observed(within_s=self.recovery_deadline_s)
        before = session.job.observed()
        candidate = before.with_executors(before.executors + 1)
        request = session.profile_request(
            candidate,
            settle_s=self.profile_settle_s,
            measure_s=self.profile_measure_s,
            within_s=self.profile_deadline_s,
        )
        spent = session.job.meter().get(Purpose.PROFILING)
        session.job.profile(request)
        session.job.profile(request)  # the second call with an id starts nothing
        known = len(session.reports)
        outcome = session.wait_for(
            "the end of a profile",
            lambda: session.job.profile_outcome(request.request_id),
            within_s=self.profile_deadline_s,
        )
        assert outcome.request_id == request.request_id
        assert [measured.configuration for measured in outcome.measurements] == [candidate]
        assert session.job.observed() == before, "the profile has changed the job"
        moved = [report for report in session.reports[known:] if report.configuration != before]
        assert not moved, f"the job was changed while the copies ran: {moved[:1]}"
        paid = session.job.meter().get(Purpose.PROFILING)
        assert paid is not None, "the copies cost nothing"
        assert paid.core_s > (0.0 if spent is None else spent.core_s), "the copies cost nothing"

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
            "a meter that grows", lambda: total(session.job.meter()).core_s > total(before).core_s, within_s=10.0
        )
        assert session.job.meter()[Purpose.EXECUTORS].core_s > 0.0, "executors cost nothing"

    def test_nothing_is_lost_or_invented(self, session: Session) -> None:
        self._expect_calm(session)
        quiet = [session.reports[-1], *session.new_reports(5, within_s=5 * self.report_wait_s)]
        arrived, accounted, slack = self._account(quiet)
        assert accounted >= arrived - slack, f"of {arrived:g} records, {accounted:g} are processed or waiting"
        assert accounted <= arrived + slack, f"of {arrived:g} records, {accounted:g} are processed or waiting"
        # Over failures and changes records may be processed twice, so that only too few of them are wrong.
        arrived, accounted, slack = self._account(session.reports)
        assert accounted >= arrived - slack, f"of {arrived:g} records, {accounted:g} are processed or waiting"

    def test_stop_ends_the_job_once(self) -> None:
        session = Session(self.make_engine(), self.start_configuration(), poll_s=self.poll_s)
        session.new_reports(1, within_s=self.report_wait_s)
        session.job.stop()
        session.job.stop()
        spent = total(session.job.meter())
        session.pass_time(3 * self.poll_s)
        assert total(session.job.meter()) == spent, "a stopped job goes on to cost"

    def _target(self, session: Session, cost: ChangeCost) -> Configuration:
        source = session.job.observed()
        for target in self.targets(source, cost.mechanism):
            if target != source and cost.can_carry(source, target):
                return target
        pytest.fail(f"targets() gives nothing that {cost.mechanism} can reach from {source}")

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

    def _calm(self, reports: Sequence[Observation]) -> bool:
        return len(reports) >= 3 and all(
            report.status is JobStatus.RUNNING
            and report.backlog_records <= self.calm_backlog_s * max(1.0, report.input_rate_per_s)
            for report in reports[-3:]
        )

    def _expect_calm(self, session: Session) -> list[Observation]:
        """The last reports, once the job runs and keeps up; none of them from before the call."""
        known = len(session.reports)
        session.wait_for(
            "a job that runs and keeps up",
            lambda: self._calm(session.reports[known:]),
            within_s=self.recovery_deadline_s,
        )
        return session.reports[-3:]

    @staticmethod
    def _disturbed(session: Session, before: Sequence[Observation], after: Sequence[Observation]) -> bool:
        last_s = (after or before)[-1].time_s
        if session.now_s - last_s > 3 * before[-1].window_s + session.poll_s:
            return True  # it has fallen silent
        slowest_s = max((report.latency_p95_s or 0.0) for report in before)
        longest = max(report.backlog_records for report in before)
        return any(
            report.status is not JobStatus.RUNNING
            or report.configuration != before[-1].configuration
            or report.backlog_records > 1.5 * longest + 1.0
            or (report.latency_p95_s is not None and report.latency_p95_s > 1.5 * slowest_s)
            for report in after
        )

    def _account(self, reports: Sequence[Observation]) -> tuple[float, float, float]:
        """What arrived after the first report, what of it is processed or waiting, and how far they may be apart."""
        since = reports[1:]
        arrived = sum(report.window_s * report.input_rate_per_s for report in since)
        processed = sum(report.window_s * report.processed_rate_per_s for report in since)
        waiting = reports[-1].backlog_records - reports[0].backlog_records
        highest = max(report.input_rate_per_s for report in reports)
        slack = self.accounting_tolerance_share * arrived + self.accounting_tolerance_s * highest
        return arrived, processed + waiting, slack
