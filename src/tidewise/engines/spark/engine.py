"""Structured Streaming as an engine: launches a program on a cluster, or takes a running one back."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from tidewise.core import (
    BadInputError,
    ChangeCost,
    ChangeOutcome,
    ChangeStatus,
    Clock,
    Configuration,
    JobStatus,
    Mechanism,
    PermanentError,
    TemporaryError,
)
from tidewise.engines.spark.application import Application
from tidewise.engines.spark.audit import state_partitions
from tidewise.engines.spark.book import Book, configuration_from_dict, configuration_to_dict
from tidewise.engines.spark.copies import nothing_measured
from tidewise.engines.spark.faults import Faults
from tidewise.engines.spark.fleet import Fleet
from tidewise.engines.spark.job import SparkJob
from tidewise.engines.spark.latency import LatencyChoice
from tidewise.engines.spark.master import ClusterManager
from tidewise.engines.spark.moves import cold_start
from tidewise.engines.spark.program import SparkProgram
from tidewise.engines.spark.reports import Reporter
from tidewise_agent.lease import Lease, bookkeeping_folder, local_path

_LOG = logging.getLogger(__name__)

_CALL_IN_WITHIN_S = 20.0

COSTS = {
    Mechanism.LIVE: ChangeCost(mechanism=Mechanism.LIVE, gap_s=0.0, preparation_s=5.0),
    Mechanism.QUERY_RESTART: ChangeCost(mechanism=Mechanism.QUERY_RESTART, gap_s=1.5),
    Mechanism.HANDOVER: ChangeCost(mechanism=Mechanism.HANDOVER, gap_s=2.0, preparation_s=30.0, runs_double=True),
    Mechanism.REPARTITION: ChangeCost(mechanism=Mechanism.REPARTITION, gap_s=8.0),
    Mechanism.REDEPLOY: ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=30.0),
}
"""What each mechanism costs before this job has shown it; the order is that of preference."""


def offered_changes(*, handover: bool, repartitions: bool) -> tuple[ChangeCost, ...]:
    """The mechanisms for a program that may, or may not, run beside itself and have its state cut anew."""
    left_out = {
        mechanism
        for mechanism, allowed in {Mechanism.HANDOVER: handover, Mechanism.REPARTITION: repartitions}.items()
        if not allowed
    }
    return tuple(cost for mechanism, cost in COSTS.items() if mechanism not in left_out)


class SparkEngine:
    """Implements `core.Engine`."""

    def __init__(
        self,
        *,
        program: SparkProgram,
        cluster: ClusterManager,
        home: Path,
        clock: Clock,
        window_s: float = 5.0,
        latency: LatencyChoice = LatencyChoice.AUTO,
        repartitions: bool = False,
        faults: bool = False,
        supervised: bool = False,
        seed: int = 1,
    ) -> None:
        """`home` keeps what belongs to this one job; `faults` puts a proxy into the agents' line."""
        self._program = program
        self._cluster = cluster
        self._home = home
        self._clock = clock
        self._window_s = window_s
        self._latency = latency
        self._repartitions = repartitions
        self._faults = faults
        self._supervised = supervised
        self._seed = seed

    @property
    def name(self) -> str:
        return "spark"

    @property
    def changes(self) -> tuple[ChangeCost, ...]:
        return offered_changes(handover=self._program.handover, repartitions=self._repartitions)

    @property
    def faults(self) -> tuple[str, ...]:
        return Faults.kinds(local=bool(self._cluster.worker_processes), lines=self._faults, supervised=self._supervised)

    @property
    def clock(self) -> Clock:
        return self._clock

    def launch(self, configuration: Configuration) -> SparkJob:
        """Start the program and wait for its first batch; PermanentError with the reason where none comes."""
        self._program.check()
        self._cluster.check()
        fleet = self._fleet(Book.new(self._home))
        try:
            fleet.expect_room(configuration)
            fleet.book = fleet.book.having(configuration=configuration_to_dict(configuration))
            cold_start(fleet, configuration, within_s=self._program.launch_deadline_s)
        except BaseException:
            fleet.close()
            raise
        return self._job(fleet)

    def take_back(self) -> SparkJob:
        """Go on with the job of this home after the controller was restarted; a dead driver is replaced."""
        book = Book.read(self._home)
        try:
            fleet = self._fleet(book)
        except BadInputError as error:
            # Its agents call this port and no other: whoever has it now may leave it again.
            raise TemporaryError(f"the job cannot be taken back yet: {error}", retry_after_s=5.0) from error
        fleet.take_back()
        interrupted = fleet.book.change
        active = self._sort_out(fleet)
        if interrupted is not None:
            outcome = ChangeOutcome(
                request_id=interrupted,
                status=ChangeStatus.FAILED,
                finished_at_s=self._clock.now_s(),
                configuration=fleet.observed() if active is not None else self._intended(fleet),
                detail="the controller was restarted while the change was on",
            )
            fleet.book = fleet.book.with_outcome(outcome)
        profile = fleet.book.profile_on
        if profile is None:
            fleet.book = fleet.book.having(profile=None)
        else:
            why = "the controller was restarted while the profile was on"
            fleet.book = fleet.book.with_profile_outcome(nothing_measured(profile, self._clock.now_s(), why))
        return self._job(fleet)

    def clear(self) -> None:
        """End whatever lives of the job of this home, at once; TemporaryError where that cannot be confirmed."""
        fleet = self._fleet(Book.read(self._home))
        try:
            fleet.take_back()
            left = [one.key for one in list(fleet.applications.values()) if not fleet.end(one)]
            fleet.clear_up()
        finally:
            fleet.close()
        if left:
            raise TemporaryError(f"it cannot be confirmed that all of {', '.join(left)} is gone: try again")

    def _sort_out(self, fleet: Fleet) -> Application | None:
        """Find out which application works, by the lease and not by what was meant; end all others."""
        with fleet.news:
            living = [one for one in fleet.applications.values() if one.is_driver_alive and one.copy is None]
        for application in living:
            fleet.switchboard.wait_connected(application.key, within_s=_CALL_IN_WITHIN_S)
        holder = self._holder(fleet, living)
        with fleet.news:
            if holder is not None:
                fleet.active_key = holder
        self._end_all_but_active(fleet)
        fleet.clear_up()
        with fleet.news:
            active = fleet.applications.get(fleet.active_key or "")
        if active is not None and active.is_driver_alive:
            # Queries that a dead controller had drained start again; those that run are left alone. Not under the
            # lock: whoever brings the answer may have something else to tell first, and needs it for that.
            try:
                fleet.ask(active, "start", {"gone": list(fleet.book.dead)})
            except (TemporaryError, PermanentError) as error:
                _LOG.warning("The queries could not be looked after yet: %s", error)
        if active is not None:
            self._correct(active)
        fleet.save()
        if active is not None:
            fleet.reporter.status(JobStatus.DOWN, self._clock.now_s())
            fleet.tell_configuration()
        return active

    @staticmethod
    def _end_all_but_active(fleet: Fleet) -> None:
        for application in [one for one in fleet.applications.values() if one.key != fleet.active_key]:
            if application.copy is None:
                fleet.end_for_sure(application)
            elif not fleet.end(application):
                # It writes nothing that anybody reads, so that the job need not wait for it.
                _LOG.warning("It cannot be confirmed yet that the copy %s is gone", application.key)

    @staticmethod
    def _correct(active: Application) -> None:
        """A controller that died within a change has not written down what its queries run with now."""
        intervals_s = {facts.interval_s for facts in active.queries.values() if facts.interval_s is not None}
        if len(intervals_s) == 1:
            active.configuration = replace(active.configuration, commit_interval_s=intervals_s.pop())
        if active.configuration.state_partitions is None:
            return
        folders = [local_path(facts.checkpoint) for facts in active.queries.values() if facts.checkpoint is not None]
        partitions = {state_partitions(folder) for folder in folders if folder is not None} - {None}
        if len(partitions) == 1:
            active.configuration = replace(active.configuration, state_partitions=partitions.pop())

    def _holder(self, fleet: Fleet, living: list[Application]) -> str | None:
        for application in living:
            for facts in application.queries.values():
                if facts.checkpoint is None:
                    continue
                folder = bookkeeping_folder(facts.checkpoint, state_folder=str(fleet.home))
                found = Lease(folder, application=application.key).holder()
                if found is not None and found.application in fleet.applications:
                    return found.application
        return None

    def _intended(self, fleet: Fleet) -> Configuration:
        return configuration_from_dict(fleet.book.configuration)

    def _fleet(self, book: Book) -> Fleet:
        reporter = Reporter(window_s=self._window_s, latency=self._latency)
        return Fleet(
            program=self._program,
            cluster=self._cluster,
            book=book,
            clock=self._clock,
            reporter=reporter,
            faults=self._faults,
        )

    def _job(self, fleet: Fleet) -> SparkJob:
        job = SparkJob(fleet, changes=self.changes, supervised=self._supervised, seed=self._seed)
        job.begin()
        return job
