"""Changes and kills at random moments, for every proof that a job loses and doubles nothing whatever happens to it."""

from __future__ import annotations

import logging
import random
import signal
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

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
from tidewise.engines.spark.job import SparkJob

_LOG = logging.getLogger(__name__)

START = Configuration(
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
_MECHANISMS = (
    *(Mechanism.LIVE, Mechanism.LIVE, Mechanism.QUERY_RESTART, Mechanism.QUERY_RESTART),
    *(Mechanism.HANDOVER, Mechanism.HANDOVER, Mechanism.REDEPLOY, Mechanism.REPARTITION),
)


class Disturber:
    """Does things to a job that begins with `START`; what it has done is in the log."""

    def __init__(
        self,
        job: SparkJob,
        clock: SystemClock,
        *,
        seed: int,
        queries: int,
        outside: Mapping[str, Callable[[], None]] | None = None,
        faults: bool = True,
    ) -> None:
        """Without `faults` nothing is broken but what is named."""
        self._job = job
        self._clock = clock
        self._chance = random.Random(seed)  # noqa: S311 -- moments, not secrets
        self._queries = queries
        self._faults = faults
        self._outside = dict(outside or {})
        """What can break beside the job, by name; each is mended when the call returns."""

    def disturb(self, *, events: int, least_s: float) -> None:
        """So many changes and kills, and for so long at least; everything outside comes at least once."""
        kinds = ["change", "change", "fault", *(["outside"] if self._outside else [])]
        due = list(self._outside)
        done = 0
        began_s = time.monotonic()
        while done < events or time.monotonic() - began_s < least_s:
            self.expect_running(within_s=300.0)
            time.sleep(self._chance.uniform(1.0, 10.0))
            what = self._chance.choice(kinds)
            if due and events - done <= len(due):
                what = "outside"
            if what == "outside":
                said = due.pop() if due else self._chance.choice(sorted(self._outside))
                self._outside[said]()
            else:
                try:
                    said = self.change() if what == "change" else self._fault()
                except TemporaryError as error:
                    _LOG.info("%7.0f s not possible now: %s", self._clock.now_s(), error)
                    continue
            done += 1
            _LOG.info("%7.0f s %s", self._clock.now_s(), said)
            for found in self._job.audits():
                assert found.result.clean, (found.after, found.result.sentences())

    def expect_running(self, *, within_s: float) -> None:
        """Until every query has committed a batch after this moment."""
        job, began = self._job, time.time()
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            assert job.ended is None, job.ended
            fleet = job.fleet
            with fleet.news:
                application = fleet.applications.get(fleet.active_key or "")
                commits = [] if application is None else list(application.committed_unix_s.values())
            if fleet.status is JobStatus.RUNNING and len(commits) == self._queries and min(commits) > began:
                return
            job.reports()
            time.sleep(0.2)
        raise AssertionError(f"the job does not run again: {job.problems()}")

    def change(self, mechanism: Mechanism | None = None, *, fault: str | None = None) -> str:
        """Change the job, by a mechanism of chance where none is named, and break this in the middle of it.

        TemporaryError where the job refuses it now; what it does not refuse is applied, unless something broke.
        """
        job, chance = self._job, self._chance
        source = replace(job.observed(), executors=job.fleet.active.configuration.executors)
        mechanism = mechanism or chance.choice(_MECHANISMS)
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
            requested_at_s=self._clock.now_s(),
            deadline_s=self._clock.now_s() + 240.0,
            reason=Reason(code="soak", sentence="The soak test moves the job."),
        )
        job.change(request)
        if fault is not None or (self._faults and chance.random() < 0.25):
            # Now and then something breaks in the middle of a change.
            time.sleep(chance.uniform(0.5, 20.0))
            broken = self._fault_if_possible(fault)
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

    def _fault_if_possible(self, fault: str | None) -> str:
        try:
            return self._fault(fault)
        except TemporaryError as error:
            return f"(nothing to break: {error})"

    def _fault(self, fault: str | None = None) -> str:
        job = self._job
        fault = fault or self._chance.choice(_FAULTS)
        job.inject(fault)
        if fault == "freeze-driver":
            # The owner is thawed after its successor has taken over; by then it has to be dead.
            victims = [one for one in (job.fleet.active.process, job.fleet.active.jvm) if one is not None]
            time.sleep(25.0)
            for victim in victims:
                victim.signal(signal.SIGCONT)
        return fault
