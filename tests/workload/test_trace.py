"""How a recorded trace becomes the seconds of a run."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewise.core import BadInputError, InvalidValueError
from tidewise.workload import Trace
from tidewise.workload.trace import Between


def trace(
    rows: list[tuple[float, float]],
    *,
    between: Between = "linear",
    compress: float = 1.0,
    start_s: float = 0.0,
    repeat: bool = False,
) -> Trace:
    return Trace(
        name="t",
        times_s=np.array([time for time, _ in rows], dtype=np.float64),
        values_per_s=np.array([value for _, value in rows], dtype=np.float64),
        between=between,
        compress=compress,
        start_s=start_s,
        repeat=repeat,
    )


ROWS = [(100.0, 0.0), (104.0, 8.0), (108.0, 4.0)]


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    steps = draw(st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=20))
    values = draw(st.lists(st.floats(0.0, 1e12), min_size=len(steps) + 1, max_size=len(steps) + 1))
    times = np.concatenate([[0.0], np.cumsum(steps)]) + draw(st.floats(-1e9, 1e9))
    length_s = float(times[-1] - times[0])
    return Trace(
        name="t",
        times_s=times,
        values_per_s=np.array(values),
        between=draw(st.sampled_from(["linear", "hold"])),
        compress=draw(st.floats(1e-3, min(1e3, length_s))) if length_s > 1e-3 else length_s / 2,
        start_s=draw(st.floats(0.0, 0.9)) * length_s,
        repeat=draw(st.booleans()),
    )


@settings(max_examples=300)
@given(trace=traces(), duration_s=st.integers(1, 300))
def test_a_trace_gives_valid_rates_within_its_own_or_says_it_is_too_short(trace: Trace, duration_s: int) -> None:
    if duration_s > trace.run_length_s and not trace.repeat:
        with pytest.raises(BadInputError, match="repeat"):
            trace.rates_per_s(duration_s, 0)
        return
    found = trace.rates_per_s(duration_s, 0)
    assert found.shape == (duration_s,)
    assert np.isfinite(found).all()
    assert (found >= 0.0).all()
    assert (found <= trace.peak_per_s).all()
    np.testing.assert_array_equal(found, trace.rates_per_s(duration_s, 1))


def test_a_trace_of_seconds_comes_back_as_it_is() -> None:
    values = [3.0, 1.0, 4.0, 1.0, 5.0]
    for between in ("linear", "hold"):
        same = trace(list(enumerate(values)), between=between).rates_per_s(5, 0)
        assert same.tolist() == values


def test_between_two_rows_the_rate_is_a_line_or_holds() -> None:
    assert trace(ROWS).rates_per_s(12, 0).tolist() == [0, 2, 4, 6, 8, 7, 6, 5, 4, 4, 4, 4]
    assert trace(ROWS, between="hold").rates_per_s(12, 0).tolist() == [0] * 4 + [8] * 4 + [4] * 4


def test_rows_closer_than_a_second_are_averaged() -> None:
    rows = [(0.0, 0.0), (0.5, 10.0), (1.0, 20.0), (1.5, 20.0)]
    assert trace(rows, between="hold").rates_per_s(2, 0).tolist() == [5.0, 20.0]
    assert trace(rows).rates_per_s(2, 0).tolist() == [10.0, 20.0]


@pytest.mark.parametrize("between", ["linear", "hold"])
@pytest.mark.parametrize("compress", [2.0, 7.0, 60.0])
def test_compression_keeps_the_mean(between: Between, compress: float) -> None:
    values = np.random.default_rng(0).uniform(0.0, 100.0, 4200)
    fast = trace(list(enumerate(values)), between=between, compress=compress)
    assert fast.run_length_s == 4200 / compress
    found = fast.rates_per_s(fast.run_length_s, 0)
    assert found.mean() == pytest.approx(fast.mean_per_s)
    assert fast.mean_per_s == pytest.approx(values.mean(), rel=0.01)


def test_the_start_is_in_the_time_of_the_trace() -> None:
    assert trace(ROWS, start_s=4.0).rates_per_s(8, 0).tolist() == [8, 7, 6, 5, 4, 4, 4, 4]
    assert trace(ROWS, start_s=4.0, compress=2.0).rates_per_s(4, 0).tolist() == [8, 6, 4, 4]


@pytest.mark.parametrize("compress", [1.0, 6.0])
def test_a_repeated_trace_begins_anew(compress: float) -> None:
    again = trace(ROWS, repeat=True, compress=compress)
    found = again.rates_per_s(int(36 / compress), 0)
    rounds = found.reshape(3, -1)
    np.testing.assert_allclose(rounds[1], rounds[0])
    np.testing.assert_allclose(rounds[2], rounds[0])
    assert found.mean() == pytest.approx(again.mean_per_s, rel=0.15)


def test_a_run_that_is_too_long_hears_how_long_the_trace_is() -> None:
    with pytest.raises(BadInputError, match=r"t lasts 12 s \(12 s\).*run 13 s.*repeat = true"):
        trace(ROWS).rates_per_s(13, 0)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [(0.0, 1.0)],
        [(0.0, 1.0), (0.0, 2.0)],
        [(1.0, 1.0), (0.0, 2.0)],
        [(0.0, 1.0), (math.nan, 2.0)],
        [(0.0, 1.0), (math.inf, 2.0)],
        [(0.0, math.nan), (1.0, 2.0)],
        [(0.0, math.inf), (1.0, 2.0)],
        [(0.0, -1.0), (1.0, 2.0)],
        [(0.0, 1e13), (1.0, 2.0)],
    ],
)
def test_rows_that_make_no_trace_are_refused(rows: list[tuple[float, float]]) -> None:
    with pytest.raises(InvalidValueError):
        trace(rows)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_options_that_are_no_numbers_are_refused(bad: float) -> None:
    with pytest.raises(InvalidValueError, match="compress"):
        trace(ROWS, compress=bad)
    with pytest.raises(InvalidValueError, match="start must"):
        trace(ROWS, start_s=bad)


def test_options_that_leave_nothing_of_the_trace_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="12 s long"):
        trace(ROWS, start_s=12.0)
    with pytest.raises(InvalidValueError, match="less than a second"):
        trace(ROWS, compress=13.0)
    with pytest.raises(InvalidValueError, match="compress"):
        trace(ROWS, compress=0.0)
    with pytest.raises(InvalidValueError, match="one rate for each time"):
        Trace(name="t", times_s=np.arange(3.0), values_per_s=np.arange(2.0))
