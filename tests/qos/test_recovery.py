"""Recovery: what physics says beforehand, what is learnt from failures, and what never goes the wrong way."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewise.core import BadInputError, Censored, Configuration, Forecast, InvalidValueError, Measured
from tidewise.qos import Belief, Candidates
from tidewise.qos.catch_up import NEVER_S, steady
from tidewise.qos.physics import CONTINUOUS, Physics, Usual
from tidewise.qos.recovery import MOST_KINDS, MOST_RECOVERIES, Case, RecoveryModel

CAPACITY = 100_000.0
KIND = "network-delay"


def flat(rate_per_s: float, spread: float = 0.0) -> Forecast:
    shares = (1.0 - spread, 1.0, 1.0 + spread)
    paths = tuple((rate_per_s * share,) * 10 for share in shares)
    return Forecast(made_at_s=0.0, step_s=60.0, levels=(0.05, 0.5, 0.95), paths_per_s=paths, model="flat")


def one(interval_s: float = 10.0) -> Candidates:
    return Candidates.listing([Configuration(executors=4, commit_interval_s=interval_s)])


def believed(capacity_per_s: float = CAPACITY, log_sd: float = 0.02) -> Belief:
    return Belief.of(np.array([capacity_per_s]), log_sd)


def truth_s(share: float, *, down_s: float, replay_s: float = 5.0) -> float:
    """Down, then what has piled up at the capacity that is left."""
    return down_s + (down_s + replay_s) * share / (1.0 - share)


def teach(model: RecoveryModel, took: Measured, share: float, *, kind: str = KIND, interval_s: float = 10.0) -> None:
    model.learn(
        kind,
        took,
        configuration=Configuration(executors=4, commit_interval_s=interval_s),
        rate_per_s=share * CAPACITY,
        capacity=believed(),
    )


def taught(seed: int, *, failures: int = 20, down_s: float = 60.0, physics: Physics = CONTINUOUS) -> RecoveryModel:
    chance = np.random.default_rng(seed)
    model = RecoveryModel(physics)
    for share in chance.uniform(0.2, 0.7, failures):
        teach(model, truth_s(share, down_s=down_s * math.exp(0.15 * chance.standard_normal())), float(share))
    return model


def said_s(model: RecoveryModel, share: float, *, kind: str = KIND) -> float:
    belief = model.predict_kind(kind, one(), believed(), flat(share * CAPACITY), just_before_commit=False)
    return float(belief.median[0])


def test_before_anything_was_seen_the_usual_downtime_is_foretold_with_a_wide_spread() -> None:
    belief = RecoveryModel(CONTINUOUS).predict_kind(KIND, one(), believed(), flat(0.0))
    assert 20.0 < belief.median[0] < 45.0
    assert belief.log_sd[0] > 0.5


def test_twenty_failures_teach_what_the_next_will_take_at_any_load() -> None:
    model = taught(1)
    for share in (0.3, 0.5, 0.65):
        assert said_s(model, share) == pytest.approx(truth_s(share, down_s=60.0), rel=0.15)


def test_a_few_failures_far_from_the_usual_are_believed() -> None:
    model = taught(2, failures=3, down_s=200.0)
    assert said_s(model, 0.4) == pytest.approx(truth_s(0.4, down_s=200.0), rel=0.35)


def test_nine_of_ten_new_failures_lie_in_the_interval() -> None:
    held = []
    for seed in range(8):
        model, chance = RecoveryModel(CONTINUOUS), np.random.default_rng([seed, 1])
        for number, share in enumerate(chance.uniform(0.2, 0.7, 25)):
            down_s = 60.0 * math.exp(0.2 * chance.standard_normal())
            really = share * math.exp(0.05 * chance.standard_normal())
            took_s = truth_s(really, down_s=down_s, replay_s=chance.uniform(0.0, 30.0))
            if number >= 12:
                belief = model.predict_kind(
                    KIND, one(30.0), believed(log_sd=0.05), flat(share * CAPACITY), just_before_commit=False
                )
                held.append(belief.quantile(0.05)[0] <= took_s <= belief.quantile(0.95)[0])
            teach(model, took_s, float(share), interval_s=30.0)
    assert 0.85 <= np.mean(held) <= 0.98


def test_a_job_that_works_until_the_failure_is_noticed_piles_up_less() -> None:
    """Half of the time the job still worked: what was learnt at low load must not be carried over to high load."""
    model = RecoveryModel(CONTINUOUS)
    chance = np.random.default_rng(4)
    for share in np.linspace(0.1, 0.75, 30):
        down_s = 60.0 * math.exp(0.05 * chance.standard_normal())
        teach(model, down_s + (0.4 * down_s + 5.0) * share / (1.0 - share), float(share))
    assert said_s(model, 0.7) == pytest.approx(60.0 + 29.0 * 0.7 / 0.3, rel=0.12)


def test_a_cut_off_recovery_lengthens_what_is_foretold_and_is_not_taken_for_a_number() -> None:
    model, bound, number = taught(5, failures=4), taught(5, failures=4), taught(5, failures=4)
    for _ in range(3):
        teach(bound, Censored(at_least=300.0), 0.4)
        teach(number, 300.0, 0.4)
    assert said_s(bound, 0.4) > said_s(model, 0.4)
    short = taught(5, failures=4)
    teach(short, Censored(at_least=5.0), 0.4)
    # At least five seconds: everybody knew that.
    assert said_s(short, 0.4) == pytest.approx(said_s(model, 0.4), rel=0.02)


def test_a_recovery_of_at_least_nothing_says_nothing() -> None:
    model = RecoveryModel(CONTINUOUS)
    teach(model, Censored(at_least=0.0), 0.4)
    assert model.save() == RecoveryModel(CONTINUOUS).save()


def test_one_failure_that_went_quite_differently_shifts_little() -> None:
    model = taught(6)
    before_s = said_s(model, 0.4)
    teach(model, 3000.0, 0.4)
    assert said_s(model, 0.4) == pytest.approx(before_s, rel=0.15)


def test_a_job_that_cannot_keep_up_never_recovers_and_nothing_is_infinite() -> None:
    belief = taught(7).predict(one(), believed(), flat(1.2 * CAPACITY))
    assert belief.median[0] == pytest.approx(NEVER_S)
    assert belief.probability_at_most(np.array([600.0]))[0] < 0.01
    assert belief.probability_at_most(1e9)[0] < 0.01
    assert math.isfinite(belief.estimate(0).mean)


def test_a_load_that_falls_soon_is_caught_up_with_sooner() -> None:
    model = taught(8)
    falling = Forecast(
        made_at_s=0.0,
        step_s=60.0,
        levels=(0.5,),
        paths_per_s=((0.7 * CAPACITY, *(0.1 * CAPACITY,) * 9),),
        model="falling",
    )
    steady = model.predict(one(), believed(), flat(0.7 * CAPACITY)).median[0]
    assert model.predict(one(), believed(), falling).median[0] < 0.8 * steady


def test_the_worst_kind_is_the_one_that_takes_longest() -> None:
    model = RecoveryModel(CONTINUOUS)
    for _ in range(8):
        teach(model, 10.0, 0.2, kind="blip")
        teach(model, 400.0, 0.2, kind="flood")
    forecast = flat(0.2 * CAPACITY)
    worst = model.predict(one(), believed(), forecast).median[0]
    assert worst == pytest.approx(model.predict_kind("flood", one(), believed(), forecast).median[0])
    assert model.predict_kind("blip", one(), believed(), forecast).median[0] < 30.0


def test_engines_that_turn_a_name_around_speak_of_the_same_failure() -> None:
    model = RecoveryModel(Physics())
    for _ in range(6):
        teach(model, 4.0, 0.2, kind="kill-driver")
    assert said_s(model, 0.2, kind="driver-kill") == said_s(model, 0.2, kind="kill-driver")
    assert said_s(model, 0.2, kind="driver-kill") == pytest.approx(4.0, rel=0.4)


def test_failures_just_before_a_commit_take_longer_than_at_any_moment() -> None:
    model = taught(9)
    forecast = flat(0.5 * CAPACITY)
    worst = model.predict_kind(KIND, one(60.0), believed(), forecast, just_before_commit=True)
    usual = model.predict_kind(KIND, one(60.0), believed(), forecast, just_before_commit=False)
    assert worst.median[0] > usual.median[0] + 20.0


def test_a_new_program_makes_what_was_seen_less_certain() -> None:
    model = taught(10, failures=6)
    before = model.predict_kind(KIND, one(), believed(), flat(0.4 * CAPACITY))
    for _ in range(3):
        model.widen()
    after = model.predict_kind(KIND, one(), believed(), flat(0.4 * CAPACITY))
    assert after.log_sd[0] > before.log_sd[0]


def test_what_is_kept_is_bounded() -> None:
    model = RecoveryModel(CONTINUOUS)
    for number in range(MOST_KINDS + 3):
        teach(model, 10.0, 0.2, kind=f"kind{number}")
    for _ in range(MOST_RECOVERIES + 5):
        teach(model, 10.0, 0.2, kind="often")
    seen = model.save()["seen"]
    assert isinstance(seen, dict)
    assert len(seen) == MOST_KINDS
    assert len(seen["often"]) == MOST_RECOVERIES
    assert "kind0" not in seen


def test_a_saved_model_goes_on_as_it_was() -> None:
    model = taught(11, failures=5)
    teach(model, Censored(at_least=360.0), 0.9)
    again = RecoveryModel.load(CONTINUOUS, json.loads(json.dumps(model.save())))
    assert said_s(again, 0.5) == said_s(model, 0.5)


def test_what_is_said_does_not_depend_on_when_one_asked_before() -> None:
    chance = np.random.default_rng(12)
    often, once = RecoveryModel(CONTINUOUS), RecoveryModel(CONTINUOUS)
    for share in chance.uniform(0.1, 0.9, 12):
        took_s = truth_s(share, down_s=60.0 * math.exp(0.6 * chance.standard_normal()))
        for model in (often, once):
            teach(model, took_s, float(share))
        said_s(often, 0.5)
    assert said_s(often, 0.5) == said_s(once, 0.5)


def test_kinds_keep_the_name_they_were_first_heard_by() -> None:
    model = RecoveryModel(Physics())
    teach(model, 20.0, 0.2, kind="of-memory-out")
    teach(model, 20.0, 0.2, kind="loss-of-disk")
    teach(model, 20.0, 0.2, kind="disk-of-loss")
    again = RecoveryModel.load(Physics(), json.loads(json.dumps(model.save())))
    for each in (model, again):
        assert each.kinds == ("executor-kill", "driver-kill", "out-of-memory", "loss-of-disk")
        assert list(each.save()["seen"]) == ["out-of-memory", "loss-of-disk"]  # type: ignore[call-overload]  # a mapping


def test_too_many_saved_kinds_are_cut_to_the_latest() -> None:
    model = RecoveryModel(CONTINUOUS)
    teach(model, 10.0, 0.2, kind="some")
    saved = json.loads(json.dumps(model.save()))
    saved["seen"] = {f"kind{number}": saved["seen"]["some"] for number in range(MOST_KINDS + 3)}
    kinds = RecoveryModel.load(CONTINUOUS, saved).save()["seen"]
    assert list(kinds) == [f"kind{number}" for number in range(3, MOST_KINDS + 3)]  # type: ignore[call-overload]  # a mapping


def test_what_stays_unknown_is_the_spread_of_a_single_failure() -> None:
    """Three failures teach little of the kind, forty all but the luck of the next one."""
    chance = np.random.default_rng(13)
    model, found = RecoveryModel(Physics(downtimes={})), []
    for number in range(1, 41):
        teach(model, truth_s(0.3, down_s=60.0 * math.exp(0.15 * chance.standard_normal())), 0.3)
        if number in (3, 40):
            found.append(model.predict_with_noise(one(), believed(), flat(0.3 * CAPACITY)))
    (few, _), (many, noise) = found
    assert few.log_sd[0] > many.log_sd[0] >= noise[0] > 0.6 * many.log_sd[0]
    assert noise[0] == pytest.approx(0.15, rel=0.4)


@pytest.mark.parametrize(
    "saved",
    [
        {},
        {"format": 99, "seen": {}},
        {"format": 1},
        {"format": 1, "seen": 3, "records": {}},
        {"format": 1, "seen": {}, "records": {"a": {"count": -1.0}}},
        {"format": 1, "seen": {"a": [{"took_s": "x"}]}},
        {"format": 1, "seen": {"a": [{"took_s": 1.0, "unheard": 2}]}},
    ],
)
def test_a_model_of_another_version_or_a_damaged_one_is_refused(saved: dict[str, object]) -> None:
    with pytest.raises(BadInputError):
        RecoveryModel.load(CONTINUOUS, saved)


@pytest.mark.parametrize("took", [math.nan, math.inf, -1.0])
def test_a_recovery_that_is_no_number_is_refused(took: float) -> None:
    with pytest.raises(InvalidValueError):
        teach(RecoveryModel(CONTINUOUS), took, 0.4)


def test_contradictory_recoveries_give_a_wide_spread_and_no_warning() -> None:
    model = RecoveryModel(CONTINUOUS)
    for took in (0.0, 5.0, 900.0, Censored(at_least=360.0), 1.0, 5000.0):
        teach(model, took, 0.3)
    belief = model.predict(one(), believed(), flat(0.3 * CAPACITY))
    assert belief.log_sd[0] > 0.5


@settings(max_examples=60, deadline=None)
@given(
    micro_batch=st.booleans(),
    seed=st.integers(0, 3),
    share=st.floats(0.0, 1.3),
    more=st.floats(0.0, 0.5),
    log_sd=st.floats(0.0, 0.5),
    spread=st.floats(0.0, 0.4),
    interval_s=st.floats(0.0, 90.0),
    longer_s=st.floats(0.0, 90.0),
    level=st.sampled_from((0.5, 0.8, 0.9, 0.95)),
)
def test_recovery_never_goes_the_wrong_way(
    *,
    micro_batch: bool,
    seed: int,
    share: float,
    more: float,
    log_sd: float,
    spread: float,
    interval_s: float,
    longer_s: float,
    level: float,
) -> None:
    """A higher rate or a longer commit interval never shortens it, more capacity never lengthens it."""
    model = MODELS[micro_batch, seed]
    rate = share * CAPACITY

    def at(rate_per_s: float, capacity_per_s: float, wait_s: float) -> tuple[float, float]:
        belief = model.predict(one(wait_s), believed(capacity_per_s, log_sd), flat(rate_per_s, spread))
        assert np.isfinite(belief.log_mean).all()
        assert belief.never is not None
        return float(belief.quantile(level)[0]), float(belief.never[0])

    base_s, base_never = at(rate, CAPACITY, interval_s)
    for worse_s, worse_never in (
        at(rate * (1.0 + more), CAPACITY, interval_s),
        at(rate, CAPACITY, interval_s + longer_s),
        at(rate, CAPACITY / (1.0 + more), interval_s),
    ):
        assert worse_s >= base_s * (1.0 - 1e-9)
        assert worse_never >= base_never


def _random_model(*, micro_batch: bool, seed: int) -> RecoveryModel:
    """Whatever was seen, sense or not."""
    chance = np.random.default_rng(seed)
    model = RecoveryModel(Physics() if micro_batch else CONTINUOUS)
    for _ in range(5 * seed):
        took = float(np.exp(chance.uniform(0.0, 6.0)))
        measured = Censored(at_least=took) if chance.random() < 0.3 else took
        kind = str(chance.choice(["a", "b"]))
        teach(model, measured, float(chance.uniform(0.0, 1.1)), kind=kind, interval_s=float(chance.uniform(0.0, 60.0)))
    return model


MODELS = {
    (micro_batch, seed): _random_model(micro_batch=micro_batch, seed=seed)
    for micro_batch in (False, True)
    for seed in range(4)
}


def test_recoveries_that_were_measured_coarsely_teach_less() -> None:
    def after(resolution_s: float) -> RecoveryModel:
        model = RecoveryModel(CONTINUOUS)
        for share in (0.3, 0.4, 0.5):
            model.learn(
                KIND,
                truth_s(share, down_s=120.0),
                configuration=Configuration(executors=4, commit_interval_s=10.0),
                rate_per_s=share * CAPACITY,
                capacity=believed(),
                resolution_s=resolution_s,
            )
        return model

    untaught = said_s(RecoveryModel(CONTINUOUS), 0.4)
    fine, coarse, blurred = (said_s(after(resolution_s), 0.4) for resolution_s in (1.0, 60.0, 2000.0))
    # Less of the way from what is usual to what was seen.
    assert untaught < blurred < coarse < fine


def test_a_resolution_has_to_be_a_time() -> None:
    with pytest.raises(InvalidValueError, match="resolution_s"):
        RecoveryModel(CONTINUOUS).learn(
            KIND,
            60.0,
            configuration=Configuration(executors=4),
            rate_per_s=1.0,
            capacity=believed(),
            resolution_s=0.0,
        )


@cache
def known(mode: str) -> RecoveryModel:
    """Learnt once for all examples."""
    physics = {"batches": Physics(), "flow": CONTINUOUS}[mode]
    return taught(1, physics=replace(physics, downtimes={KIND: Usual(median=30.0, log_sd=0.8)}))


@pytest.mark.parametrize("mode", ["batches", "flow"])
@given(rate=st.floats(1.0, 1e6), loads=st.lists(st.floats(0.05, 1.5), min_size=1, max_size=4))
@settings(max_examples=25)
def test_at_a_load_a_recovery_is_the_same_whatever_the_rate(mode: str, rate: float, loads: list[float]) -> None:
    model = known(mode)
    cases = [Case(10.0, 0.05), Case(60.0, 0.3), Case(10.0, 0.05)]
    told = model.by_load(cases, tuple(np.log(loads)))
    for place, case in enumerate(cases):
        rows = Candidates.listing([Configuration(executors=4, commit_interval_s=case.commit_interval_s)] * len(loads))
        capacity = Belief.of(rate / np.array(loads), case.capacity_log_sd)
        plain = model.predict_kind(KIND, rows, capacity, steady(rate), just_before_commit=False)
        here = told.at(slice(place * len(loads), (place + 1) * len(loads)))
        assert here.log_mean == pytest.approx(plain.log_mean)
        assert here.log_sd == pytest.approx(plain.log_sd)
        assert here.never == pytest.approx(plain.never)


def test_what_is_kept_of_recoveries_is_made_anew_when_one_was_learnt_or_the_program_has_changed() -> None:
    model = taught(1)
    before = model.by_load([Case(10.0, 0.05)], (math.log(0.5),))
    for _ in range(10):
        teach(model, truth_s(0.5, down_s=200.0), 0.5)
    after = model.by_load([Case(10.0, 0.05)], (math.log(0.5),))
    assert after.median[0] > 1.2 * before.median[0]
    model.widen()
    assert model.by_load([Case(10.0, 0.05)], (math.log(0.5),)).log_sd[0] != after.log_sd[0]


def test_a_job_that_has_come_up_gets_warm_and_how_cold_it_was_is_learnt() -> None:
    model = RecoveryModel(CONTINUOUS)
    warmth = [model.warmth(KIND, works_s) for works_s in (0.0, 10.0, 60.0, math.inf)]
    assert warmth == sorted(warmth)
    assert 0.5 < warmth[0] < 1.0 == warmth[-1]
    cold, warm = RecoveryModel(CONTINUOUS), RecoveryModel(CONTINUOUS)
    for share in np.random.default_rng(5).uniform(0.3, 0.8, 30):
        plain_s = truth_s(share, down_s=60.0)
        teach(warm, plain_s, float(share))
        teach(cold, plain_s + 15.0 / (1.0 - share), float(share))
    assert cold.warmth(KIND, 0.0) < warm.warmth(KIND, 0.0)
    # New JVMs are cold whatever recoveries say.
    assert RecoveryModel(Physics()).warmth(KIND, 0.0) == pytest.approx(0.6)
