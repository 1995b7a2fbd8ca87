"""What the loop knows: a fold over the journal, so that a restart knows exactly what the crashed controller knew."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tidewise.control.bars import Bar, add_bar, forgive
from tidewise.control.lifecycle import EDGES, Change, Phase, Step
from tidewise.control.probation import Probation
from tidewise.control.settings import LoopSettings
from tidewise.core import (
    ChangeExpired,
    ChangeFinished,
    ChangeRequest,
    ChangeRequested,
    ChangeSettled,
    ChangeStatus,
    Configuration,
    ControllerStarted,
    Decided,
    JobStatus,
    JournalEvent,
    Mechanism,
    Observation,
    Origin,
    Overridden,
    OverrideLifted,
    Parameter,
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
    granted: Configuration | None = None
    """What bounds and quota made of the target when it was last looked at."""
    attempts: int = 0
    """How often it was refused, failed or expired."""
    next_attempt_at_s: float
    """Not tried again before this time."""


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
    intended: Configuration | None = None
    """What is meant to run: `observed`, with the executors that the engine is replacing; see `Situation`."""
    short_since_s: float | None = None
    """Since when executors of `intended` have been missing; None while none are."""
    change: Change | None = None
    """The latest change, ended or not."""
    profile: ProfileRequest | None = None
    """The profile that is on."""
    profiled_s: float = 0.0
    """For how long profiles have been on, the one that is on not counted."""
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
    joins_after_s: float | None = None
    """How long executors lately took to join the running job; the last one counts half."""
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
    def last_change_mechanism(self) -> Mechanism | None:
        """How the latest change was, or is being, made; None before the first has ended."""
        if self.change is None or self.last_change_finished_at_s is None:
            return None
        return self.change.request.mechanism

    def failed_targets(self, now_s: float) -> tuple[Configuration, ...]:
        """What was tried and not reached, and is not to be tried again yet."""
        return tuple(
            target for target, bar in self.bars.items() if bar.too_little_at_per_s is None and now_s < bar.until_s
        )

    @property
    def requested(self) -> Configuration | None:
        """Where a change that is on leads."""
        return self.change.request.target if self.change is not None and self.change.on else None

    @property
    def override_in_force(self) -> bool:
        """Whether what a person wants is in place, but for executors that the engine is replacing."""
        override = self.override
        return override is not None and not self.requested and self.intended == (override.granted or override.target)

    @property
    def latest(self) -> Observation | None:
        return self.history[-1] if self.history else None

    def apply(self, event: JournalEvent) -> None:
        """Take one event in, live or from the journal; news about what is long over changes nothing."""
        applier = self._appliers.get(type(event))
        if applier is not None:
            applier(event)

    def _controller_started(self, event: ControllerStarted) -> None:
        if self._observe(event.configuration, event.at_s):
            self._mean(event.configuration, event.at_s)

    def _observe(self, configuration: Configuration, at_s: float) -> bool:
        """Whether this is news: a report that was long under way must not hide what the engine has told since."""
        if self.observed_at_s is not None and at_s < self.observed_at_s:
            return False
        self.observed, self.observed_at_s = configuration, at_s
        return True

    def _mean(self, runs: Configuration, at_s: float) -> None:
        """Find out what is meant to run from what runs."""
        change = self.change
        if change is not None and change.on:
            return  # What is seen on the way is nobody's intention.
        arrived_late = (
            change is not None and change.phase in {Phase.FAILED, Phase.EXPIRED} and runs == change.request.target
        )
        if self.intended is None or arrived_late or not _lacks_executors(runs, self.intended):
            self.intended, self.short_since_s = runs, None
        elif self.short_since_s is None:
            self.short_since_s = at_s
        elif at_s - self.short_since_s >= self.settings.shortfall_s:
            self.intended, self.short_since_s = runs, None

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
        self._learn_what_runs(observation)
        change = self.change
        if change is not None and change.phase is Phase.ON_PROBATION and change.probation is not None:
            probation = change.probation.after(
                observation, intended=self.intended, promises=self.promises, settings=self.settings
            )
            self.change = replace(change, probation=probation)

    def _learn_what_runs(self, observation: Observation) -> None:
        # A window that began before a change had ended may still show what ran then: the engine has told since.
        told_s = self.last_change_finished_at_s
        if told_s is not None and observation.time_s - observation.window_s < told_s:
            return
        if not self._observe(observation.configuration, observation.time_s):
            return
        if observation.status is JobStatus.RUNNING:
            self._mean(observation.configuration, observation.time_s)
        else:
            self.short_since_s = None  # What a job that is down has is no sign of what it will have.

    def _decided(self, event: Decided) -> None:
        decision = event.decision
        if isinstance(decision, Reconfigure):
            self.planned = decision.target
        elif event.origin is not Origin.ROLLBACK:
            self.planned = self.requested or self.intended
        if event.origin is Origin.POLICY:
            self.last_decided_at_s = event.at_s
        elif event.origin is Origin.OPERATOR and self.override is not None and isinstance(decision, Reconfigure):
            altered = [verdict.target for verdict in event.verdicts if verdict.target is not None]
            self.override = replace(self.override, granted=altered[-1] if altered else decision.target)
            # As far as bounds and quota let it, it may be in place already: that is no failure.
            if event.vetoed and not self.override_in_force:
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
                self._bar(self.change.request, event.at_s, too_little=True)
            self._step(self.change.request.request_id, Step.UNDO if undone else Step.SUPERSEDE)
        kept = latest is not None and not self.promises.broken_by(latest)
        self.change = Change(
            request=request,
            kept_before=kept,
            backlog_before=0.0 if latest is None else latest.backlog_records,
            ran_before=self.observed,
        )
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
        if not self._step(outcome.request_id, Step.APPLY if applied else Step.FAIL) or self.change is None:
            return
        # An engine whose clock is ahead must not make what it reports next look old.
        finished_at_s = min(outcome.finished_at_s, event.at_s)
        self.last_change_finished_at_s = finished_at_s
        if applied:
            self._learn_how_long_it_took(self.change.request, finished_at_s)
            self._begin_probation(self.change, finished_at_s, gap_s=outcome.gap_s)
        # The engine's word on how a change ended goes before any report that it has sent until then.
        told_s = finished_at_s if self.observed_at_s is None else max(finished_at_s, self.observed_at_s)
        self._observe(outcome.configuration, told_s)
        self._mean(outcome.configuration, told_s)
        if not applied:
            self._went_wrong(event.at_s)
        elif self.override is not None and self.override.request_id == outcome.request_id:
            self._override_carried_out(event.at_s)

    def _begin_probation(self, change: Change, finished_at_s: float, *, gap_s: float) -> None:
        probation = Probation.begin(
            since_s=finished_at_s,
            took_s=max(gap_s, finished_at_s - change.request.requested_at_s),
            backlog_before=change.backlog_before,
            settings=self.settings,
        )
        self.change = replace(change, probation=probation)
        self.intended, self.short_since_s = change.request.target, None

    def _override_carried_out(self, at_s: float) -> None:
        if self.override is None:
            return
        if not self.override_in_force:
            self._override_went_wrong(at_s)
        else:
            # Where something outside undoes it, it is brought about again, but not at every report.
            wait_s = self.settings.back_off_after_s(1)
            self.override = replace(self.override, attempts=0, next_attempt_at_s=at_s + wait_s)

    def _learn_how_long_it_took(self, request: ChangeRequest, finished_at_s: float) -> None:
        if request.mechanism is not Mechanism.LIVE or request.target.takes_less_than(request.source):
            return
        since = [seen for seen in self.history if seen.time_s >= request.requested_at_s - seen.window_s]
        if any(seen.status is not JobStatus.RUNNING for seen in since):
            return  # executors do not join a job that is down: they wait for it
        took_s = max(0.0, finished_at_s - request.requested_at_s)
        self.joins_after_s = took_s if self.joins_after_s is None else 0.5 * (self.joins_after_s + took_s)

    def _change_expired(self, event: ChangeExpired) -> None:
        if self._step(event.request_id, Step.EXPIRE):
            self.last_change_finished_at_s = event.at_s
            # Nobody is under way any more: what runs now, whoever brought it about, is what there is to go by.
            self._mean(event.configuration, event.at_s)
            self._went_wrong(event.at_s)

    def _went_wrong(self, at_s: float) -> None:
        if self.change is None:
            return
        request = self.change.request
        if request.origin is Origin.POLICY:
            self._bar(request, at_s, too_little=False)
        elif self.override is not None and self.override.request_id == request.request_id:
            self._override_went_wrong(at_s)

    def _bar(self, request: ChangeRequest, at_s: float, *, too_little: bool) -> None:
        lacks = too_little and request.target.takes_less_than(request.source)
        rate_per_s = self.latest.load_per_s if lacks and self.latest is not None else None
        add_bar(self.bars, request.target, at_s=at_s, too_little_at_per_s=rate_per_s, settings=self.settings)

    def _change_settled(self, event: ChangeSettled) -> None:
        if self._step(event.request_id, Step.SETTLE) and self.change is not None:
            # It has shown that it can go well: the next failure counts as the first.
            rate_per_s = None if self.latest is None else self.latest.load_per_s
            forgive(self.bars, self.change.request.target, rate_per_s=rate_per_s)

    def _profile_requested(self, event: ProfileRequested) -> None:
        self.profile = event.request
        self.requests += 1

    def _profile_finished(self, event: ProfileFinished) -> None:
        if self.profile is not None and self.profile.request_id == event.outcome.request_id:
            self.profiled_s += max(0.0, event.at_s - self.profile.requested_at_s)
            self.profile = None
            self.profiles.append(event.outcome)

    def _profile_expired(self, event: ProfileExpired) -> None:
        if self.profile is not None and self.profile.request_id == event.request_id:
            self.profiled_s += max(0.0, event.at_s - self.profile.requested_at_s)
            self.profile = None

    def _paused(self, event: Paused) -> None:
        self.paused_by = event.by

    def _resumed(self, _event: Resumed) -> None:
        self.paused_by = None

    def _overridden(self, event: Overridden) -> None:
        self.override = Override(by=event.by, target=event.target, next_attempt_at_s=event.at_s)

    def _override_lifted(self, _event: OverrideLifted) -> None:
        self.override = None


def _lacks_executors(runs: Configuration, meant: Configuration) -> bool:
    """Whether executors are all that is missing."""
    return runs.executors < meant.executors and runs.differs_from(meant) == {Parameter.EXECUTORS}
