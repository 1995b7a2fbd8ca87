"""Recovery: one definition, worked out by hand on small series, and what must hold whatever happens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import Censored, Measured
from tidewise.core.recovery import BEFORE_S, CALM_S, FELT_WITHIN_S, recovery_s

Seconds = list[float]


def waits(*pieces: tuple[int, float]) -> Seconds:
    """So many seconds of each wait."""
    return [wait for count, wait in pieces for _ in range(count)]


def took(waited_s: Seconds, fault_s: float, *down: range, end: int | None = None) -> Measured:
    up = [all(second not in stretch for stretch in down) for second in range(len(waited_s))]
    return recovery_s(waited_s=waited_s, up=up, fault_s=fault_s, end=end)


def test_it_ends_where_fifteen_calm_seconds_begin() -> None:
    assert took(waits((200, 1.0), (40, 9.0), (200, 1.0)), 200.0) == 40.0
    assert took(waits((200, 1.0), (40, 9.0), (CALM_S - 1, 1.0), (1, 9.0), (200, 1.0)), 200.5) == 54.5


def test_a_job_that_was_slow_all_along_has_recovered_when_it_is_as_slow_as_before() -> None:
    waited = waits((1000, 1.0), (4000, 3.0))
    waited[3000:3030] = [30.0 - second for second in range(30)]
    assert took(waited, 3000.0, range(3000, 3030)) == 30.0


def test_downtime_of_a_change_that_was_on_is_not_the_failures() -> None:
    waited = waits((1000, 1.0))
    assert took(waited, 500.0, range(490, 502), range(519, 549)) == 49.0


def test_a_failure_during_a_change_without_downtime_of_its_own_ends_with_the_bad_seconds_after_it() -> None:
    waited = waits((519, 1.0), (30, 9.0), (451, 1.0))
    assert took(waited, 500.0, range(490, 502)) == 49.0


def test_a_failure_that_only_a_change_hid_is_over_when_the_job_is_back() -> None:
    assert took(waits((1000, 1.0)), 500.0, range(490, 502)) == 2.0
    assert took(waits((1000, 1.0)), 500.0, range(490, 800)) == 300.0
    assert took(waits((1000, 1.0)), 500.0, range(490, 1000)) == Censored(at_least=500.0)


def test_a_stray_bad_second_before_the_job_goes_down_is_not_its_recovery() -> None:
    waited = waits((205, 1.0), (1, 9.0), (400, 1.0))
    assert took(waited, 200.0, range(230, 250)) == 50.0


def test_without_a_bad_second_in_time_it_was_not_felt() -> None:
    late = waits((200 + FELT_WITHIN_S, 1.0), (30, 9.0), (100, 1.0))
    assert took(late, 200.0) == 0.0
    assert took(late, 201.0) == FELT_WITHIN_S + 29.0
    assert took(waits((250, 1.0)), 200.0) == Censored(at_least=0.0)


def test_what_was_usual_is_told_by_the_last_up_seconds_whose_records_were_out_before_the_failure() -> None:
    # The records of the last 20 s came out after the failure, late: they say nothing about before.
    trigger = waits((100, 0.5), (BEFORE_S, 1.0), (20, 50.0), (30, 2.5), (100, 1.0))
    assert took(trigger, 240.0) == 30.0
    assert took(waits((100, 0.5), (BEFORE_S, 1.5), (30, 2.5), (200, 1.0)), 220.0) == 0.0
    down = waits((BEFORE_S, 1.0), (200, 5.0), (30, 2.5), (100, 1.0))
    assert took(down, 320.0, range(BEFORE_S, 320)) == 30.0


def test_what_an_earlier_failure_left_does_not_tell_what_was_usual() -> None:
    waited = waits((100, 1.0), (250, 10.0), (250, 1.0))
    up = [True] * len(waited)
    assert recovery_s(waited_s=waited, up=up, fault_s=300.0) == 0.0
    assert recovery_s(waited_s=waited, up=up, fault_s=300.0, undisturbed_until=100) == 50.0


def test_without_any_second_before_the_median_of_all_tells() -> None:
    assert took(waits((30, 9.0), (200, 1.0)), 0.0) == 30.0


def test_what_is_not_seen_to_its_end_is_a_lower_bound() -> None:
    waited = waits((200, 1.0), (40, 9.0), (200, 1.0))
    assert took(waited, 200.0, end=230) == Censored(at_least=30.0)
    assert took(waited, 200.0, end=240 + CALM_S - 1) == Censored(at_least=40.0)
    assert took(waited, 200.0, end=240 + CALM_S) == 40.0


def test_a_job_that_never_gave_output_never_recovers() -> None:
    assert took(waits((400, math.inf)), 100.0) == Censored(at_least=300.0)


def test_records_that_the_end_left_waiting_tell_nothing_until_they_waited_too_long() -> None:
    # Triggers every 60 s: a record waits 30 s in the median, and what came after the last trigger is not out yet.
    waited = [60.0 - second % 60 for second in range(540)] + [math.inf] * 59
    assert took(waited, 400.0) == 0.0
    assert took(waited, 500.0) == Censored(at_least=0.0)
    # Those of the first such second have waited too long by now: the job is behind when the run ends.
    assert took([*waited, *waits((100, math.inf))], 500.0) == Censored(at_least=199.0)


def test_silence_is_calm_while_the_job_is_up() -> None:
    assert took(waits((200, 1.0), (10, 9.0), (200, math.nan)), 200.0) == 10.0
    assert took(waits((200, 1.0), (200, math.nan)), 200.0, range(210, 220)) == 20.0


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_arrays_are_as_good_as_lists(kind: type[np.floating[Any]]) -> None:
    waited = np.asarray(waits((200, 1.0), (40, 9.0), (200, 1.0))).astype(kind)
    up = np.ones(len(waited))
    up[220:250] = 0.0
    answer = recovery_s(waited_s=waited, up=up, fault_s=200.25)
    assert type(answer) is float
    assert answer == 49.75


@st.composite
def runs(draw: st.DrawFn) -> tuple[Seconds, list[bool]]:
    """Stretches of seconds that are alike: single seconds hardly ever make a calm."""
    wait = st.sampled_from([0.1, 1.0, 1.9, 2.1, 30.0, math.inf, math.nan])
    stretches = draw(st.lists(st.tuples(st.integers(1, 80), wait, st.booleans()), min_size=1, max_size=12))
    return waits(*((count, wait) for count, wait, _ in stretches)), [
        up for count, _, up in stretches for _ in range(count)
    ]


@given(runs(), st.data())
def test_the_answer_is_never_negative_nor_beyond_what_was_seen(
    run: tuple[Seconds, list[bool]], data: st.DataObject
) -> None:
    waited, up = run
    fault_s = data.draw(st.floats(0, len(waited), exclude_max=True))
    end = data.draw(st.integers(int(fault_s), len(waited)))
    answer = recovery_s(waited_s=waited, up=up, fault_s=fault_s, end=end)
    value = answer.at_least if isinstance(answer, Censored) else answer
    assert 0.0 <= value <= max(0.0, end - fault_s)


@given(runs(), st.data())
def test_looking_longer_than_a_failure_takes_to_be_noticed_changes_no_final_answer(
    run: tuple[Seconds, list[bool]], data: st.DataObject
) -> None:
    waited, up = run
    fault = data.draw(st.integers(0, len(waited) - 1))
    end = data.draw(st.integers(min(fault + FELT_WITHIN_S, len(waited)), len(waited)))
    early = recovery_s(waited_s=waited, up=up, fault_s=float(fault), end=end)
    late = recovery_s(waited_s=waited, up=up, fault_s=float(fault))
    if isinstance(early, Censored):
        assert early.at_least <= (late.at_least if isinstance(late, Censored) else late)
    else:
        assert late == early
