"""Controls one real job with one policy, tells whoever watches, and leaves a run folder like any other."""

from __future__ import annotations

import logging
import platform
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from pydantic import JsonValue

from tidewise import __version__
from tidewise.control import Durability, GuardSettings, Loop, LoopSettings, Runner, RunnerSettings, SqliteJournal
from tidewise.control.clock import SystemClock
from tidewise.core import (
    Audited,
    ChangeFinished,
    ChangeOutcome,
    Configuration,
    ConfigurationSpace,
    ControllerStarted,
    ControllerStopped,
    Decided,
    FaultInjected,
    Journal,
    JournalEvent,
    Meter,
    Observation,
    PermanentError,
    Policy,
    Prices,
    Promises,
    Reported,
    RunningJob,
    TemporaryError,
    total,
)
from tidewise.engines.spark.job import Audited as Found
from tidewise.engines.spark.supervision import Recovery
from tidewise.experiments.experiment import forecaster_of
from tidewise.experiments.ledger import Ledger
from tidewise.experiments.live_meter import LiveMeter
from tidewise.experiments.measured import measured_series
from tidewise.experiments.record import (
    JOURNAL_FILE,
    METER_FILE,
    AuditRecord,
    FaultRecord,
    Run,
    RunRecord,
    begin_run,
    finish_run,
    resume_run,
)

_LOG = logging.getLogger(__name__)

_TICK_S = 1.0
"""How often reports are fetched, the watcher is told, and faults and people are looked after."""
_FAULT_LATE_S = 30.0
"""A fault that cannot be injected now, for want of a victim, is tried again for so long."""
_AUDITS_SHOWN = 50


class LiveJob(RunningJob, Protocol):
    """A real job under control; what a run tells beyond the port."""

    @property
    def ended(self) -> str | None:
        """Why there is nothing to control any more; None while there is."""

    @property
    def recoveries(self) -> Sequence[Recovery]:
        """Drivers that died, and what came of it."""

    def problems(self) -> Sequence[str]:
        """What could not be done, newest last."""

    def audits(self) -> list[Found]:
        """The audits since the last call."""

    def kill(self) -> None:
        """End the job at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSetting:
    """What is to be done with a job."""

    folder: Path
    """The run's, which appears when the run has ended; its name is the run's."""
    load: str
    """What the load is called in reports."""
    label: str
    """What the policy is called in reports."""
    policy: Policy
    space: ConfigurationSpace
    start: Configuration
    promises: Promises
    prices: Prices
    created: str
    """An ISO date, with or without the time of day."""
    settings: LoopSettings = field(default_factory=LoopSettings)
    guard_settings: GuardSettings = field(default_factory=GuardSettings)
    duration_s: float | None = None
    """From the first moment of control; None: until the program ends or somebody stops it."""
    must_last: bool = False
    """Whether a run that is stopped earlier is incomplete; else whoever stops it says how long it was to last."""
    faults: tuple[FaultRecord, ...] = ()
    """What is broken on purpose and when, counted from the first moment of control."""
    seed: int = 1
    engine: str = "spark"
    versions: Mapping[str, str] = field(default_factory=dict)
    """Beside those of tidewise, python and numpy; a digest of the load as `load` lets runs be compared."""
    plan: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveView:
    """A run at one moment, for whoever watches."""

    now_s: float
    """Since control began."""
    duration_s: float | None
    observation: Observation | None
    """The last report; its times are on the clock of the run, `began_s` earlier than `now_s` counts."""
    began_s: float
    """When control began, on the clock of the run."""
    observed: Configuration | None
    """What really runs; None while that is not known."""
    intended: Configuration | None
    requested: Configuration | None
    """Where a change that is on leads."""
    decided: Decided | None
    """The last decision, with its reason and what the guards made of it."""
    last_change: ChangeOutcome | None
    changes: int
    """How many have ended."""
    meter: Meter
    cost: float
    """Everything so far, in the currency of the prices."""
    recoveries: tuple[Recovery, ...]
    """Drivers that died since this controller began."""
    faults: tuple[FaultRecord, ...]
    """What was broken on purpose."""
    audits: tuple[Audited, ...]
    """The latest."""
    problems: tuple[str, ...]
    paused_by: str | None
    ended: str | None
    """Why the run ends now; None while it goes on."""


Observer = Callable[[LiveView], None]


class LiveRun:
    """One run; `run` belongs to one thread, everything else may be called by any."""

    def __init__(
        self,
        job: LiveJob,
        setting: LiveSetting,
        *,
        clock: SystemClock,
        observer: Observer | None = None,
        problem: Callable[[], str | None] | None = None,
        resume: bool = False,
    ) -> None:
        """`problem` tells what besides the job ends the run early; `resume`: go on with what a dead controller left."""
        self._job = job
        self._setting = setting
        self._clock = clock
        self._observer = observer
        self._problem = problem
        self._work = resume_run(setting.folder) if resume else begin_run(setting.folder)
        self._journal = SqliteJournal(self._work / JOURNAL_FILE, durability=Durability.POWER)
        self._watched = _Watched(self._journal)
        self._loop = Loop(
            run=setting.folder.name,
            policy=setting.policy,
            space=setting.space,
            promises=setting.promises,
            prices=setting.prices,
            forecaster=forecaster_of(setting.policy),
            settings=setting.settings,
            guard_settings=setting.guard_settings,
        )
        self._runner = Runner(
            job=job,
            loop=self._loop,
            journal=self._watched,
            clock=clock,
            settings=RunnerSettings(poll_every_s=_TICK_S),
            wake=clock.wake,
        )
        self._orders: queue.SimpleQueue[tuple[str, Future[None]]] = queue.SimpleQueue()
        self._stop_reason: str | None = None
        self._stopping = threading.Event()
        self._view: LiveView | None = None
        self._meter: LiveMeter | None = None
        self._faults_due: list[FaultRecord] = []
        self._ended_s = 0.0
        """When the reason for the end was found: what it takes to stop the job is no part of the run."""

    # For any thread.

    def stop(self, reason: str) -> None:
        """End the run in order, soon; the first reason counts."""
        self._stop_reason = self._stop_reason or reason
        self._stopping.set()
        self._runner.stop()

    def pause(self, *, by: str) -> None:
        self._runner.pause(by=by)

    def resume(self, *, by: str) -> None:
        self._runner.resume(by=by)

    def inject(self, fault: str) -> Future[None]:
        """Break something on purpose, soon; the future tells when it is done, or why it could not be."""
        done: Future[None] = Future()
        self._orders.put((fault, done))
        return done

    @property
    def was_stopped(self) -> bool:
        """Whether somebody asked for its end."""
        return self._stopping.is_set()

    def look(self) -> LiveView | None:
        """The run at its last step; None before the first."""
        return self._view

    # For the thread of the run.

    def run(self) -> Run:
        """Control the job to its end, stop it and write the run folder.

        Ctrl-C (KeyboardInterrupt) once: as `stop`. Twice: the job is killed, the run folder is written as well, and the
        exception comes out. Any other error leaves the job as it is, and what was written for another controller.
        """
        try:
            interrupted: KeyboardInterrupt | None = None
            try:
                reason = self._control()
            except KeyboardInterrupt as error:
                # For who has asked for the end already, it is the second time.
                interrupted = error if self._stopping.is_set() else None
                reason = "it was stopped by Ctrl-C"
                self._ended_s = self._clock.now_s()
                self.stop(reason)
            return self._end(reason, interrupted)
        finally:
            self._journal.close()

    def _control(self) -> str:
        """Until there is nothing to control any more; why."""
        self._start()
        began_s = self._watched.began_s
        self._ended_s = self._clock.now_s()
        if began_s is None:
            return "nothing was ever controlled"
        self._meter = LiveMeter(self._work / METER_FILE, began_s=began_s)
        now_s = self._clock.now_s() - began_s
        self._faults_due = [fault for fault in self._setting.faults if fault.at_s >= now_s]
        while True:
            self._ended_s = self._clock.now_s()
            reason = self._why_end(self._ended_s - began_s)
            self._tell(began_s, reason)
            if reason is not None:
                return reason
            self._runner.run(self._next_stop_s(began_s))
            self._take_audits()
            self._break_things(began_s)

    def _start(self) -> None:
        while not self._stopping.is_set():
            try:
                self._runner.start()
            except TemporaryError as error:
                _LOG.warning("The job cannot be controlled yet: %s", error)
                self._clock.wait_until(self._clock.now_s() + _TICK_S)
            else:
                return

    def _why_end(self, lasted_s: float) -> str | None:
        if self._stopping.is_set():
            return self._stop_reason or "it was stopped"
        duration_s = self._setting.duration_s
        if duration_s is not None and lasted_s >= duration_s:
            return "the time is over"
        return self._job.ended or (None if self._problem is None else self._problem())

    def _next_stop_s(self, began_s: float) -> float:
        times = [self._clock.now_s() + _TICK_S]
        if self._setting.duration_s is not None:
            times.append(began_s + self._setting.duration_s)
        if self._faults_due:
            times.append(max(self._clock.now_s() + _TICK_S / 4, began_s + self._faults_due[0].at_s))
        return min(times)

    def _take_audits(self) -> None:
        for found in self._job.audits():
            self._runner.record(_audited(found))

    def _break_things(self, began_s: float) -> None:
        now_s = self._clock.now_s() - began_s
        while self._faults_due and self._faults_due[0].at_s <= now_s:
            fault = self._faults_due[0]
            try:
                self._break(fault.kind, at_s=began_s + fault.at_s)
            except TemporaryError as error:
                if now_s - fault.at_s < _FAULT_LATE_S:
                    break
                _LOG.warning("The fault %s of %.0f s is left out: %s", fault.kind, fault.at_s, error)
            self._faults_due.pop(0)
        while True:
            try:
                kind, done = self._orders.get_nowait()
            except queue.Empty:
                return
            try:
                self._break(kind, at_s=self._clock.now_s())
            except (TemporaryError, PermanentError) as error:
                done.set_exception(error)
            else:
                done.set_result(None)

    def _break(self, kind: str, *, at_s: float) -> None:
        event = FaultInjected(at_s=at_s, fault=kind)
        if kind == "kill-controller":
            self._runner.record(event)  # afterwards nobody would be left to write it down
            self._job.inject(kind)
        else:
            self._job.inject(kind)
            self._runner.record(event)

    def _tell(self, began_s: float, ended: str | None) -> None:
        state, now_s = self._loop.state, self._clock.now_s()
        meter = self._job.meter() if self._meter is None else self._meter.read(self._job, now_s=now_s)
        spent = total(meter)
        try:
            observed: Configuration | None = self._job.observed()
            problems = tuple(self._job.problems())
        except TemporaryError:
            observed, problems = None, ()
        self._view = LiveView(
            now_s=now_s - began_s,
            duration_s=self._setting.duration_s,
            observation=state.latest,
            began_s=began_s,
            observed=observed,
            intended=state.intended,
            requested=state.requested,
            decided=self._watched.decided,
            last_change=self._watched.last_change,
            changes=self._watched.changes,
            meter=meter,
            cost=self._setting.prices.cost(core_s=spent.core_s, memory_mib_s=spent.memory_mib_s),
            recoveries=tuple(self._job.recoveries),
            faults=tuple(_fault(event, began_s) for event in self._watched.faults),
            audits=tuple(self._watched.audits),
            problems=problems,
            paused_by=state.paused_by,
            ended=ended,
        )
        if self._observer is not None:
            self._observer(self._view)

    # The end.

    def _end(self, reason: str, interrupted: KeyboardInterrupt | None) -> Run:
        # Not by the runner: Ctrl-C may have come in the middle of one of its steps, and then it takes nothing more.
        try:
            if interrupted is None:
                self._job.stop()
        except KeyboardInterrupt as error:
            interrupted = error
        if interrupted is not None:
            reason = f"{reason}, at once"
            self._job.kill()
        for found in self._job.audits():
            self._watched.append((_audited(found),))
        self._watched.append((ControllerStopped(at_s=self._clock.now_s(), reason=reason),))
        run = self._write(reason)
        if interrupted is not None:
            raise interrupted
        return run

    def _write(self, reason: str) -> Run:
        setting, ledger = self._setting, Ledger(self._journal)
        began_s = None
        observations: list[Observation] = []
        faults, audits = [], []
        for event in self._journal.read():
            ledger.note(event)
            if isinstance(event, ControllerStarted) and began_s is None:
                began_s = event.at_s
            elif isinstance(event, Reported) and (
                not observations or event.observation.time_s > observations[-1].time_s
            ):
                observations.append(event.observation)
            elif isinstance(event, FaultInjected):
                faults.append(event)
            elif isinstance(event, Audited):
                audits.append(event)
        if began_s is None or not observations:
            raise PermanentError(
                f"there is nothing to report of this run, for the job never reported: {reason} (see {self._work})"
            )
        ledger.settle(self._job.change_outcome)
        lasted_s = self._ended_s - began_s
        # A person who stops a run says thereby how long it was to last, unless others are to be held against it.
        by_choice = self._stopping.is_set() and not setting.must_last
        complete = setting.duration_s is None or by_choice or lasted_s >= setting.duration_s
        asked_s = None if by_choice else setting.duration_s
        seconds = max(1, int(lasted_s if asked_s is None else min(asked_s, lasted_s)))
        duration_s = float(seconds) if asked_s is None else asked_s
        meter = self._job.meter() if self._meter is None else self._meter.read(self._job, now_s=self._clock.now_s())
        record = RunRecord(
            name=setting.folder.name,
            engine=setting.engine,
            profile=None,
            load=setting.load,
            policy=setting.label,
            seed=setting.seed,
            duration_s=duration_s,
            start=setting.start,
            promises=setting.promises,
            prices=setting.prices,
            faults=tuple(one for one in (_fault(event, began_s) for event in faults) if one.at_s < duration_s),
            changes=ledger.changes(since_s=began_s),
            audits=tuple(
                AuditRecord(
                    at_s=max(0.0, event.at_s - began_s), after=event.after, clean=event.clean, sentence=event.sentence
                )
                for event in audits
            ),
            meter=meter,
            versions={
                "tidewise": __version__,
                "python": platform.python_version(),
                "numpy": np.__version__,
                **setting.versions,
            },
            plan=setting.plan,
            complete=complete,
            failed_decisions=ledger.failed_decisions,
            created=setting.created,
        )
        forecast_per_s = ledger.forecast_per_s(seconds, since_s=began_s)
        series = measured_series(observations, seconds=seconds, since_s=began_s, forecast_per_s=forecast_per_s)
        self._journal.close()
        for name in (f"{JOURNAL_FILE}.lock", METER_FILE):
            (self._work / name).unlink(missing_ok=True)
        return finish_run(self._work, record, series)


def _audited(found: Found) -> Audited:
    return Audited(
        at_s=found.at_s,
        after=found.after,
        checkpoint=found.checkpoint,
        clean=found.result.clean,
        sentence=" ".join(found.result.sentences()),
    )


def _fault(event: FaultInjected, began_s: float) -> FaultRecord:
    # To the millisecond: a schedule is the same schedule whenever the run began.
    return FaultRecord(at_s=max(0.0, round(event.at_s - began_s, 3)), kind=event.fault)


class _Watched:
    """A journal that also remembers what a watcher is shown, however long the run is."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.began_s: float | None = None
        self.decided: Decided | None = None
        self.last_change: ChangeOutcome | None = None
        self.changes = 0
        self.faults: list[FaultInjected] = []
        self.audits: list[Audited] = []

    def append(self, events: Iterable[JournalEvent]) -> None:
        written = tuple(events)
        self.journal.append(written)
        for event in written:
            self._note(event)

    def read(self) -> Iterable[JournalEvent]:
        for event in self.journal.read():
            self._note(event)
            yield event

    def close(self) -> None:
        self.journal.close()

    def _note(self, event: JournalEvent) -> None:
        if isinstance(event, ControllerStarted) and self.began_s is None:
            self.began_s = event.at_s
        elif isinstance(event, Decided):
            self.decided = event
        elif isinstance(event, ChangeFinished):
            self.last_change, self.changes = event.outcome, self.changes + 1
        elif isinstance(event, FaultInjected):
            self.faults.append(event)
        elif isinstance(event, Audited):
            self.audits = [*self.audits, event][-_AUDITS_SHOWN:]
