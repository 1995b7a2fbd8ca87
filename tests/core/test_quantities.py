"""Durations, memory and ranges as people write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import (
    InvalidValueError,
    format_duration,
    format_memory,
    parse_duration_s,
    parse_memory_mib,
    parse_range,
)

DURATIONS = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MEMORY = {"MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}
spaces = st.sampled_from(["", " ", "  "])


@given(number=st.decimals(0, 10**6, places=3), unit=st.sampled_from(sorted(DURATIONS)), space=spaces)
def test_a_duration_is_its_number_times_its_unit(number: object, unit: str, space: str) -> None:
    assert parse_duration_s(f"{space}{number}{space}{unit}{space}") == float(str(number)) * DURATIONS[unit]


@given(number=st.integers(1, 10**6), unit=st.sampled_from(sorted(MEMORY)), space=spaces)
def test_an_amount_of_memory_is_its_number_times_its_unit(number: int, unit: str, space: str) -> None:
    assert parse_memory_mib(f"{number}{space}{unit}") == number * MEMORY[unit]


def test_a_fraction_of_a_gib_may_be_whole_mib() -> None:
    assert parse_memory_mib("0.5GiB") == 512


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("90", ["has no unit", '"90s"']),
        ("", ["is not a duration", '"90s"']),
        ("s", ["is not a duration"]),
        ("-5s", ["is not a duration"]),
        (".5s", ["is not a duration"]),
        ("1e3s", ["is not a duration"]),
        ("nan s", ["is not a duration"]),
        ("5 parsecs", ["unknown unit 'parsecs'", "ms, s, min, m, h, d"]),
        ("5S", ["unknown unit 'S'"]),
        ("5s 3s", ["is not a duration"]),
        ("9" * 400 + "s", ["too large to be a duration", '"90s"']),
    ],
)
def test_what_is_no_duration_is_told_with_what_to_write(text: str, words: list[str]) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_duration_s(text)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("4", ["has no unit", '"4GiB"']),
        ("4GB", ["unknown unit 'GB'", "MiB, GiB, TiB"]),
        ("much", ["is not an amount of memory", '"4GiB"']),
        ("0.3MiB", ["whole number of MiB", '"512MiB"']),
        ("0MiB", ["whole number of MiB"]),
        ("9" * 400 + "GiB", ["too large"]),
    ],
)
def test_what_is_no_amount_of_memory_is_told_with_what_to_write(text: str, words: list[str]) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_memory_mib(text)
    assert all(word in str(caught.value) for word in words)


@given(text=st.text() | st.text("0123456789. sminhdMGTiBep-"))
def test_whatever_is_written_gives_a_number_or_one_kind_of_error(text: str) -> None:
    for parse in (parse_duration_s, parse_memory_mib, parse_range):
        try:
            found = parse(text)
        except InvalidValueError:
            continue
        assert isinstance(found, tuple) or math.isfinite(found)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1..24", ("1", "24", None)),
        ("0.5..2", ("0.5", "2", None)),
        ("0.5..2.5", ("0.5", "2.5", None)),
        ("0.5..2 step 0.25", ("0.5", "2", "0.25")),
        ("10s..90s step 20s", ("10s", "90s", "20s")),
        ("1.5s..90s", ("1.5s", "90s", None)),
        (" 512MiB .. 4GiB  step  512MiB ", ("512MiB", "4GiB", "512MiB")),
    ],
)
def test_a_range_has_a_first_a_last_and_perhaps_a_step(text: str, parts: tuple[str, str, str | None]) -> None:
    assert parse_range(text) == parts


quantities = st.builds(
    lambda whole, fraction, unit: f"{whole}{fraction}{unit}",
    st.integers(0, 9999),
    st.sampled_from(["", ".5", ".25"]),
    st.sampled_from(["", "s", "ms", "min", "MiB", "GiB"]),
)


@given(first=quantities, last=quantities, step=st.none() | quantities, space=spaces)
def test_a_range_comes_back_as_it_was_written(first: str, last: str, step: str | None, space: str) -> None:
    text = f"{first}{space}..{space}{last}" + (f" step {step}" if step is not None else "")
    assert parse_range(text) == (first, last, step)


@pytest.mark.parametrize("text", ["", "5", "1-24", "1.24", "..", "1..", "..5", "1..5 step", "1..5 by 2", "1 2..5"])
def test_what_is_no_range_is_told_with_what_to_write(text: str) -> None:
    with pytest.raises(InvalidValueError, match=r'is not a range; write it like "1..24" or "10s..90s step 20s"'):
        parse_range(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (-0.0, "0 ms"),
        (0.85, "850 ms"),
        (0.9996, "1 s"),
        (1.0, "1 s"),
        (12.5, "12.5 s"),
        (99.4, "99.4 s"),
        (99.6, "1 min 40 s"),
        (120.0, "2 min"),
        (200.0, "3 min 20 s"),
        (3599.0, "59 min 59 s"),
        (3599.7, "1 h"),
        (3600.0, "1 h"),
        (3661.0, "1 h 1 min"),
        (7190.0, "2 h"),
        (64800.0, "18 h"),
        (-90.0, "-90 s"),
        (math.inf, "for ever"),
    ],
)
def test_durations_read_as_a_person_would_say_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(seconds=st.floats(0.001, 1e7))
def test_a_printed_duration_is_within_a_rounding_of_the_true_one(seconds: float) -> None:
    words = format_duration(seconds).split()
    units = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
    said = sum(float(number) * units[unit] for number, unit in zip(words[::2], words[1::2], strict=True))
    # Half a millisecond, three digits, half a second or half a minute, by size.
    assert abs(said - seconds) <= max(0.00051, min(0.0051 * seconds, 30.0 if seconds > 3599.0 else 0.51))


@pytest.mark.parametrize(
    ("mib", "text"), [(1, "1 MiB"), (1023, "1023 MiB"), (1024, "1 GiB"), (1536, "1.5 GiB"), (65536, "64 GiB")]
)
def test_memory_reads_as_a_person_would_say_it(mib: int, text: str) -> None:
    assert format_memory(mib) == text
