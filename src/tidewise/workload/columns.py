"""Finds out how a file of rows is written: its separator, its header, and which columns hold time and value."""

from __future__ import annotations

import contextlib
import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidewise.core import BadInputError
from tidewise.workload.timestamps import moment, number

SEPARATORS = (";", "\t", "|", ",", " ")
"""In this order where several would do: numbers may hold a comma, and dates a space."""

_SAMPLE_ROWS = 20
_TIME_NAMES = (
    "timestamp",
    "time",
    "ts",
    "datetime",
    "date_time",
    "second",
    "seconds",
    "sec",
    "s",
    "t",
    "date",
    "epoch",
)
_VALUE_NAMES = (
    "value",
    "rate",
    "rate_per_s",
    "events_per_s",
    "events_per_second",
    "records_per_s",
    "records_per_second",
    "requests_per_s",
    "requests_per_second",
    "throughput",
    "eps",
    "rps",
    "qps",
    "tps",
    "count",
    "events",
    "records",
    "requests",
    "messages",
    "load",
    "volume",
    "y",
)
_DATE_AND_TIME = re.compile(r"(\d{4}-\d\d-\d\d) +(\d\d:\d\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Where the two columns of a trace are."""

    time: int
    value: int
    time_name: str
    """As the header says it, in lower case with underscores; empty without a header."""


Row = tuple[int, list[str]]
"""A row's line in the file, counted from 1 as editors do, and its fields; a bare tuple, because files are long."""


def lines_of(text: str) -> list[str]:
    """The lines of a file, whichever system ended them."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def rows_of(lines: Sequence[str], separator: str, *, file: str) -> Iterator[Row]:
    """The rows that are neither empty nor comments."""
    # Comments become empty lines, so that quotes in them do no harm and the reader still counts them.
    plain = ("" if "#" in line and line.lstrip().startswith("#") else line for line in lines)
    if separator == " ":
        plain = (" ".join(_DATE_AND_TIME.sub(r"\1T\2", line).split()) for line in plain)
    reader = csv.reader(plain, delimiter=separator, skipinitialspace=True, strict=True)
    try:
        for fields in reader:
            if "".join(fields).strip():
                yield reader.line_num, fields
    except csv.Error as error:
        raise BadInputError(
            f"{file}, row {reader.line_num}: the fields cannot be told apart ({error}); close every quote"
        ) from None


def _reads_as_data(fields: Sequence[str]) -> bool:
    numbers = sum(number(field) is not None for field in fields)
    return numbers >= 2 or (numbers == 1 and any(number(field) is None and moment(field) for field in fields))


def find_separator(lines: Sequence[str], *, file: str) -> str:
    """The separator by which most of the first rows become a time and a number."""

    def score(separator: str) -> tuple[int, int]:
        data = split = 0
        # A quote that is never closed is told when all rows are read; up to it, the rows speak.
        with contextlib.suppress(BadInputError):
            for _, fields in itertools.islice(rows_of(lines, separator, file=file), _SAMPLE_ROWS):
                data += _reads_as_data(fields)
                split += separator != " " and len(fields) >= 2
        return data, split

    # max takes the first of equals, which is why SEPARATORS has an order.
    return max(SEPARATORS, key=score)


def is_header(fields: Sequence[str]) -> bool:
    """Whether a first row names columns: none of its fields is a number or a date."""
    return all(number(field) is None and moment(field) is None for field in fields)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _named(wanted: str, header: Sequence[str] | None, width: int, *, option: str, file: str) -> int:
    """The column a caller asked for, by name or by its number counted from 1."""
    if header is not None:
        for index, name in enumerate(header):
            if name.strip() == wanted or _plain(name) == _plain(wanted):
                return index
    if wanted.isascii() and wanted.isdigit() and 1 <= int(wanted[:6]) <= width:
        return int(wanted[:6]) - 1
    there = ", ".join(name.strip() for name in header) if header is not None else f"numbers 1 to {width} (no header)"
    raise BadInputError(f"{file} has no column {wanted!r}; write {option} = one of: {there[:300]}")


def _guessed(plain: Sequence[str], names: Sequence[str], taken: int | None, *, is_time: bool) -> int | None:
    """The column whose whole name is known, else the one with a known word in its name."""
    free = [index for index in range(len(plain)) if index != taken]
    for name in names:
        for index in free:
            if plain[index] == name:
                return index
    for index in free:
        words = plain[index].split("_")
        if is_time and "per" in words:  # events_per_second is no time
            continue
        if any(word in names and len(word) > 1 for word in words):
            return index
    return None


def find_columns(
    header: Sequence[str] | None, width: int, *, time_column: str | None, value_column: str | None, file: str
) -> Columns:
    """The columns asked for; else by the words of the header; else, of two, the first and the second."""
    if width < 2:
        raise BadInputError(f"{file} has one column; write two, a time and a value, separated by a comma")
    plain = [_plain(name) for name in header] if header is not None else None
    time = None if time_column is None else _named(time_column, header, width, option="time_column", file=file)
    value = None if value_column is None else _named(value_column, header, width, option="value_column", file=file)
    if plain is not None and time is None:
        time = _guessed(plain, _TIME_NAMES, value, is_time=True)
    if plain is not None and value is None:
        value = _guessed(plain, _VALUE_NAMES, time, is_time=False)
    if width == 2:
        time = time if time is not None else (0 if value is None else 1 - value)
        value = value if value is not None else 1 - time
    for found, what in ((time, "time_column"), (value, "value_column")):
        if found is None:
            there = (
                ", ".join(name.strip() for name in header)
                if header is not None
                else f"1 to {width}, as it has no header"
            )
            raise BadInputError(f"{file} has {width} columns; say which to take by {what}, one of: {there[:300]}")
    if time is None or value is None or time == value:
        raise BadInputError(f"{file}: time_column and value_column name the same column; name two")
    return Columns(time=time, value=value, time_name=plain[time] if plain is not None else "")
