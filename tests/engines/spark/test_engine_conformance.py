"""Real Spark keeps every promise that engines make: a cluster, the counting job, and all five ways to change it."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.kafka.feeding import feeding
from tidewise.control.clock import SystemClock
from tidewise.core import ChangeStatus, Configuration, Engine, Mechanism
from tidewise.engines.spark.cluster import LocalCluster
from tidewise.engines.spark.engine import SparkEngine
from tidewise.engines.spark.job import SparkJob
from tidewise.engines.spark.program import SparkProgram
from tidewise.host.processes import ProcessIdentity, find, wait_until
from tidewise.jobs.embedded import NAME
from tidewise.jobs.schedule import Schedule, write_schedule
from tidewise.kafka.broker import LocalBroker
from tidewise.kafka.jars import connector_conf
from tidewise.testing import EngineConformance
from tidewise.testing.engine_profiles import EngineProfileTests, Profiled
from tidewise.testing.engine_reports import EngineReportTests
from tidewise.testing.engine_suite import EngineSuite
from tidewise.testing.session import Session

pytestmark = pytest.mark.xdist_group("spark")

RATE_PER_S = 500.0
TOPIC = "clicks"
START = Configuration(
    executors=1, slots_per_executor=1, cores_per_executor=1.0, memory_mib_per_executor=1024, state_partitions=2
)


class SparkSuite(EngineSuite):
    """All times are generous, because JVMs are started on whatever the machine has left; what is counted is exact."""

    report_wait_s = 60.0
    change_deadline_s = 240.0
    recovery_deadline_s = 180.0
    stop_wait_s = 3.0
    meter_span_s = 6.0
    poll_s = 0.25
    profile_deadline_s = 300.0
    profile_settle_s = 10.0
    profile_measure_s = 15.0
    profile_recovery_limit_s = 120.0
    fault_has_downtime = False  # an executor that dies takes its share of the speed along, and a batch longer
    calm_backlog_s = 8.0
    # Batches of a second or two, and windows of two and a half: the latency of a window is that of one or two batches.
    disturbed_latency_factor = 2.5
    unfelt_latency_factor = 8.0
    accounting_tolerance_s = 6.0
    meter_tolerance_share = 0.1

    cluster: ClassVar[LocalCluster]
    folder: ClassVar[Path]
    numbers: ClassVar[Iterator[int]]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def own_cluster(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        cls.folder = tmp_path_factory.mktemp("spark-conformance")
        cls.numbers = itertools.count(1)
        cls.cluster = LocalCluster.up(
            cls.folder / "cluster", workers=1, slots_per_worker=6, memory_mib_per_worker=8 * 1024
        )
        try:
            yield
        finally:
            known = {one.pid for one in daemons(cls.cluster)}
            # An executor's Python workers notice its end when they next read from it.
            wait_until(lambda: processes_of(cls.folder) <= known, deadline_s=10.0)
            left = [one for one in find(lambda _: True) if one.identity.pid in processes_of(cls.folder) - known]
            cls.cluster.down()
            after = processes_of(cls.folder)
        assert left == [], "a job that was stopped has left processes"
        assert after == set(), "the cluster has left processes"

    def make_engine(self) -> Engine:
        home = self.folder / f"job-{next(self.numbers)}"
        home.mkdir()
        return SparkEngine(
            program=self.make_program(home),
            cluster=self.cluster,
            home=home / "state",
            clock=SystemClock(),
            window_s=2.5,
            repartitions=True,
        )

    def make_program(self, home: Path) -> SparkProgram:
        """The counting job on records that begin to come now."""
        write_schedule(home / "schedule.json", Schedule(began_unix_s=time.time(), rates_per_s=(RATE_PER_S,)))
        return self.counting(home, "--schedule", "schedule.json", "--partitions", "1")

    @staticmethod
    def counting(home: Path, *source: str, **more: Any) -> SparkProgram:  # noqa: ANN401 -- fields of the program
        options = ("--checkpoint", "checkpoint", "--trigger", "1 second")
        return SparkProgram(
            command=(sys.executable, "-m", "tidewise.jobs.clicks", *options, *source),
            folder=home,
            most_executors=3,
            handover=True,
            replayable_sources=(NAME,),
            warm_batches=2,
            **more,
        )

    def start_configuration(self) -> Configuration:
        return START

    def targets(self, source: Configuration, mechanism: Mechanism) -> Sequence[Configuration]:
        if mechanism is Mechanism.HANDOVER:
            other = 1280 if source.memory_mib_per_executor == START.memory_mib_per_executor else 1024
            return [replace(source, memory_mib_per_executor=other)]
        return super().targets(source, mechanism)

    def fault(self, engine: Engine) -> str | None:
        assert "kill-executor" in engine.faults
        return "kill-executor"


class TestSparkInShort(SparkSuite, EngineReportTests):
    """What `make test` has time for: a real job reports as it should, and two of the five changes work on it."""

    @pytest.mark.parametrize("mechanism", [Mechanism.LIVE, Mechanism.QUERY_RESTART])
    def test_a_change_is_carried_out(self, session: Session, mechanism: Mechanism) -> None:
        session.expect_observed(within_s=self.recovery_deadline_s)
        cost = next(one for one in session.engine.changes if one.mechanism is mechanism)
        request = session.change_request(self._target(session, cost), mechanism, within_s=self.change_deadline_s)
        session.job.change(request)
        outcome = session.outcome_of(request)
        assert outcome.status is ChangeStatus.APPLIED, f"it failed: {outcome.detail}"
        assert outcome.configuration == request.target
        session.expect_observed(within_s=self.report_wait_s)
        self._expect_calm(session)


class SparkProfileTests(EngineProfileTests):
    """What only the files and processes of a real job can show of its copies."""

    def test_a_profile_leaves_nothing_behind(self, session: Session, profiled: Profiled) -> None:
        job = session.job
        assert isinstance(job, SparkJob)
        assert not profiled.outcome.measurements[0].detail
        assert list(job.fleet.applications) == [job.fleet.active_key], "a copy is still known"
        for checkpoint in job.fleet.checkpoints():
            left = {path.name for path in (Path(checkpoint) / "_tidewise").iterdir()}
            assert left == {"ledger.jsonl", "lease.json", "lease.lock"}, f"a copy has left something: {left}"
        drivers = [one for one in find(lambda argv: "tidewise.jobs.clicks" in argv) if one.folder == job.home.parent]
        assert [one.identity for one in drivers] == [job.fleet.active.process], "a driver of a copy is still there"
        for audited in job.verify("a profile"):
            assert audited.result.clean, audited.result.sentences()

    def test_a_candidate_without_room_says_so(self, session: Session) -> None:
        self._expect_profiles(session)
        request = session.profile_request(
            START.with_executors(50), settle_s=1.0, measure_s=1.0, within_s=self.profile_deadline_s
        )
        session.job.profile(request)
        (measured,) = self._outcome_of_profile(session, request).measurements
        assert measured.detail == "the cluster has no room for it beside the job"


@pytest.mark.soak
class TestSparkConformance(SparkSuite, SparkProfileTests, EngineConformance):
    """The whole suite."""


class KafkaSuite(SparkSuite):
    """The same job on a topic of a real broker, which is fed all the time."""

    broker: ClassVar[LocalBroker]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def own_broker(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        cls.broker = LocalBroker.up(tmp_path_factory.mktemp("kafka-conformance") / "broker", topics={TOPIC: 2})
        try:
            with feeding(cls.broker.address, TOPIC, rate_per_s=RATE_PER_S):
                yield
        finally:
            cls.broker.down()

    def make_program(self, home: Path) -> SparkProgram:
        source = ("--source", "kafka", "--brokers", self.broker.address, "--topic", TOPIC, "--from", "latest")
        return self.counting(home, *source, conf=connector_conf())


@pytest.mark.soak
class TestSparkConformanceOnKafka(KafkaSuite, EngineConformance):
    """The whole suite."""


def daemons(cluster: LocalCluster) -> tuple[ProcessIdentity, ...]:
    return (cluster.master_process, *cluster.worker_processes)


def processes_of(folder: Path) -> set[int]:
    """Whatever names the folder on its command line or works in it."""
    return {
        one.identity.pid
        for one in find(lambda _: True)
        if one.identity.is_alive()
        and (any(str(folder) in word for word in one.argv) or (one.folder and one.folder.is_relative_to(folder)))
    }
