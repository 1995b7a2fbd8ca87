"""Reads traces from the CSV files people have; whatever is wrong is told by file, row and what to write instead."""

from __future__ import annotations

import gzip
import itertools
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NoReturn

import numpy as np

from tidewise.core import BadInputError, InvalidValueError, format_duration
from tidewise.workload.columns import find_columns, find_separator, is_header, lines_of, rows_of
from tidewise.workload.load import MOST_PER_S, Rates
from tidewise.workload.timestamps import UnreadableTimeError, number, times_s
from tidewise.workload.trace import Between, Trace


def read_trace(
    file: Path,
    *,
    time_column: str | None = None,
    value_column: str | None = None,
    factor: float | None = None,
    scale_to_mean_per_s: float | None = None,
    scale_to_peak_per_s: float | None = None,
    between: Between = "linear",
    compress: float = 1.0,
    start_s: float = 0.0,
    repeat: bool = False,
    gaps: Literal["refuse", "interpolate"] = "refuse",
    gap_steps: float = 10.0,
    order: Literal["refuse", "sort"] = "refuse",
) -> Trace:
    """The load recorded in a CSV file of times and rates; plain or gzip, UTF-8.

    The separator (comma, semicolon, tab, bar, space), the header and the columns are found. Lines that begin with #
    are comments. Times may be seconds, epochs or ISO 8601, at any steps; rows with the same time are averaged. Values
    are taken as the shape of the rate; at most one of `factor`, `scale_to_mean_per_s` and `scale_to_peak_per_s` brings
    them to the size wanted.

    `file`: The CSV file.
    `time_column`: Which column holds the times, by name or number from 1; to be given where there are more than two.
    `value_column`: Which column holds the rates, likewise.
    `factor`: What the values are multiplied by.
    `scale_to_mean_per_s`: The mean rate that the whole trace is brought to.
    `scale_to_peak_per_s`: The rate that the highest row is brought to.
    `between`: What the rate is between two rows: a straight line, or that of the earlier row.
    `compress`: How many seconds of the trace pass in one of the run: 48 puts a day into half an hour.
    `start_s`: How much of the trace is left out at its beginning, in the trace's own time.
    `repeat`: Whether the trace begins anew where the run is longer; otherwise such a run is refused.
    `gaps`: Whether a gap in the rows is refused, or bridged as `between` says.
    `gap_steps`: How many median steps a step has to be longer than to be a gap.
    `order`: Whether a time before that of the row above is refused, or the rows are sorted.

    Raises BadInputError, and nothing else, for whatever is wrong with the file or the options. Rows are counted as
    lines of the file, from 1, header and comments included.
    """
    name = file.name or str(file)
    _check_options(
        name, {"gaps": (gaps, ("refuse", "interpolate")), "order": (order, ("refuse", "sort"))}, gap_steps=gap_steps
    )
    lines, time_fields, value_fields, time_name = _columns(
        _text(file), time_column=time_column, value_column=value_column, name=name
    )
    values = _values(value_fields, lines, name=name)
    try:
        times = times_s(time_fields, column=time_name)
    except UnreadableTimeError as error:
        _refuse(name, lines[error.index], str(error))
    # Relative to the first and in whole microseconds: epochs lose their size, and rounding errors their steps.
    times = np.round(times - times.min(), 6)
    if order == "refuse":
        _refuse_backwards(times, lines, name=name)
    ascending = np.argsort(times, kind="stable")
    times, values = times[ascending], values[ascending]
    if gaps == "refuse":
        _refuse_gaps(times, [lines[index] for index in ascending], gap_steps=gap_steps, name=name)
    times, values = _merged(times, values)
    if len(times) < 2:
        raise BadInputError(f"{name} has one point in time; a trace needs at least two rows with different times")
    try:
        trace = Trace(
            name=name,
            times_s=times,
            values_per_s=values,
            between=between,
            compress=compress,
            start_s=start_s,
            repeat=repeat,
        )
        by = _factor(trace, factor=factor, mean_per_s=scale_to_mean_per_s, peak_per_s=scale_to_peak_per_s)
        return trace if by == 1.0 else _scaled(trace, by)
    except InvalidValueError as error:
        raise BadInputError(f"{name}: {error}") from None


def _refuse(name: str, line: int, why: str) -> NoReturn:
    raise BadInputError(f"{name}, row {line}: {why}")


def _check_options(name: str, choices: dict[str, tuple[str, Sequence[str]]], *, gap_steps: float) -> None:
    for option, (chosen, allowed) in choices.items():
        if chosen not in allowed:
            raise BadInputError(f'{name}: {option} must be "{allowed[0]}" or "{allowed[1]}", not {chosen!r}')
    if not 1.0 < gap_steps < math.inf:
        raise BadInputError(f"{name}: gap_steps must be a number above 1, not {gap_steps:g}")


def _text(path: Path) -> str:
    name = path.name or str(path)
    try:
        if path.is_dir():
            raise BadInputError(f"{path} is a folder; name the CSV file in it")
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except FileNotFoundError:
        raise BadInputError(f"{path} does not exist; check the name of the trace") from None
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise BadInputError(f"{path} cannot be read ({error}); give a readable CSV file, plain or gzip") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        raise BadInputError(f"{name}, row {row}: is not UTF-8 text; save the file as CSV in UTF-8") from None
    if "\0" in text:
        row = text.count("\n", 0, text.index("\0")) + 1
        raise BadInputError(f"{name}, row {row}: holds binary data; save the file as CSV in UTF-8")
    return text


def _columns(
    text: str, *, time_column: str | None, value_column: str | None, name: str
) -> tuple[list[int], list[str], list[str], str]:
    """The line, the time and the value of each row, and the name of the time's column.

    Row by row, keeping two fields of each: a list of all fields of a long file costs as much time as all the rest.
    """
    all_lines = lines_of(text)
    rows = rows_of(all_lines, find_separator(all_lines, file=name), file=name)
    first = next(rows, None)
    if first is None:
        raise BadInputError(f"{name} is empty; write a time and a rate in each row, such as 0,1500")
    header: list[str] | None = None
    if is_header(first[1]):
        header = first[1]
        first = next(rows, None)
        if first is None:
            raise BadInputError(f"{name} has a header and no rows; write a time and a rate in each row, such as 0,1500")
    width = len(first[1])
    if header is not None:
        # A title over the rows is a header too, of fewer columns than there are.
        width = max(width, len(header))
        header += [""] * (width - len(header))
    found = find_columns(header, width, time_column=time_column, value_column=value_column, file=name)
    needed = max(found.time, found.value) + 1
    lines: list[int] = []
    times: list[str] = []
    values: list[str] = []
    for line, fields in itertools.chain([first], rows):
        if len(fields) < needed:
            _refuse(name, line, f"has {len(fields)} fields where {needed} are needed; fill it or take it out")
        lines.append(line)
        times.append(fields[found.time])
        values.append(fields[found.value])
    if len(lines) == 1:
        _refuse(name, lines[0], "is the only one; a trace needs at least two rows with different times")
    return lines, times, values, found.time_name


def _values(fields: Sequence[str], lines: Sequence[int], *, name: str) -> Rates:
    try:
        values = np.array([float(field) for field in fields], dtype=np.float64)
    except ValueError:
        index = next(index for index, field in enumerate(fields) if number(field) is None)
        field = fields[index].strip()
        hint = "write the rate, 0 where there was none" if not field else "write a number such as 1500 or 1500.5"
        _refuse(name, lines[index], f"the value {field[:40]!r} is not a number; {hint}")
    bad = np.flatnonzero(~((values >= 0.0) & (values <= MOST_PER_S)))
    if len(bad):
        index = int(bad[0])
        _refuse(
            name,
            lines[index],
            f"the value {fields[index].strip()[:40]!r} is no rate; write a number from 0 to {MOST_PER_S:g}",
        )
    return values


def _refuse_backwards(times: Rates, lines: Sequence[int], *, name: str) -> None:
    backwards = np.flatnonzero(np.diff(times) < 0.0)
    if len(backwards):
        index = int(backwards[0])
        raise BadInputError(
            f"{name}, row {lines[index + 1]}: the time runs backwards, "
            f"{format_duration(float(times[index] - times[index + 1]))} before the row above; "
            'sort the rows or set order = "sort"'
        )


def _refuse_gaps(times: Rates, lines: Sequence[int], *, gap_steps: float, name: str) -> None:
    steps = np.diff(times)
    if not (steps > 0.0).any():
        return
    usual_s = float(np.median(steps[steps > 0.0]))
    gaps = np.flatnonzero(steps > gap_steps * usual_s)
    if len(gaps):
        index = int(gaps[0])
        raise BadInputError(
            f"{name}, row {lines[index + 1]}: comes {format_duration(float(steps[index]))} after the one before, where "
            f'the usual step is {format_duration(usual_s)}; fill the gap, or set gaps = "interpolate" to bridge it'
        )


def _merged(times: Rates, values: Rates) -> tuple[Rates, Rates]:
    """Rows of the same time as one, with their mean value."""
    distinct, group = np.unique(times, return_inverse=True)
    if len(distinct) == len(times):
        return times, values
    return distinct, np.bincount(group, weights=values) / np.bincount(group)


def _factor(trace: Trace, *, factor: float | None, mean_per_s: float | None, peak_per_s: float | None) -> float:
    given = {"factor": factor, "scale_to_mean_per_s": mean_per_s, "scale_to_peak_per_s": peak_per_s}
    wanted = [(option, value) for option, value in given.items() if value is not None]
    if not wanted:
        return 1.0
    if len(wanted) > 1:
        raise InvalidValueError(f"{' and '.join(option for option, _ in wanted)} exclude each other; give one of them")
    option, value = wanted[0]
    if not 0.0 < value <= MOST_PER_S:
        raise InvalidValueError(f"{option} must be above 0 and at most {MOST_PER_S:g}, not {value:g}")
    if option == "factor":
        return value
    now = trace.mean_per_s if option == "scale_to_mean_per_s" else trace.peak_per_s
    if now < 1e-12:
        raise InvalidValueError(f"{option} cannot scale a trace without any load")
    return value / now


def _scaled(trace: Trace, by: float) -> Trace:
    return Trace(
        name=trace.name,
        times_s=trace.times_s,
        values_per_s=trace.values_per_s * by,
        between=trace.between,
        compress=trace.compress,
        start_s=trace.start_s,
        repeat=trace.repeat,
    )
