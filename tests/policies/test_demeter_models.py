"""Demeter's models: the score, which profile counts for which segment, and what the ensemble makes of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import Censored, Configuration, ConfigurationSpace, ProfileMeasurement
from tidewise.policies.demeter_models import (
    Choices,
    Fits,
    Knowledge,
    Scored,
    best_latency_s,
    latency_score,
    never_came_up,
    scored,
)
from tidewise.qos import Candidates
from tidewise.testing.situations import space_of

DEFAULT = Configuration(executors=24, memory_mib_per_executor=4096)


def space() -> ConfigurationSpace:
    return replace(space_of(executors=range(2, 25, 2)), memory_mib_per_executor=(1024, 4096))


def profile(
    executors: int, *, rate_per_s: float = 25_000.0, score: float = 0.0, recovery_s: float | None = 60.0
) -> Scored:
    return Scored(
        configuration=Configuration(executors=executors),
        rate_per_s=rate_per_s,
        score=score,
        log_recovery=None if recovery_s is None else math.log(recovery_s),
    )


def knowledge(*profiles: Scored, fits: Fits | None = None) -> Knowledge:
    choices = Choices(Candidates.of(space()), DEFAULT)
    return Knowledge(profiles, choices, segment_per_s=10_000.0, least_profiles=3, fits=fits or Fits())


def measurement(
    *, latency_s: float | None, rate_per_s: float = 1000.0, recovery: float | Censored | None = 90.0, detail: str = ""
) -> ProfileMeasurement:
    return ProfileMeasurement(
        configuration=DEFAULT,
        input_rate_per_s=rate_per_s,
        processed_rate_per_s=0.0,
        latency_p50_s=None,
        latency_p95_s=latency_s,
        busy_share=None,
        recovery_s=recovery,
        detail=detail,
    )


def score_of(each: ProfileMeasurement) -> Scored:
    return scored(each, best_s=1.0, tolerated=2.1, recovery_limit_s=360.0)


def test_the_score_is_half_at_the_tolerated_latency() -> None:
    assert latency_score(1.2, 1.2, tolerated=2.1) == 0.0
    assert latency_score(2.1 * 1.2, 1.2, tolerated=2.1) == pytest.approx(0.5)
    assert latency_score(None, 1.2, tolerated=2.1) == 1.0
    assert latency_score(0.5, 1.2, tolerated=2.1) == 0.0


@given(low=st.floats(0.0, 1e4), high=st.floats(0.0, 1e4))
def test_more_latency_never_has_a_better_score(low: float, high: float) -> None:
    low, high = sorted((low, high))
    assert latency_score(low, 1.0, tolerated=2.1) <= latency_score(high, 1.0, tolerated=2.1) <= 1.0


def test_a_copy_that_died_or_gave_no_output_is_a_bad_profile() -> None:
    died = score_of(measurement(latency_s=None, recovery=None, detail="out of memory"))
    assert (died.score, died.is_stable) == (1.0, False)
    assert died.log_recovery == pytest.approx(math.log(360.0))
    silent = score_of(measurement(latency_s=None, recovery=Censored(at_least=360.0)))
    assert silent.score == 1.0
    assert silent.log_recovery == pytest.approx(math.log(360.0))


def test_a_recovery_that_was_not_measured_is_not_made_up() -> None:
    assert score_of(measurement(latency_s=1.0, recovery=None)).log_recovery is None
    assert score_of(measurement(latency_s=1.0, recovery=Censored(at_least=500.0))).log_recovery == math.log(360.0)


def test_a_copy_that_no_record_reached_tells_of_the_engine() -> None:
    assert never_came_up(measurement(latency_s=None, rate_per_s=0.0, detail="cannot profile"))
    assert not never_came_up(measurement(latency_s=None, rate_per_s=5.0, detail="out of memory"))
    assert not never_came_up(measurement(latency_s=None, rate_per_s=0.0))


def test_the_best_latency_is_the_lowest_that_is_known() -> None:
    assert best_latency_s([measurement(latency_s=each) for each in (None, 1.5, 1.2, 9.0)]) == 1.2
    assert best_latency_s([measurement(latency_s=None), measurement(latency_s=0.0)]) is None


def test_a_profile_counts_inside_or_stable_above_or_bad_below() -> None:
    inside_good, inside_bad = profile(2), profile(4, score=0.9)
    above_good, above_bad = profile(6, rate_per_s=30_000.0), profile(8, rate_per_s=35_000.0, score=0.9)
    below_good, below_bad = profile(10, rate_per_s=19_999.0), profile(12, rate_per_s=5_000.0, score=0.9)
    known = knowledge(inside_good, inside_bad, above_good, above_bad, below_good, below_bad)
    assert known.segment(20_000.0) == 2
    assert known.measured_in(2) == [inside_good, inside_bad]
    assert known.counting_for(2) == [inside_good, inside_bad, above_good, below_bad]


def test_where_no_profile_tells_of_the_segment_nothing_is_expected() -> None:
    assert knowledge().expected(2) is None
    assert knowledge(profile(24), profile(20)).expected(2) is None, "two good ones would make all look good"
    assert knowledge(profile(24), profile(20), profile(16)).expected(2) is not None
    # Good below says nothing of a higher load, and two are not enough for a base.
    low = [profile(2 * number, rate_per_s=15_000.0) for number in range(1, 4)]
    assert knowledge(*low[:2]).expected(2) is None
    assert knowledge(*low).expected(2) is not None
    assert knowledge(*low).expected(4) is None, "three segments away is no neighbour"


def test_the_models_learn_what_was_measured() -> None:
    profiles = [profile(each, score=0.0 if each >= 8 else 0.95, recovery_s=50.0 if each >= 8 else 360.0)
                for each in range(2, 25, 2)]  # fmt: skip
    known = knowledge(*profiles)
    expected = known.expected(2)
    assert expected is not None
    trusted = expected.trusted(margin=1.25, recovery_limit_s=180.0)
    rows = {each: known.choices.table.row_of(Configuration(executors=each)) for each in (2, 4, 12, 20)}
    assert [bool(trusted[row]) for row in rows.values() if row is not None] == [False, False, True, True]
    stricter = expected.trusted(margin=4.0, recovery_limit_s=180.0)
    assert stricter.sum() < trusted.sum()
    assert not (stricter & ~trusted).any()


def test_without_recoveries_only_the_latency_is_held_against_its_limit() -> None:
    expected = knowledge(*[profile(each, recovery_s=None) for each in range(2, 25, 2)]).expected(2)
    assert expected is not None
    assert expected.log_recovery is None
    assert expected.trusted(margin=1.25, recovery_limit_s=1.0).any()


def test_cpu_and_memory_are_known_exactly() -> None:
    choices = knowledge().choices
    row = choices.table.row_of(Configuration(executors=12, memory_mib_per_executor=1024))
    assert row is not None
    assert choices.cost[row] == pytest.approx((0.5 + 0.125) / 2)
    np.testing.assert_allclose(choices.log_memory_at(choices.places)[row], math.log(0.125))
    np.testing.assert_allclose(choices.log_cores_of(choices.table)[row], math.log(0.5))


def test_suggestions_are_cheaper_than_what_is_known_to_be_good() -> None:
    known = knowledge(*[profile(each) for each in (16, 20, 24)], profile(2, score=0.95, recovery_s=360.0))
    suggested = known.suggest(2, count=2, recovery_limit_s=180.0)
    assert len(set(suggested)) == 2
    assert all(each in space() for each in suggested)
    assert suggested[0].total_cores < 16
    assert len(knowledge().suggest(2, count=99, recovery_limit_s=180.0)) == len(space())


def test_the_same_points_are_not_fitted_twice() -> None:
    fits = Fits()
    places, values = np.array([[0.0], [1.0]]), np.array([0.0, 1.0])
    first = fits.of("latency", places, values)
    assert fits.of("latency", places.copy(), values.copy()) is first
    assert fits.of("recovery", places, values) is not first


def test_a_latency_that_nobody_could_measure_makes_no_other_endless() -> None:
    best_s = best_latency_s([measurement(latency_s=2e-311), measurement(latency_s=1.0)])
    assert best_s == 1e-3
    assert math.isfinite(latency_score(1.0, best_s, tolerated=2.0))
