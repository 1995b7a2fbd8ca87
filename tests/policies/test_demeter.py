"""Demeter: each rule of its two loops in a small situation, what it never does, and a short run in the simulator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidewise.core import (
    Censored,
    Configuration,
    ConfigurationSpace,
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
    Reason,
    Reconfigure,
    Situation,
)
from tidewise.experiments import Experiment, run_experiment
from tidewise.policies import Demeter, make_policy
from tidewise.testing import PolicyConformance
from tidewise.testing.situations import report, situation_of, space_of, stories
from tidewise.testing.strategies import members, profile_outcomes, situations

RATE = 25_000.0
"""What arrives; with the headroom of 10 % the target is 27,500, in the segment from 20,000."""
HOUR = 3600.0


class TestDemeter(PolicyConformance):
    def make_policy(self) -> Policy:
        return Demeter()


class TestDemeterInAHurry(PolicyConformance):
    def make_policy(self) -> Policy:
        return Demeter(
            think_s=0.0, cooldown_s=0.0, segment_per_s=100.0, parallelism=(1, 4), mechanism=Mechanism.REDEPLOY, seed=3
        )


def space(executors: Iterable[int] = range(2, 25, 2)) -> ConfigurationSpace:
    return replace(space_of(executors=executors), memory_mib_per_executor=(1024, 4096), commit_interval_s=(1.0, 10.0))


DEFAULT = Configuration(executors=24, memory_mib_per_executor=4096, commit_interval_s=1.0)


def minutes(
    count: int = 40, *, configuration: Configuration = DEFAULT, rate_per_s: float = RATE, latency_s: float = 0.75
) -> list[Observation]:
    """Reports every 15 s; the 95th percentile is twice the latency that is given here."""
    return [
        replace(
            report(time_s=15.0 * (number + 1), window_s=15.0, rate_per_s=rate_per_s, latency_s=latency_s),
            configuration=configuration,
        )
        for number in range(4 * count)
    ]


def copy(
    executors: int, *, rate_per_s: float = RATE, latency_s: float | None = 1.5, recovery_s: float = 60.0, **other: int
) -> ProfileMeasurement:
    return ProfileMeasurement(
        configuration=replace(Configuration(executors=executors), **other),  # type: ignore[arg-type]  # numbers only
        input_rate_per_s=rate_per_s,
        processed_rate_per_s=rate_per_s,
        latency_p50_s=None,
        latency_p95_s=latency_s,
        busy_share=0.5,
        recovery_s=Censored(at_least=360.0) if recovery_s >= 360.0 else recovery_s,
    )


def outcome(*copies: ProfileMeasurement, number: int = 0, finished_at_s: float = 0.0) -> ProfileOutcome:
    return ProfileOutcome(request_id=f"profile-{number}", finished_at_s=finished_at_s, measurements=copies)


GOOD_FROM_8 = outcome(
    *[
        copy(each, latency_s=1.5 if each >= 8 else 60.0, recovery_s=60.0 if each >= 8 else 360.0)
        for each in range(2, 25, 2)
    ]
)
"""With 8 executors and more all is well."""


def decide(
    policy: Demeter,
    history: Sequence[Observation],
    *,
    profiles: Sequence[ProfileOutcome] = (),
    intended: Configuration | None = None,
    changed_at_s: float | None = None,
    profile_on: ProfileRequest | None = None,
    within: ConfigurationSpace | None = None,
) -> Decision:
    for seen in history:
        policy.learn(seen)
    situation = situation_of(
        history, intended=intended, last_change_finished_at_s=changed_at_s, space=within or space()
    )
    return policy.decide(replace(situation, profiles=profiles, profile_on=profile_on))


def no_profiles(**other: object) -> Demeter:
    return Demeter(think_s=1e9, **other)  # type: ignore[arg-type]  # settings by name


# Profile.


def test_the_first_profile_comes_when_the_search_is_done() -> None:
    assert decide(Demeter(), minutes(9)).reason.code == "nothing-known"
    decision = decide(Demeter(), minutes(11))
    assert isinstance(decision, Profile)
    assert decision.reason.code == "too-little-known"
    assert len(decision.candidates) == 5
    assert all(candidate in space() for candidate in decision.candidates)
    assert (decision.settle_s, decision.measure_s, decision.recovery_limit_s) == (60.0, 60.0, 360.0)
    assert decision.inject_failure


def test_a_search_without_delay_proposes_at_once() -> None:
    assert isinstance(decide(Demeter(think_s=0.0), minutes(2)), Profile)


def test_the_next_search_begins_when_the_last_profile_ended() -> None:
    known = replace(outcome(copy(24)), finished_at_s=2000.0)
    assert not isinstance(decide(Demeter(), minutes(40), profiles=[known]), Profile)
    later = decide(Demeter(), minutes(44), profiles=[known])
    assert isinstance(later, Profile)
    assert len(later.candidates) <= 2


def test_one_profile_at_a_time() -> None:
    on = ProfileRequest(
        request_id="on",
        candidates=(DEFAULT,),
        settle_s=60.0,
        measure_s=60.0,
        inject_failure=True,
        recovery_limit_s=360.0,
        requested_at_s=2000.0,
        deadline_s=3000.0,
        reason=Reason(code="test", sentence="It is on."),
    )
    assert isinstance(decide(Demeter(), minutes(), profile_on=on), Keep)


def test_a_segment_of_which_enough_is_known_is_not_profiled() -> None:
    known = outcome(*[copy(each) for each in range(2, 25, 2)])
    policy = Demeter(enough_profiles=12)
    assert not isinstance(decide(policy, minutes(), profiles=[known], changed_at_s=2300.0), Profile)
    more = decide(Demeter(enough_profiles=13), minutes(), profiles=[known], changed_at_s=2300.0)
    assert isinstance(more, Profile)
    # The headroom is the job's: copies run at the rate that arrives, which here is below the next segment.
    higher = decide(Demeter(enough_profiles=12), minutes(rate_per_s=29_000.0), profiles=[known], changed_at_s=2300.0)
    assert not isinstance(higher, Profile)


def test_what_counts_for_the_segment_is_not_run_again() -> None:
    decision = decide(Demeter(enough_profiles=99, copies=48), minutes(), profiles=[GOOD_FROM_8], changed_at_s=2300.0)
    assert isinstance(decision, Profile)
    known = {each.configuration for each in GOOD_FROM_8.measurements}
    assert not known & set(decision.candidates)
    everything = outcome(*[replace(copy(2), configuration=each) for each in space()])
    again = decide(Demeter(enough_profiles=999), minutes(), profiles=[everything], changed_at_s=2300.0)
    assert not isinstance(again, Profile)


def test_an_engine_that_cannot_profile_is_asked_again_only_after_an_hour() -> None:
    died = replace(copy(24, latency_s=None, rate_per_s=0.0), detail="copies are not offered")
    twice = [outcome(died, number=number, finished_at_s=100.0) for number in range(2)]
    assert isinstance(decide(Demeter(), minutes(), profiles=twice[:1]), Profile)
    blind = decide(Demeter(), minutes(), profiles=twice)
    assert blind.reason.code == "cannot-profile"
    assert "copies are not offered" in blind.reason.sentence
    assert isinstance(decide(Demeter(), minutes(62), profiles=twice), Profile)


def test_a_copy_that_died_is_a_bad_profile() -> None:
    died = replace(copy(4, latency_s=None), detail="out of memory", recovery_s=None)
    known = replace(GOOD_FROM_8, measurements=(died, *GOOD_FROM_8.measurements[2:]))
    decision = decide(no_profiles(), minutes(), profiles=[known])
    assert isinstance(decision, Reconfigure)
    assert decision.target.executors >= 8


def test_a_larger_parallelism_step_narrows_the_choice() -> None:
    slots = replace(space(range(1, 25)), slots_per_executor=(1, 2, 3))
    decision = decide(Demeter(think_s=0.0, parallelism=(4, 8), first_copies=999), minutes(2), within=slots)
    assert isinstance(decision, Profile)
    found = {(each.executors, each.slots_per_executor) for each in decision.candidates}
    assert found == {(4, 1), (8, 1), (2, 2), (4, 2), (2, 3), (3, 3)}


# Optimise.


def test_the_cheapest_that_is_trusted_runs() -> None:
    decision = decide(no_profiles(mechanism=Mechanism.REDEPLOY), minutes(), profiles=[GOOD_FROM_8])
    assert isinstance(decision, Reconfigure)
    assert decision.reason.code == "cheapest-trusted"
    assert 8 <= decision.target.executors <= 12
    assert decision.target.memory_mib_per_executor == 1024
    assert decision.mechanism is Mechanism.REDEPLOY
    assert decision.reason.evidence["target_rate_per_s"] == pytest.approx(1.1 * RATE)


def test_more_margin_is_dearer() -> None:
    usual = decide(no_profiles(), minutes(), profiles=[GOOD_FROM_8])
    careful = decide(no_profiles(margin=1.9), minutes(), profiles=[GOOD_FROM_8])
    assert isinstance(usual, Reconfigure)
    target = careful.target if isinstance(careful, Reconfigure) else DEFAULT
    assert target.total_cores > usual.target.total_cores


def test_the_forecast_goes_on_with_a_rise() -> None:
    rising = [replace(seen, input_rate_per_s=RATE + 10.0 * seen.time_s) for seen in minutes(60)]
    rate = decide(no_profiles(), rising).reason.evidence["target_rate_per_s"]
    assert isinstance(rate, float)
    assert rate > 1.1 * (rising[-1].input_rate_per_s + 1000.0)


def test_a_compressed_day_is_forecast_from_shorter_samples() -> None:
    # In ten minutes there are too few minutes to see a rise, but enough samples of a quarter of one.
    rising = [replace(seen, input_rate_per_s=RATE + 10.0 * seen.time_s) for seen in minutes(10)]
    compressed = no_profiles(sample_s=15.0, forecast_s=150.0)
    assert compressed.history_s == 15.0
    rate = decide(compressed, rising).reason.evidence["target_rate_per_s"]
    assert isinstance(rate, float)
    assert rate > 1.1 * (rising[-1].input_rate_per_s + 1000.0)
    usual = decide(no_profiles(), rising).reason.evidence["target_rate_per_s"]
    assert isinstance(usual, float)
    assert usual < 1.1 * rising[-1].input_rate_per_s


def test_the_latency_is_that_of_the_last_sample() -> None:
    small = Configuration(executors=8)
    start, later = minutes(30)[:4], minutes(30, configuration=small)[4:]
    slow = [replace(seen, latency_p50_s=2.0, latency_p95_s=6.0, latency_p99_s=7.0) for seen in later[-4:-1]]
    history = [*start, *later[:-4], *slow, later[-1]]
    over_a_minute = decide(no_profiles(), history, profiles=[GOOD_FROM_8], intended=small)
    assert over_a_minute.reason.code == "bad-latency"
    over_a_report = decide(no_profiles(sample_s=15.0, forecast_s=150.0), history, profiles=[GOOD_FROM_8])
    assert over_a_report.reason.code != "bad-latency"
    still_slow = [*history[:-1], replace(slow[-1], time_s=later[-1].time_s)]
    last = decide(no_profiles(sample_s=15.0, forecast_s=150.0), still_slow, profiles=[GOOD_FROM_8], intended=small)
    assert "of the last 15 s," in last.reason.sentence


def test_bad_latency_leads_to_the_default() -> None:
    small = Configuration(executors=8)
    # The first report says what the job was started with.
    history = [*minutes(30), *[replace(each, time_s=1800.0 + each.time_s) for each in minutes(2, configuration=small)]]
    calm = decide(no_profiles(), history, profiles=[GOOD_FROM_8], intended=small)
    assert not isinstance(calm, Reconfigure) or calm.target != DEFAULT
    slow = [replace(seen, latency_p50_s=2.0, latency_p95_s=4.0, latency_p99_s=6.0) for seen in history[-8:]]
    decision = decide(no_profiles(), [*history[:-8], *slow], profiles=[GOOD_FROM_8], intended=small)
    assert isinstance(decision, Reconfigure)
    assert decision.reason.code == "bad-latency"
    assert decision.target == DEFAULT
    silent = [replace(seen, latency_p50_s=None, latency_p95_s=None, latency_p99_s=None) for seen in history[-8:]]
    nothing = decide(no_profiles(), [*history[:-8], *silent], profiles=[GOOD_FROM_8], intended=small)
    assert nothing.reason.code == "bad-latency"


def test_the_default_can_be_given() -> None:
    given = Configuration(executors=16, memory_mib_per_executor=4096)
    slow = minutes(configuration=Configuration(executors=8), latency_s=9.0)
    decision = decide(no_profiles(default=given), slow, profiles=[GOOD_FROM_8])
    assert isinstance(decision, Reconfigure)
    assert decision.target == given


def test_the_default_is_the_largest_that_was_meant_or_seen_to_run() -> None:
    slow = minutes(configuration=Configuration(executors=8), latency_s=9.0)
    # The first reports lack executors that are still to come.
    meant = decide(no_profiles(), slow, profiles=[GOOD_FROM_8], intended=DEFAULT)
    assert meant.reason.code == "already-there"
    seen_later = [*slow[:4], *[replace(each, configuration=DEFAULT) for each in slow[4:8]], *slow[8:]]
    decision = decide(no_profiles(), seen_later, profiles=[GOOD_FROM_8])
    assert isinstance(decision, Reconfigure)
    assert decision.target == DEFAULT
    # More cores with less memory is not larger.
    other = Configuration(executors=24, memory_mib_per_executor=1024)
    mixed = [replace(slow[0], configuration=Configuration(executors=12, memory_mib_per_executor=4096)), *slow[1:]]
    narrow = decide(no_profiles(), [*mixed[:4], replace(mixed[4], configuration=other), *mixed[5:]],
                    profiles=[GOOD_FROM_8])  # fmt: skip
    assert isinstance(narrow, Reconfigure)
    assert narrow.target == mixed[0].configuration


def test_where_no_recovery_is_known_the_decision_says_so() -> None:
    unbroken = replace(
        GOOD_FROM_8, measurements=tuple(replace(each, recovery_s=None) for each in GOOD_FROM_8.measurements)
    )
    decision = decide(no_profiles(), minutes(), profiles=[unbroken])
    assert isinstance(decision, Reconfigure)
    assert "no recovery was measured" in decision.reason.sentence
    assert decision.reason.evidence["recovery_s"] is None
    broken = decide(no_profiles(), minutes(), profiles=[GOOD_FROM_8])
    assert "no recovery was measured" not in broken.reason.sentence


def test_where_none_is_trusted_the_default_runs() -> None:
    hopeless = outcome(
        *[copy(each, latency_s=60.0 if each < 24 else 1.5, recovery_s=360.0) for each in range(2, 25, 2)]
    )
    history = [*minutes(30), *[replace(each, time_s=1800.0 + each.time_s) for each in
                               minutes(2, configuration=Configuration(executors=8))]]  # fmt: skip
    decision = decide(no_profiles(), history, profiles=[hopeless])
    assert decision.reason.code == "none-trusted"
    assert isinstance(decision, Reconfigure)
    assert decision.target == DEFAULT


def test_at_most_one_change_per_cooldown() -> None:
    waits = decide(no_profiles(), minutes(40), profiles=[GOOD_FROM_8], changed_at_s=1801.0)
    assert waits.reason.code == "cooling-down"
    assert isinstance(decide(no_profiles(), minutes(40), profiles=[GOOD_FROM_8], changed_at_s=1800.0), Reconfigure)


def test_the_same_cost_is_no_reason_to_restart() -> None:
    seldom = [replace(each, configuration=replace(each.configuration, commit_interval_s=10.0))
              for each in GOOD_FROM_8.measurements]  # fmt: skip
    known = [GOOD_FROM_8, outcome(*seldom, number=1)]
    decision = decide(no_profiles(), minutes(), profiles=known)
    assert isinstance(decision, Reconfigure)
    for interval_s in (1.0, 10.0):
        runs = replace(decision.target, commit_interval_s=interval_s)
        stays = decide(no_profiles(default=DEFAULT), minutes(configuration=runs), profiles=known)
        assert stays.reason.code == "already-there"


def test_nothing_larger_than_the_default_is_chosen() -> None:
    small_default = Configuration(executors=12, memory_mib_per_executor=4096)
    decision = decide(Demeter(think_s=0.0, default=small_default, first_copies=999), minutes(2))
    assert isinstance(decision, Profile)
    assert max(each.executors for each in decision.candidates) == 12


def test_a_target_that_no_mechanism_reaches_is_not_asked_for() -> None:
    live = replace(space(), changes=space_of(mechanisms=[Mechanism.LIVE]).changes)
    decision = decide(no_profiles(), minutes(), profiles=[GOOD_FROM_8], within=live)
    assert decision.reason.code == "unreachable"


def test_a_space_without_a_choice_is_told_before_the_run() -> None:
    assert "only one" in str(Demeter().requires(space_of(executors=[4])))
    assert Demeter().requires(space()) is None
    assert "parallelism" in str(Demeter(parallelism=(99,)).requires(space()))


def test_a_plan_can_set_it_up() -> None:
    policy = make_policy(
        "demeter", {"think": "0s", "parallelism": [4, 8], "segment_per_s": 500, "mechanism": "redeploy"}
    )
    assert isinstance(policy, Demeter)
    assert (policy.think_s, policy.parallelism, policy.segment_per_s) == (0.0, (4, 8), 500.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"segment_per_s": 0.0},
        {"headroom_share": -0.1},
        {"tolerated_latency": 1.0},
        {"margin": 0.9},
        {"copies": 0},
        {"parallelism": ()},
        {"recovery_limit_s": 0.0},
        {"think_s": float("nan")},
        {"seed": -1},
        {"sample_s": 0.0},
        {"forecast_s": 1801.0},
        {"sample_s": 10.0, "forecast_s": 301.0},
    ],
)
def test_senseless_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError):
        Demeter(**wrong)  # type: ignore[arg-type]  # wrong on purpose


# What it never does.


@st.composite
def _with_profiles(draw: st.DrawFn) -> Situation:
    """Any situation, with profiles of configurations of its space."""
    situation = draw(stories() | situations())
    found = draw(st.lists(profile_outcomes(), max_size=4))
    told = [
        replace(
            each,
            measurements=tuple(
                replace(copied, configuration=draw(members(situation.space))) for copied in each.measurements
            ),
        )
        for each in found
    ]
    return replace(situation, profiles=told)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(situation=_with_profiles())
def test_whatever_the_profiles_it_stays_in_the_space_and_rests_after_a_change(situation: Situation) -> None:
    policy = Demeter(think_s=0.0)
    for seen in situation.history:
        policy.learn(seen)
    decision = policy.decide(situation)
    if isinstance(decision, Reconfigure):
        assert decision.target in situation.space
        changed_at_s = situation.last_change_finished_at_s
        assert changed_at_s is None or situation.now_s - changed_at_s >= policy.cooldown_s
        assert situation.requested is None
    if isinstance(decision, Profile):
        assert situation.profile_on is None
        assert all(candidate in situation.space for candidate in decision.candidates)


# A short run.

PLAN = """\
name = "short"
profile = "paper-cluster"
duration = "3h"
seeds = [1]

[space]
executors = "1..24"
slots_per_executor = [1, 2]
cores_per_executor = [1, 2]
memory_per_executor = ["1GiB", "4GiB"]
commit_interval = ["10s", "50s"]

[start]
executors = 24
slots_per_executor = 1
cores_per_executor = 1
memory_per_executor = "4GiB"
commit_interval = "10s"

[promises]
latency_p95 = "3s"
recovery = "180s"

[control]
report_every = "15s"
decide_every = "60s"
cooldown = "0s"
roll_back = false

[[loads]]
name = "waves"
shape = "sine"
mean_per_s = 35000.0
amplitude_share = 0.3
period = "3h"
noise = 0.05

[[policies]]
policy = "demeter"
parallelism = [4, 8, 12, 16, 20, 24]
think = "60s"
mechanism = "redeploy"
"""


def test_a_short_run_profiles_saves_and_keeps_its_waits(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    (run,) = run_experiment(Experiment(tmp_path / "plan.toml"), tmp_path / "runs", created="2026-11-15")
    record = run.record
    assert record.complete
    assert record.failed_decisions == 0
    spent = {purpose.value: usage for purpose, usage in record.meter.items()}
    assert spent["profiling"].core_s > 0.0
    assert spent["executors"].core_s < 0.9 * 24 * 3 * HOUR, "nothing was saved"
    assert spent["executors"].memory_mib_s < 0.8 * 24 * 4096 * 3 * HOUR, "nothing was saved"
    assert len(record.changes) >= 2
    for earlier, later in zip(record.changes, record.changes[1:], strict=False):
        assert earlier.finished_at_s is not None
        assert later.requested_at_s >= earlier.finished_at_s + 600.0
