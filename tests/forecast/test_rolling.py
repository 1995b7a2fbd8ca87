"""What every model around the rolling forecaster keeps, whatever the load."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewise.core import BadInputError, InvalidValueError, NotReadyError, Observation
from tidewise.forecast import FORECASTERS, RollingForecaster, SavedForecaster, load_forecaster, make_forecaster
from tidewise.forecast.lines import LINE
from tidewise.forecast.registry import ENSEMBLE
from tidewise.forecast.seasonal_naive import SEASONAL_NAIVE
from tidewise.testing.forecasters import loads
from tidewise.workload import Daily

MODELS = sorted(FORECASTERS)
_RATES = st.lists(st.one_of(st.just(0.0), st.floats(0.0, 1e9)), min_size=3, max_size=90)


def taught(forecaster: SavedForecaster, observations: list[Observation]) -> SavedForecaster:
    for observation in observations:
        forecaster.learn(observation)
    return forecaster


def minutes(rates: list[float], start_s: float = 0.0) -> list[Observation]:
    return loads(rates, window_s=60.0, start_s=start_s)


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=15, deadline=None)
@given(rates=_RATES)
def test_paths_are_never_negative_and_ordered(model: str, rates: list[float]) -> None:
    made = taught(make_forecaster(model), minutes(rates)).forecast(horizon_s=1800.0, step_s=60.0)
    paths = np.array(made.paths_per_s)
    assert (paths >= 0.0).all()
    assert (np.diff(paths, axis=0) >= 0.0).all()
    assert made.model == model


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=10, deadline=None)
@given(rates=_RATES, more=st.lists(st.floats(0.0, 1e6), max_size=5))
def test_saved_and_loaded_it_says_and_learns_the_same(model: str, rates: list[float], more: list[float]) -> None:
    forecaster = taught(make_forecaster(model), minutes(rates))
    other = load_forecaster(json.loads(json.dumps(forecaster.save(), allow_nan=False)))
    for each in (forecaster, other):
        taught(each, minutes(more, start_s=60.0 * len(rates)))
    asked = {"horizon_s": 600.0, "step_s": 60.0}
    assert forecaster.forecast(**asked) == other.forecast(**asked)
    assert forecaster.save() == other.save()


def test_a_history_learnt_at_once_is_what_was_learnt_report_by_report() -> None:
    rates = [100.0 + 30.0 * (number % 20 == 0) + number for number in range(200)]
    reports = minutes(rates)
    one = RollingForecaster(name="ensemble", members=ENSEMBLE)
    taught(one, reports[:150] + reports[153:])
    other = RollingForecaster(name="ensemble", members=ENSEMBLE)
    taught(other, minutes([7.0] * 10))  # which is forgotten
    rates[150:153] = [math.nan] * 3
    other.learn_samples(np.array(rates), end_s=reports[-1].time_s)
    assert other.save() == one.save()
    assert other.forecast(horizon_s=600.0, step_s=60.0) == one.forecast(horizon_s=600.0, step_s=60.0)


@pytest.mark.parametrize("model", MODELS)
def test_what_it_keeps_is_bounded(model: str) -> None:
    forecaster = make_forecaster(model)
    sizes = []
    for count in range(2):
        taught(forecaster, minutes([float(number % 97) for number in range(9000)], start_s=540_000.0 * count))
        sizes.append(len(json.dumps(forecaster.save())))
    assert max(sizes) < 1_000_000
    assert sizes[1] < 1.6 * sizes[0]  # between one memory and two of them, which is when the older is dropped


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("rate", [0.0, 500.0])
def test_a_load_that_never_changes_goes_on(model: str, rate: float) -> None:
    made = taught(make_forecaster(model), minutes([rate] * 400)).forecast(horizon_s=600.0, step_s=60.0)
    for level in (0.05, 0.5, 0.95):
        assert made.path(level) == pytest.approx((rate,) * 10, abs=1e-3)


def test_a_rate_that_is_no_number_never_reaches_a_forecaster() -> None:
    for rate in (math.nan, math.inf, -1.0):
        with pytest.raises(InvalidValueError, match="input_rate_per_s"):
            minutes([rate])
    with pytest.raises(InvalidValueError, match="horizon_s must be a finite number"):
        taught(make_forecaster("ensemble"), minutes([1.0] * 9)).forecast(horizon_s=math.nan, step_s=60.0)


@pytest.mark.parametrize("model", ["arima", "ladder", "ensemble"])
def test_a_turn_under_noise_is_followed_better_than_by_the_last_value(model: str) -> None:
    places = np.arange(420.0)
    clean = 1000.0 * np.exp(0.4 * np.sin(2.0 * np.pi * places / 75.0) + 0.2 * np.sin(2.0 * np.pi * places / 131.0))
    rates = clean * (1.0 + 0.013 * np.random.default_rng(8).standard_normal(len(clean)))
    errors = {model: 0.0, "naive": 0.0}
    for name in errors:
        forecaster = make_forecaster(name)
        for number, observation in enumerate(minutes(rates.tolist()), start=1):
            forecaster.learn(observation)
            if number >= 300 and number % 15 == 0 and number + 10 <= len(rates):
                path = forecaster.forecast(horizon_s=600.0, step_s=60.0).path()
                errors[name] += float(np.abs(np.array(path) - rates[number : number + 10]).sum())
    assert errors[model] < 0.4 * errors["naive"], errors


@pytest.mark.parametrize("model", MODELS)
def test_too_few_points_are_not_ready(model: str) -> None:
    with pytest.raises(NotReadyError):
        taught(make_forecaster(model), minutes([1.0, 2.0])).forecast(horizon_s=60.0, step_s=60.0)


def test_few_errors_make_a_wide_interval() -> None:
    random = np.random.default_rng(0)
    rates = random.normal(1000.0, 20.0, 300).tolist()
    early = taught(make_forecaster("holt"), minutes(rates[:6])).forecast(horizon_s=60.0, step_s=60.0)
    late = taught(make_forecaster("holt"), minutes(rates)).forecast(horizon_s=60.0, step_s=60.0)
    assert early.path(0.95)[0] - early.path(0.05)[0] > 5.0 * (late.path(0.95)[0] - late.path(0.05)[0])


def test_growth_is_clipped() -> None:
    rates = [1000.0] * 60 + [1000.0 * 1.07**number for number in range(9)]
    path = taught(make_forecaster("line"), minutes(rates)).forecast(horizon_s=1800.0, step_s=60.0).path()
    assert max(path) <= 2.0 * rates[-1] * 1.001


@pytest.mark.parametrize("model", ["ensemble", "holt", "ridge"])
def test_the_intervals_cover_what_they_promise(model: str) -> None:
    random = np.random.default_rng(5)
    rates = (1000.0 * np.exp(np.cumsum(0.02 * random.standard_normal(900)))).tolist()
    forecaster = make_forecaster(model)
    inside = []
    for number, observation in enumerate(minutes(rates)):
        forecaster.learn(observation)
        if number >= 400 and number % 7 == 0 and number + 10 < len(rates):
            made = forecaster.forecast(horizon_s=600.0, step_s=60.0)
            came = zip(made.path(0.05), rates[number + 1 : number + 11], made.path(0.95), strict=True)
            inside += [low <= rate <= high for low, rate, high in came]
    assert 0.83 <= sum(inside) / len(inside) <= 0.97


def test_a_season_that_is_found_beats_the_last_value() -> None:
    load = Daily(mean_per_s=1000.0, day_s=7200.0, noise_share=0.05).rates_per_s(5 * 7200, 3)
    rates = load.reshape(-1, 60).mean(axis=1).tolist()
    errors = {"naive": 0.0, "seasonal-naive": 0.0, "holt-winters": 0.0, "ridge-season": 0.0, "ensemble": 0.0}
    for model in errors:
        forecaster = make_forecaster(model)
        for number, observation in enumerate(minutes(rates)):
            forecaster.learn(observation)
            if number > 420 and number % 30 == 0 and number + 30 < len(rates):
                path = forecaster.forecast(horizon_s=1800.0, step_s=60.0).path()
                errors[model] += sum(abs(a - b) for a, b in zip(path, rates[number + 1 : number + 31], strict=True))
    naive = errors.pop("naive")
    assert all(error < 0.6 * naive for error in errors.values()), (naive, errors)


def test_the_season_can_be_given() -> None:
    rates = [100.0 + 50.0 * math.sin(2.0 * math.pi * number / 60.0) for number in range(150)]
    given_one = RollingForecaster(name="seasonal-naive", members=(SEASONAL_NAIVE,), season_s=3600.0)
    taught(given_one, minutes(rates))
    assert given_one.season_s == 3600.0
    path = given_one.forecast(horizon_s=1800.0, step_s=60.0).path()
    assert path[14] == pytest.approx(100.0 + 50.0 * math.sin(2.0 * math.pi * 164 / 60.0), rel=0.02)


def test_without_a_season_there_is_none() -> None:
    forecaster = RollingForecaster(name="ensemble", members=ENSEMBLE)
    taught(forecaster, minutes(np.random.default_rng(3).uniform(90.0, 110.0, 500).tolist()))
    assert forecaster.season_s is None


def test_beyond_the_longest_step_the_interval_still_widens() -> None:
    rates = (1000.0 * np.exp(np.cumsum(0.02 * np.random.default_rng(1).standard_normal(500)))).tolist()
    made = taught(make_forecaster("holt"), minutes(rates)).forecast(horizon_s=7200.0, step_s=1800.0)
    spans = [high - low for low, high in zip(made.path(0.05), made.path(0.95), strict=True)]
    assert spans[3] > 1.2 * spans[1]


def test_learning_is_so_cheap_that_a_million_points_are_nothing() -> None:
    forecaster = make_forecaster("ensemble")
    observations = minutes(np.random.default_rng(0).uniform(90.0, 110.0, 10_000).tolist())
    start_s = time.process_time()
    taught(forecaster, observations)
    assert (time.process_time() - start_s) / len(observations) < 100e-6


@pytest.mark.parametrize("model", MODELS)
def test_a_saved_one_of_another_version_or_model_or_damaged_is_refused(model: str) -> None:
    saved = taught(make_forecaster(model), minutes([1.0] * 10)).save()
    with pytest.raises(BadInputError, match="has format 99 and this version reads 1"):
        load_forecaster({**saved, "format": 99})
    with pytest.raises(BadInputError, match="there is no forecaster 'crystal-ball'"):
        load_forecaster({**saved, "model": "crystal-ball"})
    with pytest.raises(BadInputError, match="is a 'other', not a"):
        make_forecaster(model).load({**saved, "model": "other"})
    empty = {"format": 1, "model": model, "sample_s": 60.0}
    for damaged in (empty, {**saved, "series": [1], "arrivals": {"times_s": 3}}):
        fresh = make_forecaster(model)
        with pytest.raises(BadInputError, match="is damaged"):
            fresh.load(damaged)
        with pytest.raises(NotReadyError):  # nothing of it was taken over
            fresh.forecast(horizon_s=60.0, step_s=60.0)


def test_a_saved_one_with_other_samples_is_refused() -> None:
    saved = RollingForecaster(name="line", members=(LINE,), sample_s=10.0).save()
    with pytest.raises(BadInputError, match=r"samples of 10\.0 s and this one of 60 s"):
        make_forecaster("line").load(saved)


@pytest.mark.parametrize("model", MODELS)
def test_samples_may_be_longer_than_a_minute(model: str) -> None:
    reports = loads([1000.0 + number for number in range(60)], window_s=300.0)
    forecaster = taught(make_forecaster(model, sample_s=300.0), reports)
    other = load_forecaster(forecaster.save(), sample_s=300.0)
    asked = {"horizon_s": 3000.0, "step_s": 300.0}
    assert forecaster.forecast(**asked) == other.forecast(**asked)


@pytest.mark.parametrize(
    "wrong",
    [
        {"members": ()},
        {"name": " "},
        {"sample_s": 0.0},
        {"season_s": 60.0},
        {"levels": (0.05, 0.95)},
        {"levels": (0.5, 0.05)},
        {"levels": (0.0, 0.5)},
        {"max_samples": 1},
        {"max_origins": 0},
        {"remembered": 0},
        {"power": math.nan},
    ],
)
def test_senseless_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError):
        RollingForecaster(**{"name": "x", "members": (LINE,), **wrong})  # type: ignore[arg-type]  # wrong on purpose


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(BadInputError, match="did you mean 'ensemble'"):
        make_forecaster("ensembel")
