"""Gaps: the engine's word first, then what was measured; failures change the odds, not the gap."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import (
    BadInputError,
    ChangeCost,
    ChangeOutcome,
    ChangeStatus,
    Configuration,
    InvalidValueError,
    Mechanism,
)
from tidewise.qos.gaps import LEAST_GAP_S, GapModel

CHANGES = (
    ChangeCost(mechanism=Mechanism.LIVE, gap_s=0.0),
    ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=40.0),
)


def ended(gap_s: float, *, failed: bool = False) -> ChangeOutcome:
    return ChangeOutcome(
        request_id="one",
        status=ChangeStatus.FAILED if failed else ChangeStatus.APPLIED,
        finished_at_s=1.0,
        configuration=Configuration(executors=1),
        gap_s=gap_s,
        detail="it did not come up" if failed else "",
    )


def test_before_any_change_the_engine_is_believed_with_a_wide_spread() -> None:
    gap = GapModel(CHANGES).gap(Mechanism.REDEPLOY)
    assert gap.median[0] == pytest.approx(40.0)
    assert gap.quantile(0.95)[0] > 100.0


def test_measured_gaps_take_the_place_of_the_engines_word() -> None:
    model = GapModel(CHANGES)
    for gap_s in (20.0, 22.0, 18.0, 21.0, 19.0, 20.0, 20.5, 19.5):
        model.learn(Mechanism.REDEPLOY, ended(gap_s))
    gap = model.gap(Mechanism.REDEPLOY)
    assert gap.median[0] == pytest.approx(20.0, rel=0.1)
    assert gap.log_sd[0] < 0.3
    assert model.gap(Mechanism.LIVE).median[0] == pytest.approx(LEAST_GAP_S)


def test_changes_without_a_gap_are_told_as_such() -> None:
    model = GapModel(CHANGES)
    for _ in range(20):
        model.learn(Mechanism.LIVE, ended(0.0))
    assert model.gap(Mechanism.LIVE).probability_at_most(0.5)[0] > 0.99


def test_nine_of_ten_further_gaps_lie_in_the_interval() -> None:
    held, chance = [], np.random.default_rng(1)
    for _ in range(60):
        model = GapModel(CHANGES)
        middle, spread = 40.0 * math.exp(0.4 * chance.standard_normal()), chance.uniform(0.15, 0.4)
        for _ in range(6):
            model.learn(Mechanism.REDEPLOY, ended(middle * math.exp(spread * chance.standard_normal())))
        gap = model.gap(Mechanism.REDEPLOY)
        new = middle * np.exp(spread * chance.standard_normal(20))
        held.append(np.mean((gap.quantile(0.05)[0] <= new) & (new <= gap.quantile(0.95)[0])))
    assert 0.85 <= np.mean(held) <= 0.95


def test_failed_changes_raise_the_odds_of_failing_and_leave_the_gap() -> None:
    model = GapModel(CHANGES)
    before = model.failure_probability(Mechanism.REDEPLOY)
    assert before == pytest.approx(0.05)
    gap_s = model.gap(Mechanism.REDEPLOY).median[0]
    for _ in range(3):
        model.learn(Mechanism.REDEPLOY, ended(0.0, failed=True))
    assert model.failure_probability(Mechanism.REDEPLOY) > 0.5
    assert model.gap(Mechanism.REDEPLOY).median[0] == gap_s
    for _ in range(40):
        model.learn(Mechanism.REDEPLOY, ended(40.0))
    assert model.failure_probability(Mechanism.REDEPLOY) < 0.1


def test_a_cluster_that_has_become_slower_is_followed() -> None:
    model = GapModel(CHANGES)
    for _ in range(200):
        model.learn(Mechanism.REDEPLOY, ended(20.0))
    for _ in range(100):
        model.learn(Mechanism.REDEPLOY, ended(60.0))
    assert model.gap(Mechanism.REDEPLOY).median[0] > 45.0


def test_a_new_program_makes_what_was_seen_less_certain() -> None:
    model = GapModel(CHANGES)
    for _ in range(6):
        model.learn(Mechanism.REDEPLOY, ended(20.0))
    before = model.gap(Mechanism.REDEPLOY)
    model.widen()
    after = model.gap(Mechanism.REDEPLOY)
    assert after.log_sd[0] > before.log_sd[0]
    assert before.median[0] < after.median[0] < 30.0


def test_a_mechanism_that_is_not_offered_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="repartition"):
        GapModel(CHANGES).gap(Mechanism.REPARTITION)
    with pytest.raises(InvalidValueError, match="repartition"):
        GapModel(CHANGES).learn(Mechanism.REPARTITION, ended(1.0))


def test_a_saved_model_goes_on_as_it_was_without_what_is_not_offered_any_more() -> None:
    model = GapModel(CHANGES)
    model.learn(Mechanism.LIVE, ended(0.0))
    model.learn(Mechanism.REDEPLOY, ended(25.0))
    model.learn(Mechanism.REDEPLOY, ended(0.0, failed=True))
    saved = json.loads(json.dumps(model.save()))
    again = GapModel.load(CHANGES, saved)
    assert again.save() == model.save()
    fewer = GapModel.load(CHANGES[1:], saved)
    assert fewer.gap(Mechanism.REDEPLOY).median[0] == model.gap(Mechanism.REDEPLOY).median[0]
    with pytest.raises(InvalidValueError):
        fewer.gap(Mechanism.LIVE)


@pytest.mark.parametrize(
    "saved",
    [
        {},
        {"format": 7, "seen": {}},
        {"format": 1},
        {"format": 1, "seen": []},
        {"format": 1, "seen": {"magic": {}}},
        {"format": 1, "seen": {"redeploy": {"count": -1.0}}},
        {"format": 1, "seen": {"redeploy": {"count": "many"}}},
    ],
)
def test_a_model_of_another_version_or_a_damaged_one_is_refused(saved: dict[str, object]) -> None:
    with pytest.raises(BadInputError):
        GapModel.load(CHANGES, saved)


@given(gaps=st.lists(st.one_of(st.just(0.0), st.floats(1e-9, 1e6)), max_size=30))
def test_any_gaps_give_a_finite_belief(gaps: list[float]) -> None:
    model = GapModel(CHANGES)
    for gap_s in gaps:
        model.learn(Mechanism.REDEPLOY, ended(gap_s))
    estimate = model.gap(Mechanism.REDEPLOY).estimate(0)
    assert math.isfinite(estimate.mean)
    assert 0.0 < model.failure_probability(Mechanism.REDEPLOY) < 1.0
