"""Beliefs about positive quantities: quantiles and probabilities agree, and nothing overflows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import InvalidValueError
from tidewise.qos import Belief

logs = st.floats(-50.0, 50.0)
sds = st.floats(0.0, 20.0)


@given(logs, st.floats(0.01, 5.0), st.floats(0.01, 0.99))
def test_a_quantile_is_kept_with_its_own_probability(log_mean: float, log_sd: float, level: float) -> None:
    belief = Belief(np.array([log_mean]), np.array([log_sd]))
    assert belief.probability_at_most(belief.quantile(level)) == pytest.approx(level, abs=1e-6)


@given(logs, sds)
def test_everything_is_finite(log_mean: float, log_sd: float) -> None:
    belief = Belief(np.array([log_mean]), np.array([log_sd]))
    estimate = belief.estimate(0)
    assert math.isfinite(estimate.mean)
    assert math.isfinite(estimate.spread)
    assert np.isfinite([belief.mean, belief.median, belief.quantile(0.99)]).all()


def test_what_is_certain_is_kept_or_not() -> None:
    belief = Belief.of(np.array([2.0, 2.0, 2.0]), 0.0)
    assert belief.probability_at_most(np.array([1.9, 2.1, -1.0])).tolist() == [0.0, 1.0, 0.0]


def test_what_may_never_end_is_not_kept_by_any_limit() -> None:
    belief = Belief(np.zeros(3), np.full(3, 0.5), np.array([0.0, 0.25, 1.0]))
    assert belief.probability_at_most(1e300) == pytest.approx([1.0, 0.75, 0.0])
    assert belief.probability_at_most(1.0) == pytest.approx([0.5, 0.5, 0.0])
    assert belief.at(np.array([1])).probability_at_most(1e300) == pytest.approx([0.75])
    assert belief.median == pytest.approx([1.0, 1.0, 1.0])
    for wrong in (np.array([1.5, 0.0, 0.0]), np.array([math.nan, 0.0, 0.0]), np.zeros(2)):
        with pytest.raises(InvalidValueError, match="never"):
            Belief(np.zeros(3), np.ones(3), wrong)


def test_the_hopeless_can_be_told_apart() -> None:
    chances = Belief.of(np.array([1e30, 1e40]), 0.5).log_probability_at_most(1.0)
    assert -math.inf < chances[1] < chances[0] < -1000.0


def test_moments_are_those_of_a_lognormal() -> None:
    drawn = np.exp(1.0 + 0.5 * np.random.default_rng(1).standard_normal(400_000))
    estimate = Belief(np.array([1.0]), np.array([0.5])).estimate(0)
    assert estimate.mean == pytest.approx(drawn.mean(), rel=0.01)
    assert estimate.spread == pytest.approx(drawn.std(), rel=0.02)


@pytest.mark.parametrize(("mean", "sd"), [(math.nan, 1.0), (0.0, math.inf), (0.0, -1.0)])
def test_what_is_no_belief_is_refused(mean: float, sd: float) -> None:
    with pytest.raises(InvalidValueError):
        Belief(np.array([mean]), np.array([sd]))
