"""What the loop knows: a fold over the journal, so that a restart knows exactly what the crashed controller knew."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tidewise.control.lifecycle import EDGES, Change, Phase, Step
from tidewise.control.settings import LoopSettings
from tidewise.core import (
    ChangeExpired,
    ChangeFinished,
    ChangeRequested,
    ChangeSettled,
    ChangeStatus,
    Configuration,
    ControllerStarted,
    Decided,
    JournalEvent,
    Keep,
    Observation,
    Origin,
    Overridden,
    OverrideLifted,
    Paused,
    ProfileExpired,
    ProfileFinished,
    ProfileOutcome,
    ProfileRequest,
    ProfileRequested,
    Promises,
    Reconfigure,
    Reported,
    Resumed,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """What a person wants, until it is lifted."""

    by: str
    target: Configuration
    request_id: str | None = None
    """The latest request that is to bring it about; None before the first."""
    carried_out: bool = False
    attempts: int = 0
    """How often it was refused, failed or expired."""
    next_attempt_at_s: float
    """Not tried again before this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A target that went wrong."""

    until_s: float
    times: int
    """How often in a row."""


@dataclass(slots=True, kw_only=True)
class State:
    """The loop's memory. Changed by `apply` alone; bounded whatever the journal's length."""

    settings: LoopSettings
    promises: Promises
    history_s: float
    """How far back the history reaches."""

    planned: Configuration | None = None
    """What the last decision wanted, whatever the guards made of it."""
    observed: Configuration | None = None
    """What runs, as the engine last told it; None before it said anything."""
    observed_at_s: float | None = None
    change: Change | None = None
    """The latest change, ended or not."""
    profile: ProfileRequest | None = None
    """The profile that is on."""
    history: deque[Observation] = field(init=False)
    """Oldest first; each later than the one before."""
    profiles: deque[ProfileOutcome] = field(init=False)
    requests: int = 0
    """How many requests were made; numbers the next one."""
    paused_by: str | None = None
    override: Override | None = None
    last_decided_at_s: float | None = None
    """When the policy last decided."""
    last_change_finished_at_s: float | None = None
    bars: dict[Configuration, Bar] = field(default_factory=dict)
    _appliers: dict[type[JournalEvent], Callable[[Any], None]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.history = deque(maxlen=self.settings.observations_kept)
        self.profiles = deque(maxlen=self.settings.profiles_kept)
        self._appliers = {
            ControllerStarted: self._controller_started,
            Reported: self._reported,
            Decided: self._decided,
            ChangeRequested: self._change_requested,
            ChangeFinished: self._change_finished,
            ChangeExpired: self._change_expired,
            ChangeSettled: self._change_settled,
            ProfileRequested: self._profile_requested,
            ProfileFinished: self._profile_finished,
            ProfileExpired: self._profile_expired,
            Paused: self._paused,
            Resumed: self._resumed,
            Overridden: self._overridden,
            OverrideLifted: self._override_lifted,
        }

    @property
    def requested(self) -> Configuration | None:
        """Where a change that is on leads."""
        return self.change.request.target if self.change is not None and self.change.on else None

    @property
    def latest(self) -> Observation | None:
        return self.history[-1] if self.history else None

    def apply(self, event: JournalEvent) -> None:
        """Take one event in, live or from the journal; news about what is long over changes nothing."""
        applier = self._appliers.get(type(event))
        if applier is not None:
            applier(event)

    def _controller_started(self, event: ControllerStarted) -> None:
        self._observe(event.configuration, event.at_s)

    def _observe(self, configuration: Configuration, at_s: float) -> None:
        # A report that was long under way must not hide what the engine has told since.
        if self.observed_at_s is None or at_s >= self.observed_at_s:
            self.observed, self.observed_at_s = configuration, at_s

    def _reported(self, event: Reported) -> None:
        observation, latest = event.observation, self.latest
        # Learning goes by time, so what comes out of order is too late; a window that ends well after its arrival
        # comes from a wrong clock, and would make everything after it look late.
        if latest is not None and observation.time_s <= latest.time_s:
            return
        if observation.time_s > event.at_s + observation.window_s:
            return
        self.history.append(observation)
        while self.history[0].time_s < observation.time_s - self.history_s:
            self.history.popleft()
        self._observe(observation.configuration, observation.time_s)
        self._judge(observation)

    def _judge(self, observation: Observation) -> None:
        change = self.change
        if change is None or change.phase is not Phase.ON_PROBATION or change.finished_at_s is None:
            return
        if observation.time_s - observation.window_s < change.finished_at_s + self.settings.grace_s:
            return
        if observation.time_s > change.finished_at_s + self.settings.probation_s:
            return
        broken = self.promises.broken_by(observation)
        self.change = replace(change, broken_in_a_row=change.broken_in_a_row + 1 if broken else 0)

    def _decided(self, event: Decided) -> None:
        decision = event.decision
        if isinstance(decision, Reconfigure):
            self.planned = decision.target
        elif event.origin is not Origin.ROLLBACK:
            self.planned = self.requested or self.observed
        if event.origin is Origin.POLICY:
            self.last_decided_at_s = event.at_s
        elif event.origin is Origin.OPERATOR and self.override is not None:
            if isinstance(decision, Keep):
                self.override = replace(self.override, carried_out=True)
            elif event.vetoed:
                self._override_went_wrong(event.at_s)

    def _override_went_wrong(self, at_s: float) -> None:
        if self.override is None:
            return
        attempts = self.override.attempts + 1
        wait_s = self.settings.back_off_after_s(attempts)
        self.override = replace(self.override, attempts=attempts, next_attempt_at_s=at_s + wait_s)

    def _change_requested(self, event: ChangeRequested) -> None:
        request, latest = event.request, self.latest
        if self.change is not None:
            undone = request.undoes == self.change.request.request_id
            if undone and self.change.phase is Phase.ON_PROBATION:
                self._bar(self.change.request.target, event.at_s)
            self._step(self.change.request.request_id, Step.UNDO if undone else Step.SUPERSEDE)
        kept = latest is not None and not self.promises.broken_by(latest)
        self.change = Change(request=request, kept_before=kept)
        self.requests += 1
        if request.origin is Origin.OPERATOR and self.override is not None:
            self.override = replace(self.override, request_id=request.request_id)

    def _step(self, request_id: str, step: Step) -> bool:
        """Whether the change with this id was in a phase that allows the step, which is taken then."""
        change = self.change
        if change is None or change.request.request_id != request_id or not change.may(step):
            return False
        self.change = replace(change, phase=EDGES[change.phase, step])
        return True

    def _change_finished(self, event: ChangeFinished) -> None:
        outcome = event.outcome
        applied = outcome.status is ChangeStatus.APPLIED
        if not self._step(outcome.request_id, Step.APPLY if applied else Step.FAIL):
            return
        self._observe(outcome.configuration, outcome.finished_at_s)
        self._ended(outcome.finished_at_s)
        if not applied:
            self._went_wrong(event.at_s)
        elif self.override is not None and self.override.request_id == outcome.request_id:
            self.override = replace(self.override, carried_out=True, attempts=0)

    def _change_expired(self, event: ChangeExpired) -> None:
        if self._step(event.request_id, Step.EXPIRE):
            self._ended(event.at_s)
            self._went_wrong(event.at_s)

    def _ended(self, at_s: float) -> None:
        self.last_change_finished_at_s = at_s
        if self.change is not None:
            self.change = replace(self.change, finished_at_s=at_s)

    def _went_wrong(self, at_s: float) -> None:
        if self.change is None:
            return
        request = self.change.request
        if request.origin is Origin.POLICY:
            self._bar(request.target, at_s)
        elif self.override is not None and self.override.request_id == request.request_id:
            self._override_went_wrong(at_s)

    def _bar(self, target: Configuration, at_s: float) -> None:
        before = self.bars.get(target)
        times = 1 if before is None else before.times + 1
        self.bars[target] = Bar(until_s=at_s + self.settings.back_off_after_s(times), times=times)
        if len(self.bars) > self.settings.bars_kept:
            del self.bars[min(self.bars, key=lambda barred: self.bars[barred].until_s)]

    def _change_settled(self, event: ChangeSettled) -> None:
        if self._step(event.request_id, Step.SETTLE) and self.change is not None:
            # It has shown that it can go well: the next failure counts as the first.
            self.bars.pop(self.change.request.target, None)

    def _profile_requested(self, event: ProfileRequested) -> None:
        self.profile = event.request
        self.requests += 1

    def _profile_finished(self, event: ProfileFinished) -> None:
        if self.profile is not None and self.profile.request_id == event.outcome.request_id:
            self.profile = None
            self.profiles.append(event.outcome)

    def _profile_expired(self, event: ProfileExpired) -> None:
        if self.profile is not None and self.profile.request_id == event.request_id:
            self.profile = None

    def _paused(self, event: Paused) -> None:
        self.paused_by = event.by

    def _resumed(self, _event: Resumed) -> None:
        self.paused_by = None

    def _overridden(self, event: Overridden) -> None:
        self.override = Override(by=event.by, target=event.target, next_attempt_at_s=event.at_s)

    def _override_lifted(self, _event: OverrideLifted) -> None:
        self.override = None
