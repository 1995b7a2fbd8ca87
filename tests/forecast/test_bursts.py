"""The burst detector: every step up is told within two samples, and hardly ever one that is not there."""

from __future__ import annotations

import numpy as np
import pytest

from tidewise.core import BadInputError
from tidewise.forecast import RollingForecaster, make_forecaster
from tidewise.forecast.bursts import BurstDetector
from tidewise.forecast.lines import LEVEL, LINE
from tidewise.testing.forecasters import loads

_HOURS_18 = 64_800


def irregular_load(seed: int, seconds: int = _HOURS_18) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Knots half an hour apart, smoothly joined, between 18,000/s and 88,000/s, with 10 % of noise each second."""
    random = np.random.default_rng(seed)
    knots = random.uniform(np.log(18_000.0), np.log(88_000.0), seconds // 1800 + 2)
    place = np.arange(seconds) / 1800.0
    before = place.astype(int)
    share = 0.5 - 0.5 * np.cos(np.pi * (place - before))
    smooth = np.exp((1.0 - share) * knots[before] + share * knots[before + 1])
    return np.asarray(np.maximum(smooth * (1.0 + 0.1 * random.standard_normal(seconds)), 0.0))


@pytest.mark.parametrize("sample_s", [10, 60])
def test_under_one_false_alarm_in_18_hours(sample_s: int) -> None:
    alarms = 0
    for seed in range(10):
        detector = BurstDetector(sample_s=10.0)
        for number, rate in enumerate(irregular_load(seed).reshape(-1, sample_s).mean(axis=1).tolist()):
            detector.add(end_s=float(sample_s * number), window_s=float(sample_s), rate_per_s=rate)
        alarms += detector.alarms
    assert alarms / 10 < 1.0


@pytest.mark.parametrize("factor", [1.4, 1.7, 2.0])
@pytest.mark.parametrize("sample_s", [10, 60])
def test_every_step_is_told_within_two_samples(factor: float, sample_s: int) -> None:
    missed = []
    for seed in range(10):
        rates = irregular_load(seed, 18_000).reshape(-1, sample_s).mean(axis=1)
        for begins in range(len(rates) // 4, len(rates) - 3, len(rates) // 10):
            detector = BurstDetector(sample_s=10.0)
            lifted = rates.copy()
            lifted[begins:] *= factor
            told = [
                number
                for number, rate in enumerate(lifted[: begins + 2].tolist())
                if detector.add(end_s=float(number), window_s=float(sample_s), rate_per_s=rate)
            ]
            if not told or told[-1] < begins:
                missed.append((seed, begins))
    assert not missed


def test_a_burst_bypasses_the_models_and_widens_the_interval() -> None:
    forecaster = make_forecaster("ensemble")
    steady = np.random.default_rng(2).normal(1000.0, 30.0, 7200).tolist()
    for observation in loads(steady):
        forecaster.learn(observation)
    calm = forecaster.forecast(horizon_s=600.0, step_s=60.0)
    for observation in loads([2000.0] * 20, start_s=7200.0):
        forecaster.learn(observation)
    burst = forecaster.forecast(horizon_s=600.0, step_s=60.0)
    assert calm.path()[0] == pytest.approx(1000.0, rel=0.05)
    assert burst.path()[0] == pytest.approx(2000.0, rel=0.05)
    assert burst.path(0.05)[0] <= 1000.0  # what the models say is still held possible
    assert burst.path(0.95)[0] - burst.path()[0] > 1.2 * (calm.path(0.95)[0] - calm.path()[0])


def test_the_bypass_ends_when_the_models_have_caught_up() -> None:
    forecaster = RollingForecaster(name="line", members=(LINE,))
    for observation in loads([1000.0 + (number % 7) for number in range(7200)] + [2000.0] * 1200):
        forecaster.learn(observation)
    assert not forecaster.in_burst
    assert forecaster.forecast(horizon_s=60.0, step_s=60.0).path()[0] == pytest.approx(2000.0, rel=0.05)


@pytest.mark.parametrize(("lasts", "median"), [(3, 1000.0), (60, 2000.0)])
def test_bursts_that_never_last_are_not_believed_to_go_on(lasts: int, median: float) -> None:
    forecaster = make_forecaster("level")
    hour = [1000.0 + number % 7 for number in range(60)]
    rates = [*hour, *(2.0 * rate if number < lasts else rate for number, rate in enumerate(2 * hour))] * 2
    for observation in loads([*rates, *hour, 2000.0, 2000.0], window_s=60.0):
        forecaster.learn(observation)
    burst = forecaster.forecast(horizon_s=600.0, step_s=60.0)
    assert burst.path()[0] == pytest.approx(median, rel=0.05)
    assert burst.path(0.05)[0] <= 1000.0
    assert burst.path(0.95)[0] >= 2000.0, "both are still held possible"


def test_the_level_is_not_moved_by_a_short_burst() -> None:
    path = LEVEL.path(np.array([1000.0] * 60 + [2000.0] * 5 + [1000.0] * 3), None)
    assert path is not None
    assert path.tolist() == [1000.0] * 30


def test_silence_and_constant_loads_raise_no_alarm() -> None:
    for rate in (0.0, 5.0):
        detector = BurstDetector()
        for number in range(500):
            detector.add(end_s=10.0 * number, window_s=10.0, rate_per_s=rate)
        assert detector.alarms == 0


def test_the_state_survives_and_a_damaged_one_is_refused() -> None:
    detector = BurstDetector()
    for number, rate in enumerate(irregular_load(1, 3000).tolist()):
        detector.add(end_s=float(number), window_s=1.0, rate_per_s=rate)
    other = BurstDetector()
    other.from_plain(detector.to_plain())
    assert other.to_plain() == detector.to_plain()
    forecaster = make_forecaster("line")
    saved = forecaster.save()
    saved["bursts"] = {}
    with pytest.raises(BadInputError, match="damaged"):
        forecaster.load(saved)
