"""Watches over processes: replaces a driver that dies, thaws nothing but ends what is frozen, keeps a standby warm."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tidewise.core import Configuration, JobStatus, PermanentError, TemporaryError
from tidewise.engines.spark.application import Application
from tidewise.engines.spark.book import configuration_from_dict
from tidewise.engines.spark.fleet import Fleet
from tidewise.engines.spark.master import ClusterManager
from tidewise.engines.spark.moves import TAKE_OVER_WITHIN_S, cold_start, has_run, is_warm
from tidewise.host.processes import ProcessIdentity

_LOG = logging.getLogger(__name__)

FROZEN_S = 10.0
"""A process that was stopped by a signal for this long does not come back in time."""
_ALONE_S = 3.0
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """A driver that died and what came of it."""

    died_at_s: float
    runs_at_s: float | None
    """None: it could not be replaced."""
    warm: bool
    """Whether a standby took over."""
    why: str
    """What it died of."""


class Supervisor:
    """Replaces drivers; one thread at a time calls `look`, and recovery runs in a thread of its own."""

    def __init__(self, fleet: Fleet, *, busy: threading.Lock, make_room: Callable[[str], bool]) -> None:
        """`busy` is held by whoever changes the job: a recovery and a change never meet.

        `make_room` ends what runs beside the job only to be measured; it is told why, does not wait, and says whether
        there was anything.
        """
        self._fleet = fleet
        self._busy = busy
        self._make_room = make_room
        self._deaths_s: deque[float] = deque()
        self._frozen_since_s: dict[ProcessIdentity, float] = {}
        self._frozen_workers_since_s: dict[ProcessIdentity, float] = {}
        self._alone_since_s: float | None = None
        self._recovering = False
        self._healing = False
        self._warming_since_s: float | None = None
        self._never_fits: Configuration | None = None
        """A standby of this one finds no room even where nothing is measured."""
        self.recoveries: list[Recovery] = []
        self.given_up: str | None = None
        """Why the job is not started again any more."""
        self.ended = False
        """Whether the program has ended by itself, in order."""
        self.stopping = False

    def look(self) -> None:
        """One round; returns at once."""
        if self.stopping or self.ended or self.given_up is not None:
            return
        fleet = self._fleet
        with fleet.news:
            active = fleet.applications.get(fleet.active_key or "")
        self._end_what_is_frozen(active)
        self._heal_cluster()
        if active is not None:
            self._end_python_without_jvm(active)
        if not self._recovering and (active is None or not active.is_driver_alive):
            self._begin_recovery(active)
        elif active is not None and fleet.status is JobStatus.RUNNING:
            self._keep_standby(active)

    def _end_python_without_jvm(self, active: Application) -> None:
        """A program may not notice that its JVM has died; it cannot do anything without it."""
        alone = "jvm_pid" in active.identity and active.is_driver_alive and active.jvm is None
        now_s = time.monotonic()
        self._alone_since_s = (self._alone_since_s or now_s) if alone else None
        if self._alone_since_s is not None and now_s - self._alone_since_s > _ALONE_S:
            _LOG.warning("The JVM of %s is gone, so its program is ended", active.key)
            active.process.kill()

    # Frozen processes

    def _end_what_is_frozen(self, active: Application | None) -> None:
        frozen: list[ProcessIdentity] = []
        if active is not None and active.is_frozen():
            jvm = active.jvm
            frozen += [one for one in (active.process, jvm) if one is not None and one.is_stopped()]
        if active is not None and active.spark_id is not None:
            executors = self._fleet.cluster.executor_processes(active.spark_id)
            frozen += [one.identity for one in executors if one.identity is not None and one.identity.is_stopped()]
        now_s = time.monotonic()
        self._frozen_since_s = {one: self._frozen_since_s.get(one, now_s) for one in frozen}
        for identity, since_s in self._frozen_since_s.items():
            if now_s - since_s > FROZEN_S:
                _LOG.warning("Process %d has been frozen for %.0f s and is ended", identity.pid, now_s - since_s)
                identity.kill()

    def _heal_cluster(self) -> None:
        """Start workers of our own cluster again that died or froze."""
        cluster = self._fleet.cluster
        if self._healing:
            return
        now_s = time.monotonic()
        workers = cluster.worker_processes
        self._frozen_workers_since_s = {
            one: self._frozen_workers_since_s.get(one, now_s) for one in workers if one.is_stopped()
        }
        for number, worker in enumerate(workers):
            frozen_s = now_s - self._frozen_workers_since_s.get(worker, now_s)
            if not worker.is_alive() or frozen_s > FROZEN_S:
                self._healing = True
                threading.Thread(target=self._heal, args=(cluster, number), name="spark-heal", daemon=True).start()
                return

    def _heal(self, cluster: ClusterManager, number: int) -> None:
        try:
            cluster.restart_worker(number)
        except (TemporaryError, PermanentError) as error:
            _LOG.warning("Worker %d could not be started again yet: %s", number, error)
        finally:
            self._healing = False

    # Drivers

    def _begin_recovery(self, dead: Application | None) -> None:
        """None: there is no application at all, because whoever was to start it was cut short."""
        fleet = self._fleet
        if not self._busy.acquire(blocking=False):
            return  # A change is on: it notices, gives up, and then it is our turn.
        self._recovering = True
        fleet.set_status(JobStatus.DOWN)
        self._make_room("the job's own driver had to be replaced")
        threading.Thread(target=self._recover, args=(dead,), name="spark-recovery", daemon=True).start()

    def _recover(self, dead: Application | None) -> None:
        fleet = self._fleet
        died_at_s = fleet.clock.now_s()
        try:
            if dead is None:
                why = "no application was left"
            elif self._bury(dead):
                self.ended = True
                return
            else:
                why = dead.why_it_ended()
            _LOG.warning("The driver has died: %s", why)
            configuration = configuration_from_dict(fleet.book.configuration) if dead is None else dead.configuration
            runs_at_s, warm = self._replace(configuration, died_at_s)
            self.recoveries.append(Recovery(died_at_s=died_at_s, runs_at_s=runs_at_s, warm=warm, why=why))
            if runs_at_s is None and not self.stopping:
                self.given_up = f"the driver died {len(self._deaths_s)} times and is not started again: {why}"
                _LOG.error("%s", self.given_up)
        finally:
            self._recovering = False
            self._busy.release()

    def _bury(self, dead: Application) -> bool:
        """Make sure that nothing of it lives; whether the program had ended in order."""
        time.sleep(0.2)  # its last words may still be on the way
        in_order = dead.exit_code == 0 or (
            dead.child is None and dead.ending and dead.failure is None and dead.stopped_by_program
        )
        self._fleet.end_for_sure(dead, give_up=lambda: self.stopping)
        return in_order

    def _replace(self, configuration: Configuration, died_at_s: float) -> tuple[float | None, bool]:
        """By the standby if there is one, else by cold starts; when it ran again, and whether it was the standby."""
        fleet = self._fleet
        with fleet.news:
            standby = fleet.applications.get(fleet.standby_key or "")
        self._deaths_s.append(died_at_s)
        if standby is not None and standby.is_driver_alive and self._take_over(standby):
            return fleet.clock.now_s(), True
        wait_s = 0.0
        while not self.stopping:
            now_s = fleet.clock.now_s()
            while self._deaths_s and now_s - self._deaths_s[0] > fleet.program.restarts_within_s:
                self._deaths_s.popleft()
            if len(self._deaths_s) > fleet.program.restarts_most:
                return None, False
            time.sleep(wait_s)
            wait_s = min(_LONGEST_WAIT_S, 2 * wait_s or _FIRST_WAIT_S)
            try:
                cold_start(fleet, configuration, within_s=fleet.program.launch_deadline_s)
            except (TemporaryError, PermanentError, OSError) as error:
                _LOG.warning("The driver could not be replaced yet: %s", error)
                self._deaths_s.append(fleet.clock.now_s())
            else:
                return fleet.clock.now_s(), False
        return None, False

    def _take_over(self, standby: Application) -> bool:
        fleet = self._fleet
        try:
            fleet.make_active(standby)
            interval_s = standby.configuration.commit_interval_s
            fleet.ask(standby, "start", {"commit_interval_s": interval_s, "gone": list(fleet.book.dead)}, within_s=30.0)
            if fleet.wait_for(
                lambda: has_run(standby),
                within_s=TAKE_OVER_WITHIN_S + 2 * interval_s,
                alive=(standby,),
            ):
                fleet.set_status(JobStatus.RUNNING)
                return True
        except (TemporaryError, PermanentError) as error:
            _LOG.warning("The standby could not take over: %s", error)
        fleet.end_for_sure(standby)
        return False

    # The standby

    def _keep_standby(self, active: Application) -> None:
        fleet = self._fleet
        if not fleet.program.standby or not self._busy.acquire(blocking=False):
            return
        try:
            with fleet.news:
                standby = fleet.applications.get(fleet.standby_key or "")
            if standby is not None and not standby.is_driver_alive:
                fleet.end(standby)
                standby = None
            if standby is not None and standby.configuration != active.configuration:
                fleet.retire(standby)
                standby = None
            if standby is None and self._has_room_for_standby(active.configuration):
                standby = fleet.launch(active.configuration, standby=True)
                with fleet.news:
                    fleet.standby_key = standby.key
                self._warming_since_s = time.monotonic()
            with fleet.news:
                warm = standby is not None and self._warming_since_s is not None and is_warm(fleet, active, standby)
            if standby is not None and warm:
                # It stays up and warm, without working through the load a second time.
                fleet.ask(standby, "stop-warm-up", within_s=30.0)
                self._warming_since_s = None
        except (TemporaryError, PermanentError) as error:
            _LOG.warning("The standby is not ready: %s", error)
        finally:
            self._busy.release()

    def _has_room_for_standby(self, configuration: Configuration) -> bool:
        """Whether it fits now; what is only measured gives way, unless that would not help."""
        if self._fleet.fits(configuration, configuration.executors):
            self._never_fits = None
            return True
        if configuration != self._never_fits and not self._make_room("the job's standby needed the room"):
            self._never_fits = configuration
        return False

    @property
    def standby_is_warm(self) -> bool:
        with self._fleet.news:
            return self._fleet.standby_key is not None and self._warming_since_s is None
