"""A short list holds what runs, and nothing that was left out could have been worth its place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.qos.worlds import SPACE, TABLE, evidence, taught
from tests.search.problems import PRICES
from tidewise.core import Configuration, ConfigurationSpace
from tidewise.qos import Candidates, JobModel
from tidewise.search.shortlist import _cheapest_kinds, shortlist

LARGE = ConfigurationSpace(
    executors=tuple(range(1, 26)),
    slots_per_executor=(1, 2),
    cores_per_executor=(0.5, 1.0, 2.0, 3.0, 4.0),
    memory_mib_per_executor=(512, 1024, 2048, 4096, 8192),
    commit_interval_s=(0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0),
    changes=SPACE.changes,
)


def listed(candidates: Candidates) -> set[Configuration]:
    return {candidates[row] for row in range(len(candidates))}


def short(model: JobModel, candidates: Candidates, running: Configuration, rate_per_s: float = 5000.0) -> Candidates:
    return shortlist(model, candidates, prices=PRICES, rate_per_s=rate_per_s, running=running)


def nothing_better_was_left_out(model: JobModel, candidates: Candidates, few: Candidates, rate_per_s: float) -> bool:
    """Whether for each row that was left out there is one, as cheap and with the same interval, that is about as able.

    About: there are 16 levels between the least and the most able.
    """
    belief = model.capacity_at(candidates, rate_per_s)
    able, cost = belief.log_mean - belief.log_sd, candidates.cost_per_hour(PRICES)
    full = model.memory.out_of_memory_probability(candidates, rate_per_s)
    usable = full <= max(0.05, float(full.min()))
    levels = np.linspace(able[usable].min(), able[usable].max(), 16)
    kept = np.zeros(len(candidates), dtype=np.bool_)
    kept[[row for row in map(candidates.row_of, listed(few)) if row is not None]] = True
    for row in np.flatnonzero(usable & ~kept):
        level = levels[levels <= able[row] + 1e-9].max()
        same = kept & usable & (candidates.commit_interval_s == candidates.commit_interval_s[row])
        if not (same & (cost <= cost[row] + 1e-12) & (able >= level - 1e-9)).any():
            return False
    return True


@settings(max_examples=40, deadline=None)
@given(seen=evidence, running=st.integers(0, len(TABLE) - 1), rate=st.floats(1.0, 1e5))
def test_what_was_left_out_is_dearer_or_less_able_than_something_in_it(
    seen: list[tuple[Configuration, float, float, float]], running: int, rate: float
) -> None:
    model = taught(seen, micro_batch=True)
    few = short(model, TABLE, TABLE[running], rate)
    assert TABLE[running] in listed(few)
    assert listed(few) <= listed(TABLE)
    assert len(listed(few)) == len(few)
    assert nothing_better_was_left_out(model, TABLE, few, rate)


def test_of_ten_thousand_a_few_hundred_are_left() -> None:
    table = Candidates.of(LARGE)
    assert len(table) == 10_000
    model = taught([(TABLE[20], 4000.0, 1.0, 0.5), (TABLE[60], 9000.0, 1.5, 0.6)], micro_batch=True)
    running = Configuration(executors=4, memory_mib_per_executor=2048)
    few = short(model, table, running)
    assert 25 <= len(few) <= 400
    assert running in listed(few)
    assert nothing_better_was_left_out(model, table, few, 5000.0)


@pytest.mark.parametrize(
    "running",
    [
        Configuration(executors=3, memory_mib_per_executor=3000),
        Configuration(executors=4, state_partitions=16),
        Configuration(executors=4, settings=(("spark.io.compression.codec", "lz4"),)),
    ],
)
def test_what_runs_is_in_it_from_outside_of_the_space_too(running: Configuration) -> None:
    assert TABLE.row_of(running) is None
    few = short(taught([], micro_batch=True), TABLE, running)
    row = few.row_of(running)
    assert row is not None
    assert few[row] == running
    assert listed(few) - {running} <= listed(TABLE)
    assert len(few) > 1


def test_the_kind_that_runs_is_there_with_all_its_executors_whatever_it_costs() -> None:
    running = Configuration(
        executors=2,
        cores_per_executor=0.5,
        slots_per_executor=2,
        memory_mib_per_executor=2048,
        commit_interval_s=10.0,
    )
    few = listed(short(taught([], micro_batch=True), TABLE, running))
    assert {running.with_executors(count) for count in SPACE.executors} <= few


def test_the_cheapest_kinds_are_there_with_all_their_executors() -> None:
    few = short(taught([], micro_batch=True), Candidates.of(LARGE), LARGE.smallest)
    counts = np.bincount(few.kind_numbers)
    assert (counts == len(LARGE.executors)).sum() >= 4


def test_what_would_run_out_of_memory_is_not_in_it_while_others_would_not() -> None:
    model = taught([], micro_batch=True)
    for executors in (2, 8):
        seen = Configuration(executors=executors, memory_mib_per_executor=2048)
        for _ in range(5):
            model.memory.learn(seen, 5000.0, memory_share=0.7, state_mib=None)
    running = Configuration(executors=4, memory_mib_per_executor=2048)
    few = short(model, TABLE, running)
    assert set(few.memory_mib_per_executor.tolist()) == {2048.0}
    # Unless it is what runs.
    full = Configuration(executors=4, memory_mib_per_executor=1024)
    assert full in listed(short(model, TABLE, full))


@given(st.lists(st.tuples(st.integers(0, 6), st.floats(-3.0, 9.0), st.floats(0.01, 5.0)), min_size=1, max_size=40))
def test_kinds_are_judged_one_by_one(rows: list[tuple[int, float, float]]) -> None:
    kinds, able, cost = (np.array(column) for column in zip(*rows, strict=True))
    levels = np.linspace(able.min(), able.max(), 16)

    def price(kind: int, level: float) -> float:
        enough = cost[(kinds == kind) & (able >= level - 1e-12)]
        return float(enough.min()) if len(enough) else 2.0 * float(cost.max())

    sums = {int(kind): float(np.mean([price(kind, level) for level in levels])) for kind in np.unique(kinds)}
    found = _cheapest_kinds(kinds.astype(np.int64), able, cost, levels)
    assert len(found) == min(4, len(sums))
    assert [sums[kind] for kind in found] == pytest.approx(sorted(sums.values())[:4])
