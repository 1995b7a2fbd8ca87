"""Catching up: the sum over the load to come, checked against the sum itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewise.core import Forecast
from tidewise.qos.catch_up import NEVER_S, Arrivals, Outage, recovery_s, replayed_s, steady_recovery_s


def outage(down_s: float = 40.0, piling: float = 1.0, cold: float = 0.0, slack_s: float = 0.0) -> Outage:
    return Outage(down_s=down_s, piling_share=piling, cold_share=cold, slack_s=slack_s)


def caught_up_s(what: Outage, rates: list[float], capacity: float, replay_s: float = 0.0) -> float:
    found = recovery_s(
        what,
        Arrivals(np.array(rates), 60.0),
        capacity_per_s=np.array([capacity]),
        interval_s=np.array([replay_s]),
        phase=1.0,
        overhead_s=0.0,
    )
    return float(found[0])


def the_sum_s(down_s: float, rates: list[float], capacity: float, replay_s: float) -> float:
    """T0 = backlog / capacity; T(i+1) = arrivals during T(i) / capacity, to the last thousandth."""
    arrivals = Arrivals(np.array(rates), 60.0)

    def until(time_s: float) -> float:
        return float(arrivals.until(np.array([time_s]))[0])

    now_s, step_s = down_s, (until(down_s) + rates[0] * replay_s) / capacity
    while step_s > 1e-3 and now_s < NEVER_S:
        now_s, step_s = now_s + step_s, (until(now_s + step_s) - until(now_s)) / capacity
    return min(NEVER_S, now_s)


@settings(max_examples=60, deadline=None)
@given(
    rates=st.lists(st.floats(0.0, 90.0), min_size=1, max_size=8),
    down_s=st.floats(0.5, 300.0),
    replay_s=st.floats(0.0, 90.0),
)
def test_the_first_time_at_which_all_is_done_is_the_sum(rates: list[float], down_s: float, replay_s: float) -> None:
    found_s = caught_up_s(outage(down_s), rates, 100.0, replay_s)
    # Between knots the path is taken for straight: not more than that apart.
    assert found_s == pytest.approx(the_sum_s(down_s, rates, 100.0, replay_s), rel=0.12, abs=2.0)


def test_a_rate_at_the_capacity_is_never_caught_up_with() -> None:
    assert caught_up_s(outage(), [100.0], 100.0) == NEVER_S
    assert (
        caught_up_s(outage(), [50.0, 150.0], 100.0) == pytest.approx(80.0, abs=3.0)
        or caught_up_s(outage(), [50.0, 150.0], 100.0) == NEVER_S
    )


@settings(max_examples=60, deadline=None)
@given(
    usual=st.floats(0.0, 0.95),
    down_s=st.floats(0.5, 200.0),
    piling=st.floats(0.0, 1.0),
    cold=st.floats(0.0, 0.9),
    slack_s=st.floats(0.0, 20.0),
)
def test_the_quick_way_for_a_steady_load_is_the_same(
    usual: float, down_s: float, piling: float, cold: float, slack_s: float
) -> None:
    replayed = replayed_s(np.array([usual]), np.array([30.0]), 1.0, overhead_s=0.0)
    quick = steady_recovery_s(
        down_s=np.array([down_s]),
        piling_share=np.array([piling]),
        cold_share=np.array([cold]),
        slack_s=np.array([slack_s]),
        usual=np.array([usual]),
        replayed_s=replayed,
    )
    slow = caught_up_s(outage(down_s, piling, cold, slack_s), [100.0 * usual], 100.0, 30.0)
    assert quick[0] == pytest.approx(slow, rel=0.05, abs=2.0)


def test_a_cold_job_and_one_that_piles_more_up_take_longer() -> None:
    base_s = caught_up_s(outage(piling=0.5), [50.0], 100.0)
    assert caught_up_s(outage(piling=1.0), [50.0], 100.0) > base_s + 10.0
    assert caught_up_s(outage(piling=0.5, cold=0.6), [50.0], 100.0) > base_s + 10.0


def test_the_path_of_a_level_lies_between_those_that_were_forecast() -> None:
    forecast = Forecast(
        made_at_s=0.0, step_s=10.0, levels=(0.05, 0.5, 0.95), paths_per_s=((10.0,), (20.0,), (40.0,)), model="three"
    )
    rates = [Arrivals.of(forecast, z).rate_per_s for z in (-5.0, -0.8, 0.0, 0.8, 5.0)]
    assert rates[0] == 10.0
    assert rates[2] == pytest.approx(20.0)
    assert rates[4] == 40.0
    assert rates == sorted(rates)
    alone = Forecast(made_at_s=0.0, step_s=10.0, levels=(0.5,), paths_per_s=((7.0,),), model="one")
    assert Arrivals.of(alone, 1.0).rate_per_s == 7.0
