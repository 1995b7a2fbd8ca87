"""Every CSV file people have gives a trace, or one sentence on what to mend and where."""

from __future__ import annotations

import gc
import gzip
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tidewise.core import BadInputError
from tidewise.workload import read_trace

SHARED = Path(__file__).parents[3] / "shared" / "traces"
NO_TRACES = {"ysb_profiles.csv"}

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(content: str | bytes) -> Path:
        path = tmp_path / "load.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


GOOD = {
    "plain": "0,5\n1,6\n2,7\n",
    "header": "second,events_per_s\n0,5\n1,6\n2,7\n",
    "header with unknown names": "a,b\n0,5\n1,6\n2,7\n",
    "title": "my trace\n0,5\n1,6\n2,7\n",
    "no newline at the end": "0,5\n1,6\n2,7",
    "empty lines": "\n0,5\n\n1,6\n2,7\n\n\n",
    "empty rows of a spreadsheet": "0,5\n1,6\n2,7\n,\n,\n",
    "windows": "time,value\r\n0,5\r\n1,6\r\n2,7\r\n",
    "old mac": "time,value\r0,5\r1,6\r2,7\r",
    "bom": "\ufefftime,value\n0,5\n1,6\n2,7\n",
    "comments": '# from "us, them\n  # and others\ntime,value\n0,5\n# half\n1,6\n2,7\n',
    "semicolon": "time;value\n0;5\n1;6\n2;7\n",
    "tab": "time\tvalue\n0\t5\n1\t6\n2\t7\n",
    "bar": "time|value\n0|5\n1|6\n2|7\n",
    "space": "time value\n0 5\n1   6\n 2 7\n",
    "space after comma": "time, value\n0, 5\n1, 6\n2, 7\n",
    "quotes": '"time","value"\n"0","5"\n"1","6"\n"2","7"\n',
    "floats": "0.0,5.0\n1.0,6e0\n2.0,7.\n",
    "value first": "value,time\n5,0\n6,1\n7,2\n",
    "value first by one name": "x,time\n5,0\n6,1\n7,2\n",
    "epoch": "1700000000,5\n1700000001,6\n1700000002,7\n",
    "epoch ms": "1700000000000,5\n1700000001000,6\n1700000002000,7\n",
    "epoch us": "1700000000000000,5\n1700000001000000,6\n1700000002000000,7\n",
    "epoch ns": "1700000000000000000,5\n1700000001000000000,6\n1700000002000000000,7\n",
    "ms by name": "time_ms,value\n0,5\n1000,6\n2000,7\n",
    "negative times": "-2,5\n-1,6\n0,7\n",
    "iso": "2025-03-01T12:00:00,5\n2025-03-01T12:00:01,6\n2025-03-01T12:00:02,7\n",
    "iso with space": "2025-03-01 12:00:00,5\n2025-03-01 12:00:01,6\n2025-03-01 12:00:02,7\n",
    "iso with space, by spaces": "2025-03-01 12:00:00 5\n2025-03-01 12:00:01 6\n2025-03-01 12:00:02 7\n",
    "iso utc": "2025-03-01T12:00:00Z,5\n2025-03-01T12:00:01Z,6\n2025-03-01T12:00:02Z,7\n",
    "iso zones": "2025-03-01T12:00:00+01:00,5\n2025-03-01T11:00:01Z,6\n2025-03-01T06:00:02-05:00,7\n",
    "iso named utc": "2025-03-01 12:00:00 UTC,5\n2025-03-01 12:00:01 UTC,6\n2025-03-01 12:00:02 UTC,7\n",
    "iso fractions": "2025-03-01T12:00:00.250,5\n2025-03-01T12:00:01.250000,6\n2025-03-01T12:00:02.25,7\n",
    "over midnight": "2025-02-28 23:59:59,5\n2025-03-01 00:00:00,6\n2025-03-01 00:00:01,7\n",
    "many columns": "id,when,timestamp,host,requests_per_s\n9,x,0,a,5\n9,x,1,b,6\n9,x,2,c,7\n",
    "words in names": "Event Time,Requests (count),host\n0,5,a\n1,6,b\n2,7,c\n",
    "per second is no time": "events_per_second,epoch,host\n5,0,a\n6,1,b\n7,2,c\n",
    "extra field": "time,value\n0,5,\n1,6,\n2,7,\n",
    "duplicates are averaged": "0,5\n1,4\n1,8\n2,7\n",
}


@pytest.mark.parametrize("content", GOOD.values(), ids=GOOD.keys())
def test_all_ways_of_writing_the_same_trace_are_read(content: str, write: Write) -> None:
    assert read_trace(write(content)).rates_per_s(3, 0).tolist() == [5.0, 6.0, 7.0]


def test_gzip_is_read(write: Write) -> None:
    assert read_trace(write(gzip.compress(b"0,5\n1,6\n2,7\n"))).rates_per_s(3, 0).tolist() == [5.0, 6.0, 7.0]


@pytest.mark.parametrize(("time_column", "value_column"), [("b", "c"), ("2", "3"), ("B ", "C")])
def test_columns_can_be_named_or_numbered(time_column: str, value_column: str, write: Write) -> None:
    path = write("a,b,c\n9,0,5\n8,1,6\n7,2,7\n")
    found = read_trace(path, time_column=time_column, value_column=value_column)
    assert found.rates_per_s(3, 0).tolist() == [5.0, 6.0, 7.0]


def test_columns_without_a_header_are_numbered(write: Write) -> None:
    path = write("9,0,5\n8,1,6\n7,2,7\n")
    assert read_trace(path, time_column="2", value_column="3").rates_per_s(3, 0).tolist() == [5.0, 6.0, 7.0]


def test_rows_out_of_order_are_sorted_when_asked(write: Write) -> None:
    assert read_trace(write("2,7\n0,5\n1,6\n"), order="sort").rates_per_s(3, 0).tolist() == [5.0, 6.0, 7.0]


def test_gaps_are_bridged_when_asked(write: Write) -> None:
    path = write("0,0\n1,1\n2,2\n22,22\n23,23\n")
    assert read_trace(path, gaps="interpolate").rates_per_s(24, 0).tolist() == list(range(24))
    assert read_trace(path, gap_steps=20.0).rates_per_s(24, 0).tolist() == list(range(24))


def test_irregular_steps_are_interpolated(write: Write) -> None:
    assert read_trace(write("0,0\n1,1\n4,4\n6,6\n")).rates_per_s(6, 0).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_trace_is_scaled_to_the_size_wanted(write: Write) -> None:
    path = write("0,5\n1,6\n2,7\n")
    assert read_trace(path, factor=10.0).rates_per_s(3, 0).tolist() == [50.0, 60.0, 70.0]
    assert read_trace(path, scale_to_mean_per_s=600.0, between="hold").rates_per_s(3, 0).mean() == pytest.approx(600.0)
    assert read_trace(path, scale_to_peak_per_s=1400.0).rates_per_s(3, 0).max() == pytest.approx(1400.0)


BAD: list[tuple[str | bytes, dict[str, object], str]] = [
    (b"", {}, r"load\.csv is empty; write"),
    (b"\xef\xbb\xbf\n\n", {}, r"load\.csv is empty"),
    (b"# only this\n", {}, r"load\.csv is empty"),
    ("time,value\n", {}, r"load\.csv has a header and no rows; write"),
    ("time,value\n0,5\n", {}, r"load\.csv, row 2: is the only one"),
    ("0,5\n0,6\n", {}, r"one point in time"),
    (b"\xff\xfe0\x00,\x005\x00", {}, r"row 1: is not UTF-8 text; save"),
    (b"0,5\n1,\xe9\n", {}, r"row 2: is not UTF-8"),
    (b"0,5\n1,\x00\n", {}, r"row 2: holds binary data"),
    (b"\x1f\x8b broken", {}, r"cannot be read .*CSV file, plain or gzip"),
    (gzip.compress(b"0,5\n1,6\n")[:-9], {}, r"cannot be read"),
    ("time,value\n0,5\n1,six\n", {}, r"row 3: the value 'six' is not a number; write a number"),
    ("time,value\n0,5\n1,\n2,6\n", {}, r"row 3: the value '' is not a number; write the rate, 0 where"),
    ("0;3,5\n1;4,5\n", {}, r"row 1: the value '3,5' is not a number"),
    ("0,5\n1,nan\n", {}, r"row 2: the value 'nan' is no rate; write a number from 0"),
    ("0,5\n1,inf\n", {}, r"row 2: the value 'inf' is no rate"),
    ("0,5\n1,-6\n", {}, r"row 2: the value '-6' is no rate"),
    ("0,5\n1,1e300\n", {}, r"row 2: .*'1e300' is no rate"),
    ("# c\ntime,value\n\n0,5\nsoon,6\n", {}, r"row 5: the time 'soon' is not a number"),
    ("2025-03-01,5\nsoon,6\n", {}, r"row 2: the time 'soon' cannot be read; write seconds.*ISO 8601"),
    ("2025-03-01,5\n2025-13-01,6\n", {}, r"row 2: the time '2025-13-01' cannot be read"),
    ("2025-03-01T00:00Z,5\n2025-03-01T00:01,6\n", {}, r"row 2: .*zone"),
    ("nan,5\n1,6\n", {}, r"row 1: the time 'nan' is no point in time"),
    ("0,5\n1e300,6\n", {}, r"row 2: the time '1e300' is no point in time"),
    ("time,value\n0,5\n1\n2,7\n", {}, r"row 3: has 1 fields where 2 are needed; fill it"),
    ("time,value,host\n0,5,a\n1\n2,7,c\n", {}, r"row 3: has 1 fields"),
    ("5\n6\n7\n", {}, r"has one column; write two"),
    ("0,5\n2,7\n1,6\n", {}, r'row 3: the time runs backwards, 1 s before.*order = "sort"'),
    ("0,5\n1,6\n2,7\n60,8\n", {}, r'row 4: comes 58 s after .*usual step is 1 s; .*gaps = "interpolate"'),
    ("60,8\n0,5\n1,6\n2,7\n", {"order": "sort"}, r"row 1: comes 58 s after"),
    ('0,5\n1,"6\n2,7\n', {}, r"row \d: the fields cannot be told apart.*close every quote"),
    ("0,1,2\n1,2,3\n", {}, r"has 3 columns; say which to take by time_column, one of: 1 to 3"),
    ("a,b,c\n0,1,2\n1,2,3\n", {}, r"say which to take by time_column, one of: a, b, c"),
    ("time,b,c\n0,1,2\n1,2,3\n", {}, r"say which to take by value_column, one of: time, b, c"),
    ("a,b\n0,5\n1,6\n", {"time_column": "c"}, r"no column 'c'; write time_column = one of: a, b"),
    ("0,5\n1,6\n", {"value_column": "3"}, r"no column '3'; write value_column = one of: numbers 1 to 2"),
    ("a,b\n0,5\n1,6\n", {"time_column": "a", "value_column": "a"}, r"name the same column"),
    ("0,5\n1,6\n", {"compress": 0.0}, r"load\.csv: compress must be above 0"),
    ("0,5\n1,6\n", {"start_s": 2.0}, r"load\.csv: start is 2 s, but the trace is only 2 s long"),
    ("0,5\n1,6\n", {"between": "curve"}, r'between must be "linear" or "hold"'),
    ("0,5\n1,6\n", {"gaps": "x"}, r'gaps must be "refuse" or "interpolate", not \'x\''),
    ("0,5\n1,6\n", {"order": "x"}, r'order must be "refuse" or "sort"'),
    ("0,5\n1,6\n", {"gap_steps": float("nan")}, r"gap_steps must be"),
    ("0,5\n1,6\n", {"factor": -1.0}, r"factor must be above 0"),
    ("0,5\n1,6\n", {"factor": float("nan")}, r"factor must be above 0"),
    ("0,5\n1,6\n", {"factor": 1e12}, r"rates of a trace must be at most"),
    ("0,5\n1,6\n", {"factor": 1.0, "scale_to_mean_per_s": 1.0}, r"factor and scale_to_mean_per_s exclude each other"),
    ("0,0\n1,0\n", {"scale_to_mean_per_s": 1.0}, r"cannot scale a trace without any load"),
    ("0,0\n1,0\n", {"scale_to_peak_per_s": 1.0}, r"cannot scale a trace without any load"),
]


@pytest.mark.parametrize(("content", "options", "sentence"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_is_told_by_file_row_and_remedy(
    content: str | bytes, options: dict[str, object], sentence: str, write: Write
) -> None:
    with pytest.raises(BadInputError, match=sentence) as caught:
        read_trace(write(content), **options)  # type: ignore[arg-type]  # wrong ones among them, on purpose
    assert "load.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_none_is_told_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"none\.csv does not exist"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(BadInputError, match="is a folder; name the CSV file in it"):
        read_trace(tmp_path)
    with pytest.raises(BadInputError, match="cannot be read"):
        read_trace(Path("a\0b"))


def check_outcome(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        trace = read_trace(path, gaps="interpolate", repeat=True)
    except BadInputError:
        return
    rates = trace.rates_per_s(50, 0)
    assert rates.shape == (50,)
    assert np.isfinite(rates).all()
    assert (rates >= 0.0).all()


FUZZ = settings(
    max_examples=500,
    # Each example overwrites the file of the one before.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@FUZZ
@given(content=st.binary(max_size=200))
@example(content=b"\x1f\x8b")
@example(content=b"0,1\n5e-324,2\n")
@example(content=b"0,1\n1e19,1e12\n-1e19,0\n")
@example(content=b'"')
@example(content=b"0001-01-01T00:00:00+23:59,1\n9999-12-31T23:59:59-23:59,1\n")
def test_any_bytes_give_a_trace_or_one_kind_of_error(content: bytes, tmp_path: Path) -> None:
    check_outcome(tmp_path / "load.csv", content)


fields = st.one_of(
    st.integers(-5, 100).map(str),
    st.floats().map(str),
    st.datetimes().map(str),
    st.datetimes().map(lambda when: when.isoformat() + "Z"),
    st.sampled_from(["", "nan", "time", "value", '"', '"1"', "#", "1_0", "٣", "1e999", " "]),
    st.text(max_size=4),
)


@FUZZ
@given(
    rows=st.lists(st.lists(fields, min_size=1, max_size=4), max_size=8),
    separator=st.sampled_from([",", ";", "\t", "|", " "]),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_any_rows_give_a_trace_or_one_kind_of_error(
    rows: list[list[str]], separator: str, end: str, tmp_path: Path
) -> None:
    check_outcome(tmp_path / "load.csv", end.join(separator.join(row) for row in rows).encode())


@FUZZ
@given(
    values=st.lists(st.floats(0.0, 1e12), min_size=2, max_size=30),
    separator=st.sampled_from([",", ";", "\t", "|", " "]),
    header=st.booleans(),
    dates=st.booleans(),
    step_s=st.integers(1, 10_000),
)
def test_what_was_written_is_read_back(  # noqa: PLR0917 - each argument is drawn by its name
    values: list[float], separator: str, header: bool, dates: bool, step_s: int, tmp_path: Path
) -> None:
    begin = datetime(2025, 3, 1, tzinfo=UTC)
    times = [str(begin + timedelta(seconds=step_s * k)) if dates else str(step_s * k) for k in range(len(values))]
    lines = [f"{when}{separator}{value!r}" for when, value in zip(times, values, strict=True)]
    path = tmp_path / "load.csv"
    path.write_text("\n".join([f"time{separator}rate", *lines] if header else lines))
    found = read_trace(path)
    assert found.values_per_s.tolist() == values
    assert found.run_length_s == step_s * len(values)


@pytest.mark.parametrize("dates", [False, True])
def test_a_long_file_is_read_in_a_moment(dates: bool, write: Write) -> None:
    begin = datetime(2025, 3, 1, tzinfo=UTC)
    times = [str(begin + timedelta(seconds=k)) if dates else str(k) for k in range(65_000)]
    path = write("timestamp,value\n" + "".join(f"{when},{20_000 + k % 977}\n" for k, when in enumerate(times)))
    took_s = []
    gc.collect()  # what the tests before left behind is not this one's to sweep
    for _ in range(5):
        began = time.process_time()
        assert len(read_trace(path).times_s) == 65_000
        took_s.append(time.process_time() - began)
    assert min(took_s) < 0.3


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real traces are kept beside the repository, not in it")
def test_real_traces_are_read_as_they_are() -> None:
    for path in sorted(SHARED.glob("*.csv")):
        if path.name in NO_TRACES:
            with pytest.raises(BadInputError, match="time_column"):
                read_trace(path)
            continue
        trace = read_trace(path, scale_to_mean_per_s=20_000.0, compress=60.0)
        rates = trace.rates_per_s(min(3600, trace.run_length_s), 0)
        assert np.isfinite(rates).all()
        assert (rates >= 0.0).all()
        assert trace.mean_per_s == pytest.approx(20_000.0)
