"""The regular series: samples by time, gaps known as gaps, clocks and counters that misbehave."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tidewise.forecast.series import RateSeries, filled
from tidewise.testing.forecasters import loads


def series_of(rates: list[float], *, window_s: float = 1.0, keep: int = 100) -> RateSeries:
    series = RateSeries(sample_s=60.0, keep=keep)
    for observation in loads(rates, window_s=window_s):
        series.add(observation)
    return series


def samples(series: RateSeries) -> list[float]:
    return [float(rate) for rate in series.history(until=series.count, at_most=10_000)]


def test_a_sample_is_the_mean_of_its_reports() -> None:
    series = series_of([100.0] * 30 + [200.0] * 30 + [50.0] * 59)
    assert samples(series) == pytest.approx([150.0])
    assert series.since_sample_s == pytest.approx(59.0)


def test_a_report_longer_than_a_sample_fills_all_it_speaks_for() -> None:
    assert samples(series_of([10.0, 20.0], window_s=150.0)) == pytest.approx([10.0, 10.0, 15.0, 20.0, 20.0])


def test_a_gap_is_unknown_and_not_zero() -> None:
    series = series_of([100.0] * 60)
    for observation in loads([100.0] * 60, start_s=180.0):
        series.add(observation)
    found = samples(series)
    assert found[0] == found[3] == 100.0
    assert math.isnan(found[1])
    assert math.isnan(found[2])
    assert filled(np.array(found)).tolist() == [100.0] * 4


def test_memory_is_bounded_and_the_latest_samples_stay() -> None:
    series = series_of([float(number) for number in range(1000)], window_s=60.0, keep=50)
    found = samples(series)
    assert 50 <= len(found) <= 100
    assert found[-50:] == [float(number) for number in range(950, 1000)]
    assert series.count == 1000


def test_a_clock_that_is_set_back_goes_on() -> None:
    series = series_of([100.0] * 600)
    for observation in loads([300.0] * 120, start_s=0.0):
        series.add(observation)
    assert series.now_s == pytest.approx(120.0)
    assert samples(series)[10] == pytest.approx(300.0)
    assert len(samples(series)) == 11


def test_a_single_late_report_does_not_set_the_clock_back() -> None:
    series = series_of([100.0] * 600)
    assert not any(series.add(observation) for observation in loads([1e9] * 5))
    assert series.now_s == pytest.approx(600.0)


def test_after_a_gap_longer_than_the_memory_the_last_level_is_all_that_is_left() -> None:
    series = series_of([100.0] * 600, keep=50)
    for observation in loads([200.0] * 60, start_s=1e6):
        series.add(observation)
    assert samples(series) == pytest.approx([100.0, 100.0, 100.0, 200.0])
    assert series.now_s == pytest.approx(1e6 + 60.0)


@pytest.mark.parametrize("freak", [0.0, 1e9])
def test_a_counter_that_began_anew_is_not_taken_for_a_load(freak: float) -> None:
    assert filled(np.array([100.0, 110.0, freak, 110.0, 100.0])).tolist() == [100.0, 110.0, 110.0, 110.0, 100.0]


def test_two_samples_of_silence_are_silence() -> None:
    quiet = [100.0, 100.0, 0.0, 0.0, 100.0]
    assert filled(np.array(quiet)).tolist() == quiet


def test_where_nothing_is_known_nothing_is_made_up() -> None:
    assert len(filled(np.array([math.nan, math.nan]))) == 0
    assert filled(np.array([math.nan, 5.0])).tolist() == [5.0]
