"""The price of a late second rises with the late seconds that there were."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tidewise.core import Observation, Promises
from tidewise.policies.late_budget import LateBudget
from tidewise.testing.situations import report

PROMISES = Promises(latency_p95_s=2.0, good_share=0.95)
STRICT = Promises(latency_p95_s=2.0, good_share=0.99)
HOUR_S = 3600.0


def reports(late: Iterable[bool], *, start_s: float = 0.0) -> list[Observation]:
    return [
        report(time_s=start_s + 60.0 * (minute + 1), window_s=60.0, latency_s=5.0 if is_late else 0.5)
        for minute, is_late in enumerate(late)
    ]


def after(late: Iterable[bool]) -> LateBudget:
    budget = LateBudget(memory_s=HOUR_S)
    for seen in reports(late):
        budget.learn(seen)
    return budget


def test_before_anything_is_seen_about_half_is_used() -> None:
    assert LateBudget(memory_s=HOUR_S).used(PROMISES) == pytest.approx(0.5)


def test_good_hours_lower_the_price_and_bad_ones_raise_it() -> None:
    unknown, good, bad = LateBudget(memory_s=HOUR_S), after([False] * 600), after([True] * 600)
    assert good.used(PROMISES) == pytest.approx(0.0, abs=0.01)
    assert good.price(STRICT) < unknown.price(STRICT) < bad.price(STRICT)


def test_the_price_grows_by_the_share_that_was_used() -> None:
    seldom = after([minute % 25 == 0 for minute in range(3000)])
    often = after([minute % 20 == 0 for minute in range(3000)])
    # Promised away: one in twenty. Aimed at: a little less.
    assert often.used(PROMISES) > 1.0
    more = often.used(PROMISES) - seldom.used(PROMISES)
    assert more > 0.1
    assert often.price(PROMISES) == pytest.approx(seldom.price(PROMISES) * math.exp(2.0 * more))


def test_the_price_has_a_top() -> None:
    often, always = after([minute % 2 == 0 for minute in range(600)]), after([True] * 600)
    assert always.used(PROMISES) > often.used(PROMISES)
    assert always.price(PROMISES) == often.price(PROMISES)


def test_late_seconds_are_forgotten() -> None:
    budget = after([True] * 10)
    before = budget.used(PROMISES)
    for seen in reports([False] * 600, start_s=600.0):
        budget.learn(seen)
    assert budget.used(PROMISES) < 0.01 < before


def test_another_promise_is_judged_by_all_that_was_seen() -> None:
    budget, asked = after([True, False] * 10), after([True, False] * 10)
    lax = Promises(latency_p95_s=10.0, good_share=0.95)
    asked.used(lax)
    assert asked.used(PROMISES) == budget.used(PROMISES) > asked.used(lax)


def test_the_stricter_the_promise_the_dearer_a_late_second() -> None:
    budget = LateBudget(memory_s=HOUR_S)
    assert budget.price(STRICT) == pytest.approx(2.0 * budget.price(replace(STRICT, good_share=0.98)))


def test_without_a_promised_latency_nothing_is_late() -> None:
    promises = Promises(recovery_s=60.0)
    budget = LateBudget(memory_s=HOUR_S)
    for seen in reports([True] * 600):
        budget.learn(seen)
    assert budget.used(promises) == pytest.approx(0.0, abs=0.01)
