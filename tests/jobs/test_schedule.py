"""What the schedule promises: exact counts that never go back, and a time for each record that fits them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import BadInputError, InvalidValueError
from tidewise.jobs.schedule import After, Schedule, read_schedule, write_schedule

BEGAN_S = 1_800_000_000.0


def schedule(*rates_per_s: float, after: After = "hold", step_s: float = 1.0) -> Schedule:
    return Schedule(began_unix_s=BEGAN_S, step_s=step_s, rates_per_s=rates_per_s, after=after)


schedules = st.builds(
    Schedule,
    began_unix_s=st.floats(0.0, 2e9),
    step_s=st.floats(0.01, 100.0),
    rates_per_s=st.lists(st.one_of(st.just(0.0), st.floats(0.0, 1e4)), min_size=1, max_size=8).map(tuple),
    after=st.sampled_from(["hold", "stop", "repeat"]),
)


@pytest.mark.parametrize(
    ("after", "elapsed_s", "expected"),
    [
        ("hold", -5.0, 0),
        ("hold", 0.0, 0),
        ("hold", 0.5, 50),
        ("hold", 1.0, 100),
        ("hold", 1.7, 100),
        ("hold", 3.0, 140),
        ("hold", 10.0, 140 + 7 * 40),
        ("stop", 10.0, 140),
        ("repeat", 3.5, 190),
        ("repeat", 300.0, 14_000),
    ],
)
def test_available_is_the_integral_of_the_rate(after: After, elapsed_s: float, expected: int) -> None:
    assert schedule(100, 0, 40, after=after).available(BEGAN_S + elapsed_s) == expected


def test_fractions_of_a_record_add_up_exactly() -> None:
    assert schedule(0.1).available(BEGAN_S + 10.0) == 1
    assert schedule(0.1, after="repeat").available(BEGAN_S + 1e6) == 100_000


@given(schedules, st.lists(st.floats(0.0, 1000.0), min_size=2, max_size=20))
def test_available_never_goes_back(plan: Schedule, moments_s: list[float]) -> None:
    counts = [plan.available(plan.began_unix_s + moment_s) for moment_s in sorted(moments_s)]
    assert counts == sorted(counts)


@given(schedules, st.floats(0.0, 300.0))
def test_a_record_is_available_at_its_time_and_not_before(plan: Schedule, elapsed_s: float) -> None:
    end = plan.available(plan.began_unix_s + elapsed_s)
    first = max(0, end - 1000)
    if first == end:
        return
    ordinals = np.arange(first, end)
    times_us = plan.pieces(first, end).times_us(ordinals)
    assert (np.diff(times_us) >= 0).all()
    for ordinal, time_us in ((first, times_us[0]), (end - 1, times_us[-1])):
        # Two microseconds: times near 2e9 s are doubles, which are no finer than a quarter of one.
        assert plan.available((int(time_us) + 2) / 1e6) > ordinal
        assert plan.available((int(time_us) - 2) / 1e6) <= ordinal


@given(schedules, st.integers(1, 500), st.integers(0, 500))
def test_a_part_of_a_range_gives_the_same_times(plan: Schedule, count: int, cut: int) -> None:
    end = min(count, plan.available(plan.began_unix_s + 1000.0))
    cut = min(cut, end - 1)
    if cut <= 0:
        return
    whole = plan.pieces(0, end).times_us(np.arange(end))
    parts = [plan.pieces(0, cut).times_us(np.arange(cut)), plan.pieces(cut, end).times_us(np.arange(cut, end))]
    assert np.array_equal(whole, np.concatenate(parts))


@given(schedules.filter(lambda plan: plan.after == "stop"), st.lists(st.floats(0.0, 1e4), max_size=5))
def test_new_steps_leave_the_past_as_it_was(plan: Schedule, more: list[float]) -> None:
    longer = Schedule(
        began_unix_s=plan.began_unix_s, step_s=plan.step_s, rates_per_s=(*plan.rates_per_s, *more), after="hold"
    )
    over_s = plan.began_unix_s + plan.step_s * len(plan.rates_per_s)
    now_s = plan.began_unix_s + 0.6 * (over_s - plan.began_unix_s)
    assert longer.available(now_s) == plan.available(now_s)


def test_records_that_never_come_are_refused_with_what_to_do() -> None:
    with pytest.raises(BadInputError, match=r"ends after 140 records, but record 140 .* bring back its past"):
        schedule(100, 0, 40, after="stop").pieces(0, 141)


def test_a_schedule_survives_its_file(tmp_path: Path) -> None:
    file = tmp_path / "schedule.json"
    write_schedule(file, schedule(1.5, 2.0, after="repeat", step_s=0.5))
    assert read_schedule(file) == schedule(1.5, 2.0, after="repeat", step_s=0.5)
    assert [path.name for path in tmp_path.iterdir()] == ["schedule.json"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"nowhere\.json does not exist"):
        read_schedule(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "cannot be read .* write one JSON object"),
        ("[1]", "must be an object"),
        ("{}", "began_unix_s is missing"),
        ('{"began_unix_s": 1}', "rates_per_s is missing"),
        ('{"began_unix_s": 1, "rates_per_s": 5}', "must be a list of numbers, not 5"),
        ('{"began_unix_s": 1, "rates_per_s": []}', "at least one rate"),
        ('{"began_unix_s": 1, "rates_per_s": ["x"]}', "'x' is not a finite number"),
        ('{"began_unix_s": 1, "rates_per_s": [NaN]}', "nan is not a finite number"),
        ('{"began_unix_s": 1, "rates_per_s": [true]}', "True is not a finite number"),
        ('{"began_unix_s": 1, "rates_per_s": [-1]}', "between 0 and 1e"),
        ('{"began_unix_s": 1, "rates_per_s": [1e7], "step_s": 1e6}', "more than 1e.12 records"),
        ('{"began_unix_s": 1, "rates_per_s": [1], "step_s": 0}', "step_s must be at least 0.001"),
        ('{"began_unix_s": 1, "rates_per_s": [1], "after": "end"}', "after must be one of hold, stop, repeat"),
        ('{"began_unix_s": 1, "rates_per_s": [1], "after": []}', "after must be one of hold, stop, repeat"),
        ('{"began_unix_s": 1, "rates": [1]}', "'rates' is not known; did you mean 'rates_per_s'"),
    ],
)
def test_a_bad_file_is_told_in_a_sentence_that_names_it(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(BadInputError, match=rf"bad\.json.*{sentence}"):
        read_schedule(file)


def test_a_file_needs_no_more_than_its_beginning_and_rates(tmp_path: Path) -> None:
    file = tmp_path / "short.json"
    file.write_text(json.dumps({"began_unix_s": BEGAN_S, "rates_per_s": [7]}))
    assert read_schedule(file).available(BEGAN_S + 3) == 21


def test_an_illegal_schedule_cannot_be_built() -> None:
    with pytest.raises(InvalidValueError, match="rates_per_s"):
        schedule(float("nan"))
