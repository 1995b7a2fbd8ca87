"""A loop whose policy wants what a test says, told one event after the other."""

from __future__ import annotations

from tidewise.control import ApplyChange, Handled, Loop, LoopSettings, Phase
from tidewise.core import (
    ChangeFinished,
    ChangeOutcome,
    ChangeRequest,
    ChangeStatus,
    Configuration,
    ConfigurationSpace,
    ControllerStarted,
    Decision,
    JobStatus,
    JournalEvent,
    Keep,
    Mechanism,
    Reconfigure,
    Reported,
    Situation,
    Ticked,
)

from .fakes import SPACE, ScriptedPolicy, because, build_loop, observation

SETTINGS = LoopSettings(
    decide_every_s=60.0,
    probation_s=100.0,
    grace_s=20.0,
    grace_factor=1.0,
    broken_reports=3,
    back_off_s=500.0,
    deadline_minimum_s=100.0,
)


class Bench:
    """A loop whose policy wants what `wanted` says."""

    def __init__(
        self, runs: Configuration, settings: LoopSettings = SETTINGS, space: ConfigurationSpace = SPACE
    ) -> None:
        self.wanted: Configuration | None = None
        self.mechanism: Mechanism | None = None
        self.loop: Loop = build_loop(ScriptedPolicy(self._decide), settings=settings, space=space)
        self.events: list[JournalEvent] = []
        self.commands: list[ChangeRequest] = []
        self.tell(ControllerStarted(at_s=0.0, version="test", policy="test", configuration=runs))

    def _decide(self, _situation: Situation) -> Decision:
        if self.wanted is None:
            return Keep(reason=because("keep"))
        return Reconfigure(target=self.wanted, reason=because("want"), mechanism=self.mechanism)

    def tell(self, event: object) -> Handled:
        handled = self.loop.handle(event)  # type: ignore[arg-type]  # the tests tell what the loop may be told
        self.events.extend(handled.events)
        self.commands.extend(each.request for each in handled.commands if isinstance(each, ApplyChange))
        return handled

    def report(
        self,
        time_s: float,
        runs: Configuration,
        *,
        latency_s: float | None = 1.0,
        status: JobStatus = JobStatus.RUNNING,
        backlog: float = 0.0,
        rate_per_s: float = 100.0,
    ) -> Handled:
        seen = observation(time_s, runs, latency_s=latency_s, status=status, backlog=backlog, rate_per_s=rate_per_s)
        return self.tell(Reported(at_s=time_s, observation=seen))

    def ask(self, at_s: float, runs: Configuration, wanted: Configuration, *, latency_s: float = 1.0) -> ChangeRequest:
        self.wanted = wanted
        self.report(at_s, runs, latency_s=latency_s)
        before = len(self.commands)
        self.tell(Ticked(at_s=at_s))
        self.wanted = None
        assert len(self.commands) == before + 1
        return self.commands[-1]

    def end(
        self, request: ChangeRequest, at_s: float, *, status: ChangeStatus = ChangeStatus.APPLIED, runs: Configuration
    ) -> Handled:
        outcome = ChangeOutcome(
            request_id=request.request_id, status=status, finished_at_s=at_s, configuration=runs, detail="As told."
        )
        return self.tell(ChangeFinished(at_s=at_s, outcome=outcome))

    def reduced(self, source: Configuration, target: Configuration, *, rate_per_s: float = 100.0) -> ChangeRequest:
        """A change that was asked for at 10 s and ended at 20 s, with reports until then."""
        self.wanted = target
        self.report(10.0, source, rate_per_s=rate_per_s)
        self.tell(Ticked(at_s=10.0))
        self.wanted = None
        self.end(self.commands[-1], 20.0, runs=target)
        return self.commands[-1]

    def phase(self) -> Phase:
        assert self.loop.state.change is not None
        return self.loop.state.change.phase
