"""Naive: the level goes on, and the errors of the past say how far it may be off."""

from __future__ import annotations

import math
import random

import pytest

from tidewise.core import InvalidValueError, NotReadyError
from tidewise.forecast import Naive
from tidewise.testing.forecasters import loads


def taught(rates_per_s: list[float], naive: Naive | None = None, *, window_s: float = 1.0) -> Naive:
    forecaster = Naive() if naive is None else naive
    for observation in loads(rates_per_s, window_s=window_s):
        forecaster.learn(observation)
    return forecaster


def test_it_is_ready_after_the_third_observation() -> None:
    with pytest.raises(NotReadyError, match="2 of the first 3"):
        taught([1.0, 1.0]).forecast(horizon_s=60.0, step_s=60.0)
    assert taught([1.0, 1.0, 1.0]).forecast(horizon_s=60.0, step_s=60.0).path() == (1.0,)


def test_the_median_is_the_mean_of_the_last_minute() -> None:
    made = taught([5000.0] * 100 + [100.0] * 30 + [200.0] * 30).forecast(horizon_s=180.0, step_s=60.0)
    assert made.path() == pytest.approx((150.0, 150.0, 150.0))


def test_without_enough_errors_the_spread_is_generous() -> None:
    made = taught([100.0] * 10).forecast(horizon_s=120.0, step_s=60.0)
    # Half of the highest load at 0.05 and 0.95, in proportion between.
    assert made.path(0.05) == pytest.approx((50.0, 50.0))
    assert made.path(0.95) == pytest.approx((150.0, 150.0))
    assert made.path(0.75) == pytest.approx((100.0 + 50.0 * 0.25 / 0.45,) * 2)


def test_a_constant_load_becomes_certain() -> None:
    made = taught([100.0] * 7200).forecast(horizon_s=600.0, step_s=60.0)
    assert made.path(0.05) == pytest.approx((100.0,) * 10)
    assert made.path(0.95) == pytest.approx((100.0,) * 10)


def test_the_errors_belong_to_their_step_of_the_horizon() -> None:
    # A ramp of 1/s per second: the level lags by 30 s, step k lies 60 k + 30 s ahead, so it is off by 60 (k + 1).
    made = taught([float(second) for second in range(10_000)]).forecast(horizon_s=300.0, step_s=60.0)
    level = made.path()[0]
    assert [rate - level for rate in made.path(0.95)] == pytest.approx([60.0, 120.0, 180.0, 240.0, 300.0], rel=0.01)
    # It was never too high.
    assert made.path(0.05) == made.path()


@pytest.mark.parametrize("step_s", [10.0, 60.0, 300.0])
def test_the_quantiles_hold_what_they_promise(step_s: float) -> None:
    noise = random.Random(3)  # noqa: S311 - a load, not a secret
    rates = [max(0.0, noise.gauss(1000.0, 100.0) + 200.0 * math.sin(second / 400.0)) for second in range(20_000)]
    naive = Naive()
    inside = below = asked = 0
    observations = loads(rates)
    for second, observation in enumerate(observations):
        naive.learn(observation)
        if second >= 8000 and second % 200 == 0 and second + 3 * step_s < len(rates):
            made = naive.forecast(horizon_s=3 * step_s, step_s=step_s)
            for step in range(3):
                start = second + 1 + int(step * step_s)
                came = sum(rates[start : start + int(step_s)]) / step_s
                inside += made.path(0.05)[step] <= came <= made.path(0.95)[step]
                below += came <= made.path(0.95)[step]
                asked += 1
    assert 0.82 <= inside / asked <= 0.98
    assert 0.90 <= below / asked <= 1.0


def test_a_gap_is_not_taken_for_silence() -> None:
    naive = taught([100.0] * 7200)
    for observation in loads([100.0] * 10, start_s=8000.0):
        naive.learn(observation)
    made = naive.forecast(horizon_s=600.0, step_s=60.0)
    assert made.path() == pytest.approx((100.0,) * 10)
    assert made.path(0.05) == pytest.approx((100.0,) * 10)


def test_overlapping_reports_are_not_counted_twice() -> None:
    naive = Naive()
    for observation in [*loads([100.0] * 5, window_s=10.0), *loads([100.0] * 4, window_s=10.0, start_s=15.0)]:
        naive.learn(observation)
    assert naive.forecast(horizon_s=10.0, step_s=10.0).path() == pytest.approx((100.0,))


def test_reports_many_times_a_second_do_not_shorten_the_memory() -> None:
    naive = taught([100.0] * 30_000, Naive(max_points=4096), window_s=0.1)
    # 50 min at one point a second are kept: enough to judge the last step by its errors, which are none.
    assert naive.forecast(horizon_s=600.0, step_s=60.0).path(0.95)[-1] == pytest.approx(100.0)


@pytest.mark.parametrize(
    "settings",
    [
        {"level_window_s": 0.0},
        {"error_window_s": float("nan")},
        {"levels": (0.05, 0.95)},
        {"levels": (0.95, 0.5)},
        {"levels": (0.0, 0.5)},
        {"min_observations": 0},
        {"min_errors": 500},
        {"early_spread": -1.0},
        {"max_points": 1},
    ],
)
def test_senseless_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError):
        Naive(**settings)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(("horizon_s", "step_s"), [(0.0, 60.0), (60.0, 0.0), (float("inf"), 1.0)])
def test_a_senseless_horizon_is_refused(horizon_s: float, step_s: float) -> None:
    with pytest.raises(InvalidValueError):
        taught([1.0] * 5).forecast(horizon_s=horizon_s, step_s=step_s)
