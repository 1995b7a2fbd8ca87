"""ARIMA finds the process that made a series, and says what comes next."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from tidewise.forecast.arima import ARIMA, fit_arima
from tidewise.forecast.ladder import LADDER
from tidewise.forecast.model import STEPS, Model
from tidewise.forecast.series import Rates

BOTH = pytest.mark.parametrize("model", [ARIMA, LADDER], ids=lambda model: model.name)


def process(*, ar: list[float], ma: list[float], count: int = 2000, seed: int = 1) -> Rates:
    """A series of this ARMA process with errors of standard deviation 1."""
    errors = np.random.default_rng(seed).standard_normal(count + 200)
    return np.asarray(lfilter([1.0, *ma], [1.0, *(-weight for weight in ar)], errors)[200:])


def path(model: Model, rates: Rates) -> Rates:
    made = model.path(rates, None)
    assert made is not None
    return made


def test_a_known_ar_process_is_recovered() -> None:
    fitted = fit_arima(5.0 + process(ar=[1.5, -0.7], ma=[]), ((2, 0, 0),))
    assert fitted is not None
    assert fitted.ar == pytest.approx([1.5, -0.7], abs=0.05)
    assert fitted.variance == pytest.approx(1.0, rel=0.1)
    assert fitted.mean == pytest.approx(5.0, abs=0.5)


def test_a_known_arma_process_is_recovered_from_its_differences() -> None:
    wandering = np.cumsum(process(ar=[0.8], ma=[-0.5]))
    fitted = fit_arima(wandering, ((1, 1, 1),))
    assert fitted is not None
    assert fitted.ar == pytest.approx([0.8], abs=0.06)
    assert fitted.ma == pytest.approx([-0.5], abs=0.08)


def test_the_order_that_made_the_series_is_chosen() -> None:
    orders = ((1, 0, 0), (2, 0, 0), (0, 1, 1))
    assert [
        fitted.order
        for series in (
            process(ar=[0.6], ma=[], seed=3),
            process(ar=[1.5, -0.7], ma=[]),
            np.cumsum(process(ar=[], ma=[-0.6])),
        )
        if (fitted := fit_arima(series, orders)) is not None
    ] == list(orders)


def test_a_step_ahead_is_what_the_recursion_says() -> None:
    series = process(ar=[1.5, -0.7], ma=[])
    fitted = fit_arima(series, ((2, 0, 0),))
    assert fitted is not None
    around = series - fitted.mean
    first = fitted.ar[0] * around[-1] + fitted.ar[1] * around[-2]
    second = fitted.ar[0] * first + fitted.ar[1] * around[-1]
    assert fitted.ahead(series, 2) == pytest.approx(np.array([first, second]) + fitted.mean)


def test_an_ma_part_outside_the_circle_is_mirrored() -> None:
    fitted = fit_arima(process(ar=[], ma=[2.0]), ((0, 0, 1),))
    assert fitted is not None
    assert fitted.ma == pytest.approx([0.5], abs=0.06)
    assert fitted.variance == pytest.approx(4.0, rel=0.12)


def test_too_short_a_series_has_no_model() -> None:
    assert fit_arima(np.array([1.0, 2.0, 3.0])) is None


@BOTH
def test_a_line_goes_on(model: Model) -> None:
    rates = 1000.0 + 5.0 * np.arange(300.0)
    to_come = 1000.0 + 5.0 * np.arange(300.0, 300.0 + STEPS)
    assert path(model, rates) == pytest.approx(to_come, rel=0.02)


@BOTH
def test_a_wave_under_noise_is_followed_better_than_by_its_last_value(model: Model) -> None:
    places = np.arange(700.0)
    clean = 1000.0 * np.exp(0.5 * np.sin(2.0 * np.pi * places / 90.0))
    rates = clean * (1.0 + 0.02 * np.random.default_rng(2).standard_normal(len(clean)))
    errors = {"model": 0.0, "last": 0.0}
    for origin in range(400, 660, 10):
        came = clean[origin : origin + 10]
        errors["model"] += float(np.abs(path(model, rates[:origin])[:10] - came).sum())
        errors["last"] += float(np.abs(rates[origin - 1] - came).sum())
    assert errors["model"] < 0.4 * errors["last"], errors


@BOTH
@pytest.mark.parametrize("rate", [0.0, 1e-9, 250.0, 1e12])
@pytest.mark.parametrize("count", [31, 60, 1500])
def test_what_never_changes_goes_on(model: Model, rate: float, count: int) -> None:
    assert path(model, np.full(count, rate)) == pytest.approx(np.full(STEPS, rate), rel=1e-6, abs=1e-6)


@BOTH
@settings(max_examples=40, deadline=None)
@given(rates=st.lists(st.one_of(st.just(0.0), st.floats(0.0, 1e12)), min_size=31, max_size=160))
def test_whatever_was_seen_the_path_is_finite_and_nothing_warns(model: Model, rates: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = path(model, np.array(rates))
    assert np.isfinite(made).all()
    assert (made >= 0.0).all()


@BOTH
def test_only_the_latest_samples_count(model: Model) -> None:
    latest = 1000.0 * np.exp(np.cumsum(0.02 * np.random.default_rng(4).standard_normal(1500)))
    long = np.concatenate([np.full(100_000, 7.0), latest])
    assert path(model, long) == pytest.approx(path(model, latest))


def test_few_samples_are_enough_for_arima_and_too_few_for_the_ladder() -> None:
    assert path(ARIMA, np.array([1.0, 2.0, 3.0])) == pytest.approx(np.full(STEPS, 3.0))
    assert LADDER.path(np.arange(30.0), None) is None
    assert LADDER.path(np.arange(31.0), None) is not None
