"""Small steps make a sequence cheaper, and never break what it has to keep."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import Configuration, Mechanism
from tidewise.experiments.bound_path import Stage
from tidewise.experiments.bound_polish import polished
from tidewise.experiments.bound_replay import Replayed

EXECUTORS = (1, 2, 4, 8, 12)
END_S = 3600.0


def stage(at_s: float, executors: int) -> Stage:
    one = Configuration(
        executors=executors,
        slots_per_executor=1,
        cores_per_executor=1.0,
        memory_mib_per_executor=1024,
        commit_interval_s=10.0,
    )
    return Stage(requested_at_s=at_s, configuration=one, mechanism=None if at_s == 0.0 else Mechanism.REDEPLOY)


def ran(stages: Sequence[Stage]) -> Replayed:
    """Core-hours by arithmetic; bad are the seconds of the second half with fewer than four executors.

    A change to what runs is none.
    """
    runs = [None, *(one.configuration for one in stages)]
    stages = [one for one, before in zip(stages, runs, strict=False) if one.configuration != before]
    ends = [*(one.requested_at_s for one in stages[1:]), END_S]
    held = [(min(end, END_S) - one.requested_at_s, one) for one, end in zip(stages, ends, strict=True)]
    core_s = sum(max(0.0, held_s) * one.configuration.total_cores for held_s, one in held)
    bad_s = sum(
        max(0.0, min(end, END_S) - max(one.requested_at_s, END_S / 2))
        for one, end in zip(stages, ends, strict=True)
        if one.configuration.executors < 4
    )
    return Replayed(
        stages=tuple(stages), core_hours=core_s / 3600, gib_hours=1.0, money=1.0, bad_s=int(bad_s), recovery_s=0.0
    )


def polish(found: Replayed, *, tries: int, seed: int = 1) -> Replayed:
    return polished(
        found,
        run=ran,
        is_kept=lambda one: one.bad_s == 0,
        cost=lambda one: one.core_hours,
        step_s=15,
        executors=EXECUTORS,
        tries=tries,
        seed=seed,
    )


FOUND = ran([stage(0.0, 12), stage(60.0, 8), stage(900.0, 4), stage(1500.0, 12)])


def test_what_was_left_unused_is_used() -> None:
    best = polish(FOUND, tries=300)
    assert best.core_hours < 0.55 * FOUND.core_hours
    assert best.bad_s == 0


def test_the_beginning_stays_and_only_what_there_may_be_is_tried() -> None:
    best = polish(FOUND, tries=100)
    assert best.stages[0] == FOUND.stages[0]
    assert {one.configuration.executors for one in best.stages} <= set(EXECUTORS)


def test_a_job_that_is_never_changed_has_nothing_to_be_tried_on() -> None:
    constant = ran([stage(0.0, 8)])
    assert polish(constant, tries=10) == constant


@pytest.mark.parametrize("seed", range(5))
def test_a_change_that_is_not_needed_is_left_out_until_none_is_left(seed: int) -> None:
    best = polish(ran([stage(0.0, 4), stage(900.0, 8)]), tries=100, seed=seed)
    assert best.stages == (stage(0.0, 4),)


@given(seed=st.integers(0, 1000), tries=st.integers(0, 40))
def test_it_is_kept_no_dearer_and_the_same_each_time(seed: int, tries: int) -> None:
    best = polish(FOUND, tries=tries, seed=seed)
    assert best.bad_s == 0
    assert best.core_hours <= FOUND.core_hours
    assert best == polish(FOUND, tries=tries, seed=seed)
