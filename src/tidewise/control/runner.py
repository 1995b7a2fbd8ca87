"""The I/O around the loop: reads the job, writes the journal, then acts; nothing is acted upon that is not written."""

from __future__ import annotations

import logging
import math
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from tidewise import __version__
from tidewise.control.commands import ApplyChange, Command, Input, StartProfile
from tidewise.control.consult import plain_text
from tidewise.control.loop import Loop
from tidewise.core import (
    Audited,
    ChangeFinished,
    ChangeOutcome,
    ChangeStatus,
    Clock,
    Configuration,
    ControllerStarted,
    ControllerStopped,
    FaultInjected,
    Journal,
    JournalEvent,
    Overridden,
    OverrideLifted,
    Paused,
    PermanentError,
    ProfileFinished,
    ProfileMeasurement,
    ProfileOutcome,
    ProfileRequest,
    Reported,
    Resumed,
    RunningJob,
    TemporaryError,
    Ticked,
    format_duration,
)
from tidewise.core.checks import require_finite

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSettings:
    """How often the runner asks, and how patiently it asks again."""

    poll_every_s: float = 10.0
    """How often reports and outcomes are fetched, besides the times at which the loop has something to do."""
    retry_first_s: float = 1.0
    """The wait after the first TemporaryError of a command; doubles with every further one."""
    retry_most_s: float = 60.0
    """Where the doubling ends."""
    behind_most_s: float = 60.0
    """How far the clock may be behind the journal at the start; it is waited for. Wall clocks are set now and then."""

    def __post_init__(self) -> None:
        require_finite("poll_every_s", self.poll_every_s, above=0.0)
        require_finite("retry_first_s", self.retry_first_s, above=0.0)
        require_finite("retry_most_s", self.retry_most_s, least=self.retry_first_s)
        require_finite("behind_most_s", self.behind_most_s, least=0.0)


@dataclass(slots=True, kw_only=True)
class _Pending:
    """A command that is written down and that the engine has not taken yet."""

    command: Command
    not_before_s: float
    refusals: int = 0


class Runner:
    """Runs one loop on one job.

    `start`, `step`, `run`, `record` and `finish` belong to one thread; `pause`, `resume`, `override`, `lift` and
    `stop` may be called by any. When the journal cannot be written, the error comes out and the runner refuses to go
    on: its memory is ahead of the journal then, and only a new runner on the same journal knows the truth.
    """

    def __init__(
        self,
        *,
        job: RunningJob,
        loop: Loop,
        journal: Journal,
        clock: Clock,
        settings: RunnerSettings | None = None,
        progress: Callable[[float], None] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """`progress` is told the time after every step; `wake` ends a wait of the clock early, if it can."""
        self._job = job
        self._loop = loop
        self._journal = journal
        self._clock = clock
        self._settings = settings or RunnerSettings()
        self._progress = progress
        self._wake = wake
        self._inbox: queue.SimpleQueue[Callable[[float], Input]] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._pending: dict[str, _Pending] = {}
        self._started = False
        self._finished = False
        self._broken = False
        self._next_poll_s = -math.inf
        self._last_step_s = -math.inf

    # For any thread.

    def pause(self, *, by: str) -> None:
        """Leave the job alone from the next step on; overrides and rollbacks still act."""
        self._post(lambda at_s: Paused(at_s=at_s, by=by))

    def resume(self, *, by: str) -> None:
        self._post(lambda at_s: Resumed(at_s=at_s, by=by))

    def override(self, target: Configuration, *, by: str) -> None:
        """Bring the job to this configuration and keep it there until `lift`."""
        self._post(lambda at_s: Overridden(at_s=at_s, by=by, target=target))

    def lift(self, *, by: str) -> None:
        self._post(lambda at_s: OverrideLifted(at_s=at_s, by=by))

    def stop(self) -> None:
        """Let `run` return after the step that is on."""
        self._stopping.set()
        if self._wake is not None:
            self._wake()

    def _post(self, message: Callable[[float], Input]) -> None:
        self._inbox.put(message)
        if self._wake is not None:
            self._wake()

    # For the thread of the run.

    def start(self) -> None:
        """Replay the journal, then issue again what was requested and has not ended; a second call does nothing.

        The loop has to be fresh. An error of the job leaves everything untouched: call it again.
        """
        if self._started:
            return
        self._go_on()
        observed = self._job.observed()
        self._replay()
        self._started = True
        name, now_s = self._loop.policy.name, self._clock.now_s()
        self._dispatch(ControllerStarted(at_s=now_s, version=__version__, policy=name, configuration=observed))
        for command in self._loop.unfinished():
            self._pending[command.request.request_id] = _Pending(command=command, not_before_s=now_s)
        self._carry_out()

    def _replay(self) -> None:
        self._broken = True  # Until the whole journal is in: half a memory must not go on.
        last_s = self._clock.now_s()
        for event in self._journal.read():
            self._loop.replay((event,))
            last_s = max(last_s, event.at_s)
        behind_s = last_s - self._clock.now_s()
        if behind_s > self._settings.behind_most_s:
            raise PermanentError(
                f"The clock is {format_duration(behind_s)} behind the journal's last line, so old reports would "
                "pass for new ones: start the clock at the time of the run."
            )
        self._clock.wait_until(last_s)
        self._broken = False

    def run(self, until_s: float) -> None:
        """Control the job until this time, or until `stop`; may be called again to go on."""
        self.start()
        while not self._stopping.is_set():
            due_s = min(self._next_step_s(), until_s)
            if self._clock.now_s() < due_s:
                self._clock.wait_until(due_s)
            now_s = self._clock.now_s()
            if now_s >= due_s or not self._inbox.empty():
                self.step()
            if now_s >= until_s:
                return

    def step(self) -> None:
        """One round: what people said, what the job reports, what has ended, what is to be decided."""
        self.start()
        now_s = self._clock.now_s()
        self._take_messages()
        self._take_reports()
        self._take_outcomes()
        self._dispatch(Ticked(at_s=self._clock.now_s()))
        self._last_step_s = now_s
        if self._next_poll_s <= now_s:
            every_s = self._settings.poll_every_s
            begin_s = now_s if self._next_poll_s == -math.inf else self._next_poll_s
            self._next_poll_s = begin_s + every_s * (math.floor((now_s - begin_s) / every_s) + 1)
        if self._progress is not None:
            self._progress(now_s)

    def record(self, event: FaultInjected | Audited | ControllerStopped) -> None:
        """Write down what concerns reports and not the loop."""
        self._go_on()
        self._loop.state.apply(event)
        self._write((event,))

    def finish(self, reason: str) -> None:
        """Write down that the controller ends in order; a second call does nothing."""
        if not self._finished:
            self.record(ControllerStopped(at_s=self._clock.now_s(), reason=reason))
            self._finished = True

    def _next_step_s(self) -> float:
        due_s = self._loop.next_due_s()
        times = [self._next_poll_s, -math.inf if due_s is None else due_s]
        times += [pending.not_before_s for pending in self._pending.values()]
        # What was due at the last step has had its turn: asking again without waiting would only spin.
        return min((time_s for time_s in times if time_s > self._last_step_s), default=self._next_poll_s)

    def _take_messages(self) -> None:
        while True:
            try:
                message = self._inbox.get_nowait()
            except queue.Empty:
                return
            self._dispatch(message(self._clock.now_s()))

    def _take_reports(self) -> None:
        try:
            observations = self._job.reports()
        except TemporaryError as error:
            # Not an event of its own: the guards see that reports are missing, and say so in the journal.
            _LOG.warning("The job's reports cannot be fetched now: %s", error)
            return
        for observation in observations:
            self._dispatch(Reported(at_s=self._clock.now_s(), observation=observation))

    def _take_outcomes(self) -> None:
        for command in self._loop.unfinished():
            try:
                event = self._outcome(command)
            except TemporaryError as error:
                _LOG.warning("The outcome of %s cannot be fetched now: %s", command.request.request_id, error)
                continue
            # An answer about another request than the one asked for says nothing.
            if event is not None and event.outcome.request_id == command.request.request_id:
                self._dispatch(event)

    def _outcome(self, command: Command) -> ChangeFinished | ProfileFinished | None:
        request_id = command.request.request_id
        if isinstance(command, ApplyChange):
            change = self._job.change_outcome(request_id)
            return None if change is None else ChangeFinished(at_s=self._clock.now_s(), outcome=change)
        profile = self._job.profile_outcome(request_id)
        return None if profile is None else ProfileFinished(at_s=self._clock.now_s(), outcome=profile)

    def _dispatch(self, event: Input) -> None:
        self._tell(event)
        self._carry_out()

    def _tell(self, event: Input) -> None:
        self._go_on()
        try:
            handled = self._loop.handle(event)
        except BaseException:
            self._broken = True
            raise
        self._write(handled.events)
        now_s = self._clock.now_s()
        for command in handled.commands:
            self._pending[command.request.request_id] = _Pending(command=command, not_before_s=now_s)

    def _go_on(self) -> None:
        if self._broken:
            raise PermanentError("This runner has stopped, for its journal could not be used: start a new one on it.")

    def _write(self, events: tuple[JournalEvent, ...]) -> None:
        if not events:
            return
        try:
            self._journal.append(events)
        except BaseException:
            self._broken = True
            raise

    def _carry_out(self) -> None:
        """Try every command whose time has come; one that fails for good may bring up the next."""
        while True:
            now_s = self._clock.now_s()
            due = next((each for each in self._pending.values() if each.not_before_s <= now_s), None)
            if due is None:
                return
            self._attempt(due, now_s)

    def _attempt(self, pending: _Pending, now_s: float) -> None:
        request = pending.command.request
        open_ids = {command.request.request_id for command in self._loop.unfinished()}
        if request.request_id not in open_ids or now_s >= request.deadline_s:
            # Too late to begin: the next tick ends it.
            del self._pending[request.request_id]
            return
        try:
            if isinstance(pending.command, ApplyChange):
                self._job.change(pending.command.request)
            else:
                self._job.profile(pending.command.request)
        except TemporaryError as error:
            pending.refusals += 1
            doubled_s = self._settings.retry_first_s * 2.0 ** min(pending.refusals - 1, 32)
            longest_s = min(self._settings.retry_most_s, doubled_s)
            pending.not_before_s = now_s + max(longest_s, error.retry_after_s)
            _LOG.warning("The engine does not take %s now: %s", request.request_id, error)
        except PermanentError as error:
            del self._pending[request.request_id]
            self._tell(self._refused(pending.command, plain_text(str(error)) or type(error).__name__))
        else:
            del self._pending[request.request_id]

    def _refused(self, command: Command, detail: str) -> ChangeFinished | ProfileFinished:
        now_s = self._clock.now_s()
        if isinstance(command, StartProfile):
            return ProfileFinished(at_s=now_s, outcome=_died(command.request, now_s, detail))
        outcome = ChangeOutcome(
            request_id=command.request.request_id,
            status=ChangeStatus.FAILED,
            finished_at_s=now_s,
            configuration=self._observed_or(command.request.source),
            detail=detail,
        )
        return ChangeFinished(at_s=now_s, outcome=outcome)

    def _observed_or(self, otherwise: Configuration) -> Configuration:
        try:
            return self._job.observed()
        except TemporaryError:
            # The engine promises that the job stays as it is where `change` raises.
            return otherwise


def _died(request: ProfileRequest, now_s: float, detail: str) -> ProfileOutcome:
    """A profile that could not be begun: a result as well, which the policy may read."""
    measurements = tuple(
        ProfileMeasurement(
            configuration=candidate,
            input_rate_per_s=0.0,
            processed_rate_per_s=0.0,
            latency_p50_s=None,
            latency_p95_s=None,
            busy_share=None,
            detail=detail,
        )
        for candidate in request.candidates
    )
    return ProfileOutcome(request_id=request.request_id, finished_at_s=now_s, measurements=measurements)
