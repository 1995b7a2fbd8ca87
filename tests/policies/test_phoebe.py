"""Phoebe: each rule of the paper; recoveries by hand from D + rate x (interval + D) / (capacity - rate)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidewise.core import (
    Censored,
    Configuration,
    Decision,
    InvalidValueError,
    Keep,
    Mechanism,
    Observation,
    Policy,
    Profile,
    ProfileMeasurement,
    ProfileOutcome,
    ProfileRequest,
    Promises,
    Reason,
    Reconfigure,
    Situation,
)
from tidewise.policies.phoebe import Phoebe
from tidewise.testing import PolicyConformance
from tidewise.testing.situations import report, situation_of, space_of

RATE = 5000.0
PER_EXECUTOR = 1000.0
DOWN_S = 60.0
COUNTS = (2, 5, 8, 11, 14, 17, 20, 23)
EXACT = Phoebe(ridge=1e-9, profile_step_per_s=20_000.0)
"""Without the ridge's shrinkage, so that sums by hand come out even."""


class TestPhoebe(PolicyConformance):
    def make_policy(self) -> Policy:
        return Phoebe()


class TestPhoebeElsewhere(PolicyConformance):
    def make_policy(self) -> Policy:
        return Phoebe(
            cooldown_s=0.0, least_step_down=1, profile_copies=2, profile_settle_s=0.0, mechanism=Mechanism.REDEPLOY
        )


def steady(*, executors: int = 24, rate: float = RATE, minutes: int = 20, latency_s: float = 0.5) -> list[Observation]:
    return [
        report(
            time_s=15.0 * (number + 1),
            window_s=15.0,
            executors=executors,
            rate_per_s=rate,
            busy_share=min(1.0, rate / PER_EXECUTOR / executors),
            latency_s=latency_s,
        )
        for number in range(4 * minutes)
    ]


def recovery_of(executors: int, *, rate: float = RATE, down_s: float = DOWN_S) -> float | Censored:
    """What the sum gives at a steady rate, with commits every second; 360 s at least where it does not end."""
    spare = PER_EXECUTOR * executors - rate
    took_s = down_s + rate * (1.0 + down_s) / spare if spare > 0.0 else 1e9
    return took_s if took_s < 360.0 else Censored(at_least=360.0)


def profile_of(
    counts: Iterable[int] = COUNTS,
    *,
    rate: float = RATE,
    finished_at_s: float = 500.0,
    broken: bool = True,
    bad_below: int = 6,
    number: int = 1,
) -> ProfileOutcome:
    return ProfileOutcome(
        request_id=f"profile-{number}",
        finished_at_s=finished_at_s,
        measurements=tuple(
            ProfileMeasurement(
                configuration=Configuration(executors=count),
                input_rate_per_s=rate,
                processed_rate_per_s=min(rate, PER_EXECUTOR * count),
                latency_p50_s=None,
                latency_p95_s=1.0 if count >= bad_below else 100.0,
                busy_share=min(1.0, rate / PER_EXECUTOR / count),
                recovery_s=recovery_of(count, rate=rate) if broken else None,
            )
            for count in counts
        ),
    )


def asked(
    policy: Phoebe,
    history: Sequence[Observation],
    profiles: Sequence[ProfileOutcome] = (),
    **more: object,
) -> Decision:
    """The decision of the policy's like that has learnt the history."""
    fresh = replace(policy)
    for observation in history:
        fresh.learn(observation)
    situation = replace(situation_of(history), profiles=tuple(profiles), **more)  # type: ignore[arg-type]  # by name
    return fresh.decide(situation)


def wanted(decision: Decision) -> int | None:
    return decision.target.executors if isinstance(decision, Reconfigure) else None


def test_it_begins_with_a_profile_of_the_papers_copies_broken_once() -> None:
    decision = asked(EXACT, steady(minutes=1))
    assert isinstance(decision, Profile)
    assert tuple(candidate.executors for candidate in decision.candidates) == COUNTS
    assert (decision.settle_s, decision.measure_s, decision.recovery_limit_s) == (300.0, 120.0, 360.0)
    assert decision.inject_failure


@pytest.mark.parametrize(
    ("offered", "measured"),
    [((1, 2, 3), (1, 2, 3)), (range(1, 9), tuple(range(1, 9))), (range(10, 101, 10), (20, 30, 40, 50, 60, 70, 80, 90))],
)
def test_copies_are_spread_over_any_space(offered: Iterable[int], measured: tuple[int, ...]) -> None:
    space = space_of(executors=offered)
    decision = asked(EXACT, steady(executors=space.executors[0], minutes=1), space=space)
    assert isinstance(decision, Profile)
    assert tuple(candidate.executors for candidate in decision.candidates) == measured


def test_while_a_profile_is_on_what_runs_stays() -> None:
    on = ProfileRequest(
        request_id="profile-7",
        candidates=(Configuration(executors=2),),
        settle_s=300.0,
        measure_s=120.0,
        inject_failure=True,
        recovery_limit_s=360.0,
        requested_at_s=1.0,
        deadline_s=2000.0,
        reason=Reason(code="profile", sentence="To know more."),
    )
    assert asked(EXACT, steady(), [profile_of()], profile_on=on).reason.code == "profile-is-on"


def test_a_new_step_of_load_is_profiled_and_not_broken_again() -> None:
    decision = asked(EXACT, steady(rate=45_000.0), [profile_of()])
    assert isinstance(decision, Profile)
    assert not decision.inject_failure
    assert "steps of 2e+04/s" in decision.reason.sentence


@pytest.mark.parametrize("rate", [1000.0, 19_000.0, 14_000.0])
def test_a_step_that_was_profiled_is_not_profiled_again(rate: float) -> None:
    assert not isinstance(asked(EXACT, steady(rate=rate), [profile_of()]), Profile)


def test_a_change_does_not_wait_for_a_profile_that_may_never_come() -> None:
    # The load of 45,000/s was never profiled, and guards may refuse to: the models know that 12 are too few for it.
    decision = asked(EXACT, steady(executors=12, rate=45_000.0), [profile_of()])
    assert wanted(decision) == 24
    # The profile comes while it rests.
    resting = {"last_change_finished_at_s": 1100.0}
    assert isinstance(asked(EXACT, steady(rate=45_000.0), [profile_of()], **resting), Profile)
    assert asked(EXACT, steady(), [profile_of()], **resting).reason.code == "cooling-down"


def test_a_load_between_two_steps_is_profiled_once() -> None:
    just_below = profile_of(rate=19_900.0)
    assert not isinstance(asked(EXACT, steady(rate=20_100.0), [just_below]), Profile)


def test_after_a_profile_the_next_one_waits() -> None:
    # Reports end at 1200 s.
    assert isinstance(asked(EXACT, steady(rate=45_000.0), [profile_of(finished_at_s=600.0)]), Profile)
    assert not isinstance(asked(EXACT, steady(rate=45_000.0), [profile_of(finished_at_s=610.0)]), Profile)


def test_without_a_step_given_it_is_a_tenth_of_the_capacity() -> None:
    # 24 executors can do 24,000/s: the load of 5,000/s lies in the step from 4,800 to 7,200.
    policy = replace(EXACT, profile_step_per_s=None)
    resting = {"last_change_finished_at_s": 1100.0}
    assert not isinstance(asked(policy, steady(rate=7100.0), [profile_of()], **resting), Profile)
    assert isinstance(asked(policy, steady(rate=7300.0), [profile_of()], **resting), Profile)


def test_an_idle_job_is_not_profiled() -> None:
    assert asked(EXACT, steady(rate=0.0)).reason.code == "learning"


def test_a_profile_that_measured_nothing_is_made_again() -> None:
    ended = profile_of(rate=0.0, broken=False)
    assert isinstance(asked(EXACT, steady(), [ended]), Profile)


def test_the_fewest_executors_that_recover_in_time_are_taken() -> None:
    # 60 + 5000 x 61 / (1000 x - 5000) is 212 s with 7 and 162 s with 8.
    decision = asked(EXACT, steady(), [profile_of()])
    assert wanted(decision) == 8
    assert decision.reason.code == "scale-down"
    assert decision.reason.evidence["downtime_s"] == pytest.approx(DOWN_S, abs=0.1)
    assert decision.reason.evidence["recovery_s"] == pytest.approx(161.7, abs=1.0)
    assert decision.reason.evidence["capacity_per_s"] == pytest.approx(8000.0, rel=0.01)


def test_the_promise_says_how_soon_to_recover() -> None:
    # With 10 it takes 121.0 s, with 11 110.8 s.
    promised = Promises(recovery_s=115.0)
    assert wanted(asked(EXACT, steady(), [profile_of()], promises=promised)) == 11
    only_latency = Promises(latency_p95_s=2.0)
    assert wanted(asked(EXACT, steady(), [profile_of()], promises=only_latency)) == 8
    # What was set for this policy counts before what was promised.
    assert wanted(asked(replace(EXACT, recovery_limit_s=115.0), steady(), [profile_of()])) == 11
    both = asked(replace(EXACT, recovery_limit_s=180.0), steady(), [profile_of()], promises=promised)
    assert wanted(both) == 8


def test_a_downtime_that_is_given_is_not_measured() -> None:
    # 100 + 5000 x 101 / (1000 x - 5000) is 184 s with 11 and 172 s with 12.
    by_hand = replace(EXACT, downtime_s=100.0)
    assert wanted(asked(by_hand, steady(), [profile_of()])) == 12
    profile = asked(by_hand, steady())
    assert isinstance(profile, Profile)
    assert not profile.inject_failure


def test_a_downtime_that_nothing_tells_is_the_papers() -> None:
    assert wanted(asked(EXACT, steady(), [profile_of(broken=False)])) == 12


def test_a_latency_of_the_upper_cluster_is_not_valid() -> None:
    # Copies of 8 and 11 were late: somewhere between 11 and 14 they are no longer.
    taken = wanted(asked(EXACT, steady(), [profile_of(bad_below=12)]))
    assert taken is not None
    assert 11 < taken <= 14


def test_copies_without_output_have_left_the_healthy_cluster() -> None:
    outcome = profile_of()
    silent = tuple(
        replace(copy, latency_p95_s=None) if copy.configuration.executors <= 11 else copy
        for copy in outcome.measurements
    )
    taken = wanted(asked(EXACT, steady(), [replace(outcome, measurements=silent)]))
    assert taken is not None
    assert 11 < taken <= 14


def test_where_all_is_well_nothing_is_invalid() -> None:
    decision = asked(EXACT, steady(), [profile_of(bad_below=1)])
    assert wanted(decision) == 8
    assert decision.reason.evidence["latency_limit_s"] is None


def test_where_none_recovers_in_time_the_largest_is_nearest() -> None:
    promised = Promises(recovery_s=61.0)
    assert asked(EXACT, steady(), [profile_of()], promises=promised).reason.code == "already-there"
    few = steady(executors=12)
    decision = asked(EXACT, few, [profile_of()], promises=promised)
    assert wanted(decision) == 24
    assert "come nearest" in decision.reason.sentence


@pytest.mark.parametrize(("running", "taken"), [(8, None), (9, None), (10, None), (11, 8), (7, 8)])
def test_one_or_two_executors_fewer_are_no_change(running: int, taken: int | None) -> None:
    decision = asked(EXACT, steady(executors=running), [profile_of()])
    assert wanted(decision) == taken
    if running in (9, 10):
        assert decision.reason.code == "near-enough"


def test_after_a_change_it_rests() -> None:
    resting = asked(EXACT, steady(), [profile_of()], last_change_finished_at_s=601.0)
    assert resting.reason.code == "cooling-down"
    assert wanted(asked(EXACT, steady(), [profile_of()], last_change_finished_at_s=600.0)) == 8


def test_a_rising_load_is_met_before_it_comes() -> None:
    # 2 % more every minute, for an hour: 10 min later it is 1.22 times as much.
    risen = [replace(seen, input_rate_per_s=1000.0 * 1.02 ** (seen.time_s / 60.0)) for seen in steady(minutes=80)]
    decision = asked(EXACT, risen, [profile_of()])
    now = risen[-1].input_rate_per_s
    peak = decision.reason.evidence["peak_per_s"]
    assert isinstance(peak, float)
    assert 1.1 * now < peak < 1.35 * now


def test_a_compressed_day_is_forecast_from_shorter_samples() -> None:
    # 20 times as fast as above: 2 % more every 3 s, and 30 s later it is 1.22 times as much.
    usual = steady(minutes=80)
    risen = [
        replace(seen, time_s=seen.time_s / 20, window_s=0.75, input_rate_per_s=1000.0 * 1.02 ** (seen.time_s / 60.0))
        for seen in usual
    ]
    compressed = replace(EXACT, sample_s=3.0, horizon_s=30.0, profile_settle_s=15.0)
    assert compressed.history_s == 3.0
    now = risen[-1].input_rate_per_s
    peak = asked(compressed, risen, [profile_of(finished_at_s=25.0)]).reason.evidence["peak_per_s"]
    assert isinstance(peak, float)
    assert 1.1 * now < peak < 1.35 * now
    late = asked(replace(EXACT, horizon_s=30.0), risen, [profile_of(finished_at_s=25.0)]).reason.evidence["peak_per_s"]
    assert isinstance(late, float)
    assert late < 1.1 * now


def test_what_its_own_reports_show_counts_as_well() -> None:
    # The profile says 1,000/s each; then 24 of them are seen to be twice as fast.
    slower = asked(EXACT, steady(executors=24), [profile_of()])
    faster = [replace(seen, busy_share=RATE / 48_000.0) for seen in steady(executors=24)]
    capacity, before = (
        decision.reason.evidence["capacity_per_s"] for decision in (asked(EXACT, faster, [profile_of()]), slower)
    )
    assert isinstance(capacity, float)
    assert isinstance(before, float)
    assert capacity != pytest.approx(before, rel=0.01)


def test_profiles_of_another_shape_tell_nothing() -> None:
    outcome = profile_of()
    bigger = tuple(
        replace(copy, configuration=replace(copy.configuration, memory_mib_per_executor=2048))
        for copy in outcome.measurements
    )
    assert isinstance(asked(EXACT, steady(), [replace(outcome, measurements=bigger)]), Profile)


def test_without_the_busy_share_it_goes_on_learning() -> None:
    history = [replace(seen, busy_share=None) for seen in steady()]
    outcome = profile_of()
    silent = tuple(replace(copy, busy_share=None) for copy in outcome.measurements)
    assert asked(EXACT, history, [replace(outcome, measurements=silent)]).reason.code == "learning"


def test_a_job_outside_its_space_is_left_alone() -> None:
    elsewhere = Configuration(executors=4, memory_mib_per_executor=4096)
    history = [replace(seen, configuration=elsewhere) for seen in steady()]
    assert asked(EXACT, history, observed=elsewhere, intended=elsewhere).reason.code == "outside-space"


def test_it_says_what_a_space_lacks() -> None:
    assert EXACT.requires(space_of()) is None
    lacking = EXACT.requires(space_of(executors=[4]))
    assert lacking is not None
    assert "the space offers 4 only" in lacking


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    offered=st.sets(st.integers(1, 60), min_size=2, max_size=20),
    rate=st.floats(1.0, 1e5),
    at=st.integers(0, 1000),
    rested_s=st.floats(0.0, 1200.0),
    bad_below=st.integers(1, 60),
)
def test_it_never_leaves_the_space_nor_changes_while_it_rests(
    offered: set[int], rate: float, at: int, rested_s: float, bad_below: int
) -> None:
    space = space_of(executors=sorted(offered))
    runs = space.executors[at % len(space.executors)]
    policy = replace(EXACT, profile_step_per_s=1e6)
    decision = asked(
        policy,
        steady(executors=runs, rate=rate, minutes=10),
        [profile_of(space.executors, rate=rate, bad_below=bad_below)],
        space=space,
        last_change_finished_at_s=600.0 - rested_s,
    )
    assert isinstance(decision, Keep | Reconfigure)
    if isinstance(decision, Reconfigure):
        assert decision.target in space
        assert decision.target.executors > runs or decision.target.executors <= runs - 3
        assert rested_s >= 600.0


@settings(max_examples=25, deadline=None)
@given(low=st.floats(100.0, 2e4), high=st.floats(100.0, 2e4))
def test_more_load_never_asks_for_fewer_executors(low: float, high: float) -> None:
    # One profile without bad latency, so that recovery alone decides.
    counts = []
    for rate in sorted((low, high)):
        decision = asked(replace(EXACT, least_step_down=1), steady(rate=rate), [profile_of(bad_below=1)])
        counts.append(wanted(decision) or 24)
    assert counts[0] <= counts[1]


def test_it_goes_on_from_a_fresh_start_as_from_a_long_one() -> None:
    def decided(situation: Situation, *before: Situation) -> Decision:
        policy = replace(EXACT)
        for observation in situation.history:
            policy.learn(observation)
        for earlier in before:
            policy.decide(earlier)
        return policy.decide(situation)

    now = replace(situation_of(steady()), profiles=(profile_of(),))
    other = replace(situation_of(steady()), profiles=(profile_of(bad_below=20),))
    assert decided(now, other) == decided(now)


@pytest.mark.parametrize(
    "wrong",
    [
        {"recovery_limit_s": 0.0},
        {"horizon_s": 0.0},
        {"cooldown_s": -1.0},
        {"least_step_down": 0},
        {"profile_copies": 1},
        {"profile_measure_s": 0.0},
        {"profile_step_per_s": 0.0},
        {"ridge": 0.0},
        {"downtime_s": float("nan")},
        {"sample_s": 0.0},
    ],
)
def test_senseless_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError):
        Phoebe(**wrong)  # type: ignore[arg-type]  # wrong on purpose
