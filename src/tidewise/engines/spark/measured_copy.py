"""One copy of the job: comes up, settles, is measured, is broken on purpose if that was asked for, and ends."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from tidewise.core import (
    Censored,
    Configuration,
    Measured,
    Observation,
    PermanentError,
    ProfileMeasurement,
    ProfileRequest,
    TemporaryError,
)
from tidewise.engines.spark.application import Application
from tidewise.engines.spark.copy_record import CopyRecord
from tidewise.engines.spark.fleet import Fleet
from tidewise.engines.spark.moves import has_run

_LOG = logging.getLogger(__name__)

_POLL_S = 0.1
_LOOK_S = 0.5
"""How often new executors of a copy are looked for, to hold them back."""
_TOLD_WITHIN_S = 1.0
"""A batch is told of within this time of its commit."""
_SPARE_S = 2.0
"""What is left over when a copy that does not catch up has to be measured at last."""
_SHORTEST_S = 0.2
"""Nothing is measured for less."""
_WEIGHT = 10
"""What the executors of a copy weigh against 100 of the job's where CPU is short."""
_BEFORE_COMMIT = 0.1
"""How long before its commit a batch is broken, in durations of a batch."""
_ENDS_AFTER_S = 120.0
"""A copy that nobody has ended leaves by itself this long after the deadline of its profile."""


class CopyFailedError(Exception):
    """A copy was not measured; the sentence says why. That is a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    report: Observation
    recovery_s: Measured | None = None
    detail: str = ""


class MeasuredCopy:
    """One candidate: linear, in a thread of its own."""

    def __init__(
        self,
        fleet: Fleet,
        request: ProfileRequest,
        candidate: Configuration,
        *,
        cut: threading.Event,
        why: Callable[[], str],
    ) -> None:
        """`cut`: set by whoever wants it gone; `why` says why then."""
        self._fleet = fleet
        self._request = request
        self.candidate = candidate
        self._cut = cut
        self._why = why
        self._measure_s = measures_for_s(request, candidate)
        self._record = CopyRecord(
            candidate,
            latency=fleet.reporter.latency,
            measure_s=self._measure_s,
            launched_s=fleet.clock.now_s(),
        )
        self._thread: threading.Thread | None = None
        self._launched: list[Application] = []
        self._shown: _Shown | None = None
        self._detail = ""
        self._held_back: set[str] = set()
        self._looked_s = -_LOOK_S

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_up(self) -> bool:
        return self._record.is_up

    def refuse(self, why: str) -> None:
        """It is not even started."""
        self._detail = why

    def start(self) -> None:
        self._thread = threading.Thread(target=self._go, name="spark-copy", daemon=True)
        self._thread.start()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def measurement(self) -> ProfileMeasurement:
        """What it showed, or why it showed nothing."""
        if self._shown is None:
            return nothing(self.candidate, self._detail or "it was not measured")
        report = self._shown.report
        return ProfileMeasurement(
            configuration=self.candidate,
            input_rate_per_s=report.input_rate_per_s,
            processed_rate_per_s=report.processed_rate_per_s,
            latency_p50_s=report.latency_p50_s,
            latency_p95_s=report.latency_p95_s,
            busy_share=report.busy_share,
            recovery_s=self._shown.recovery_s,
            detail=self._shown.detail or self._detail,
        )

    def _go(self) -> None:
        try:
            self._live()
        except CopyFailedError as error:
            self._detail = str(error)
        except (TemporaryError, PermanentError, OSError) as error:
            self._detail = f"the copy could not be run: {error}"
        except Exception as error:  # noqa: BLE001 -- whatever it was, the other copies go on and the profile ends
            _LOG.exception("A copy failed for a reason nobody thought of")
            self._detail = f"{type(error).__name__}: {error}"

    def _live(self) -> None:
        fleet, request = self._fleet, self._request
        ours = fleet.active.configuration.state_partitions
        if ours is not None and self.candidate.state_partitions != ours:
            raise CopyFailedError(
                f"a copy works on a clone of the job's state, which is cut into {ours} partitions, not "
                f"{self.candidate.state_partitions}"
            )
        try:
            application = self._launch(None)
            self._come_up(application)
            self._catch_up(application)
            from_s = fleet.clock.now_s() + request.settle_s
            self._pass(application, until_s=from_s + self._measure_s + _TOLD_WITHIN_S)
            with fleet.news:
                measured = self._record.measured(from_s)
            self._shown = _Shown(report=measured.observation, detail=measured.detail)
            if request.inject_failure:
                self._break(application, self._shown, from_s)
        finally:
            # Also one that was ended before: its scratch checkpoint was kept for the next, which therefore goes first.
            for application in reversed(self._launched):
                if not fleet.end(application):
                    _LOG.warning("It cannot be confirmed that all of the copy %s is gone", application.key)
                    break

    def _launch(self, scratch: str | None) -> Application:
        fleet = self._fleet
        left_s = self._request.deadline_s - fleet.clock.now_s()
        application = fleet.launch_copy(
            self.candidate,
            record=self._record,
            ends_unix_s=fleet.unix_s(fleet.clock.now_s() + max(0.0, left_s) + _ENDS_AFTER_S),
            scratch=scratch,
        )
        self._launched.append(application)
        return application

    def _come_up(self, application: Application) -> None:
        """Wait until it has its executors and has worked; from then on they have no more CPU than their share."""
        fleet = self._fleet
        wanted = self.candidate.executors
        within_s = fleet.program.launch_deadline_s
        until_s = min(fleet.clock.now_s() + within_s, self._request.deadline_s)

        def is_up() -> bool:
            with fleet.news:
                return len(application.executor_ids) >= wanted and has_run(application)

        if not self._wait(application, is_up, until_s=until_s):
            told = application.problems[-1] if application.problems else f"log: {application.log}"
            raise CopyFailedError(
                f"the copy had not come up when its time was over: {len(application.executor_ids)} of {wanted} "
                f"executors ({told})"
            )
        with fleet.news:
            ours, theirs = (
                {key for key, facts in one.queries.items() if facts.movable} for one in (fleet.active, application)
            )
        if ours != theirs:
            raise CopyFailedError(f"started a second time, the program has other queries: {sorted(ours ^ theirs)}")
        self._limit(application)
        with fleet.news:
            self._record.is_up = True

    def _catch_up(self, application: Application) -> None:
        """Let it work off what came while it was started, as long as there is time to measure it afterwards."""
        request = self._request
        needed_s = request.settle_s + self._measure_s + _TOLD_WITHIN_S + _SPARE_S
        if request.inject_failure:
            needed_s += self.candidate.commit_interval_s + request.recovery_limit_s

        def has_caught_up() -> bool:
            with self._fleet.news:
                return self._record.has_caught_up()

        self._wait(application, has_caught_up, until_s=request.deadline_s - needed_s)

    def _limit(self, application: Application) -> None:
        """The boost that lets JVMs start would be measured with the rest."""
        limits, spark_id = self._fleet.cluster.cpu_limits, application.spark_id
        if limits is None or spark_id is None:
            return
        for name in application.executor_ids:
            try:
                limits.set_cores(spark_id, name, self.candidate.cores_per_executor)
            except TemporaryError as error:
                _LOG.warning("An executor of a copy has no limit: %s", error)

    # Failures

    def _break(self, application: Application, shown: _Shown, from_s: float) -> None:
        """Break it just before its next commit and watch how it gets over that."""
        fleet, request = self._fleet, self._request
        self._wait_for_the_worst_moment(application)
        broken_s = fleet.clock.now_s()
        kill = self._kill_executor_of(application)

        def recovery() -> Measured:
            now_s = fleet.clock.now_s()
            with fleet.news:
                down_until_s = broken_s if kill is not None else self._works_since_s(broken_s, now_s)
                return self._record.recovery(
                    from_s=from_s,
                    broken_s=broken_s,
                    down_until_s=down_until_s,
                    now_s=now_s,
                    limit_s=request.recovery_limit_s,
                )

        try:
            if kill is None:
                application.process.signal(signal.SIGKILL)
                application = self._succeed(application)
            else:
                kill()
            until_s = min(broken_s + request.recovery_limit_s, request.deadline_s)
            self._wait(application, lambda: not isinstance(recovery(), Censored), until_s=until_s, poll_s=_LOOK_S)
            self._shown = replace(shown, recovery_s=recovery())
        except (CopyFailedError, TemporaryError, PermanentError, OSError) as error:
            found = recovery()
            at_least = found if isinstance(found, Censored) else Censored(at_least=found)
            self._shown = replace(shown, recovery_s=at_least, detail=str(error))

    def _works_since_s(self, broken_s: float, now_s: float) -> float:
        """When a driver that was killed had been replaced and every query had committed again; `now_s`: not yet."""
        works_s = self._record.works_since_s(broken_s)
        self._record.is_up = works_s is not None
        return now_s if works_s is None else works_s

    def _wait_for_the_worst_moment(self, application: Application) -> None:
        """Just before the next commit, where all that the batch has done is lost."""
        fleet = self._fleet
        with fleet.news:
            last = self._record.last_commit()
        if last is None:
            return
        cycle_s = max(self.candidate.commit_interval_s, last.duration_s)
        due_s = last.began_s + cycle_s + (1.0 - _BEFORE_COMMIT) * last.duration_s
        while due_s < fleet.clock.now_s():
            due_s += max(cycle_s, _POLL_S)
        self._pass(application, until_s=min(due_s, self._request.deadline_s))

    def _kill_executor_of(self, application: Application) -> Callable[[], object] | None:
        """The worst single failure is the driver's (None), unless the job keeps a standby for that: an executor's."""
        if not self._fleet.program.standby:
            return None
        for executor in self._fleet.cluster.executor_processes(application.spark_id or ""):
            if executor.identity is not None:
                return partial(executor.identity.signal, signal.SIGKILL)
        return None

    def _succeed(self, dead: Application) -> Application:
        """Start the driver again on the same scratch checkpoint, once nothing of the dead one lives."""
        with self._fleet.news:
            self._record.is_up = False  # its room is kept for it
        while not self._fleet.end(dead, keeps_scratch=True):
            if self._cut.is_set() or self._fleet.clock.now_s() >= self._request.deadline_s:
                raise CopyFailedError("it could not be confirmed that the driver that was killed is gone")
        return self._launch(dead.copy)

    # Waiting

    def _pass(self, application: Application, *, until_s: float) -> None:
        """Let time pass; CopyFailedError where the time of the profile is over first."""
        self._wait(application, lambda: False, until_s=min(until_s, self._request.deadline_s))
        if until_s > self._request.deadline_s:
            raise CopyFailedError("the time of the profile was over before the copy could be measured")

    def _wait(
        self, application: Application, condition: Callable[[], bool], *, until_s: float, poll_s: float = _POLL_S
    ) -> bool:
        """Whether it came true in time; CopyFailedError where the copy dies, or somebody wants it gone."""
        clock = self._fleet.clock
        while not condition():
            if not application.is_driver_alive:
                raise CopyFailedError(f"the copy died: {application.why_it_ended()}")
            if application.query_failure is not None:
                raise CopyFailedError(f"the copy died: {application.query_failure}")
            self._hold_back(application)
            left_s = until_s - clock.now_s()
            if left_s <= 0.0:
                return False
            if self._cut.wait(timeout=min(poll_s, left_s)):
                raise CopyFailedError(self._why())
        return True

    def _hold_back(self, application: Application) -> None:
        """Executors that are new weigh little: where CPU is short, the job's come first."""
        limits, spark_id, now_s = self._fleet.cluster.cpu_limits, application.spark_id, self._fleet.clock.now_s()
        if limits is None or spark_id is None or now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        for executor in self._fleet.cluster.executor_processes(spark_id):
            name = executor.executor_id
            if (key := f"{spark_id}.{name}") not in self._held_back and limits.set_weight(spark_id, name, _WEIGHT):
                self._held_back.add(key)


def measures_for_s(request: ProfileRequest, candidate: Configuration) -> float:
    """How long a copy is measured: long enough for a batch to be committed meanwhile."""
    return max(_SHORTEST_S, request.measure_s, 2 * candidate.commit_interval_s)


def nothing(candidate: Configuration, detail: str) -> ProfileMeasurement:
    """The result of a copy that showed nothing."""
    return ProfileMeasurement(
        configuration=candidate,
        input_rate_per_s=0.0,
        processed_rate_per_s=0.0,
        latency_p50_s=None,
        latency_p95_s=None,
        busy_share=None,
        detail=detail,
    )
