from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from tests.search.problems import table, truth
from tidewise.core import BadInputError, Censored, InvalidValueError
from tidewise.qos.gp import GaussianProcess
from tidewise.search.rgpe import EnsembleModel, _weights
from tidewise.search.surrogate import LATENCY, RECOVERY, ContextualModel, Profiled, View, bent, imputed, places_of

TABLE = table()
RATES = (8_000.0, 11_000.0, 15_000.0, 20_000.0, 27_000.0)
TARGET = 17_500.0
NO_PLACES = places_of(TABLE)[:0]
FAR = 20.0


def profiles(rates: tuple[float, ...] = RATES, *, each: int = 12, cut_at_s: float | None = None) -> list[Profiled]:
    rng = np.random.default_rng(4)
    found = []
    for rate in rates:
        latency_s, recovery_s = truth(TABLE, rate)
        for row in rng.integers(len(TABLE), size=each).tolist():
            recovery = float(recovery_s[row])
            is_cut = cut_at_s is not None and recovery > cut_at_s
            found.append(
                Profiled(
                    configuration=TABLE[row],
                    rate_per_s=rate,
                    latency_s=float(latency_s[row]),
                    recovery_s=Censored(at_least=cut_at_s or 0.0) if is_cut else recovery,
                )
            )
    return found


def view_of(model: ContextualModel | EnsembleModel, learnt: list[Profiled]) -> View:
    model.fit(learnt)
    view = model.at(TARGET)
    assert view is not None
    return view


@pytest.mark.parametrize("kind", [ContextualModel, EnsembleModel])
def test_a_load_that_was_never_seen_is_foretold_by_the_others(kind: type[ContextualModel | EnsembleModel]) -> None:
    logs = np.log(truth(TABLE, TARGET)[0])
    view = view_of(kind(LATENCY, log_limit=FAR), profiles())
    mean, sd = view.glance(places_of(TABLE), NO_PLACES)
    assert np.corrcoef(mean, logs)[0, 1] > 0.9
    assert (sd > 0.0).all()


@pytest.mark.parametrize("kind", [ContextualModel, EnsembleModel])
def test_the_three_ways_to_look_agree(kind: type[ContextualModel | EnsembleModel]) -> None:
    view = view_of(kind(LATENCY, log_limit=FAR), profiles((*RATES, TARGET)))
    places, anchors = places_of(TABLE)[:9], places_of(TABLE)[20:23]
    mean, covariance = view.joint(np.vstack([places, anchors]))
    beside, variance, shared = view.beside(places, anchors)
    assert beside == pytest.approx(mean[:9])
    assert variance == pytest.approx(np.diag(covariance)[:9], abs=1e-9)
    assert shared == pytest.approx(covariance[:9, 9:], abs=1e-9)
    glanced, sd = view.glance(places, NO_PLACES)
    assert glanced == pytest.approx(mean[:9], abs=0.02)
    assert sd == pytest.approx(np.sqrt(variance), rel=0.2, abs=0.01)


def test_beyond_the_limit_logarithms_are_bent_and_stay_in_order() -> None:
    logs = np.linspace(-3.0, 6.0, 91)
    less = bent(logs, 1.0)
    assert (less[logs <= 1.0] == logs[logs <= 1.0]).all()
    assert (np.diff(less) > 0.0).all()
    assert less[-1] < 2.0


def test_nothing_measured_is_nothing_known() -> None:
    for model in (ContextualModel(RECOVERY, log_limit=FAR), EnsembleModel(RECOVERY, log_limit=FAR)):
        model.fit([Profiled(configuration=TABLE[0], rate_per_s=1.0, latency_s=1.0, recovery_s=None)])
        assert model.at(TARGET) is None


def test_what_was_cut_off_is_taken_to_be_more_than_that() -> None:
    logs = np.log(truth(TABLE, TARGET)[1])
    slow = logs > np.log(120.0)
    learnt = profiles(each=40, cut_at_s=120.0)
    mean, _ = view_of(ContextualModel(RECOVERY, log_limit=FAR), learnt).glance(places_of(TABLE), NO_PLACES)
    as_measured = [
        Profiled(configuration=p.configuration, rate_per_s=p.rate_per_s, latency_s=None,
                 recovery_s=p.recovery_s.at_least if isinstance(p.recovery_s, Censored) else p.recovery_s)
        for p in learnt
    ]  # fmt: skip
    naive, _ = view_of(ContextualModel(RECOVERY, log_limit=FAR), as_measured).glance(places_of(TABLE), NO_PLACES)
    assert np.abs(mean - logs)[slow].mean() < np.abs(naive - logs)[slow].mean()
    assert np.abs(mean - logs)[~slow].mean() < 0.15


def test_what_is_cut_off_is_no_more_in_doubt_for_having_been_guessed_before() -> None:
    rows = np.random.default_rng(1).choice(len(TABLE), 12, replace=False)
    logs = np.log(truth(TABLE, TARGET)[1][rows])
    cut = np.arange(len(logs)) == np.argmax(logs)
    logs[cut] -= 0.3
    process = GaussianProcess.fit(places_of(TABLE)[rows], logs)
    values, noise_sd = imputed(process, logs, cut, noise_sd=np.zeros(len(logs)))
    # Nothing else was cut off, so that the others say the same of it as before.
    again = process.with_data(process.x, values, noise_sd=noise_sd)
    same_values, same_noise_sd = imputed(again, logs, cut, noise_sd=noise_sd)
    assert (noise_sd > 0.0).tolist() == cut.tolist()
    assert same_noise_sd == pytest.approx(noise_sd, rel=1e-6)
    assert same_values == pytest.approx(values, rel=1e-6)


def test_a_base_is_fitted_again_for_other_profiles_of_the_same_number() -> None:
    first = profiles((8_000.0,))
    slower = [dataclasses.replace(each, latency_s=3.0 + number) for number, each in enumerate(first)]
    model, fresh = EnsembleModel(LATENCY, log_limit=FAR), EnsembleModel(LATENCY, log_limit=FAR)
    view_of(model, first)
    mean, _ = view_of(model, slower).joint(places_of(TABLE))
    expected, _ = view_of(fresh, slower).joint(places_of(TABLE))
    assert mean == pytest.approx(expected, abs=0.5)  # hyperparameters were sought from elsewhere


@pytest.mark.parametrize("factor", [1e60, 1e170])
def test_however_far_all_bases_are_the_nearest_counts(factor: float) -> None:
    both = profiles((1.0 / factor, 10.0 / factor))
    means = []
    for learnt in (both, both[12:]):
        model = EnsembleModel(LATENCY, log_limit=FAR)
        model.fit(learnt)
        view = model.at(factor)
        assert view is not None
        means.append(view.joint(places_of(TABLE))[0])
    assert means[0] == pytest.approx(means[1])


def test_profiles_that_contradict_each_other_leave_doubt() -> None:
    same = [
        Profiled(configuration=TABLE[5], rate_per_s=TARGET, latency_s=value, recovery_s=None)
        for value in (0.5, 8.0, 0.5, 8.0, 0.5, 8.0)
    ]
    mean, sd = view_of(ContextualModel(LATENCY, log_limit=FAR), same).glance(places_of(TABLE)[5:6], NO_PLACES)
    assert np.log(0.5) < mean[0] < np.log(8.0)
    assert sd[0] > 0.05


def test_hyperparameters_stay_while_they_fit() -> None:
    model = ContextualModel(LATENCY, log_limit=FAR)
    learnt = profiles()
    model.fit(learnt)
    before = model._process
    model.fit([*learnt, *profiles((TARGET,), each=3)])
    after = model._process
    assert before is not None
    assert after is not None
    assert after is not before
    assert (after.lengths == before.lengths).all()
    model.fit(profiles((*RATES, TARGET), each=20))
    assert model._process is not None
    assert (model._process.lengths != before.lengths).any()


def base_of(rows: list[int], sign: float) -> GaussianProcess:
    x = places_of(TABLE)[rows]
    return GaussianProcess.fit(x, sign * np.log(truth(TABLE, TARGET)[0][rows]))


def test_a_base_that_ranks_right_is_believed_and_a_misleading_one_is_dropped() -> None:
    rng = np.random.default_rng(2)
    many, few = rng.integers(len(TABLE), size=30).tolist(), rng.integers(len(TABLE), size=6).tolist()
    weights = _weights(base_of(few, 1.0), [base_of(many, 1.0), base_of(many, -1.0)], nearness=np.ones(2), seed=0)
    assert weights.sum() == pytest.approx(1.0)
    assert weights[0] > 0.5
    assert weights[1] == 0.0


def test_with_many_profiles_of_its_own_a_load_needs_no_misleading_bases() -> None:
    rows = np.random.default_rng(3).integers(len(TABLE), size=25).tolist()
    weights = _weights(base_of(rows, 1.0), [base_of(rows, -1.0)] * 10, nearness=np.ones(10), seed=0)
    assert weights.tolist() == [0.0] * 10 + [1.0]


def test_between_bases_that_cannot_be_judged_the_nearer_load_counts() -> None:
    model = EnsembleModel(LATENCY, log_limit=FAR)
    mean, _ = view_of(model, profiles((16_500.0, 4_000.0), each=20)).joint(places_of(TABLE))
    near, far = (np.log(truth(TABLE, rate)[0]) for rate in (16_500.0, 4_000.0))
    assert np.abs(mean - near).mean() < np.abs(mean - far).mean()


def test_a_profile_survives_being_saved() -> None:
    for each in profiles(cut_at_s=60.0)[:20]:
        assert Profiled.from_plain(json.loads(json.dumps(each.to_plain()))) == each


def test_a_damaged_profile_is_refused() -> None:
    plain = profiles()[0].to_plain()
    for damage in ({"rate_per_s": "fast"}, {"configuration": 3}, {"latency_s": "late"}, {"rate_per_s": 0.0}):
        with pytest.raises(BadInputError, match="damaged"):
            Profiled.from_plain(plain | damage)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0, np.float32("nan"), np.float32("inf")])
def test_a_profile_holds_finite_numbers(wrong: float) -> None:
    with pytest.raises(InvalidValueError):
        Profiled(configuration=TABLE[0], rate_per_s=1.0, latency_s=wrong, recovery_s=None)
    with pytest.raises(InvalidValueError):
        Profiled(configuration=TABLE[0], rate_per_s=wrong, latency_s=1.0, recovery_s=None)
