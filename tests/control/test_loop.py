from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewise.control import GuardSettings, Loop, LoopSettings, StartProfile
from tidewise.control.codec import decode, encode
from tidewise.core import (
    BadInputError,
    ControllerStarted,
    Decided,
    Decision,
    Forecast,
    JournalEvent,
    Keep,
    Mechanism,
    NotReadyError,
    Observation,
    Origin,
    Overridden,
    OverrideLifted,
    Paused,
    Profile,
    ProfileExpired,
    ProfileFinished,
    ProfileOutcome,
    ProfileRequested,
    Reason,
    Reconfigure,
    Reported,
    Resumed,
    Situation,
    Ticked,
)

from .drive import drive
from .fakes import SPACE, LastValue, ScriptedPolicy, because, build_loop, config, follow, observation


def started(loop: Loop, *, executors: int = 4, reported_s: float | None = 10.0) -> Loop:
    loop.handle(ControllerStarted(at_s=0.0, version="test", policy="test", configuration=config(executors)))
    if reported_s is not None:
        report(loop, reported_s)
    return loop


def report(loop: Loop, time_s: float, **details: float) -> None:
    loop.handle(Reported(at_s=time_s, observation=observation(time_s, config(4), **details)))  # type: ignore[arg-type]  # only numbers are passed


def decided(loop: Loop, at_s: float = 10.0) -> Decided:
    events = [event for event in loop.handle(Ticked(at_s=at_s)).events if isinstance(event, Decided)]
    assert len(events) == 1
    return events[0]


def wants(executors: int) -> ScriptedPolicy:
    return ScriptedPolicy(lambda _: Reconfigure(target=config(executors), reason=because("want")))


def test_a_late_tick_brings_one_decision_and_an_early_one_none() -> None:
    loop = started(build_loop(settings=LoopSettings(decide_every_s=60.0)))
    decided(loop, 10.0)
    assert loop.handle(Ticked(at_s=69.0)).events == ()
    assert loop.next_due_s() == 70.0
    decided(loop, 1000.0)
    assert loop.handle(Ticked(at_s=1001.0)).events == ()
    assert loop.handle(Ticked(at_s=1001.0)).events == ()


def test_the_policy_sees_history_forecast_and_the_three_configurations() -> None:
    seen: list[Situation] = []

    def look(situation: Situation) -> Decision:
        seen.append(situation)
        return Keep(reason=because())

    policy = ScriptedPolicy(look, history_s=30.0)
    loop = started(build_loop(policy, forecaster=LastValue(), settings=LoopSettings(forecast_horizon_s=120.0)))
    for time_s in (20.0, 30.0, 40.0, 50.0):
        report(loop, time_s, rate_per_s=time_s)
    event = decided(loop, 50.0)
    assert [each.time_s for each in seen[0].history] == [20.0, 30.0, 40.0, 50.0]
    assert seen[0].observed == config(4)
    assert seen[0].requested is None
    assert event.forecast is not None
    assert event.forecast == seen[0].forecast
    assert event.forecast.path() == (50.0, 50.0)
    assert len(policy.learned) == 5


def test_a_forecast_is_rounded_before_anybody_sees_it_so_that_journals_stay_small() -> None:
    seen: list[Situation] = []

    def look(situation: Situation) -> Decision:
        seen.append(situation)
        return Keep(reason=because())

    loop = started(build_loop(ScriptedPolicy(look), forecaster=LastValue()))
    report(loop, 20.0, rate_per_s=123_456.789)
    event = decided(loop, 20.0)
    assert event.forecast is not None
    assert event.forecast == seen[0].forecast
    assert set(event.forecast.path()) == {123_500.0}
    assert decode(*encode(event), where="here") == event


def test_the_policy_is_not_asked_without_fresh_data_and_the_loop_says_why() -> None:
    def never(_situation: Situation) -> Decision:
        raise AssertionError

    loop = started(build_loop(ScriptedPolicy(never)), reported_s=None)
    assert decided(loop, 1.0).decision.reason.code == "no-data"
    report(loop, 2.0)
    assert decided(loop, 200.0).decision.reason.code == "stale-data"


def test_reports_out_of_order_or_from_the_future_are_recorded_and_not_used() -> None:
    policy = ScriptedPolicy()
    loop = started(build_loop(policy), reported_s=50.0)
    for time_s, at_s in ((50.0, 51.0), (40.0, 52.0), (900.0, 53.0)):
        handled = loop.handle(Reported(at_s=at_s, observation=observation(time_s, config(9))))
        assert len(handled.events) == 1
    assert [each.time_s for each in policy.learned] == [50.0]
    assert loop.state.observed == config(4)


@pytest.mark.parametrize(
    "error", [RuntimeError("boom \udc00"), BadInputError("no"), KeyError("x"), ZeroDivisionError()]
)
def test_a_policy_that_raises_keeps_the_job_and_is_named_in_the_journal(error: Exception) -> None:
    def fail(_situation: Situation) -> Decision:
        raise error

    event = decided(started(build_loop(ScriptedPolicy(fail))))
    assert isinstance(event.decision, Keep)
    assert event.decision.reason.code == "policy-failed"
    assert type(error).__name__ in event.decision.reason.sentence
    kind, body = encode(event)
    assert decode(kind, body, where="here") == event


def test_a_policy_that_answers_nonsense_keeps_the_job() -> None:
    event = decided(started(build_loop(ScriptedPolicy(lambda _: None))))  # type: ignore[arg-type,return-value]  # that is the nonsense
    assert event.decision.reason.code == "policy-failed"


def test_a_policy_that_is_not_ready_keeps_the_job() -> None:
    def wait(_situation: Situation) -> Decision:
        raise NotReadyError("ten more minutes")

    assert decided(started(build_loop(ScriptedPolicy(wait)))).decision.reason.code == "policy-not-ready"


class _BadLearner(ScriptedPolicy):
    def learn(self, observation: Observation) -> None:
        raise RuntimeError(f"cannot learn {observation.time_s:g}")


class _BadForecaster(LastValue):
    def forecast(self, *, horizon_s: float, step_s: float) -> Forecast:
        raise RuntimeError(f"cannot see {horizon_s:g} / {step_s:g}")


def test_a_policy_that_cannot_learn_is_told_of_once_with_the_next_decision_also_after_a_restart() -> None:
    loop = started(build_loop(_BadLearner()))
    event = decided(loop)
    assert event.decision.reason.code == "policy-failed"
    assert "cannot learn 10" in event.decision.reason.sentence
    again = build_loop(_BadLearner())
    again.replay([Reported(at_s=10.0, observation=observation(10.0, config(4)))])
    assert decided(again, 10.0).decision.reason.code == "policy-failed"
    told = build_loop(_BadLearner())
    told.replay([Reported(at_s=10.0, observation=observation(10.0, config(4))), event])
    assert decided(told, 160.0).decision.reason.code != "policy-failed"


def test_a_forecaster_that_fails_keeps_the_job() -> None:
    loop = started(build_loop(wants(6), forecaster=_BadForecaster()))
    assert decided(loop).decision.reason.code == "forecaster-failed"


def test_an_impossible_choice_of_the_policy_is_a_veto_and_no_crash() -> None:
    policy = ScriptedPolicy(
        lambda _: Reconfigure(target=config(4, memory_mib=2048), reason=because(), mechanism=Mechanism.REPARTITION)
    )
    event = decided(started(build_loop(policy)))
    assert event.vetoed
    assert event.verdicts[-1].reason.code == "impossible-change"


def test_numpy_and_nonsense_in_evidence_become_plain() -> None:
    evidence = {"a": np.float64(1.5), "b": np.int64(3), "c": float("nan"), "d": [1], "e": True}
    reason = Reason(code="numpy", sentence="Numbers of another library.", evidence=evidence)  # type: ignore[arg-type]  # what a careless policy does
    event = decided(started(build_loop(ScriptedPolicy(lambda _: Keep(reason=reason)))))
    assert event.decision.reason.evidence == {"a": 1.5, "b": 3, "c": None, "d": "[1]", "e": True}


def test_while_paused_decisions_are_for_the_record_and_an_override_still_acts() -> None:
    loop = started(build_loop(wants(6)))
    loop.handle(Paused(at_s=10.0, by="ada"))
    event = decided(loop)
    assert event.verdicts[0].guard == "paused"
    assert loop.state.planned == config(6)
    assert loop.unfinished() == ()
    handled = loop.handle(Overridden(at_s=20.0, by="ada", target=config(8)))
    assert [command.request.target for command in handled.commands if not isinstance(command, StartProfile)] == [
        config(8)
    ]
    loop.handle(Resumed(at_s=30.0, by="ada"))
    assert loop.state.paused_by is None


def test_while_overridden_the_policy_decides_for_the_record_until_it_is_lifted() -> None:
    loop = started(build_loop(wants(6)))
    loop.handle(Overridden(at_s=10.0, by="ada", target=config(4)))
    assert decided(loop).verdicts[0].guard == "override"
    loop.handle(OverrideLifted(at_s=20.0, by="ada"))
    assert not decided(loop, 80.0).vetoed


def test_an_override_beyond_the_quota_is_altered_and_one_that_nothing_fits_is_refused_without_a_flood() -> None:
    loop = started(build_loop(guard_settings=GuardSettings(quota_cores=8.0)))
    loop.handle(Overridden(at_s=10.0, by="ada", target=config(12)))
    assert loop.state.requested == config(8)
    tight = started(build_loop(guard_settings=GuardSettings(quota_cores=0.5)))
    tight.handle(Overridden(at_s=10.0, by="ada", target=config(12)))
    events = [event for at_s in range(11, 300) for event in tight.handle(Ticked(at_s=float(at_s))).events]
    assert not [event for event in events if isinstance(event, Decided) and event.origin is Origin.OPERATOR]


def profile(*executors: int) -> ScriptedPolicy:
    candidates = tuple(config(count) for count in executors)
    return ScriptedPolicy(lambda _: Profile(candidates=candidates, reason=because("learn"), settle_s=10, measure_s=20))


def test_one_profile_at_a_time_and_its_result_reaches_the_policy() -> None:
    loop = started(build_loop(profile(2, 3)))
    handled = loop.handle(Ticked(at_s=10.0))
    assert isinstance(handled.events[-1], ProfileRequested)
    (command,) = handled.commands
    assert command == loop.unfinished()[0]
    report(loop, 70.0)
    assert decided(loop, 70.0).verdicts[0].guard == "one-profile"
    outcome = ProfileOutcome(request_id=command.request.request_id, finished_at_s=80.0, measurements=())
    loop.handle(ProfileFinished(at_s=80.0, outcome=outcome))
    loop.handle(ProfileFinished(at_s=81.0, outcome=outcome))
    assert list(loop.state.profiles) == [outcome]
    assert loop.unfinished() == ()


@pytest.mark.parametrize(("interval_s", "measured_s"), [(1.0, 20.0), (90.0, 180.0)])
def test_a_profile_may_take_long_enough_for_batches_to_be_committed(interval_s: float, measured_s: float) -> None:
    """An engine may measure for two commit intervals; besides, everything may take three times as long."""
    wanted = replace(config(2), commit_interval_s=interval_s)
    policy = ScriptedPolicy(lambda _: Profile(candidates=(wanted,), reason=because("learn"), settle_s=10, measure_s=20))
    space = replace(SPACE, commit_interval_s=(1.0, 90.0))
    loop = started(build_loop(policy, space=space, settings=LoopSettings(deadline_minimum_s=120.0)))
    requested = loop.handle(Ticked(at_s=10.0)).events[-1]
    assert isinstance(requested, ProfileRequested)
    assert requested.request.deadline_s == 10.0 + 120.0 + 3.0 * (10.0 + measured_s)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (GuardSettings(profile_cores=4.9), "over-profile-budget"),
        (GuardSettings(profile_memory_mib=5 * 1024.0 - 1), "over-profile-budget"),
        (GuardSettings(profile_time_s=29.0), "over-profile-time"),
    ],
)
def test_a_profile_beyond_its_budget_is_refused(settings: GuardSettings, code: str) -> None:
    loop = started(build_loop(profile(2, 3), guard_settings=settings))
    (verdict,) = decided(loop, 10.0).verdicts
    assert (verdict.guard, verdict.reason.code) == ("profile-budget", code)
    assert loop.state.profile is None


def test_a_profile_within_its_budget_is_run_until_its_time_is_spent() -> None:
    # Two and three executors of 1 core and 1 GiB for 30 s: exactly what is allowed.
    settings = GuardSettings(profile_cores=5.0, profile_memory_mib=5 * 1024.0, profile_time_s=100.0)
    loop = started(build_loop(profile(2, 3), guard_settings=settings))
    for second in (0.0, 60.0):
        report(loop, second + 10.0)
        (command,) = loop.handle(Ticked(at_s=second + 10.0)).commands
        assert isinstance(command, StartProfile)
        outcome = ProfileOutcome(request_id=command.request.request_id, finished_at_s=second + 50.0, measurements=())
        loop.handle(ProfileFinished(at_s=second + 50.0, outcome=outcome))
    assert loop.state.profiled_s == 80.0
    report(loop, 130.0)
    assert decided(loop, 130.0).verdicts[0].reason.code == "over-profile-time"


def test_a_profile_with_a_failure_has_the_time_to_recover() -> None:
    deadlines = []
    for broken in (False, True):
        decision = Profile(candidates=(config(2),), reason=because("learn"), inject_failure=broken)
        loop = started(build_loop(ScriptedPolicy(lambda _, decision=decision: decision)))  # type: ignore[misc]  # bound now
        (command,) = loop.handle(Ticked(at_s=10.0)).commands
        assert isinstance(command, StartProfile)
        deadlines.append(command.request.deadline_s)
    assert deadlines[1] - deadlines[0] >= 360.0


def test_a_profile_expires_at_its_deadline() -> None:
    loop = started(build_loop(profile(2)))
    (command,) = loop.handle(Ticked(at_s=10.0)).commands
    handled = loop.handle(Ticked(at_s=command.request.deadline_s))
    assert isinstance(handled.events[0], ProfileExpired)
    assert loop.state.profile is None


@pytest.mark.parametrize(
    ("policy", "guards", "guard"),
    [
        (profile(2, 40), GuardSettings(), "bounds"),
        (profile(2, 3), GuardSettings(quota_cores=8.0), "quota"),
    ],
)
def test_profiles_stay_inside_bounds_and_quota(policy: ScriptedPolicy, guards: GuardSettings, guard: str) -> None:
    assert decided(started(build_loop(policy, guard_settings=guards))).verdicts[0].guard == guard


def test_a_paused_loop_starts_no_profile() -> None:
    loop = started(build_loop(profile(2)))
    loop.handle(Paused(at_s=10.0, by="ada"))
    assert decided(loop).verdicts[0].guard == "paused"


def test_the_loop_refuses_what_it_is_not_told_of() -> None:
    with pytest.raises(TypeError):
        build_loop().handle("news")  # type: ignore[arg-type]  # on purpose


def test_memory_stays_bounded() -> None:
    loop = started(build_loop(ScriptedPolicy(history_s=100.0), settings=LoopSettings(bars_kept=2)), reported_s=None)
    for step in range(1, 2000):
        report(loop, step * 10.0)
    assert len(loop.state.history) == 11


inputs = st.lists(
    st.tuples(
        st.sampled_from(["report", "tick", "pause", "resume", "override", "lift", "finish", "fail"]),
        st.floats(0.0, 90.0),
        st.integers(1, 14),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(inputs)
def test_a_replayed_loop_equals_the_live_one_after_every_event(steps: list[tuple[str, float, int]]) -> None:

    def fresh() -> Loop:
        return build_loop(
            ScriptedPolicy(follow), forecaster=LastValue(), settings=LoopSettings(forecast_horizon_s=120.0)
        )

    live = fresh()
    journal: list[JournalEvent] = []
    for handled in drive(live, steps):
        journal.extend(decode(*encode(event), where="here") for event in handled.events)
    replayed = fresh()
    replayed.replay(journal)
    assert replayed.state == live.state
    assert replayed.unfinished() == live.unfinished()
    assert isinstance(live.policy, ScriptedPolicy)
    assert isinstance(replayed.policy, ScriptedPolicy)
    assert replayed.policy.learned == live.policy.learned
    # And both go on in the same way.
    now_s = 10_000.0
    latest = Reported(at_s=now_s, observation=replace(observation(now_s, config(3), rate_per_s=900.0)))
    for event in (latest, Ticked(at_s=now_s)):
        assert replayed.handle(event) == live.handle(event)
