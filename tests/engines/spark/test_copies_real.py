"""Copies beside a real job that writes files: none of its records is lost or doubled, and nothing outlives it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.engines.spark.test_engine_conformance import processes_of
from tidewise.control.clock import SystemClock
from tidewise.core import Configuration, ProfileOutcome, ProfileRequest, Purpose, Reason
from tidewise.engines.spark.audit import audit
from tidewise.engines.spark.cluster import LocalCluster
from tidewise.engines.spark.engine import SparkEngine
from tidewise.engines.spark.job import SparkJob
from tidewise.engines.spark.program import SparkProgram
from tidewise.host.processes import wait_until
from tidewise.jobs.counts import committed_end, count_losses
from tidewise.jobs.embedded import NAME
from tidewise.jobs.schedule import Schedule, write_schedule

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.soak]

START = Configuration(
    executors=1, cores_per_executor=1.0, memory_mib_per_executor=1024, commit_interval_s=1.0, state_partitions=2
)
WITHIN_S = 500.0
LIMIT_S = 150.0


def _request(clock: SystemClock, name: str, *candidates: Configuration, inject_failure: bool) -> ProfileRequest:
    return ProfileRequest(
        request_id=name,
        candidates=candidates,
        settle_s=5.0,
        measure_s=15.0,
        inject_failure=inject_failure,
        recovery_limit_s=LIMIT_S,
        requested_at_s=clock.now_s(),
        deadline_s=clock.now_s() + WITHIN_S,
        reason=Reason(code="test", sentence="A test wants to know."),
    )


def _outcome(job: SparkJob, name: str) -> ProfileOutcome:
    wait_until(lambda: job.profile_outcome(name) is not None, deadline_s=WITHIN_S + 60.0, poll_s=0.5)
    outcome = job.profile_outcome(name)
    assert outcome is not None, "the profile did not end"
    return outcome


def test_a_job_that_is_copied_and_whose_copies_are_broken_writes_every_record_once(tmp_path: Path) -> None:
    schedule = tmp_path / "schedule.json"
    write_schedule(schedule, Schedule(began_unix_s=time.time(), rates_per_s=(300.0,), after="hold"))
    command = (sys.executable, "-m", "tidewise.jobs.copy", "--schedule", str(schedule), "--checkpoint", "checkpoint")
    cluster = LocalCluster.up(tmp_path / "cluster", workers=1, slots_per_worker=6, memory_mib_per_worker=6 * 1024)
    clock = SystemClock()
    try:
        engine = SparkEngine(
            program=SparkProgram(
                command=(*command, "--sink", "files", "--out", "out", "--partitions", "1"),
                folder=tmp_path,
                handover=True,
                replayable_sources=(NAME,),
                launch_deadline_s=300.0,
            ),
            cluster=cluster,
            home=tmp_path / "job",
            clock=clock,
        )
        job = engine.launch(START)
        try:
            first = _request(clock, "first", START, START.with_executors(90), inject_failure=True)
            job.profile(first)
            broken, too_many = _outcome(job, "first").measurements
            assert broken.processed_rate_per_s > 0.0, broken
            assert broken.recovery_s is not None, broken
            assert too_many.detail == "the cluster has no room for it beside the job"
            assert job.meter()[Purpose.PROFILING].core_s > 0.0
            assert [path.name for path in (tmp_path / "checkpoint" / "_tidewise").glob("*-*")] == []
            # The end of the job is the end of its copies as well.
            job.profile(_request(clock, "second", START, inject_failure=False))
            assert wait_until(lambda: len(job.fleet.applications) == 2, deadline_s=60.0)
        finally:
            job.stop()
        second = job.profile_outcome("second")
        assert second is not None
        assert second.measurements[0].detail == "the job was stopped"
        known = {one.pid for one in (cluster.master_process, *cluster.worker_processes)}
        assert wait_until(lambda: processes_of(tmp_path) <= known, deadline_s=20.0), "something was left"
    finally:
        cluster.down()
    report = count_losses(tmp_path / "out", committed_end=committed_end(tmp_path / "checkpoint"))
    assert (report.lost, report.doubled) == (0, 0), report
    assert report.expected > 0
    found = audit(tmp_path / "checkpoint", sink=tmp_path / "out")
    assert found.clean, found.sentences()
    assert [path.name for path in (tmp_path / "checkpoint" / "_tidewise").glob("*-*")] == []
