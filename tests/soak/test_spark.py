"""Thirty random changes and kills of a real job in at least fifteen minutes: no record is lost and none doubled."""

from __future__ import annotations

import logging
import random
import signal
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from tidewise.control import SystemClock
from tidewise.core import (
    ChangeRequest,
    ChangeStatus,
    Configuration,
    JobStatus,
    Mechanism,
    Origin,
    Reason,
    TemporaryError,
)
from tidewise.engines.spark.audit import audit
from tidewise.engines.spark.cluster import LocalCluster
from tidewise.engines.spark.engine import SparkEngine
from tidewise.engines.spark.job import SparkJob
from tidewise.engines.spark.program import SparkProgram
from tidewise.host.processes import find
from tidewise.jobs.counts import committed_end, count_losses
from tidewise.jobs.embedded import NAME
from tidewise.jobs.schedule import Schedule, read_schedule, write_schedule

_LOG = logging.getLogger(__name__)

_EVENTS = 30
_LEAST_S = 15 * 60.0
_RATE_PER_S = 800.0
_START = Configuration(
    executors=2, cores_per_executor=0.5, memory_mib_per_executor=1024, commit_interval_s=1.0, state_partitions=2
)
_FAULTS = (
    "kill-executor",
    "freeze-executor",
    "kill-driver",
    "freeze-driver",
    "kill-worker",
    "slow-cpu",
    "cut-connection",
    "delay-connection",
)


@pytest.mark.soak
def test_thirty_changes_and_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    chance = random.Random(20261115)  # noqa: S311 -- moments, not secrets
    schedule = tmp_path / "schedule.json"
    write_schedule(schedule, Schedule(began_unix_s=time.time(), rates_per_s=(_RATE_PER_S,), after="hold"))
    cluster = LocalCluster.up(tmp_path / "cluster")
    clock = SystemClock()
    try:
        engine = SparkEngine(
            program=SparkProgram(
                command=(sys.executable, str(Path(__file__).with_name("two_sinks.py")), str(tmp_path)),
                folder=tmp_path,
                most_executors=4,
                handover=True,
                replayable_sources=(NAME,),
                launch_deadline_s=300.0,
                restarts_most=20,
            ),
            cluster=cluster,
            home=tmp_path / "job",
            clock=clock,
            repartitions=True,
            faults=True,
        )
        job = engine.launch(_START)
        try:
            _disturb(job, clock, chance)
            _expect_running(job, within_s=300.0)
        finally:
            job.stop()
    finally:
        cluster.down()
    available = read_schedule(schedule).available(time.time())
    for checkpoint, sink in (("checkpoint-files", "files"), ("checkpoint-batches", "batches")):
        end = committed_end(tmp_path / checkpoint)
        report = count_losses(tmp_path / sink, committed_end=end)
        _LOG.info("%s: %s", sink, report)
        assert report.lost == 0, report
        assert report.doubled == 0, report
        # The source says by itself how many records there were; the job has kept up with it.
        assert 0 <= available - end < 120 * _RATE_PER_S
        found = audit(tmp_path / checkpoint, sink=tmp_path / sink if sink == "files" else None)
        assert found.clean, found.sentences()
    left = find(lambda argv: any(str(tmp_path) in word for word in argv))
    assert not left, f"still running: {left}"


def _disturb(job: SparkJob, clock: SystemClock, chance: random.Random) -> None:
    done: list[str] = []
    began_s = time.monotonic()
    while len(done) < _EVENTS or time.monotonic() - began_s < _LEAST_S:
        _expect_running(job, within_s=300.0)
        time.sleep(chance.uniform(1.0, 10.0))
        what = chance.choice(("change", "change", "fault"))
        said = _change(job, clock, chance) if what == "change" else _fault(job, chance)
        done.append(f"{clock.now_s():7.0f} s {said}")
        _LOG.info("%s", done[-1])
        for found in job.audits():
            assert found.result.clean, (found.after, found.result.sentences())


def _change(job: SparkJob, clock: SystemClock, chance: random.Random) -> str:
    source = replace(job.observed(), executors=job.fleet.active.configuration.executors)
    mechanism = chance.choice(
        (
            *(Mechanism.LIVE, Mechanism.LIVE, Mechanism.QUERY_RESTART, Mechanism.QUERY_RESTART),
            *(Mechanism.HANDOVER, Mechanism.HANDOVER, Mechanism.REDEPLOY, Mechanism.REPARTITION),
        )
    )
    target = {
        Mechanism.LIVE: replace(source, executors=1 + source.executors % 3),
        Mechanism.QUERY_RESTART: replace(source, commit_interval_s=3.0 - source.commit_interval_s),
        Mechanism.HANDOVER: replace(source, memory_mib_per_executor=2304 - source.memory_mib_per_executor),
        Mechanism.REPARTITION: replace(source, state_partitions=6 - (source.state_partitions or 2)),
        Mechanism.REDEPLOY: replace(source, cores_per_executor=1.25 - source.cores_per_executor),
    }[mechanism]
    request = ChangeRequest(
        request_id=uuid.uuid4().hex,
        origin=Origin.OPERATOR,
        source=source,
        target=target,
        mechanism=mechanism,
        requested_at_s=clock.now_s(),
        deadline_s=clock.now_s() + 240.0,
        reason=Reason(code="soak", sentence="The soak test moves the job."),
    )
    try:
        job.change(request)
    except TemporaryError as error:
        return f"{mechanism} refused: {error}"
    if chance.random() < 0.25:
        # Now and then something breaks in the middle of a change.
        time.sleep(chance.uniform(0.5, 20.0))
        broken = _fault(job, chance)
    else:
        broken = ""
    until_s = time.monotonic() + 400.0
    while time.monotonic() < until_s:
        outcome = job.change_outcome(request.request_id)
        if outcome is not None:
            assert outcome.status is ChangeStatus.APPLIED or broken, outcome.detail
            return f"{mechanism} {outcome.status} {broken} {outcome.detail}"
        time.sleep(0.2)
    raise AssertionError(f"{mechanism} has not ended, {broken}")


def _fault(job: SparkJob, chance: random.Random) -> str:
    fault = chance.choice(_FAULTS)
    try:
        job.inject(fault)
    except TemporaryError as error:
        return f"{fault} not possible now: {error}"
    if fault == "freeze-driver":
        # The owner is thawed after its successor has taken over; by then it has to be dead.
        victim = job.fleet.active.process
        time.sleep(25.0)
        victim.signal(signal.SIGCONT)
    return fault


def _expect_running(job: SparkJob, *, within_s: float) -> None:
    """Until a batch is committed after this moment."""
    began = time.time()
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        assert job.ended is None, job.ended
        fleet = job.fleet
        with fleet.news:
            application = fleet.applications.get(fleet.active_key or "")
            commits = [] if application is None else list(application.committed_unix_s.values())
        if job.fleet.status is JobStatus.RUNNING and len(commits) == 2 and min(commits) > began:
            return
        job.reports()
        time.sleep(0.2)
    raise AssertionError(f"the job does not run again: {job.problems()}")
