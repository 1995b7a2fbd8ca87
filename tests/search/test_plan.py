"""The plan is the cheapest of all sequences, found by trying every one of them where there are few."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from tidewise.core import REACH, ChangeCost, Configuration, InvalidValueError, Mechanism
from tidewise.qos import Candidates, Floats
from tidewise.qos.catch_up import COLD_S
from tidewise.search.horizon import Horizon
from tidewise.search.odds import Odds
from tidewise.search.plan import Behind, Move, Planner, Terms, Ways

_LOG_LOADS = np.linspace(np.log(0.02), np.log(2.0), 21)
"""The columns of the tables of `Odds`."""
LIVE = ChangeCost(mechanism=Mechanism.LIVE, gap_s=0.0)
REDEPLOY = ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=4.0)
HANDOVER = ChangeCost(mechanism=Mechanism.HANDOVER, gap_s=0.5, preparation_s=40.0, runs_double=True)
CALM = Terms(
    late_cost_per_s=1.0, failures_per_s=0.0, unrecovered_s=0.0, friction_s=0.0, payback=1.0, latency_limit_s=2.0
)
_quick = settings(max_examples=60, deadline=None)


def odds_of(
    rows: Sequence[Configuration], *, cost: Sequence[float], capacity: Sequence[float], steep: float = 6.0
) -> Odds:
    """Late from nearly all of the capacity on, at a latency of one second that grows with the load.

    steep: how suddenly; 0 for rows that are never late.
    """
    count = len(rows)
    scores = np.full(21, -30.0) if steep == 0.0 else steep * (_LOG_LOADS - np.log(0.9))
    return Odds(
        candidates=Candidates.listing(list(rows)),
        cost_per_s=np.asarray(cost, dtype=np.float64),
        log_capacity=np.log(np.asarray(capacity, dtype=np.float64)),
        boosted_log_capacity=np.full(count, np.log(max(capacity))),
        late_scores=np.tile(scores, (count, 1)),
        log_latency=np.tile(0.1 * _LOG_LOADS, (count, 1)),
        latency_log_sd=np.full((count, 21), 0.1),
        unrecovered_scores=np.full((count, 21), -8.0),
        log_recovery=np.full((count, 21), np.log(60.0)),
        out_of_memory=np.zeros(count),
        unproven=np.zeros(count, dtype=np.bool_),
    )


def horizon_of(rates: Sequence[Sequence[float]], lengths_s: Sequence[float], turns: Floats | None = None) -> Horizon:
    """Steps x levels; without turns every level stays what it is."""
    log_rates = np.log(np.asarray(rates, dtype=np.float64))
    steps, levels = log_rates.shape
    chances = np.full(levels, 1.0 / levels)
    stay = np.tile(np.eye(levels), (steps - 1, 1, 1))
    return Horizon(
        lengths_s=np.asarray(lengths_s, dtype=np.float64),
        log_rates=log_rates,
        chances=chances,
        turns=stay if turns is None else turns,
        middle=levels // 2,
    )


def planner_of(odds: Odds, horizon: Horizon, changes: Sequence[ChangeCost], terms: Terms) -> Planner:
    return Planner(odds, horizon, Ways(odds.candidates, changes), [change.gap_s for change in changes], terms)


def standing(row: int, *, backlog: float = 0.0, down_s: float = 0.0) -> Behind:
    return Behind(row=row, backlog_records=backlog, down_s=down_s, warmth=1.0)


def executors(*counts: int) -> list[Configuration]:
    return [Configuration(executors=count) for count in counts]


class EverySequence:
    """The cost of all sequences, one after another: each step begins with a move or none, and then a row is run.

    By then the level of the step is known, but for the first; that of the next is not. Every change costs its late
    seconds and double running as many times as is asked of it; until it has been prepared, what ran before goes on.
    """

    def __init__(self, odds: Odds, horizon: Horizon, changes: Sequence[ChangeCost], terms: Terms) -> None:
        self.odds, self.horizon, self.changes, self.terms = odds, horizon, changes, terms
        self.rows, self.levels, self.steps = range(len(odds.cost_per_s)), range(len(horizon.chances)), horizon.lengths_s

    def load(self, row: int, step: int, level: int) -> float:
        return float(np.exp(self.horizon.log_rates[step, level] - self.odds.log_capacity[row]))

    def per_s(self, row: int, step: int, level: int) -> float:
        """By the formulas of `odds_of`."""
        late = float(ndtr(np.interp(np.log(self.load(row, step, level)), _LOG_LOADS, self.odds.late_scores[row])))
        overload = max(0.0, self.load(row, step, level) - 1.0)
        wrong = min(late + overload + 60.0 * self.terms.failures_per_s, 10.0)
        return float(self.odds.cost_per_s[row]) + self.terms.late_cost_per_s * wrong

    def waited(self, change: ChangeCost | None, source: int, target: int, step: int, level: int) -> float:
        """What it costs more that the target does not run at once."""
        lag_s = 0.0 if change is None else change.preparation_s
        return lag_s * (self.per_s(source, step, level) - self.per_s(target, step, level))

    def running(self, row: int, step: int, level: int) -> float:
        return float(self.steps[step]) * self.per_s(row, step, level)

    def changing(self, change: ChangeCost, target: int, step: int, level: int) -> float:
        load = self.load(target, step, level)
        assert self.terms.latency_limit_s is not None
        slack_s = max(0.0, self.terms.latency_limit_s - float(np.clip(load, 0.02, 2.0)) ** 0.1)
        late_s = max(0.0, change.gap_s - slack_s) / (1.0 - min(load, 0.97))
        double = change.preparation_s * float(self.odds.cost_per_s[target]) if change.runs_double else 0.0
        return float(double + self.terms.late_cost_per_s * (late_s + self.terms.friction_s))

    def moves(self, row: int) -> list[tuple[int, ChangeCost | None]]:
        listed = self.odds.candidates
        ways = [
            (other, change)
            for change in self.changes
            for other in self.rows
            if other != row and listed[row].differs_from(listed[other]) <= REACH[change.mechanism]
        ]
        return [(row, None), *ways]

    def ahead(self, row: int, step: int, level: int) -> float:
        """What is to come after a step at this level."""
        if step + 1 == len(self.steps):
            return 0.0
        likely = self.horizon.turns[step, level]
        return float(sum(likely[after] * self.best_from(row, step + 1, after) for after in self.levels))

    def best_from(self, row: int, step: int, level: int) -> float:
        return min(
            self.running(target, step, level)
            + self.ahead(target, step, level)
            + self.waited(change, row, target, step, level)
            + (0.0 if change is None else self.terms.asked(change) * self.changing(change, target, step, level))
            for target, change in self.moves(row)
        )

    def first(self, row: int) -> tuple[float, float, int, Mechanism | None]:
        """What is asked of the best first move, what it costs, where it leads, and how."""
        tried = []
        for target, change in self.moves(row):
            cost, itself = 0.0, 0.0
            for level, chance in enumerate(self.horizon.chances):
                there = self.running(target, 0, level) + self.ahead(target, 0, level)
                cost += float(chance) * (there + self.waited(change, row, target, 0, level))
                itself += 0.0 if change is None else float(chance) * self.changing(change, target, 0, level)
            asked = cost + (0.0 if change is None else self.terms.asked(change) * itself)
            tried.append((asked, cost + itself, target, None if change is None else change.mechanism))
        return min(tried, key=lambda one: one[0])


rates = st.floats(20.0, 350.0)
prices = st.floats(0.01, 2.0)


@st.composite
def problems(draw: st.DrawFn, *, levels: int) -> tuple[Odds, Horizon, list[ChangeCost], Terms]:
    """Two or three rows, two to four steps; rows differ in their executors and sometimes in their memory."""
    rows = [
        Configuration(executors=count, memory_mib_per_executor=draw(st.sampled_from((1024, 2048))))
        for count in range(1, draw(st.integers(2, 3)) + 1)
    ]
    capacity = [100.0 * draw(st.floats(0.5, 2.0)) * each.executors for each in rows]
    steps = draw(st.integers(2, 4 if levels == 1 else 3))
    # What is overloaded at once is judged by what piles up, not by sequences: that has tests of its own.
    shares = sorted(draw(st.lists(st.floats(0.1, 0.96), min_size=levels, max_size=levels)))
    course = [[share * min(capacity) for share in shares]]
    course += [sorted(draw(st.lists(rates, min_size=levels, max_size=levels))) for _ in range(steps - 1)]
    turns = np.array(
        [[draw(st.lists(st.floats(0.1, 1.0), min_size=levels, max_size=levels)) for _ in range(levels)]] * (steps - 1)
    )
    # The job has caught up with a gap of the first move before the first step ends: 4 s / (1 - 0.97) = 133 s.
    lengths_s = [draw(st.floats(150.0, 600.0)) for _ in range(steps)]
    horizon = horizon_of(course, lengths_s, turns / turns.sum(axis=2, keepdims=True))
    changes = draw(st.sampled_from(([LIVE, REDEPLOY], [REDEPLOY], [LIVE, HANDOVER], [HANDOVER, REDEPLOY])))
    terms = Terms(
        late_cost_per_s=draw(st.floats(0.1, 5.0)),
        failures_per_s=draw(st.floats(0.0, 1e-3)),
        unrecovered_s=0.0,
        friction_s=draw(st.sampled_from((0.0, 5.0))),
        payback=draw(st.sampled_from((1.0, 1.25))),
        latency_limit_s=2.0,
    )
    return odds_of(rows, cost=[draw(prices) for _ in rows], capacity=capacity), horizon, changes, terms


def _agrees(problem: tuple[Odds, Horizon, list[ChangeCost], Terms], row: int) -> None:
    odds, horizon, changes, terms = problem
    every = EverySequence(odds, horizon, changes, terms)
    found = planner_of(odds, horizon, changes, terms).best(standing(row))
    asked, cost, target, mechanism = every.first(row)
    done = [change for change in changes if change.mechanism is found.mechanism]
    of_found = found.cost + sum((terms.asked(change) - 1.0) * found.change_cost for change in done)
    assert of_found == pytest.approx(asked, rel=1e-9)
    if (found.row, found.mechanism) == (target, mechanism):  # else two are equally good
        assert found.cost == pytest.approx(cost, rel=1e-9)
    if found.row == row:
        assert found.mechanism is None
        assert found.cost == found.keep_cost
        assert found.change_cost == 0.0


@_quick
@given(problem=problems(levels=1), row=st.integers(0, 1))
def test_no_sequence_of_configurations_is_cheaper(
    problem: tuple[Odds, Horizon, list[ChangeCost], Terms], row: int
) -> None:
    _agrees(problem, row)


@_quick
@given(problem=problems(levels=2), row=st.integers(0, 1))
def test_what_is_not_known_yet_is_not_made_use_of(
    problem: tuple[Odds, Horizon, list[ChangeCost], Terms], row: int
) -> None:
    _agrees(problem, row)


def test_a_change_is_made_a_step_before_it_is_needed_where_it_takes_longer_then() -> None:
    # 4 s of gap are late for 3.07 / (1 - 0.25) = 4.1 s at a load of a quarter, for 3.05 / (1 - 0.4) = 5.1 s at 0.4;
    # the larger row for 150 s more costs 150 x 0.001 = 0.15.
    odds = odds_of(executors(1, 4), cost=[0.001, 0.002], capacity=[160.0, 400.0])
    horizon = horizon_of([[100.0], [160.0]], [150.0, 600.0])
    found = planner_of(odds, horizon, [REDEPLOY], CALM).best(standing(0))
    assert (found.row, found.mechanism) == (1, Mechanism.REDEPLOY)


def test_no_more_than_half_of_the_executors_are_given_back_at_a_time() -> None:
    counts = (1, 2, 3, 4, 7, 8)
    odds = odds_of(executors(*counts), cost=[0.01 * count for count in counts], capacity=[500.0 * c for c in counts])
    idle = horizon_of([[10.0]], [3600.0])
    found = {way: planner_of(odds, idle, [way], CALM).best(standing(5)).row for way in (LIVE, REDEPLOY)}
    assert {way.mechanism: counts[row] for way, row in found.items()} == {Mechanism.LIVE: 4, Mechanism.REDEPLOY: 1}
    assert [counts[planner_of(odds, idle, [LIVE], CALM).best(standing(row)).row] for row in (4, 2, 1)] == [4, 2, 1]


def test_where_there_is_nothing_in_between_more_than_half_are_given_back() -> None:
    odds = odds_of(executors(1, 8), cost=[0.01, 0.08], capacity=[500.0, 4000.0])
    assert planner_of(odds, horizon_of([[10.0]], [3600.0]), [LIVE], CALM).best(standing(1)).row == 0


def test_what_is_needed_later_waits_where_changes_are_free() -> None:
    odds = odds_of(executors(1, 4), cost=[0.01, 0.04], capacity=[300.0, 1200.0])
    horizon = horizon_of([[100.0], [900.0]], [150.0, 600.0])
    planner = planner_of(odds, horizon, [LIVE], CALM)
    assert planner.best(standing(0)).row == 0
    assert planner.best(standing(1)).row == 0


@_quick
@given(cost=st.lists(st.floats(0.01, 5.0), min_size=2, max_size=6), row=st.integers(0, 1))
def test_of_what_is_as_good_the_cheapest_is_run(cost: list[float], row: int) -> None:
    odds = odds_of(executors(*range(1, len(cost) + 1)), cost=cost, capacity=[200.0] * len(cost))
    found = planner_of(odds, horizon_of([[150.0]] * 2, [60.0] * 2), [LIVE], CALM).best(standing(row))
    assert cost[found.row] == min(cost)
    if cost[row] == min(cost):
        assert found.row == row


@_quick
@given(
    cost=st.lists(st.floats(0.01, 5.0), min_size=2, max_size=6),
    steps=st.integers(1, 4),
    late_price=st.floats(0.01, 100.0),
)
def test_where_changes_are_free_and_nothing_is_late_only_the_price_counts(
    cost: list[float], steps: int, late_price: float
) -> None:
    rows = executors(*range(1, len(cost) + 1))
    odds = odds_of(rows, cost=cost, capacity=[1e3] * len(cost), steep=0.0)
    horizon = horizon_of([[100.0]] * steps, [60.0] * steps)
    found = planner_of(odds, horizon, [LIVE], replace(CALM, late_cost_per_s=late_price)).best(standing(0))
    assert cost[found.row] == min(cost)
    assert found.cost == pytest.approx(60.0 * steps * min(cost))


@_quick
@given(
    rows=st.lists(st.tuples(prices, st.floats(50.0, 500.0)), min_size=2, max_size=6),
    course=st.lists(st.tuples(rates, rates).map(sorted), min_size=1, max_size=3),
    late_prices=st.tuples(st.floats(0.01, 10.0), st.floats(0.01, 10.0)).map(sorted),
)
def test_a_higher_price_of_late_seconds_never_leads_to_more_of_them_where_changes_are_free(
    rows: list[tuple[float, float]], course: list[list[float]], late_prices: list[float]
) -> None:
    odds = odds_of(
        executors(*range(1, len(rows) + 1)), cost=[row[0] for row in rows], capacity=[row[1] for row in rows]
    )
    horizon = horizon_of(course, [60.0] * len(course))
    late = odds.late(horizon.log_rates[0]) @ horizon.chances
    cheap, dear = (
        planner_of(odds, horizon, [LIVE], replace(CALM, late_cost_per_s=price)).best(standing(0)).row
        for price in late_prices
    )
    assert late[dear] <= late[cheap] + 1e-9


@_quick
@given(
    cost=st.lists(prices, min_size=2, max_size=4),
    gap_s=st.floats(3.0, 100.0),
    late_price=st.floats(0.01, 100.0),
    payback=st.floats(1.0, 3.0),
)
def test_a_change_whose_gap_costs_more_than_it_can_earn_is_not_made(
    cost: list[float], gap_s: float, late_price: float, payback: float
) -> None:
    rows = executors(*range(1, len(cost) + 1))
    odds = odds_of(rows, cost=cost, capacity=[200.0] * len(cost), steep=0.0)
    horizon = horizon_of([[100.0]] * 3, [60.0, 60.0, 1200.0])
    change = ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=gap_s)
    terms = replace(CALM, late_cost_per_s=late_price, payback=payback)
    found = planner_of(odds, horizon, [change], terms).best(standing(0))
    # Output may come by 2 s less the usual latency later; at a load of a half a gap is felt for twice as long.
    gap_cost = late_price * (gap_s - (2.0 - 0.5**0.1)) * 2.0
    earned = (cost[0] - min(cost)) * 1320.0
    asked = terms.asked(change)
    assert asked > payback == terms.asked(replace(change, gap_s=0.0))
    if asked * gap_cost > earned * (1.0 + 1e-9):
        assert found.row == 0
    elif asked * gap_cost < earned * (1.0 - 1e-9):
        assert cost[found.row] == min(cost)


def test_a_kind_that_never_ran_has_to_earn_the_way_back_as_well() -> None:
    rows = executors(1, 2)
    odds = odds_of(rows, cost=[1.0, 0.5], capacity=[200.0, 200.0], steep=0.0)
    horizon = horizon_of([[100.0]] * 3, [60.0, 60.0, 1200.0])
    change = ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=11.0)
    gap_cost = (11.0 - (2.0 - 0.5**0.1)) * 2.0
    # What it earns is enough for the change, and one and a half times that, and not enough for twice that.
    terms = replace(CALM, late_cost_per_s=0.5 * 1320.0 / (1.5 * CALM.asked(change) * gap_cost))
    unproven = replace(odds, unproven=np.array([False, True]))
    assert planner_of(odds, horizon, [change], terms).best(standing(0)).row == 1
    assert planner_of(unproven, horizon, [change], terms).best(standing(0)).row == 0


@_quick
@given(
    down_s=st.floats(0.1, 300.0),
    backlog=st.floats(0.0, 1e5),
    late_price=st.floats(0.01, 100.0),
    changes=st.sampled_from(([REDEPLOY], [REDEPLOY, LIVE], [HANDOVER, LIVE])),
)
def test_a_job_that_is_down_is_only_given_what_comes_without_a_gap(
    down_s: float, backlog: float, late_price: float, changes: list[ChangeCost]
) -> None:
    rows = [*executors(1, 2, 8), Configuration(executors=8, memory_mib_per_executor=2048)]
    odds = odds_of(rows, cost=[0.1, 0.2, 0.8, 0.01], capacity=[100.0, 200.0, 800.0, 800.0])
    planner = planner_of(odds, horizon_of([[90.0]] * 2, [60.0] * 2), changes, replace(CALM, late_cost_per_s=late_price))
    found = planner.best(standing(0, backlog=backlog, down_s=down_s))
    assert found.mechanism in (None, Mechanism.LIVE)
    assert found.row in ((0, 1, 2) if LIVE in changes else (0,))


def test_what_is_behind_is_worked_off_with_more_than_the_load_needs() -> None:
    odds = odds_of(executors(1, 2, 4), cost=[0.1, 0.2, 0.4], capacity=[100.0, 200.0, 400.0])
    terms = replace(CALM, late_cost_per_s=5.0)
    planner = planner_of(odds, horizon_of([[50.0]] * 3, [60.0] * 3), [LIVE], terms)
    assert planner.best(standing(0)).row == 0
    # 20 s late with two executors, 8.6 s with four: 57 saved for the 12 that a minute of two more costs.
    found = planner.best(standing(0, backlog=3000.0))
    assert (found.row, found.mechanism) == (2, Mechanism.LIVE)
    assert found.drained_s == pytest.approx(3000.0 / (400.0 - 50.0))
    assert found.cost < found.keep_cost


backlogs = st.tuples(st.floats(0.0, 2e5), st.floats(0.0, 2e5)).map(sorted)


def _drained_with(backlog: float, *, late_price: float, rate: float = 150.0) -> int:
    """How many of up to eight executors of 100 records/s work a backlog off."""
    counts = range(1, 9)
    odds = odds_of(
        executors(*counts), cost=[0.1 * count for count in counts], capacity=[100.0 * count for count in counts]
    )
    lengths_s = [60.0] * 20 + [600.0] * 4 + [5400.0]
    horizon = horizon_of([[rate]] * len(lengths_s), lengths_s)
    planner = planner_of(odds, horizon, [LIVE], replace(CALM, late_cost_per_s=late_price))
    return 1 + planner.best(standing(1, backlog=backlog)).row


@_quick
@given(backlogs=backlogs, late_price=st.floats(1.0, 100.0), rate=st.floats(10.0, 190.0))
def test_a_larger_backlog_is_never_worked_off_with_less(backlogs: list[float], late_price: float, rate: float) -> None:
    less, more = (_drained_with(backlog, late_price=late_price, rate=rate) for backlog in backlogs)
    assert less <= more


def test_a_backlog_of_many_hours_is_still_worked_off_with_more() -> None:
    # At 150 records/s that arrive, what a quarter of an hour brings, and what five hours bring.
    assert _drained_with(900.0 * 150.0, late_price=5.0) == 8
    assert _drained_with(5.0 * 3600.0 * 150.0, late_price=5.0) == 8


def test_seconds_in_which_another_application_gets_ready_are_not_late() -> None:
    # The job runs on meanwhile, at what it has cost so far: what arrives late is only what a gap of 2 s delays.
    rows = [Configuration(executors=4, memory_mib_per_executor=memory) for memory in (4096, 1024)]
    odds = odds_of(rows, cost=[0.5, 0.1], capacity=[200.0, 200.0], steep=0.0)
    horizon = horizon_of([[100.0]] * 2, [150.0, 150.0])
    costs = [
        planner_of(odds, horizon, [ChangeCost(mechanism=Mechanism.HANDOVER, gap_s=2.0, preparation_s=ready_s)], CALM)
        .best(standing(0))
        .cost
        for ready_s in (0.0, 40.0)
    ]
    assert costs[1] == pytest.approx(costs[0] + 40.0 * (0.5 - 0.1))


@_quick
@given(
    cost=st.lists(prices, min_size=2, max_size=4),
    rate=st.floats(20.0, 380.0),
    change=st.sampled_from((LIVE, replace(LIVE, preparation_s=10.0), HANDOVER, replace(HANDOVER, gap_s=2.0))),
)
def test_what_would_be_done_later_at_the_same_load_is_done_now(
    cost: list[float], rate: float, change: ChangeCost
) -> None:
    # Else it is put off again at the next decision, and at the one after that.
    rows = executors(*range(1, len(cost) + 1))
    odds = odds_of(rows, cost=cost, capacity=[100.0 * each.executors for each in rows])
    horizon = horizon_of([[rate]] * 8, [30.0] * 7 + [3600.0])
    found = planner_of(odds, horizon, [change], CALM).best(standing(0))
    if found.row == 0:
        for_ever = EverySequence(odds, horizon, [], CALM).first(0)[0]
        assert found.keep_cost == pytest.approx(for_ever)


def test_a_mechanism_reaches_what_it_can_change_and_nothing_else() -> None:
    rows = [
        Configuration(executors=1),
        Configuration(executors=2),
        Configuration(executors=2, memory_mib_per_executor=2048),
        Configuration(executors=1, state_partitions=8),
        Configuration(executors=1, settings=(("a", "1"),)),
    ]
    changes = [ChangeCost(mechanism=mechanism, gap_s=1.0) for mechanism in Mechanism]
    ways = Ways(Candidates.listing(rows), changes)
    for way, change in enumerate(changes):
        for row, source in enumerate(rows):
            reached = [bool(one) for one in ways.reached(way, row)]
            assert reached == [change.can_carry(source, target) for target in rows], f"{change.mechanism} from {source}"


def test_the_least_of_what_is_reached_is_found_for_every_row() -> None:
    rows = [*executors(1, 2, 4), Configuration(executors=3, memory_mib_per_executor=2048)]
    ways = Ways(Candidates.listing(rows), [LIVE, REDEPLOY])
    values = np.array([[3.0, 1.0], [2.0, 5.0], [4.0, 4.0], [1.0, 0.0]])
    assert ways.least(0, values).tolist() == [[2.0, 1.0]] * 3 + [[1.0, 0.0]]
    assert ways.least(1, values).tolist() == [[1.0, 0.0]] * 4


def test_a_plan_needs_a_way() -> None:
    with pytest.raises(InvalidValueError, match="mechanism"):
        Ways(Candidates.listing(executors(1)), [])


def test_a_move_says_what_it_costs_to_stay() -> None:
    odds = odds_of(executors(1, 2), cost=[0.1, 0.2], capacity=[1e3, 1e3], steep=0.0)
    terms = replace(CALM, friction_s=1.0)
    found = planner_of(odds, horizon_of([[1.0]] * 2, [100.0] * 2), [LIVE], terms).best(standing(1))
    # Friction of 1; 10 a step are earned.
    expected = Move(row=0, mechanism=Mechanism.LIVE, cost=21.0, keep_cost=31.0, change_cost=1.0, drained_s=0.0)
    assert found.row == expected.row
    assert (found.cost, found.keep_cost, found.change_cost, found.drained_s) == pytest.approx(
        (expected.cost, expected.keep_cost, expected.change_cost, expected.drained_s)
    )


# Losing an executor

LOSSES = replace(CALM, losses_per_s=1.0 / 600.0, replaced_s=40.0, recovery_limit_s=180.0)


@pytest.mark.parametrize(("losses_per_s", "wanted"), [(0.0, 1), (1.0 / 600.0, 2), (1e-6, 1)])
def test_a_second_executor_is_kept_where_losing_the_only_one_costs_more(losses_per_s: float, wanted: int) -> None:
    odds = odds_of(executors(1, 2, 3), cost=[0.02, 0.04, 0.06], capacity=[1000.0, 2000.0, 3000.0])
    terms = replace(LOSSES, losses_per_s=losses_per_s)
    best = planner_of(odds, horizon_of([[300.0]], [3600.0]), [LIVE], terms).best(standing(1))
    assert odds.candidates[best.row].executors == wanted


def test_what_the_others_cannot_carry_counts_too() -> None:
    # Two at 80 % each: one alone would fall behind, two of three would not.
    odds = odds_of(executors(2, 3), cost=[0.02, 0.04], capacity=[1000.0, 1500.0], steep=0.0)
    horizon = horizon_of([[800.0]], [3600.0])
    assert planner_of(odds, horizon, [LIVE], CALM).best(standing(1)).row == 0
    assert planner_of(odds, horizon, [LIVE], LOSSES).best(standing(0)).row == 1


@_quick
@given(
    rate=st.floats(10.0, 5000.0), replaced_s=st.floats(0.1, 600.0), limit_s=st.one_of(st.none(), st.floats(10.0, 600.0))
)
def test_losing_one_of_more_is_never_worse(rate: float, replaced_s: float, limit_s: float | None) -> None:
    odds = odds_of(executors(1, 2, 4, 8), cost=[0.0] * 4, capacity=[1000.0, 2000.0, 4000.0, 8000.0], steep=0.0)
    terms = replace(LOSSES, replaced_s=replaced_s, recovery_limit_s=limit_s, unrecovered_s=100.0)
    costs = [
        planner_of(odds, horizon_of([[rate]], [60.0]), [LIVE], terms).best(standing(row)).keep_cost for row in range(4)
    ]
    assert np.isfinite(costs).all()
    assert costs == sorted(costs, reverse=True)


@given(work_s=st.floats(0.0, 1e4), warmth=st.floats(0.1, 1.0), load=st.floats(0.0, 0.97))
@_quick
def test_work_comes_to_more_while_a_job_gets_warm_but_not_to_what_never_ends(
    work_s: float, warmth: float, load: float
) -> None:
    cold = replace(standing(0), warmth=warmth)
    comes_to_s = float(cold.worked_off_s(np.array([work_s]), np.array([load]))[0])
    assert work_s <= comes_to_s <= work_s + (1.0 - warmth) * COLD_S + 1e-9
    if work_s > 0.0:
        takes_s = comes_to_s / (1.0 - load)
        done_s = (1.0 - load) * takes_s - (1.0 - warmth) * COLD_S * -math.expm1(-takes_s / COLD_S)
        assert done_s >= work_s - 1e-6  # Newton comes from above


def test_a_cold_job_falls_behind_at_first_if_what_arrives_is_more_than_it_can_do_then() -> None:
    half_cold = replace(standing(0), warmth=0.45)
    work_s, load = np.array([4.0]), np.array([0.46])
    takes_s = float(half_cold.worked_off_s(work_s, load)[0]) / (1.0 - 0.46)
    # Warm, it would take 7 s.
    assert takes_s == pytest.approx(25.0, abs=1.0)


def test_in_batches_records_wait_for_the_batch_that_is_on_and_then_for_their_own() -> None:
    odds = odds_of(executors(1, 2), cost=[1.0, 2.0], capacity=[1000.0, 2000.0])
    flowing = CALM
    behind = standing(0, backlog=4000.0)
    horizon = horizon_of([[500.0]], [600.0])
    flows = planner_of(odds, horizon, [LIVE], flowing).best(behind)
    batches = planner_of(odds, horizon, [LIVE], replace(flowing, in_batches=True)).best(behind)
    assert batches.keep_cost > flows.keep_cost
    assert batches.drained_s == flows.drained_s
