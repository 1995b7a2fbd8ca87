from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewise.core import BadInputError
from tidewise.qos.gp import GaussianProcess, _Objective

RNG = np.random.default_rng(5)


def wave(x: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.asarray(np.sin(4.0 * x[:, 0]) + x[:, 1] ** 2)


def fitted(points: int = 40, noise: float = 0.02) -> GaussianProcess:
    rng = np.random.default_rng(1)
    x = rng.random((points, 2))
    return GaussianProcess.fit(x, wave(x) + noise * rng.standard_normal(points))


@pytest.mark.parametrize("points", [1, 7, 40])
def test_the_gradient_is_that_of_finite_differences(points: int) -> None:
    rng = np.random.default_rng(points)
    x, y = rng.random((points, 3)), rng.standard_normal(points)
    objective = _Objective(x, y, 0.01 * rng.random(points))
    place = np.log([0.4, 1.3, 0.8, 1.2, 0.2])
    _, gradient = objective(place)
    for axis, step in enumerate(1e-6 * np.eye(5)):
        slope = (objective(place + step)[0] - objective(place - step)[0]) / 2e-6
        assert gradient[axis] == pytest.approx(slope, rel=1e-4, abs=1e-6)


def test_a_function_is_learnt_and_the_spread_is_honest() -> None:
    asked = np.random.default_rng(2).random((500, 2))
    mean, sd = fitted().predict(asked)
    off = mean - wave(asked)
    assert np.sqrt((off**2).mean()) < 0.05
    assert 0.85 <= (np.abs(off) <= 1.645 * sd).mean() <= 1.0


def test_one_point_by_hand() -> None:
    process = GaussianProcess.fit(np.array([[0.5]]), np.array([3.0]), mean=1.0, usual_sd=1.0)
    # One point 2 above the mean, usual spread 1: the scale is sqrt((1 + 4) / 2).
    sd = math.sqrt(2.5)
    reach = math.sqrt(5.0) * 0.25 / process.lengths[0]
    prior = (sd * process.amplitude) ** 2
    shared = prior * (1.0 + reach + reach**2 / 3.0) * math.exp(-reach)
    total = prior + (sd * process.noise) ** 2
    mean, spread = process.predict(np.array([[0.25]]))
    assert mean[0] == pytest.approx(1.0 + shared / total * 2.0)
    assert spread[0] == pytest.approx(math.sqrt(prior - shared**2 / total))


def test_far_from_all_points_the_prior_comes_back() -> None:
    process = fitted()
    mean, sd = process.predict(np.array([[1e4, 1e4]]))
    assert mean[0] == pytest.approx(process.y.mean())
    assert sd[0] > 0.5 * process.y.std()


def test_two_points_that_agree_do_not_make_it_certain() -> None:
    process = GaussianProcess.fit(np.array([[0.4], [0.6]]), np.array([1.0, 1.0001]))
    assert process.predict(np.array([[3.0]]))[1][0] > 0.1


def test_points_that_contradict_each_other_are_noise() -> None:
    x = np.repeat(np.array([[0.2], [0.8]]), 10, axis=0)
    y = np.where(np.arange(20) % 2 == 0, 1.0, -1.0)
    mean, _ = GaussianProcess.fit(x, y).predict(np.array([[0.2], [0.8]]))
    assert np.abs(mean).max() < 0.2


@pytest.mark.parametrize("value", [0.0, 7.5, -1e6])
def test_constant_values_are_learnt_as_such(value: float) -> None:
    x = np.random.default_rng(3).random((9, 2))
    mean, sd = GaussianProcess.fit(x, np.full(9, value)).predict(x)
    assert mean == pytest.approx(value)
    assert np.isfinite(sd).all()


def test_joint_sample_and_beside_agree_with_predict() -> None:
    process = fitted()
    x, anchors = RNG.random((6, 2)), RNG.random((3, 2))
    mean, sd = process.predict(x)
    joint_mean, covariance = process.joint(np.vstack([x, anchors]))
    beside_mean, variance, shared = process.beside(x, anchors)
    assert joint_mean[:6] == pytest.approx(mean)
    assert np.sqrt(np.diag(covariance)[:6]) == pytest.approx(sd, rel=1e-6)
    assert beside_mean == pytest.approx(mean)
    assert np.sqrt(variance) == pytest.approx(sd, rel=1e-6)
    assert shared == pytest.approx(covariance[:6, 6:], abs=1e-10)
    samples = process.sample(x, 20_000, np.random.default_rng(0))
    assert samples.mean(axis=0) == pytest.approx(mean, abs=4.0 * sd.max() / 141.0)
    assert np.cov(samples.T) == pytest.approx(covariance[:6, :6], abs=0.05 * covariance[:6, :6].max())


def test_a_glance_is_near_a_look() -> None:
    process = fitted()
    x = RNG.random((200, 2))
    mean, sd = process.glance(x, x[:0])
    assert mean == pytest.approx(process.predict(x)[0], abs=1e-3)
    assert sd == pytest.approx(process.predict(x)[1], rel=0.05)


def test_a_glance_takes_the_anchors_as_known() -> None:
    process = fitted()
    x, anchors = RNG.random((50, 2)), RNG.random((4, 2))
    mean, sd = process.glance(x, anchors)
    _, covariance = process.joint(np.vstack([anchors, x]))
    left = covariance[4:, 4:] - covariance[4:, :4] @ np.linalg.solve(covariance[:4, :4], covariance[:4, 4:])
    assert mean == pytest.approx(process.predict(x)[0], abs=1e-3)
    assert sd == pytest.approx(np.sqrt(np.diag(left)), rel=0.1, abs=1e-3)


def test_leaving_one_out_is_fitting_without_it() -> None:
    process = fitted(12)
    mean, sd = process.leave_one_out()
    others = np.arange(12) != 4
    without = process.with_data(process.x[others], process.y[others])
    expected, spread = without.predict(process.x[4:5])
    scale = without.predict(np.array([[1e6, 1e6]]))[1][0] / process.amplitude
    assert mean[4] == pytest.approx(expected[0])
    assert sd[4] == pytest.approx(math.hypot(spread[0], process.noise * scale))
    assert process.noise_sd == pytest.approx(process.noise * scale)


def test_other_data_are_learnt_with_the_same_hyperparameters() -> None:
    process = fitted(20)
    more = process.with_data(np.vstack([process.x, [[0.5, 0.5]]]), np.append(process.y, 2.0))
    assert len(more) == 21
    assert more.lengths == pytest.approx(process.lengths)
    place = np.array([[0.5, 0.5]])
    assert more.predict(place)[1][0] < process.predict(place)[1][0]
    assert abs(more.predict(place)[0][0] - 2.0) < abs(process.predict(place)[0][0] - 2.0)


def test_known_noise_is_believed() -> None:
    x, y = np.array([[0.3], [0.7]]), np.array([0.0, 5.0])
    trusted = GaussianProcess.fit(x, y, noise_sd=np.array([0.01, 0.01])).predict(x)[0]
    doubted = GaussianProcess.fit(x, y, noise_sd=np.array([0.01, 20.0])).predict(x)[0]
    assert abs(trusted[1] - 5.0) < abs(doubted[1] - 5.0)


def test_a_warm_start_ends_where_a_cold_one_does() -> None:
    process = fitted(60)
    warm = GaussianProcess.fit(process.x, process.y, warm=process)
    assert warm.evidence >= process.evidence - 0.1


def test_many_points_are_fitted_through_a_part_of_them() -> None:
    assert fitted(260).predict(np.array([[0.3, 0.6]]))[0][0] == pytest.approx(math.sin(1.2) + 0.36, abs=0.03)


def test_a_fit_through_a_part_goes_on_to_the_end() -> None:
    rng = np.random.default_rng(2)
    x = rng.random((260, 6))
    # A floor and a steep edge: what a part of the points takes for noise.
    y = np.maximum(0.0, 4.0 * x[:, 0] - 3.0 * x[:, 1] - x[:, 2]) + 0.02 * rng.standard_normal(260)
    process = GaussianProcess.fit(x, y)
    further = process
    for _ in range(10):
        further = GaussianProcess.fit(x, y, warm=further)
    assert further.evidence - process.evidence < 1.0


def test_what_is_saved_answers_the_same() -> None:
    process = fitted()
    x = RNG.random((5, 2))
    loaded = GaussianProcess.from_plain(json.loads(json.dumps(process.to_plain())))
    assert loaded.predict(x)[0] == pytest.approx(process.predict(x)[0])
    assert loaded.predict(x)[1] == pytest.approx(process.predict(x)[1])


def test_a_saved_process_of_another_version_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"format 0 .*learn anew"):
        GaussianProcess.from_plain(fitted().to_plain() | {"format": 0})


@pytest.mark.parametrize(
    "damage", [{"y": None}, {"x": "?"}, {"hyperparameters": [0.0]}, {"sd": 0.0}, {"mean": math.nan}, {"y": [1.0]}]
)
def test_a_damaged_process_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(BadInputError):
        GaussianProcess.from_plain(fitted().to_plain() | damage)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([[0.1], [0.2]], [1.0, math.nan]),
        ([[0.1], [math.inf]], [1.0, 2.0]),
        ([[0.1]], [1.0, 2.0]),
        ([0.1, 0.2], [1.0, 2.0]),
        (np.empty((0, 1)), []),
    ],
)
def test_what_cannot_be_learnt_from_is_refused(x: list[object], y: list[float]) -> None:
    with pytest.raises(BadInputError):
        GaussianProcess.fit(np.array(x, dtype=np.float64), np.array(y))


def test_rows_of_another_length_are_refused() -> None:
    with pytest.raises(BadInputError, match="rows of 2 numbers"):
        fitted().predict(np.zeros((3, 4)))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 1.0), st.floats(-1e3, 1e3, allow_nan=False), st.sampled_from([0.0, 0.5])
        ),
        min_size=1,
        max_size=8,
    )
)  # fmt: skip
def test_any_points_give_finite_answers(points: list[tuple[float, float, float]]) -> None:
    x = np.array([[place, other] for place, _, other in points])
    process = GaussianProcess.fit(x, np.array([value for _, value, _ in points]))
    mean, sd = process.predict(np.vstack([x, [[0.5, 0.5]]]))
    assert np.isfinite(mean).all()
    assert (sd > 0.0).all()
