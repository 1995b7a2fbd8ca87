"""The load to come in steps and levels: what the forecast says, and after it what the load usually does."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewise.core import Forecast
from tidewise.search.horizon import Habits, Horizon
from tidewise.testing.strategies import forecasts

_quick = settings(max_examples=60, deadline=None)
habits_drawn = st.builds(
    Habits, log_mean=st.floats(-5.0, 15.0), log_sd=st.floats(0.0, 3.0), lasts_s=st.floats(1.0, 1e6)
)


def forecast_of(*paths: Sequence[float], levels: Sequence[float], step_s: float = 60.0) -> Forecast:
    return Forecast(
        made_at_s=0.0, step_s=step_s, levels=tuple(levels), paths_per_s=tuple(tuple(path) for path in paths), model="m"
    )


@_quick
@given(forecast=forecasts(), ceiling=st.floats(0.0, 1e6), habits=st.none() | habits_drawn)
def test_turns_are_rows_of_probabilities_and_chances_too(
    forecast: Forecast, ceiling: float, habits: Habits | None
) -> None:
    horizon = Horizon.of(forecast, tail_s=600.0, ceiling_per_s=ceiling, habits=habits)
    steps, levels = horizon.log_rates.shape
    assert horizon.turns.shape == (steps - 1, levels, levels)
    assert (horizon.turns >= 0.0).all()
    assert horizon.turns.sum(axis=2) == pytest.approx(1.0)
    assert horizon.chances.sum() == pytest.approx(1.0)
    assert (horizon.chances > 0.0).all()
    assert np.isfinite(horizon.log_rates).all()
    assert (np.diff(horizon.log_rates, axis=1) >= 0.0).all()
    assert (horizon.lengths_s > 0.0).all()


def test_a_horizon_is_half_an_hour_of_the_forecast_and_a_tail() -> None:
    paths = [[level * (100.0 + minute) for minute in range(60)] for level in (0.5, 1.0, 2.0)]
    horizon = Horizon.of(forecast_of(*paths, levels=(0.1, 0.5, 0.9)), tail_s=5400.0, ceiling_per_s=np.inf)
    assert horizon.lengths_s.sum() == pytest.approx(1800.0 + 5400.0)
    assert horizon.lengths_s[-1] == 5400.0
    assert horizon.middle == 1
    # Half a minute, half a minute, a minute, ...: the highest of the minutes that each step touches.
    assert np.exp(horizon.log_rates[:4, 1]) == pytest.approx([100.0, 100.0, 101.0, 102.0])
    assert np.exp(horizon.log_rates[-1]) == pytest.approx([64.5, 129.0, 258.0])
    assert horizon.log_rates[-1] == pytest.approx(horizon.log_rates[-2])
    # 0.1 stands for all below 0.3, 0.5 for what lies between 0.3 and 0.7.
    assert horizon.chances == pytest.approx([0.3, 0.4, 0.3])


def test_a_short_forecast_is_a_short_horizon() -> None:
    horizon = Horizon.of(forecast_of([100.0], levels=(0.5,), step_s=45.0), tail_s=300.0, ceiling_per_s=1e9)
    assert horizon.lengths_s == pytest.approx([30.0, 15.0, 300.0])
    assert horizon.turns == pytest.approx(1.0)


def test_what_was_never_seen_is_expected_soon_only_unless_it_is_likely() -> None:
    forecast = forecast_of([100.0] * 60, [300.0] * 60, [900.0] * 60, levels=(0.1, 0.5, 0.9))
    ends_s = np.cumsum(Horizon.of(forecast, tail_s=60.0, ceiling_per_s=500.0).lengths_s)
    highest = np.exp(Horizon.of(forecast, tail_s=60.0, ceiling_per_s=500.0).log_rates[:, 2])
    assert highest[ends_s <= 600.0] == pytest.approx(900.0)
    assert highest[ends_s > 960.0] == pytest.approx(500.0)
    # No lower than the median.
    low = Horizon.of(forecast, tail_s=60.0, ceiling_per_s=200.0)
    assert np.exp(low.log_rates[-1]) == pytest.approx([100.0, 300.0, 300.0])


def test_a_level_stays_the_more_the_earlier_the_forecast_widened() -> None:
    def stays(first: float, later: float) -> float:
        low, mid, high = [90.0] + [50.0] * 30, [100.0] * 31, [first] + [later] * 4 + [400.0] * 26
        made = forecast_of(low, mid, high, levels=(0.1, 0.5, 0.9))
        return float(Horizon.of(made, tail_s=60.0, ceiling_per_s=1e9).turns[4, 2, 2])

    assert stays(110.0, 390.0) > stays(110.0, 200.0) > stays(110.0, 120.0)


def test_what_is_not_known_of_the_next_moment_is_noise_and_tells_nothing() -> None:
    flat = forecast_of([100.0] * 31, [150.0] * 31, [200.0] * 31, levels=(0.1, 0.5, 0.9))
    turns = Horizon.of(flat, tail_s=60.0, ceiling_per_s=1e9).turns
    assert np.allclose(turns, Horizon.of(flat, tail_s=60.0, ceiling_per_s=1e9).chances)


# What follows the forecast.


def high_now(*, habits: Habits | None, tail_s: float = 5400.0) -> Horizon:
    """A load of 400 +/- 10 %, as it is said to be in half an hour as well."""
    paths = [[400.0 * factor] * 31 for factor in (0.9, 1.0, 1.1)]
    return Horizon.of(forecast_of(*paths, levels=(0.1, 0.5, 0.9)), tail_s=tail_s, ceiling_per_s=1e9, habits=habits)


def test_a_load_comes_back_to_its_usual_level_as_soon_as_it_usually_does() -> None:
    usual = Habits(log_mean=math.log(100.0), log_sd=0.5, lasts_s=1800.0)
    middles = np.exp(high_now(habits=usual).log_rates[:, 1])
    steps = len(middles) - 4
    assert middles[:steps] == pytest.approx(400.0)
    assert (np.diff(middles[steps - 1 :]) < 0.0).all()
    # What is above the usual level halves (in logarithms) every 1800 s x log 2; the first step of the tail lasts 810 s.
    assert middles[steps] == pytest.approx(100.0 * 4.0 ** math.exp(-405.0 / 1800.0))
    long = high_now(habits=Habits(log_mean=math.log(100.0), log_sd=0.5, lasts_s=1e9))
    assert np.exp(long.log_rates[-1]) == pytest.approx([360.0, 400.0, 440.0], rel=1e-3)


def test_in_the_end_levels_are_as_far_apart_as_they_usually_are() -> None:
    usual = Habits(log_mean=math.log(100.0), log_sd=0.5, lasts_s=60.0)
    spread = high_now(habits=usual).log_rates[-1]
    assert spread == pytest.approx(math.log(100.0) + 0.5 * 1.2816 * np.array([-1.0, 0.0, 1.0]), rel=1e-3)


def test_a_level_of_the_tail_stays_the_longer_the_longer_a_peak_lasts() -> None:
    def stays(lasts_s: float) -> float:
        made = high_now(habits=Habits(log_mean=math.log(400.0), log_sd=0.5, lasts_s=lasts_s))
        return float(made.turns[-1, 2, 2])

    assert stays(100.0) == pytest.approx(0.3, abs=0.01), "as likely as without knowing the level before"
    assert stays(1e5) > stays(5000.0) > stays(1000.0) > stays(100.0)


def test_the_tail_is_as_long_with_habits_as_without() -> None:
    usual = Habits(log_mean=5.0, log_sd=0.5, lasts_s=600.0)
    assert high_now(habits=usual).lengths_s.sum() == pytest.approx(high_now(habits=None).lengths_s.sum())
