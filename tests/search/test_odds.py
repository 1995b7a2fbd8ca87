"""The odds say of every load what the models say at the few loads at which they were asked."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from tests.search.problems import PRICES
from tidewise.core import ChangeCost, Configuration, ConfigurationSpace, Mechanism, Promises
from tidewise.qos import Candidates, Floats, JobModel
from tidewise.search.odds import CpuInUse, Odds, odds

_LOG_LOADS = np.linspace(np.log(0.02), np.log(2.0), 21)
"""The columns of the tables of `Odds`."""
SPACE = ConfigurationSpace(
    executors=(1, 2, 4, 8),
    cores_per_executor=(1.0, 2.0),
    commit_interval_s=(1.0, 10.0),
    changes=(ChangeCost(mechanism=Mechanism.LIVE, gap_s=0.0),),
)
TABLE = Candidates.of(SPACE)
OFTEN = TABLE.commit_interval_s == 1.0
PROMISES = Promises(latency_p95_s=3.0, recovery_s=180.0)
RATE = 6000.0


@cache
def model() -> JobModel:
    """Four executors of one core were seen at several loads, which they are for 5,000 records/s each."""
    learnt = JobModel(changes=SPACE.changes)
    seen = Configuration(executors=4)
    for busy in (0.2, 0.3, 0.5, 0.7):
        learnt.capacity.learn(seen, 20_000.0)
        learnt.latency.learn(
            seen, busy * 20_000.0, p50_s=0.8 + busy, p95_s=1.2 + 1.5 * busy, p99_s=None, busy_share=busy
        )
    return learnt


@cache
def of(
    *,
    promises: Promises = PROMISES,
    unproven: bool = False,
    joins_live: bool = False,
    lag_s: float = 0.0,
    slower: float = 1.0,
    rate_log_sd: float = 0.03,
    in_use: CpuInUse | None = None,
) -> Odds:
    return odds(
        model(),
        TABLE,
        promises=promises,
        prices=PRICES,
        rate_per_s=RATE,
        rate_log_sd=rate_log_sd,
        slower=slower,
        unproven=np.full(len(TABLE), unproven) & (TABLE.cores_per_executor == 2.0),
        joins_live=joins_live,
        lag_s=lag_s,
        unseen_s=20.0,
        in_use=in_use,
    )


def rates(*per_s: float) -> Floats:
    return np.log(np.array(per_s, dtype=np.float64))


def test_at_the_loads_that_were_asked_for_the_model_is_repeated() -> None:
    made = of()
    spread = np.hypot(model().capacity_at(TABLE, RATE).log_sd, 0.03)
    log_mean, log_sd = model().latency_by_load(TABLE, _LOG_LOADS, spread)
    for row in range(len(TABLE)):
        at = made.log_capacity[row] + _LOG_LOADS
        assert made.latency_s(at)[row] == pytest.approx(np.exp(log_mean[row]))
        # A latency above the promise by as many of its spreads; more load is never safer.
        scores = (log_mean[row] - np.log(3.0)) / log_sd[row]
        assert made.late_scores[row] == pytest.approx(np.maximum.accumulate(scores))
        assert made.late(at)[row] == pytest.approx(ndtr(made.late_scores[row]), abs=1e-9)


def test_a_job_with_much_room_is_never_late_and_an_overloaded_one_always() -> None:
    made = of()
    for row in np.flatnonzero(OFTEN):
        idle, overloaded = made.late(made.log_capacity[row] + np.log(np.array([0.1, 1.9])))[row]
        assert idle < 0.001
        assert overloaded > 0.999
    # Who commits every ten seconds cannot promise three.
    assert made.late(rates(1.0))[~OFTEN].min() > 0.999


def test_between_two_loads_lies_what_lies_between_them() -> None:
    made = of()
    middles = 0.5 * (_LOG_LOADS[1:] + _LOG_LOADS[:-1])
    at = made.log_capacity[0] + middles
    expected = np.sqrt(np.exp(made.log_latency[0, 1:] + made.log_latency[0, :-1]))
    assert made.latency_s(at)[0] == pytest.approx(expected)


def test_loads_beyond_the_table_are_those_at_its_ends() -> None:
    made = of()
    for answer in (made.late, made.latency_s, made.unrecovered, made.recovery_s):
        far, end = answer(rates(1e-6, 1e12)), answer(rates(1e-3, 1e9))
        assert far == pytest.approx(end)
        assert np.isfinite(far).all()


def test_answers_have_the_shape_of_the_question() -> None:
    made = of()
    assert made.late(np.zeros((3, 5))).shape == (len(TABLE), 3, 5)
    assert made.recovery_s(np.zeros(4)).shape == (len(TABLE), 4)


@settings(max_examples=100, deadline=None)
@given(
    pair=st.tuples(st.floats(1.0, 1e6), st.floats(1.0, 1e6)).map(sorted),
    made=st.sampled_from((of(), of(joins_live=True, lag_s=15.0), of(promises=Promises(recovery_s=120.0)))),
)
def test_nothing_gets_better_with_the_load(pair: list[float], made: Odds) -> None:
    for answer in (made.latency_s, made.recovery_s):
        lower, higher = answer(rates(*pair)).T
        assert (lower <= higher + 1e-9).all()
    lower, higher = made.late(rates(*pair))[OFTEN].T
    assert (lower <= higher + 1e-9).all()
    lower, higher = made.unrecovered(rates(*pair)).T
    # Lognormals of other spreads cross by a little far out.
    assert (lower <= higher + 2e-3).all()


@pytest.mark.parametrize("latency_s", [0.8, 1.2, 2.0])
def test_a_promise_that_can_hardly_be_kept_is_not_kept_better_at_a_higher_load(latency_s: float) -> None:
    made = of(promises=Promises(latency_p95_s=latency_s, recovery_s=180.0))
    falls = np.diff(ndtr(made.late_scores), axis=1).min()
    assert falls > -0.01


def test_more_executors_are_late_less_often() -> None:
    late = of().late(rates(RATE))[:, 0]
    for row in np.flatnonzero(OFTEN).tolist():
        one = TABLE[row]
        if one.executors < 8:
            more = TABLE.row_of(one.with_executors(2 * one.executors))
            assert more is not None
            assert late[more] <= late[row] + 1e-9


def test_what_joins_while_the_job_recovers_never_makes_that_longer() -> None:
    alone, boosted = of(), of(joins_live=True)
    at = rates(500.0, 2000.0, RATE, 15_000.0, 60_000.0)
    assert (boosted.boosted_log_capacity >= alone.boosted_log_capacity - 1e-12).all()
    assert (boosted.recovery_s(at) <= alone.recovery_s(at) + 1e-9).all()
    assert (boosted.unrecovered(at) <= alone.unrecovered(at) + 2e-3).all()
    assert boosted.recovery_s(at).sum() < 0.9 * alone.recovery_s(at).sum()
    # What it can do in steady operation is not altered.
    assert boosted.log_capacity == pytest.approx(alone.log_capacity)
    assert boosted.late(at) == pytest.approx(alone.late(at))


def test_what_joins_is_the_most_of_the_same_kind() -> None:
    made = of(joins_live=True)
    for row in range(len(TABLE)):
        most = TABLE.row_of(TABLE[row].with_executors(8))
        assert most is not None
        assert made.boosted_log_capacity[row] == made.log_capacity[most]


def test_a_longer_wait_for_executors_is_a_longer_recovery() -> None:
    at = rates(RATE)
    soon, late = of(joins_live=True, lag_s=5.0), of(joins_live=True, lag_s=30.0)
    assert late.recovery_s(at) == pytest.approx(soon.recovery_s(at) + 25.0, rel=0.02)
    assert (late.unrecovered(at) >= soon.unrecovered(at) - 1e-9).all()


def test_kinds_that_never_ran_are_believed_less_and_others_as_before() -> None:
    proven, unproven = of(), of(unproven=True)
    new = TABLE.cores_per_executor == 2.0
    assert unproven.log_capacity[~new] == pytest.approx(proven.log_capacity[~new])
    assert (unproven.log_capacity[new] <= proven.log_capacity[new] - 0.1).all()
    at = rates(RATE)
    assert (unproven.late(at)[new & OFTEN] >= proven.late(at)[new & OFTEN] - 1e-12).all()
    assert unproven.late(at)[new & OFTEN].sum() > proven.late(at)[new & OFTEN].sum()


def test_a_job_that_became_slower_has_that_much_less() -> None:
    assert of(slower=0.5).log_capacity == pytest.approx(of().log_capacity + np.log(0.5))
    # Half as fast at half the rate is as before.
    assert of(slower=0.5).late(rates(3000.0)) == pytest.approx(of().late(rates(6000.0)))


def test_where_no_latency_was_promised_only_overload_counts() -> None:
    made = of(promises=Promises(recovery_s=120.0))
    for row in range(len(TABLE)):
        capacity = made.log_capacity[row]
        below, full, above = made.late(capacity + np.log(np.array([0.5, 1.0, 2.0])))[row]
        assert full == pytest.approx(0.5, abs=0.02)
        assert below < full < above
    known = TABLE.row_of(Configuration(executors=4))
    assert known is not None
    assert made.late(made.log_capacity[known : known + 1] + np.log(0.5))[known, 0] < 0.01


def test_where_no_recovery_was_promised_none_is_too_long() -> None:
    assert of(promises=Promises(latency_p95_s=3.0)).unrecovered(rates(1.0, RATE, 1e6)).max() < 1e-9
    assert of().unrecovered(rates(1e6)).min() > 0.9


def test_costs_are_those_of_the_resources() -> None:
    assert 3600.0 * of().cost_per_s == pytest.approx(TABLE.cost_per_hour(PRICES))


def test_kinds_differ_in_everything_but_executors() -> None:
    kinds = TABLE.kind_numbers
    for row in range(len(TABLE)):
        for other in range(len(TABLE)):
            same = TABLE[row].with_executors(1) == TABLE[other].with_executors(1)
            assert (kinds[row] == kinds[other]) == same


def test_what_has_fewer_cores_than_are_in_use_cannot_process_what_arrives() -> None:
    usual, made = of(), of(in_use=CpuInUse(cores=3.0, given=8.0, commit_interval_s=1.0))
    few = TABLE.total_cores < 3.0 / 0.9
    held = few & OFTEN
    assert held.any()
    # At 3 cores in use for 6,000 records/s, two cores get 4,000 done.
    assert np.exp(made.log_capacity[held]) == pytest.approx(np.minimum(RATE, 2000.0 * TABLE.total_cores[held]))
    assert (made.log_capacity[~held] == usual.log_capacity[~held]).all()
    assert (made.late(rates(RATE))[held] > 0.9).all()


def test_whether_the_cores_that_a_job_has_are_enough_it_shows_itself() -> None:
    usual, full = of(), of(in_use=CpuInUse(cores=7.9, given=8.0, commit_interval_s=1.0))
    fewer = (TABLE.total_cores < 8.0) & OFTEN
    assert (full.log_capacity[~fewer] == usual.log_capacity[~fewer]).all()
    assert (full.log_capacity[fewer] < np.log(RATE)).all()
