"""What the tests of an engine share: what can be set, the job they run on, and what they look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from tidewise.core import ChangeCost, Configuration, Engine, JobStatus, Mechanism, Observation
from tidewise.testing.session import Session

_EXECUTORS_ONLY = (Mechanism.LIVE, Mechanism.IN_PLACE_RESCALE)


class EngineSuite:
    """The settings of `EngineConformance`. All times are seconds on the engine's clock."""

    # How patient to be

    report_wait_s: float = 60.0
    """In this time a report, or a few of them, have to come."""
    change_deadline_s: float = 300.0
    recovery_deadline_s: float = 300.0
    """From a failure, or the end of a change, until the job runs and keeps up again."""
    profile_deadline_s: float = 600.0
    profile_settle_s: float = 5.0
    profile_measure_s: float = 10.0
    """How long a copy is measured; longer than a commit interval, so that it has output to measure."""
    profile_recovery_limit_s: float = 180.0
    """When a copy that was broken on purpose is given up."""
    profile_end_s: float = 60.0
    """How long after its deadline a profile may still take to end its copies."""
    stop_wait_s: float = 10.0
    """What was told to stop, the job or a copy, may still report and cost for this long, and not after it."""
    meter_span_s: float = 60.0
    """Over how long the meter is compared with the configuration; long against how often the meter is brought up."""
    poll_s: float = 1.0
    """How often to look."""

    # What the engine can do

    supports_profiles: bool = True
    fault_has_downtime: bool = True
    """Whether the fault of `fault` stops the job for a while, so that a report has to say it: by its status, by having
    no latency or by a high one. False: it only takes speed or an executor away."""

    # What counts as calm

    calm_backlog_s: float = 60.0
    """A job whose backlog is no more than this many seconds of its input keeps up."""
    disturbed_latency_factor: float = 1.5
    """The latencies of a steady job are no further apart than this; after a fault, one that is above this many times
    the highest of three steady reports is a sign of it."""
    unfelt_latency_factor: float = 3.0
    """In a change whose gap is said to be 0, no latency may be above this many times the highest of three steady
    reports. It leaves room for executors that are new and slow; a standstill of several latencies is found."""

    # How exact to be

    window_tolerance_share: float = 0.05
    """How far a report's window may begin from the end of the last one, as a share of the window."""
    accounting_tolerance_share: float = 0.02
    """How much of what arrived may be missing from, or too much in, processed + backlog, over any stretch of time."""
    accounting_tolerance_s: float = 2.0
    """The same, for what is counted in the one but not yet in the other: seconds of the input. In a change whose gap is
    said to be 0, the backlog may grow by this and by what arrives in a commit interval."""
    meter_tolerance_share: float = 0.05
    """How far what is metered for executors may be from configuration x time."""
    meter_tolerance_s: float = 2.0
    """The same, for executors that come or go and for a meter that is read late: seconds of all executors."""
    profile_overhead_cores: float = 2.0
    """What a copy may cost at most besides the executors of its configuration: its driver."""

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
        """The job that the tests share."""
        suite = cls()
        session = Session(suite.make_engine(), suite.start_configuration(), poll_s=suite.poll_s)
        yield session
        session.job.stop()

    # What tests do again and again

    def _targets_of(self, session: Session, cost: ChangeCost) -> list[Configuration]:
        source = session.job.observed()
        targets = self.targets(source, cost.mechanism)
        return [target for target in targets if target != source and cost.can_carry(source, target)]

    def _target(self, session: Session, cost: ChangeCost) -> Configuration:
        targets = self._targets_of(session, cost)
        if not targets:
            pytest.fail(f"targets() gives nothing that {cost.mechanism} can reach from {session.job.observed()}")
        return targets[0]

    def _expect_calm(self, session: Session) -> list[Observation]:
        """The last reports, once the job runs and keeps up; none of them from before the call."""
        known = len(session.reports)
        session.wait_for(
            "a job that runs and keeps up",
            lambda: self._calm(session.reports[known:]),
            within_s=self.recovery_deadline_s,
        )
        return session.reports[-3:]

    def _expect_steady(self, session: Session) -> list[Observation]:
        """The last reports, once the job is calm and its latency has settled: what a disturbance is told from."""
        known = len(session.reports)
        session.wait_for(
            "a job that runs and keeps up, with a latency that has settled",
            lambda: self._calm(session.reports[known:]) and self._settled(session.reports[-3:]),
            within_s=self.recovery_deadline_s,
        )
        return session.reports[-3:]

    def _calm(self, reports: Sequence[Observation]) -> bool:
        return len(reports) >= 3 and all(
            report.status is JobStatus.RUNNING
            and report.backlog_records <= self.calm_backlog_s * max(1.0, report.input_rate_per_s)
            for report in reports[-3:]
        )

    def _settled(self, reports: Sequence[Observation]) -> bool:
        known_s = [report.latency_p95_s for report in reports if report.latency_p95_s is not None]
        return len(known_s) == len(reports) and max(known_s) <= self.disturbed_latency_factor * min(known_s)

    @staticmethod
    def _standstills(
        reports: Sequence[Observation], *, steady: Sequence[Observation], latency_factor: float
    ) -> list[Observation]:
        """The reports that say of themselves that the job stood still, or that output came late for it."""
        slowest_s = max(report.latency_p95_s or 0.0 for report in steady)
        return [
            report
            for report in reports
            if report.status is not JobStatus.RUNNING
            or (report.latency_p95_s is None and not report.is_idle)
            or (report.latency_p95_s is not None and report.latency_p95_s > latency_factor * slowest_s)
        ]

    def _expect_contiguous(self, reports: Sequence[Observation]) -> None:
        """Every moment is told of once; only a job that says it does not run may leave some out."""
        for earlier, later in pairwise(reports):
            gap_s = later.time_s - later.window_s - earlier.time_s
            slack_s = self.window_tolerance_share * later.window_s + 1e-6
            where = f"between the reports of {earlier.time_s:g} s and {later.time_s:g} s (window {later.window_s:g} s)"
            assert gap_s >= -slack_s, f"{-gap_s:g} s are told of twice {where}"
            runs = earlier.status is JobStatus.RUNNING and later.status is JobStatus.RUNNING
            assert gap_s <= slack_s or not runs, f"{gap_s:g} s are told of by no report {where}"
