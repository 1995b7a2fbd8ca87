"""A job on Spark: the port's view of its applications."""

from __future__ import annotations

import contextlib
import logging
import resource
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidewise.core import (
    ChangeCost,
    ChangeOutcome,
    ChangeRequest,
    ChangeStatus,
    Configuration,
    ImpossibleChangeError,
    JobStatus,
    Mechanism,
    Meter,
    Observation,
    PermanentError,
    ProfileOutcome,
    ProfileRequest,
    Purpose,
    TemporaryError,
    Usage,
)
from tidewise.engines.spark.application import Application, QueryFacts
from tidewise.engines.spark.audit import Audit, audit
from tidewise.engines.spark.copies import Copies
from tidewise.engines.spark.faults import Faults
from tidewise.engines.spark.fleet import Fleet
from tidewise.engines.spark.moves import check, executors_needed, move
from tidewise.engines.spark.reports import ExecutorSample, ReportDetail
from tidewise.engines.spark.supervision import Recovery, Supervisor
from tidewise_agent.lease import local_path

_LOG = logging.getLogger(__name__)

_TICK_S = 0.5
_SAMPLE_EVERY_S = 5.0
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What the audit of one checkpoint found after a change or a failure."""

    at_s: float
    after: str
    """What it was made after, in words."""
    checkpoint: str
    result: Audit


class SparkJob:
    """Implements `core.RunningJob`. Made by `SparkEngine`, which has started or found its application."""

    def __init__(self, fleet: Fleet, *, changes: tuple[ChangeCost, ...], supervised: bool, seed: int) -> None:
        self._fleet = fleet
        self._changes = changes
        self._busy = threading.Lock()
        self._copies = Copies(fleet)
        self._supervisor = Supervisor(fleet, busy=self._busy, make_room=self._copies.cut_short)
        self._faults = Faults(fleet, seed=seed, supervised=supervised)
        self._meter: dict[Purpose, Usage] = {}
        self._metered_s = fleet.clock.now_s()
        self._controller_cpu_s = time.process_time()
        self._sampled_s = 0.0
        self._cpu_before: dict[tuple[str, str], tuple[float, float]] = {}
        self._audits: list[Audited] = []
        self._audited_recoveries = 0
        self._stopped = False
        self._ticking = threading.Thread(target=self._tick, name="spark-tick", daemon=True)

    def begin(self) -> None:
        """Watch over the job from now on."""
        self._ticking.start()

    # The port

    def observed(self) -> Configuration:
        return self._fleet.observed()

    def reports(self) -> Sequence[Observation]:
        with self._fleet.news:
            if self._stopped:
                return []
            return self._fleet.reporter.observations(self._fleet.clock.now_s())

    def change(self, request: ChangeRequest) -> None:
        with self._fleet.news:
            if request.request_id == self._fleet.book.change or request.request_id in self._fleet.book.outcomes:
                return
        if request.mechanism not in {cost.mechanism for cost in self._changes}:
            offered = ", ".join(cost.mechanism for cost in self._changes)
            raise ImpossibleChangeError(f"the engine does not offer {request.mechanism}; it offers {offered}")
        if self._stopped or self._supervisor.stopping or self.ended is not None:
            raise PermanentError("the job has ended, so it cannot be changed")
        if not self._busy.acquire(blocking=False):
            raise TemporaryError("another change is on, or the driver is being replaced", retry_after_s=2.0)
        try:
            needed = executors_needed(self._fleet, request)
            self._send_copies_away(request, has_room=not self._copies.is_on or self._fleet.fits(request.target, needed))
            check(self._fleet, request, state_mib=self._state_mib())
            with self._fleet.news:
                self._send_copies_away(request, has_room=True)  # a profile may have begun meanwhile
                self._fleet.book = self._fleet.book.having(change=request.request_id)
            threading.Thread(
                target=self._carry_out, args=(request,), name=f"spark-{request.mechanism}", daemon=True
            ).start()
        except BaseException:
            self._busy.release()
            raise

    def _send_copies_away(self, request: ChangeRequest, *, has_room: bool) -> None:
        """TemporaryError while copies are there that could take what the change needs; they are made to leave."""
        grows = executors_needed(self._fleet, request) > 0
        beside = request.mechanism is Mechanism.QUERY_RESTART or (
            request.mechanism is Mechanism.LIVE and not (grows and self._copies.is_coming_up)
        )
        if (not has_room or not beside) and self._copies.cut_short("a change of the job needed the room"):
            raise TemporaryError("the copies of the job are leaving to make room", retry_after_s=1.0)

    def change_outcome(self, request_id: str) -> ChangeOutcome | None:
        with self._fleet.news:
            return self._fleet.book.outcome(request_id)

    def profile(self, request: ProfileRequest) -> None:
        if self._stopped or self.ended is not None:
            raise PermanentError("the job has ended, so no copy of it can be measured")
        self._copies.begin(request)

    def profile_outcome(self, request_id: str) -> ProfileOutcome | None:
        with self._fleet.news:
            return self._fleet.book.profile_outcome(request_id)

    def inject(self, fault: str) -> None:
        self._faults.inject(fault)

    def meter(self) -> Meter:
        with self._fleet.news:
            self._charge()
            return dict(self._meter)

    def stop(self) -> None:
        """Let the batch that is on commit, then end every application."""
        with self._fleet.news:
            if self._stopped:
                return
            checkpoints = self._checkpoints()
        self._stop_watching("the job was stopped")
        self._end_gracefully()
        self._audit("the end", checkpoints)
        self.leave()

    def kill(self) -> None:
        """End every application at once; a batch that is on is replayed by whoever comes next."""
        self._stop_watching("the job was killed")
        for application in self._close_doors():
            self._fleet.end(application)
        self.leave()

    def leave(self) -> None:
        """Stop watching; the job goes on, and another controller may take it back."""
        self._stop_watching("the controller left the job")
        self._fleet.close()

    def _stop_watching(self, why: str) -> None:
        """The copies leave first: they are paid for until they are gone."""
        self._supervisor.stopping = True
        self._copies.close(why)
        with self._fleet.news:
            self._charge()
            self._stopped = True

    # Beyond the port

    def forget_spent(self) -> None:
        """Count from now on: what went before was preparation."""
        with self._fleet.news:
            self._charge()
            self._meter.clear()

    @property
    def home(self) -> Path:
        return self._fleet.home

    @property
    def fleet(self) -> Fleet:
        """The applications, for benchmarks and tests that look behind the port."""
        return self._fleet

    @property
    def ended(self) -> str | None:
        """Why there is nothing to control any more; None while there is."""
        if self._supervisor.given_up is not None:
            return self._supervisor.given_up
        return "the program has ended" if self._supervisor.ended else None

    @property
    def recoveries(self) -> Sequence[Recovery]:
        return tuple(self._supervisor.recoveries)

    @property
    def standby_is_warm(self) -> bool:
        return self._supervisor.standby_is_warm

    def detail(self) -> ReportDetail:
        with self._fleet.news:
            return self._fleet.reporter.detail()

    def problems(self) -> Sequence[str]:
        """What agents could not do, newest last."""
        with self._fleet.news:
            return tuple(self._fleet.active.problems)

    def audits(self) -> list[Audited]:
        """The audits since the last call."""
        with self._fleet.news:
            found, self._audits = self._audits, []
            return found

    def verify(self, after: str) -> list[Audited]:
        """Audit every checkpoint now."""
        return self._verify(after, self._fleet.checkpoints())

    def _checkpoints(self) -> dict[str, QueryFacts]:
        """Those that are known; none between a driver's death and the start of its successor."""
        try:
            return self._fleet.checkpoints()
        except TemporaryError:
            return {}

    def _verify(self, after: str, checkpoints: Mapping[str, QueryFacts]) -> list[Audited]:
        found = []
        for checkpoint, facts in checkpoints.items():
            local = local_path(checkpoint)
            if local is None:
                continue
            sink = local_path(facts.sink_path) if facts.sink_path is not None else None
            has_log = sink is not None and (sink / "_spark_metadata").is_dir()
            result = audit(local, sink=sink if has_log else None)
            found.append(Audited(at_s=self._fleet.clock.now_s(), after=after, checkpoint=checkpoint, result=result))
        return found

    # Changes

    def _carry_out(self, request: ChangeRequest) -> None:
        fleet = self._fleet
        detail, gap_s, status = "", 0.0, ChangeStatus.APPLIED
        try:
            moved = move(fleet, request)
            detail, gap_s = moved.detail, moved.gap_s
        except (TemporaryError, PermanentError) as error:
            status, detail = ChangeStatus.FAILED, str(error)
        except Exception as error:  # noqa: BLE001 -- whatever it was, the change has failed and has to end
            _LOG.exception("A change failed for a reason nobody thought of")
            status, detail = ChangeStatus.FAILED, f"{type(error).__name__}: {error}"
        configuration = request.target if status is ChangeStatus.APPLIED else self._observed_or(request.source)
        outcome = ChangeOutcome(
            request_id=request.request_id,
            status=status,
            finished_at_s=fleet.clock.now_s(),
            configuration=configuration,
            gap_s=gap_s,
            detail=detail,
        )
        try:
            with fleet.news:
                fleet.book = fleet.book.with_outcome(outcome)
        finally:
            self._busy.release()
        self._audit(f"the {request.mechanism} {request.request_id}")

    def _observed_or(self, otherwise: Configuration) -> Configuration:
        try:
            return self._fleet.observed()
        except TemporaryError:
            return otherwise  # no application is left: whoever watches starts one

    def _audit(self, after: str, checkpoints: Mapping[str, QueryFacts] | None = None) -> None:
        try:
            found = self.verify(after) if checkpoints is None else self._verify(after, checkpoints)
        except (TemporaryError, PermanentError) as error:
            _LOG.warning("The checkpoint could not be audited: %s", error)
            return
        with self._fleet.news:
            self._audits += found

    def _state_mib(self) -> float | None:
        with self._fleet.news:
            known = [query.state_mib for query in self._fleet.reporter.detail().queries if query.state_mib is not None]
        return sum(known) if known else None

    def _end_gracefully(self) -> None:
        fleet = self._fleet
        with contextlib.suppress(TemporaryError, PermanentError):
            active = fleet.active
            if active.is_driver_alive and fleet.switchboard.is_connected(active.key):
                fleet.ask(active, "drain", {"within_s": 20.0, "hold_s": 60.0}, within_s=40.0)
        for application in self._close_doors():
            if not fleet.retire(application):
                _LOG.warning("It cannot be confirmed that all of %s is gone", application.key)

    def _close_doors(self) -> list[Application]:
        """Nothing is launched any more, by a change or a recovery that is on; those that there are."""
        with self._fleet.news:
            self._fleet.closing = True
            return list(self._fleet.applications.values())

    # Watching

    def _tick(self) -> None:
        while not self._stopped:
            self._guarded(self._supervisor.look)
            self._guarded(self._copies.look)
            self._guarded(self._sample)
            self._guarded(self._keep_books)
            recoveries = self._supervisor.recoveries
            if len(recoveries) > self._audited_recoveries:
                self._audited_recoveries = len(recoveries)
                self._guarded(lambda: self._audit("a driver that died"))
            time.sleep(_TICK_S)

    def _keep_books(self) -> None:
        with self._fleet.news:
            self._charge()
            if self._fleet.status is not JobStatus.RUNNING and self._runs_again():
                self._fleet.set_status(JobStatus.RUNNING)

    def _runs_again(self) -> bool:
        """Whether queries that nobody moves commit batches: after a word of the agent, or a controller's restart."""
        fleet = self._fleet
        if self._busy.locked() or fleet.active_key not in fleet.applications:
            return False
        return fleet.active.is_driver_alive and bool(fleet.active.running)

    def _guarded(self, work: Callable[[], None]) -> None:
        """A watch must outlive whatever it stumbles over; it says so."""
        try:
            work()
        except (TemporaryError, PermanentError, OSError) as error:
            _LOG.warning("A round of watching was not completed: %s", error)
        except Exception:  # noqa: BLE001 -- a dead watch would be worse than any error it could meet
            _LOG.exception("A round of watching was not completed, for a reason nobody thought of")

    def _charge(self) -> None:
        """Bring the meter up to this moment."""
        now_s = self._fleet.clock.now_s()
        passed_s, self._metered_s = now_s - self._metered_s, now_s
        if self._stopped or passed_s <= 0.0:
            return
        for application in self._fleet.applications.values():
            if application.is_driver_alive:
                self._charge_application(application, passed_s)
        cpu_s = time.process_time()
        memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        used = Usage(core_s=cpu_s - self._controller_cpu_s, memory_mib_s=memory_mib * passed_s)
        self._controller_cpu_s = cpu_s
        self._add(Purpose.CONTROLLER, used)

    def _charge_application(self, application: Application, passed_s: float) -> None:
        configuration, program = application.configuration, self._fleet.program
        count = max(len(application.executor_ids), application.target)
        cores = configuration.cores_per_executor
        warms_up = application.key != self._fleet.active_key and (
            application.record is None or not application.record.is_up
        )
        if warms_up and self._fleet.cluster.cpu_limits is not None:
            cores = max(1.0, cores)  # what may be used meanwhile
        executors = Usage(
            core_s=count * cores * passed_s,
            memory_mib_s=count * configuration.memory_mib_per_executor * passed_s,
        )
        driver = Usage(core_s=program.driver_cores * passed_s, memory_mib_s=program.driver_memory_mib * passed_s)
        if application.key == self._fleet.active_key:
            self._add(Purpose.EXECUTORS, executors)
            self._add(Purpose.DRIVER, driver)
        elif application.copy is not None:
            self._add(Purpose.PROFILING, executors + driver)
        else:
            self._add(Purpose.DOUBLE_RUNNING, executors + driver)

    def _add(self, purpose: Purpose, usage: Usage) -> None:
        self._meter[purpose] = self._meter.get(purpose, Usage()) + usage

    def _sample(self) -> None:
        """How much of their CPU and memory the executors use."""
        fleet = self._fleet
        now_s = fleet.clock.now_s()
        if now_s - self._sampled_s < _SAMPLE_EVERY_S or fleet.status is not JobStatus.RUNNING:
            return
        self._sampled_s = now_s
        active = fleet.active
        with fleet.news:
            ids, details = active.executor_ids, fleet.details.get(active.key)
        if not ids:
            return
        entries = list(details["executors"]) if details is not None else []
        given_mib = active.configuration.memory_mib_per_executor
        used = [max(entry["peakResidentMemory"] or 0, entry["peakJvmMemory"] or 0) / _MIB for entry in entries]
        busy_ms = sum(entry["totalDuration"] or 0 for entry in entries)
        gc_ms = sum(entry["totalGCTime"] or 0 for entry in entries)
        sample = ExecutorSample(
            executors=len(ids),
            cpu_share=self._cpu_share(active, ids, now_s),
            memory_share=max(used) / given_mib if used and max(used) > 0 else None,
            gc_share=gc_ms / busy_ms if busy_ms > 0 else None,
        )
        with fleet.news:
            fleet.reporter.executors(sample, now_s)

    def _cpu_share(self, active: Application, ids: Sequence[str], now_s: float) -> float | None:
        """From the executors' control groups; None where there are none, or on the first look."""
        limits = self._fleet.cluster.cpu_limits
        if limits is None or active.spark_id is None:
            return None
        shares = []
        before, self._cpu_before = self._cpu_before, {}
        for name in ids:
            used_s = limits.cpu_s(active.spark_id, name)
            if used_s is None:
                continue
            self._cpu_before[active.spark_id, name] = (now_s, used_s)
            earlier = before.get((active.spark_id, name))
            if earlier is not None and now_s > earlier[0]:
                given_s = (now_s - earlier[0]) * active.configuration.cores_per_executor
                shares.append((used_s - earlier[1]) / given_s)
        return min(1.0, sum(shares) / len(shares)) if shares else None
