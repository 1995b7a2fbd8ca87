"""TWRES: capacity that covers the forecast, worked out by hand, and one more where the latency is high."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewise.core import (
    Configuration,
    Decision,
    InvalidValueError,
    Mechanism,
    Observation,
    Policy,
    ProfileMeasurement,
    ProfileOutcome,
    Reconfigure,
)
from tidewise.policies.twres import Twres, capacities
from tidewise.testing import PolicyConformance
from tidewise.testing.situations import report, situation_of, space_of


class TestTwres(PolicyConformance):
    def make_policy(self) -> Policy:
        return Twres()


class TestTwresInAHurry(PolicyConformance):
    def make_policy(self) -> Policy:
        return Twres(cooldown_s=0.0, horizon_s=60.0, latency_limit_s=0.1, mechanism=Mechanism.REDEPLOY)


def steady(
    *, executors: int = 10, rate: float = 4500.0, minutes: int = 10, latency_s: float | None = 0.5, start_s: float = 0.0
) -> list[Observation]:
    """A job that can do 1,000/s with each executor."""
    return [
        report(
            time_s=start_s + 15.0 * (number + 1),
            window_s=15.0,
            executors=executors,
            rate_per_s=rate,
            busy_share=min(1.0, rate / 1000.0 / executors),
            latency_s=latency_s,
        )
        for number in range(4 * minutes)
    ]


def asked(history: Sequence[Observation], *, policy: Twres | None = None, **more: object) -> Decision:
    fresh = replace(policy or Twres())
    for observation in history:
        fresh.learn(observation)
    return fresh.decide(replace(situation_of(history), **more))  # type: ignore[arg-type]  # by name


def wanted(decision: Decision) -> int | None:
    return decision.target.executors if isinstance(decision, Reconfigure) else None


def test_from_one_number_of_executors_capacity_is_proportional() -> None:
    # 4,500/s needs 5 of 1,000/s each, and no room is left on purpose.
    decision = asked(steady())
    assert wanted(decision) == 5
    assert decision.reason.code == "scale-down"
    assert decision.reason.evidence["capacity_per_s"] == pytest.approx(5000.0)
    assert decision.reason.evidence["load_per_s"] == pytest.approx(4500.0)


def test_one_more_is_taken_where_the_latency_is_high() -> None:
    # Reports give twice this as the 95 % latency: 2.2 s.
    assert wanted(asked(steady(latency_s=1.1))) == 6
    assert wanted(asked(steady(latency_s=0.9))) == 5
    assert wanted(asked(steady(latency_s=1.1), policy=Twres(latency_limit_s=3.0))) == 5


def test_only_the_latency_of_the_last_minute_counts() -> None:
    history = steady(latency_s=30.0) + steady(latency_s=0.5, minutes=1, start_s=600.0)
    assert wanted(asked(history)) == 5
    assert wanted(asked(history, policy=Twres(latency_window_s=300.0))) == 6


def test_a_load_that_nothing_covers_takes_the_most_there_is() -> None:
    swamped = [replace(seen, processed_rate_per_s=4000.0) for seen in steady(executors=4, rate=50_000.0)]
    decision = asked(swamped, space=space_of(executors=range(1, 9)))
    assert wanted(decision) == 8
    assert "the most there are" in decision.reason.sentence


def test_it_rests_after_a_change() -> None:
    assert asked(steady(), last_change_finished_at_s=1.0).reason.code == "cooling-down"
    assert wanted(asked(steady(), last_change_finished_at_s=0.0)) == 5


def test_a_forecast_that_rises_takes_more() -> None:
    risen = [
        replace(
            seen,
            input_rate_per_s=2000.0 * 1.02 ** (seen.time_s / 60.0),
            processed_rate_per_s=2000.0 * 1.02 ** (seen.time_s / 60.0),
            busy_share=0.2 * 1.02 ** (seen.time_s / 60.0),
        )
        for seen in steady(minutes=60)
    ]
    load = asked(risen).reason.evidence["load_per_s"]
    assert isinstance(load, float)
    assert load > 1.05 * risen[-1].input_rate_per_s


def test_profiles_count_if_there_are_any() -> None:
    # Copies of 2 and 20 can do 500/s with each executor: 4,500/s needs more than the 5 that 10 of 1,000/s tell of.
    copies = ProfileOutcome(
        request_id="profile-1",
        finished_at_s=1.0,
        measurements=tuple(
            ProfileMeasurement(
                configuration=Configuration(executors=count),
                input_rate_per_s=4500.0,
                processed_rate_per_s=min(4500.0, 500.0 * count),
                latency_p50_s=None,
                latency_p95_s=None,
                busy_share=min(1.0, 9.0 / count),
            )
            for count in (2, 20)
        ),
    )
    taken = wanted(asked(steady(), profiles=(copies,)))
    assert taken is not None
    assert taken > 5


def test_without_the_busy_share_nothing_is_decided() -> None:
    assert asked([replace(seen, busy_share=None) for seen in steady()]).reason.code == "no-metrics"


def test_without_a_forecast_nothing_is_decided() -> None:
    assert asked(steady(minutes=2)).reason.code == "no-forecast"


def test_the_fit_takes_up_overheads_that_proportion_does_not() -> None:
    known = {count: 2000.0 + 900.0 * count for count in (2, 6, 12, 24)}
    assert capacities(known, [4, 8]).tolist() == pytest.approx([5600.0, 9200.0])


def test_below_what_it_has_seen_it_believes_in_no_more_than_proportion() -> None:
    # Two neighbours whose noise makes more executors look slower: the fit alone would promise 20,000/s from one.
    made = capacities({20: 20_100.0, 21: 20_000.0}, [1, 10, 20])
    assert made[0] <= 20_100.0 / 20
    assert made[1] <= 20_100.0 / 2


@settings(max_examples=50)
@given(
    known=st.dictionaries(st.integers(1, 50), st.floats(1e-2, 1e9), min_size=1, max_size=8),
    offered=st.sets(st.integers(1, 100), min_size=1, max_size=20),
)
def test_a_capacity_is_never_negative(known: Mapping[int, float], offered: set[int]) -> None:
    assert (capacities(known, sorted(offered)) >= 0.0).all()


@settings(max_examples=30, deadline=None)
@given(
    offered=st.sets(st.integers(1, 60), min_size=1, max_size=20),
    rate=st.floats(0.0, 1e5),
    latency_s=st.none() | st.floats(0.0, 100.0),
)
def test_it_never_leaves_the_space(offered: set[int], rate: float, latency_s: float | None) -> None:
    space = space_of(executors=sorted(offered))
    history = steady(executors=space.executors[0], rate=rate, minutes=5, latency_s=latency_s)
    decision = asked(history, space=space)
    if isinstance(decision, Reconfigure):
        assert decision.target in space


def test_it_says_what_a_space_lacks() -> None:
    assert Twres().requires(space_of()) is None
    assert "executors" in (Twres().requires(space_of(executors=[4])) or "")


@pytest.mark.parametrize(
    "wrong", [{"horizon_s": 0.0}, {"cooldown_s": -1.0}, {"latency_limit_s": 0.0}, {"sample_s": 0.0}]
)
def test_senseless_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError):
        Twres(**wrong)  # type: ignore[arg-type]  # wrong on purpose
