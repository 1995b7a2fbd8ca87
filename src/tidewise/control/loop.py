"""The control loop itself: takes events, returns what to write down and what to do; no I/O and no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tidewise.control.commands import ApplyChange, Command, Handled, Input, StartProfile
from tidewise.control.consult import Consultant
from tidewise.control.guards import GUARDS, too_old
from tidewise.control.lifecycle import Change, Phase
from tidewise.control.profiling import review_profile
from tidewise.control.review import Facts, Guard, Proposal, Review, review
from tidewise.control.rollback import promise_broken, way_back
from tidewise.control.settings import GuardSettings, LoopSettings
from tidewise.control.state import State
from tidewise.core import (
    ChangeExpired,
    ChangeFinished,
    ChangeOutcome,
    ChangeRequest,
    ChangeRequested,
    ChangeSettled,
    ChangeStatus,
    Configuration,
    ConfigurationSpace,
    ControllerStarted,
    Decided,
    Forecast,
    Forecaster,
    GuardVerdict,
    JournalEvent,
    Keep,
    Origin,
    Overridden,
    OverrideLifted,
    Paused,
    PermanentError,
    Policy,
    Prices,
    Profile,
    ProfileExpired,
    ProfileFinished,
    ProfileRequest,
    ProfileRequested,
    Promises,
    Reason,
    Reconfigure,
    Reported,
    Resumed,
    Situation,
    Ticked,
    Verdict,
    format_duration,
)


class Loop:
    """Keeps one job where its policy, its guards and its operators want it.

    `handle` is called with every event in order of time, by one thread. Decisions are made on `Ticked`, at most one
    per tick and per `decide_every_s`, counted from the last one: a tick that comes late brings one decision, not all
    that were missed. The policy is asked only while reports are fresh; else the loop itself decides to keep.
    """

    def __init__(
        self,
        *,
        run: str,
        policy: Policy,
        space: ConfigurationSpace,
        promises: Promises,
        prices: Prices,
        forecaster: Forecaster | None = None,
        settings: LoopSettings | None = None,
        guard_settings: GuardSettings | None = None,
        guards: Sequence[Guard] = GUARDS,
    ) -> None:
        self.run = run
        """The name of the run: the beginning of every request id."""
        self.policy = policy
        self._space = space
        self._prices = prices
        self._settings = settings or LoopSettings()
        self._guard_settings = guard_settings or GuardSettings()
        self._guards = guards
        self._consultant = Consultant(
            policy=policy,
            forecaster=forecaster,
            horizon_s=self._settings.forecast_horizon_s,
            step_s=self._settings.forecast_step_s,
            every_s=self._settings.forecast_every_s,
        )
        self.state = State(settings=self._settings, promises=promises, history_s=policy.history_s)
        self._events: list[JournalEvent] = []
        self._commands: list[Command] = []
        self._takers: dict[type[Input], Callable[[Any], None]] = {
            ControllerStarted: self._emit,
            Reported: self._take_report,
            Ticked: self._take_tick,
            ChangeFinished: self._take_outcome,
            ProfileFinished: self._emit,
            Paused: self._emit,
            Resumed: self._emit,
            Overridden: self._take_override,
            OverrideLifted: self._emit,
        }

    def handle(self, event: Input) -> Handled:
        """Take one event in. See `Handled` for what the caller owes the result."""
        take = self._takers.get(type(event))
        if take is None:
            raise TypeError(f"the loop is not told of {type(event).__name__}")
        self._events, self._commands = [], []
        take(event)
        return Handled(events=tuple(self._events), commands=tuple(self._commands))

    def replay(self, events: Iterable[JournalEvent]) -> None:
        """Take a journal in, on a fresh loop: as it was decided then, deciding nothing and commanding nothing."""
        for event in events:
            self.state.apply(event)
            if isinstance(event, Reported):
                self._learn(event)
            elif isinstance(event, Decided) and event.origin is Origin.POLICY:
                self._consultant.told()

    def unfinished(self) -> tuple[Command, ...]:
        """The commands that were requested and have not ended; to be issued again, with their ids, after a restart."""
        commands: list[Command] = []
        if self.state.change is not None and self.state.change.on:
            commands.append(ApplyChange(request=self.state.change.request))
        if self.state.profile is not None:
            commands.append(StartProfile(request=self.state.profile))
        return tuple(commands)

    def next_due_s(self) -> float | None:
        """When the next tick has something to do; None: at once."""
        state, last_s = self.state, self.state.last_decided_at_s
        if last_s is None:
            return None
        due = [last_s + self._settings.decide_every_s]
        if state.change is not None and state.change.on:
            due.append(state.change.request.deadline_s)
        elif state.override is not None and not state.override_in_force:
            due.append(state.override.next_attempt_at_s)
        if state.profile is not None:
            due.append(state.profile.deadline_s)
        return min(due)

    # What each event brings about.

    def _take_report(self, event: Reported) -> None:
        self._emit(event)
        self._learn(event)
        broken = promise_broken(self.state)
        if broken is not None and self.state.latest is event.observation:
            self._roll_back(event.at_s, broken)

    def _take_outcome(self, event: ChangeFinished) -> None:
        was_on = self._is_on(event.outcome.request_id)
        self._emit(event)
        if not was_on:
            return
        change, runs = self._change(), event.outcome.configuration
        if event.outcome.status is ChangeStatus.FAILED and runs not in {change.request.source, change.ran_before}:
            sentence = f"The change failed half-way, with {runs} running: {event.outcome.detail}"
            self._roll_back(event.at_s, Reason(code="change-failed", sentence=sentence))
        self._pursue_override(event.at_s)

    def _take_override(self, event: Overridden) -> None:
        self._emit(event)
        if self.state.override_in_force:
            sentence = f"{event.by} wants {event.target}, which is in place already."
            keep = Keep(reason=Reason(code="operator-override", sentence=sentence))
            self._emit(Decided(at_s=event.at_s, origin=Origin.OPERATOR, decision=keep))
        self._pursue_override(event.at_s)

    def _take_tick(self, event: Ticked) -> None:
        now_s = event.at_s
        self._end_what_is_over(now_s)
        self._pursue_override(now_s)
        last_s = self.state.last_decided_at_s
        if last_s is None or now_s >= last_s + self._settings.decide_every_s:
            self._decide(now_s)

    # The life of changes and profiles.

    def _end_what_is_over(self, now_s: float) -> None:
        state = self.state
        if state.profile is not None and now_s >= state.profile.deadline_s:
            self._emit(ProfileExpired(at_s=now_s, request_id=state.profile.request_id))
        change = state.change
        if change is None:
            return
        if change.on and now_s >= change.request.deadline_s:
            self._end_overdue(now_s)
        elif (
            change.phase is Phase.ON_PROBATION
            and change.probation is not None
            and now_s >= change.probation.until_s(self._settings)
        ):
            self._emit(ChangeSettled(at_s=now_s, request_id=change.request.request_id))

    def _end_overdue(self, now_s: float) -> None:
        request = self._change().request
        observed = self.state.observed or request.source
        if observed == request.target:
            outcome = ChangeOutcome(
                request_id=request.request_id,
                status=ChangeStatus.APPLIED,
                finished_at_s=now_s,
                configuration=request.target,
                detail="The engine gave no outcome before the deadline, but its reports show the target.",
            )
            self._emit(ChangeFinished(at_s=now_s, outcome=outcome))
            return
        self._emit(ChangeExpired(at_s=now_s, request_id=request.request_id, configuration=observed))
        allowed = format_duration(request.deadline_s - request.requested_at_s)
        sentence = f"The change did not reach its target within {allowed} and may still be on its way."
        self._roll_back(now_s, Reason(code="change-expired", sentence=sentence))

    def _roll_back(self, now_s: float, reason: Reason) -> None:
        way = way_back(
            self.state,
            self._change(),
            reason,
            now_s=now_s,
            space=self._space,
            known_within_s=self._guard_settings.down_within_s,
        )
        if way is None:
            return
        if isinstance(way.decision, Keep):
            self._emit(Decided(at_s=now_s, origin=Origin.ROLLBACK, decision=way.decision))
        else:
            self._propose(now_s, Origin.ROLLBACK, way.decision, source=way.source, undoes=way.undoes)

    def _pursue_override(self, now_s: float) -> None:
        override, intended = self.state.override, self.state.intended
        if override is None or intended is None or self.state.override_in_force:
            return
        if self.state.requested is not None or now_s < override.next_attempt_at_s:
            return
        sentence = f"{override.by} wants {override.target}, whatever the policy says."
        reason = Reason(code="operator-override", sentence=sentence, evidence={"by": override.by})
        self._propose(now_s, Origin.OPERATOR, Reconfigure(target=override.target, reason=reason), source=intended)

    # Decisions.

    def _decide(self, now_s: float) -> None:
        observed, intended, facts = self.state.observed, self.state.intended, self._facts(now_s)
        blind = _blind(facts)
        if blind is not None or observed is None or intended is None:
            reason = blind or Reason(code="no-data", sentence="What runs is not known yet, so the job is left alone.")
            self._emit(Decided(at_s=now_s, origin=Origin.POLICY, decision=Keep(reason=reason)))
            return
        situation = Situation(
            now_s=now_s,
            history=tuple(self.state.history),
            observed=observed,
            intended=intended,
            requested=self.state.requested,
            last_change_finished_at_s=self.state.last_change_finished_at_s,
            last_change_mechanism=self.state.last_change_mechanism,
            joins_after_s=self.state.joins_after_s,
            failed_targets=self.state.failed_targets(now_s),
            forecast=None,
            profiles=tuple(self.state.profiles),
            profile_on=self.state.profile,
            space=self._space,
            promises=self.state.promises,
            prices=self._prices,
        )
        decision, forecast = self._consultant.decide(situation)
        if isinstance(decision, Reconfigure):
            self._propose(now_s, Origin.POLICY, decision, source=intended, forecast=forecast)
        elif isinstance(decision, Profile):
            self._propose_profile(now_s, decision, facts, intended=intended, forecast=forecast)
        else:
            self._emit(Decided(at_s=now_s, origin=Origin.POLICY, decision=decision, forecast=forecast))

    def _propose(
        self,
        now_s: float,
        origin: Origin,
        decision: Reconfigure,
        *,
        source: Configuration,
        forecast: Forecast | None = None,
        undoes: str | None = None,
    ) -> None:
        proposal = Proposal(origin=origin, source=source, target=decision.target, mechanism=decision.mechanism)
        found = self._review(proposal, now_s)
        self._emit(Decided(at_s=now_s, origin=origin, decision=decision, verdicts=found.verdicts, forecast=forecast))
        if found.cost is None:
            return
        allowed_s = max(self._settings.deadline_minimum_s, self._settings.deadline_factor * found.cost.duration_s)
        request = ChangeRequest(
            request_id=self._next_id(),
            origin=origin,
            source=source,
            target=found.target,
            mechanism=found.cost.mechanism,
            requested_at_s=now_s,
            deadline_s=now_s + allowed_s,
            reason=decision.reason,
            undoes=undoes,
        )
        self._emit(ChangeRequested(at_s=now_s, request=request))
        self._commands.append(ApplyChange(request=request))

    def _review(self, proposal: Proposal, now_s: float) -> Review:
        try:
            return review(proposal, self._facts(now_s), self._guards)
        except PermanentError as error:
            reason = Reason(code="impossible-change", sentence=f"This cannot be done: {error}.")
            veto = GuardVerdict(guard="possible", verdict=Verdict.VETO, reason=reason)
            return Review(target=proposal.target, cost=None, verdicts=(veto,))

    def _propose_profile(
        self, now_s: float, decision: Profile, facts: Facts, *, intended: Configuration, forecast: Forecast | None
    ) -> None:
        on = self.state.profile
        verdicts = review_profile(
            decision,
            facts,
            intended=intended,
            profile_on=None if on is None else on.request_id,
            profiled_s=self.state.profiled_s,
        )
        self._emit(Decided(at_s=now_s, origin=Origin.POLICY, decision=decision, verdicts=verdicts, forecast=forecast))
        if verdicts:
            return
        request = ProfileRequest(
            request_id=self._next_id(),
            candidates=decision.candidates,
            settle_s=decision.settle_s,
            measure_s=decision.measure_s,
            inject_failure=decision.inject_failure,
            recovery_limit_s=decision.recovery_limit_s,
            requested_at_s=now_s,
            deadline_s=now_s + self._profile_takes_s(decision),
            reason=decision.reason,
        )
        self._emit(ProfileRequested(at_s=now_s, request=request))
        self._commands.append(StartProfile(request=request))

    def _profile_takes_s(self, decision: Profile) -> float:
        """The longest that a profile may take."""
        interval_s = max(each.commit_interval_s for each in decision.candidates)
        # Where batches are rare, an engine may measure for longer than it was told, so that one is committed meanwhile.
        takes_s = decision.settle_s + max(decision.measure_s, 2 * interval_s)
        if decision.inject_failure:
            # It is broken just before a commit, and looked at until it has recovered or is given up.
            takes_s += interval_s
        limit_s = decision.recovery_limit_s if decision.inject_failure else 0.0
        return self._settings.deadline_minimum_s + self._settings.profile_deadline_factor * takes_s + limit_s

    # Small helpers.

    def _emit(self, event: JournalEvent) -> None:
        self.state.apply(event)
        self._events.append(event)

    def _learn(self, event: Reported) -> None:
        # What the state did not take, because it came too late or from a wrong clock, is not learned from either.
        if self.state.latest is event.observation:
            self._consultant.learn(event.observation)

    def _next_id(self) -> str:
        return f"{self.run}-{self.state.requests + 1}"

    def _is_on(self, request_id: str) -> bool:
        change = self.state.change
        return change is not None and change.on and change.request.request_id == request_id

    def _change(self) -> Change:
        if self.state.change is None:
            raise LookupError("no change was ever requested")
        return self.state.change

    def _facts(self, now_s: float) -> Facts:
        state = self.state
        return Facts(
            now_s=now_s,
            latest=state.latest,
            requested=state.requested,
            paused_by=state.paused_by,
            overridden_by=None if state.override is None else state.override.by,
            last_change_finished_at_s=state.last_change_finished_at_s,
            bars=state.bars,
            space=self._space,
            settings=self._guard_settings,
        )


def _blind(facts: Facts) -> Reason | None:
    """Why the policy cannot be asked; None: it can."""
    if facts.latest is None:
        return Reason(code="no-data", sentence="There is no report of the job yet, so it is left as it is.")
    veto = too_old(facts, facts.settings.fresh_within_s, what="the job is left as it is")
    return None if veto is None else veto.reason
