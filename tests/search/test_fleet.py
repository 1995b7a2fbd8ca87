from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.special import log_ndtr

from tidewise.core.errors import BadInputError
from tidewise.qos.gp import Floats, GaussianProcess, prior_mean, prior_spread
from tidewise.search.fleet import Fleet, Measurements

DIMS = 3


def jobs(count: int, seed: int, *, ragged: bool = True, noise: float = 0.1) -> list[tuple[Floats, Floats]]:
    rng = np.random.default_rng(seed)
    models = []
    for _ in range(count):
        points = int(rng.integers(4, 21)) if ragged else 20
        x = rng.random((points, DIMS))
        turn, tilt = 3.0 * rng.normal(size=DIMS), rng.normal(size=DIMS)
        models.append((x, np.sin(x @ turn) + x @ tilt + 5.0 + noise * rng.standard_normal(points)))
    return models


def table(rows: int, seed: int = 9) -> Floats:
    return np.random.default_rng(seed).random((rows, DIMS))


@pytest.mark.parametrize(("precision", "allowed"), [("float64", 0.005), ("float32", 0.02)])
def test_every_model_of_a_fleet_says_what_a_process_fitted_alone_says(precision: str, allowed: float) -> None:
    pytest.importorskip("torch")
    models = jobs(30, seed=1)
    mean, sd = Fleet.fit(Measurements.padded(models), starts=2, precision=precision).predict(table(200))
    off = []
    for row, (x, y) in enumerate(models):
        alone_mean, alone_sd = GaussianProcess.fit(x, y, starts=2).predict(table(200))
        off.append(max(np.abs(mean[row] - alone_mean).max(), np.abs(sd[row] - alone_sd).max()) / alone_sd.max())
    # A search may end in another of two hills that are equally high: nearly all have to agree, not each.
    assert np.quantile(off, 0.9) < allowed


def test_fits_are_as_probable_as_those_of_a_process_fitted_alone() -> None:
    pytest.importorskip("torch")
    models = jobs(30, seed=2)
    fleet = Fleet.fit(Measurements.padded(models), starts=3)
    for (x, y), found in zip(models, fleet.hyperparameters, strict=True):
        alone = GaussianProcess.fit(x, y, starts=3)
        assert _log_posterior(alone, found) > _log_posterior(alone, alone.hyperparameters) - 0.05


def _log_posterior(process: GaussianProcess, hyperparameters: Floats) -> float:
    same = GaussianProcess.from_plain({**process.to_plain(), "hyperparameters": hyperparameters.tolist()})
    off = (hyperparameters - prior_mean(DIMS)) / prior_spread(DIMS)
    return same.evidence - 0.5 * float((off**2).sum())


def test_measurements_without_noise_are_told_as_surely_as_by_a_process_fitted_alone() -> None:
    pytest.importorskip("torch")
    models = jobs(12, seed=12, ragged=False, noise=0.0)
    mean, sd = Fleet.fit(Measurements.padded(models)).predict(table(200))
    for row, (x, y) in enumerate(models):
        alone_mean, alone_sd = GaussianProcess.fit(x, y).predict(table(200))
        assert np.median(np.abs(mean[row] - alone_mean) / alone_sd) < 0.05
        assert np.median(np.abs(sd[row] / alone_sd - 1.0)) < 0.05


def test_filling_changes_nothing() -> None:
    pytest.importorskip("torch")
    models = jobs(5, seed=3)
    tight = Measurements.padded(models[:1])
    alone = Fleet.fit(tight).predict(table(50))
    beside_others = Fleet.fit(Measurements.padded(models)).predict(table(50))
    np.testing.assert_allclose(alone[0][0], beside_others[0][0], rtol=1e-3)
    np.testing.assert_allclose(alone[1][0], beside_others[1][0], rtol=1e-2)


def test_one_point_and_equal_values_give_a_wide_finite_answer() -> None:
    pytest.importorskip("torch")
    x = np.full((6, DIMS), 0.5)
    models = [(x[:1], np.array([3.0])), (x, np.full(6, 3.0)), (x, np.arange(6.0))]
    for precision in ("float32", "float64"):
        mean, sd = Fleet.fit(Measurements.padded(models), precision=precision).predict(table(50))
        assert np.isfinite(mean).all()
        assert (sd > 0.0).all()
        assert (np.abs(mean[:2] - 3.0) < 0.5).all()


def test_the_cheapest_row_is_the_one_that_the_models_name() -> None:
    pytest.importorskip("torch")
    count, outputs, members = 6, 2, 3
    models = jobs(count * outputs * members, seed=4)
    rows = table(300)
    rng = np.random.default_rng(5)
    cost = rng.random(len(rows))
    weights = rng.dirichlet(np.ones(members), size=(count, outputs))
    fleet = Fleet.fit(Measurements.padded(models))
    limits = np.full((count, outputs), 5.5)
    limits[0] = -100.0  # nobody can keep this
    found = fleet.cheapest(rows, cost=cost, weights=weights, limits=limits, probability=0.6)

    mean, sd = (values.reshape(count, outputs, members, -1) for values in fleet.predict(rows))
    told_mean = (weights[..., None] * mean).sum(axis=2)
    told_sd = np.sqrt((weights[..., None] ** 2 * sd**2).sum(axis=2))
    sure = np.exp(log_ndtr((limits[..., None] - told_mean) / told_sd).sum(axis=1))
    for job in range(count):
        keeps = sure[job] >= 0.6
        assert found.kept[job] == keeps.any()
        expected = np.where(keeps, cost, np.inf).argmin() if keeps.any() else sure[job].argmax()
        if sure[job].max() > 0.0:
            assert found.row[job] == expected
            assert found.probability[job] == pytest.approx(sure[job, expected], rel=1e-6)
    assert not found.kept[0]
    assert found.kept.any()


def test_the_answer_does_not_depend_on_the_size_of_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    fleet = Fleet.fit(Measurements.padded(jobs(8, seed=6)))
    whole = fleet.predict(table(500))
    monkeypatch.setattr("tidewise.search.fleet._HELD_AT_ONCE", {"cpu": 2000, "cuda": 2000})
    parts = fleet.predict(table(500))
    np.testing.assert_allclose(whole[0], parts[0], rtol=1e-9)
    np.testing.assert_allclose(whole[1], parts[1], rtol=1e-6)


def test_without_torch_one_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BadInputError, match=r"pip install 'tidewise\[gpu\]'"):
        Fleet.fit(Measurements.padded(jobs(1, seed=7)))


def test_an_unknown_device_or_precision_is_refused() -> None:
    pytest.importorskip("torch")
    given = Measurements.padded(jobs(1, seed=8))
    with pytest.raises(BadInputError, match="there is no device 'tpu' here: write cpu"):
        Fleet.fit(given, device="tpu")
    with pytest.raises(BadInputError, match="float32 or float64, not in 'float8'"):
        Fleet.fit(given, precision="float8")
    with pytest.raises(BadInputError, match="at least one start"):
        Fleet.fit(given, starts=0)


def test_measurements_that_make_no_sense_are_refused() -> None:
    x, y = jobs(1, seed=10)[0]
    with pytest.raises(BadInputError, match="finite numbers"):
        Measurements.padded([(x, np.where(np.arange(len(y)) == 1, np.nan, y))])
    with pytest.raises(BadInputError, match="at least one point"):
        Measurements.padded([(x, y), (x[:0], y[:0])])
    with pytest.raises(BadInputError, match="same dimensions"):
        Measurements.padded([(x, y), (x[:, :2], y)])
    with pytest.raises(BadInputError, match="same dimensions"):
        Measurements.padded([])
    with pytest.raises(BadInputError, match="as many rows of x as numbers of y"):
        Measurements.padded([(x[1:], y)])


def test_a_table_or_limits_of_another_shape_are_refused() -> None:
    pytest.importorskip("torch")
    fleet = Fleet.fit(Measurements.padded(jobs(2, seed=11)))
    with pytest.raises(BadInputError, match="finite rows of 3 numbers"):
        fleet.predict(np.zeros((5, 2)))
    with pytest.raises(BadInputError, match="one cost per row"):
        fleet.cheapest(table(5), cost=np.ones(4), weights=np.ones((2, 1, 1)), limits=np.ones((2, 1)))
    with pytest.raises(BadInputError, match="between 0 and 1"):
        fleet.cheapest(table(5), cost=np.ones(5), weights=np.ones((2, 1, 1)), limits=np.ones((2, 1)), probability=1.5)
