"""Copies of the job beside it, on scratch checkpoints and into sinks that reach nobody: started, measured, ended.

A copy is what a handover's successor is while it warms up: the same program from the same position and state. It keeps
the interval of its configuration, never takes the lease, and has only the CPU that the job leaves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

from tidewise.core import JobStatus, PermanentError, ProfileOutcome, ProfileRequest, TemporaryError
from tidewise.engines.spark.application import Application, QueryFacts
from tidewise.engines.spark.fleet import Fleet
from tidewise.engines.spark.measured_copy import MeasuredCopy, measures_for_s, nothing
from tidewise_agent.lease import local_path

_LOG = logging.getLogger(__name__)

_POLL_S = 0.1
_ASK_S = 1.0
"""How often the cluster is asked for room while others run."""
_ENDED_WITHIN_S = 60.0
_LEAVES_WITHIN_S = 15.0
"""How long before the deadline of a profile its copies begin to leave."""
_LEAVES_SHARE = 0.3
"""The most of the time of a profile that is left to them for that."""


class Copies:
    """One profile at a time. Its copies come up one after the other and then run side by side, as far as they fit.

    A copy that finds no room, does not come up or dies is a result. Whoever wants the copies gone calls `end`.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._cut = threading.Event()
        self._why = ""
        self._thread: threading.Thread | None = None
        self._started: list[MeasuredCopy] = []
        self._sweeping: threading.Thread | None = None
        self._closed = False

    @property
    def is_on(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_coming_up(self) -> bool:
        """Whether a copy has not taken all of the room yet that it was started for."""
        with self._fleet.news:
            return any(copy.is_running and not copy.is_up for copy in self._started)

    def begin(self, request: ProfileRequest) -> None:
        """Begin a profile; nothing happens where it was begun before, by whichever controller."""
        fleet = self._fleet
        with fleet.news:
            if self._was_begun(request):
                return
            queries = list(fleet.active.queries.values())
        self._check(queries)
        with fleet.news:
            if self._was_begun(request):  # asked again: that took its time
                return
            fleet.book = fleet.book.with_profile(request)
            self._cut.clear()
            self._started = []
            self._thread = threading.Thread(target=self._carry_out, args=(request,), name="spark-profile", daemon=True)
            self._thread.start()

    def _was_begun(self, request: ProfileRequest) -> bool:
        """TemporaryError where it was not and cannot be now."""
        book, on = self._fleet.book, self._fleet.book.profile_on
        if (on is not None and on.request_id == request.request_id) or request.request_id in book.profile_outcomes:
            return True
        if self._closed:
            raise PermanentError("the job has ended, so no copy of it can be measured")
        if on is not None:
            raise TemporaryError("another profile is on", retry_after_s=10.0)
        if self._is_moving:
            raise TemporaryError("the job is being changed, or its driver replaced", retry_after_s=10.0)
        return False

    @property
    def _is_moving(self) -> bool:
        """Whether the job is about to need room of its own."""
        return self._fleet.book.change is not None or self._fleet.status is not JobStatus.RUNNING

    def cut_short(self, why: str) -> bool:
        """Have the copies ended, without waiting for it; whether there are any."""
        if self.is_on and not self._cut.is_set():
            self._why = why
            self._cut.set()
        return self.is_on

    def end(self, why: str) -> None:
        """End the copies and wait until they are gone."""
        self.cut_short(why)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=_ENDED_WITHIN_S)
            if thread.is_alive():
                _LOG.warning("It cannot be confirmed yet that all copies are gone")

    def close(self, why: str) -> None:
        """End the copies for good: no profile is begun any more."""
        with self._fleet.news:
            self._closed = True
        self.end(why)

    def look(self) -> None:
        """End again what is left of copies whose end could not be confirmed; returns at once."""
        with self._fleet.news:
            left = [one for one in self._fleet.applications.values() if one.copy is not None]
            if not left or self.is_on or (self._sweeping is not None and self._sweeping.is_alive()):
                return
            self._sweeping = threading.Thread(target=self._sweep, args=(left,), name="spark-sweep", daemon=True)
            self._sweeping.start()

    def _sweep(self, left: Sequence[Application]) -> None:
        for application in left:
            if self._fleet.end(application):
                _LOG.info("The copy %s is gone now", application.key)

    def _check(self, queries: Sequence[QueryFacts]) -> None:
        """PermanentError where no copy of this job can be made, whatever its configuration."""
        fleet = self._fleet
        if not fleet.program.handover:
            raise PermanentError(
                "copies cannot be measured, because the program may not run beside itself; set handover = true in the "
                "job file if it may"
            )
        blind = fleet.cluster.blind_spot()
        if blind is not None:
            raise PermanentError(f"it cannot be told whether copies find room beside the job: {blind}")
        for facts in queries:
            if facts.why_alone is not None:
                raise PermanentError(f"copies cannot be measured: {facts.why_alone}")
            if facts.checkpoint is None or not facts.movable:
                raise PermanentError(
                    f"copies cannot be measured: the query {facts.key} has no checkpoint location, or a trigger that "
                    "is not a processing time"
                )
            if local_path(facts.checkpoint) is None:
                raise PermanentError(
                    f"copies cannot be measured: the checkpoint {facts.checkpoint} is not on a local disk, so it "
                    "cannot be cloned"
                )

    # The profile

    def _carry_out(self, request: ProfileRequest) -> None:
        fleet = self._fleet
        # Whoever asked counts on the outcome by the deadline, and the copies need time to leave.
        leaves_s = min(_LEAVES_WITHIN_S, _LEAVES_SHARE * (request.deadline_s - request.requested_at_s))
        request = replace(request, deadline_s=request.deadline_s - leaves_s)
        copies = [
            MeasuredCopy(fleet, request, candidate, cut=self._cut, why=lambda: self._why)
            for candidate in request.candidates
        ]
        waiting = list(copies)
        try:
            self._run(waiting, request)
        except Exception as error:  # noqa: BLE001 -- whatever it was, the copies that run go on and the profile ends
            _LOG.exception("A profile failed for a reason nobody thought of")
            for copy in waiting:
                copy.refuse(f"{type(error).__name__}: {error}")
        finally:
            for copy in copies:
                copy.join()
            outcome = ProfileOutcome(
                request_id=request.request_id,
                finished_at_s=fleet.clock.now_s(),
                measurements=tuple(copy.measurement() for copy in copies),
            )
            with fleet.news:
                fleet.book = fleet.book.with_profile_outcome(outcome)
                fleet.news.notify_all()

    def _run(self, waiting: list[MeasuredCopy], request: ProfileRequest) -> None:
        """Start one after the other, each when the one before is up and there is room, until all are done."""
        fleet = self._fleet
        asked_s = -_ASK_S
        while True:
            if self._cut.wait(timeout=_POLL_S):
                for copy in waiting:
                    copy.refuse(self._why)
                return
            running = [copy for copy in self._started if copy.is_running]
            if not waiting and not running:
                return
            if not waiting or any(not copy.is_up for copy in running):
                continue
            least_s = request.settle_s + measures_for_s(request, waiting[0].candidate)
            if fleet.clock.now_s() + least_s > request.deadline_s:
                waiting.pop(0).refuse("the time of the profile was over before the copy could be measured")
            elif not self._is_moving and (not running or fleet.clock.now_s() - asked_s >= _ASK_S):
                asked_s = fleet.clock.now_s()
                self._try_first(waiting, is_alone=not running)

    def _try_first(self, waiting: list[MeasuredCopy], *, is_alone: bool) -> None:
        """Start it, or refuse it where no room can be expected, or let it wait on."""
        fleet = self._fleet
        try:
            has_room = fleet.has_room_for_copy(waiting[0].candidate)
        except PermanentError as error:
            waiting.pop(0).refuse(f"the copy could not be run: {error}")
            return
        with fleet.news:
            if self._is_moving:
                return  # the room that a change or a recovery leaves for a moment is the job's
            if has_room:
                copy = waiting.pop(0)
                self._started.append(copy)
                copy.start()
            elif is_alone:
                waiting.pop(0).refuse("the cluster has no room for it beside the job")


def nothing_measured(request: ProfileRequest, finished_at_s: float, why: str) -> ProfileOutcome:
    """The end of a profile of which nothing is known."""
    return ProfileOutcome(
        request_id=request.request_id,
        finished_at_s=finished_at_s,
        measurements=tuple(nothing(candidate, why) for candidate in request.candidates),
    )
