"""Observations, forecasts, estimates and promises: the numbers decisions rest on."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import MEDIAN, Estimate, Forecast, JobStatus, Observation, Promises
from tidewise.testing import strategies


@given(observation=strategies.observations())
def test_the_true_rate_is_what_was_processed_over_the_busy_share(observation: Observation) -> None:
    found = observation.true_rate_per_s
    if observation.busy_share is None or observation.busy_share == 0.0 or observation.processed_rate_per_s == 0.0:
        assert found is None
    else:
        assert found == observation.processed_rate_per_s / observation.busy_share
        assert found >= observation.processed_rate_per_s


@given(observation=strategies.observations(), promises=strategies.promises())
def test_latency_alone_breaks_the_promise_of_latency(observation: Observation, promises: Promises) -> None:
    broken = promises.broken_by(observation)
    if promises.latency_p95_s is None:
        assert not broken
    elif observation.latency_p95_s is not None:
        assert broken == (observation.latency_p95_s > promises.latency_p95_s)
    else:
        nothing_to_do = observation.input_rate_per_s == 0.0 and observation.backlog_records == 0.0
        assert broken == (not nothing_to_do or observation.status is not JobStatus.RUNNING)


@given(observation=strategies.observations(), latency_s=st.floats(0.0, 100.0))
def test_exactly_as_promised_is_kept(observation: Observation, latency_s: float) -> None:
    exact = replace(observation, latency_p50_s=None, latency_p95_s=latency_s, latency_p99_s=None)
    assert not Promises(latency_p95_s=max(latency_s, 0.001)).broken_by(exact)


@given(estimate=strategies.estimates(), limits=st.lists(st.floats(-1e10, 1e10), min_size=2, max_size=5))
def test_a_higher_limit_is_at_least_as_likely_to_hold(estimate: Estimate, limits: list[float]) -> None:
    chances = [estimate.probability_at_most(limit) for limit in sorted(limits)]
    assert all(0.0 <= chance <= 1.0 for chance in chances)
    assert chances == sorted(chances)


@given(estimate=strategies.estimates())
def test_the_mean_is_as_likely_to_be_passed_as_not(estimate: Estimate) -> None:
    assert estimate.probability_at_most(estimate.mean) == (1.0 if estimate.spread == 0.0 else 0.5)
    assert estimate.probability_at_most(math.inf) == 1.0
    assert estimate.probability_at_most(-math.inf) == 0.0


def test_the_chances_are_those_of_a_normal_distribution() -> None:
    estimate = Estimate(mean=10.0, spread=2.0)
    assert estimate.probability_at_most(12.0) == pytest.approx(0.8413, abs=1e-4)
    assert estimate.probability_at_most(6.0) == pytest.approx(0.0228, abs=1e-4)


@given(forecast=strategies.forecasts(), level=st.floats(0.0, 1.0))
def test_the_path_asked_for_is_that_of_the_next_level_up(forecast: Forecast, level: float) -> None:
    found = forecast.path(level)
    not_below = [known for known in forecast.levels if known >= level]
    expected = forecast.levels.index(min(not_below, default=forecast.levels[-1]))
    assert found == forecast.paths_per_s[expected]
    assert forecast.path() == forecast.paths_per_s[forecast.levels.index(MEDIAN)]
    assert forecast.horizon_s == pytest.approx(forecast.step_s * len(found))


@given(forecast=strategies.forecasts(), within_s=st.floats(0.0, 1e6) | st.just(math.inf), more_s=st.floats(0.0, 1e6))
def test_a_peak_over_a_longer_time_or_higher_level_is_not_lower(
    forecast: Forecast, within_s: float, more_s: float
) -> None:
    peak = forecast.peak_per_s(within_s=within_s)
    assert forecast.path()[0] <= peak <= max(forecast.path())
    assert forecast.peak_per_s(within_s=within_s + more_s) >= peak
    assert forecast.peak_per_s(within_s=within_s, level=0.99) >= peak
    assert forecast.peak_per_s(within_s=math.inf) == max(forecast.path())


def test_the_peak_covers_each_step_that_has_begun() -> None:
    forecast = Forecast(made_at_s=0.0, step_s=10.0, levels=(0.5,), paths_per_s=((1.0, 2.0, 3.0),), model="m")
    found = [forecast.peak_per_s(within_s=within_s) for within_s in (0.0, 10.0, 10.1, 20.0, 21.0, 900.0)]
    assert found == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
