"""Times as files write them: numbers of seconds, epochs in any unit, ISO 8601."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from tidewise.workload.load import Rates

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST = 1e19
"""Above any epoch, in nanoseconds too."""
_SUFFIXES = {"ms": 1e3, "millis": 1e3, "us": 1e6, "micros": 1e6, "ns": 1e9, "nanos": 1e9}

HINT = "write seconds (12 or 12.5), an epoch in s or ms, or ISO 8601 (2025-03-01T12:30:00Z)"


class UnreadableTimeError(Exception):
    """One timestamp of a column cannot be read; `index` says which."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(why)
        self.index = index


def number(text: str) -> float | None:
    """The number a field holds, NaN and infinities included; None where it holds none."""
    try:
        return float(text)
    except ValueError:
        return None


def moment(text: str) -> datetime | None:
    """The point in time a field writes in ISO 8601; None where it does not."""
    try:
        return datetime.fromisoformat(text.strip().removesuffix(" UTC"))
    except (ValueError, OverflowError):
        return None


def times_s(fields: Sequence[str], *, column: str) -> Rates:
    """Seconds of a column of timestamps, on one unknown but common origin.

    The first field decides whether the column holds numbers or dates. Numbers are seconds, unless the column's name
    ends in a unit (`time_ms`) or they are so large that they can only be epochs in ms, us or ns. Dates without a zone
    are taken as UTC; a column may not mix dates with and without one.
    """
    if number(fields[0]) is not None:
        return _numbers_s(fields, column=column)
    return _dates_s(fields)


def _numbers_s(fields: Sequence[str], *, column: str) -> Rates:
    try:
        values = [float(field) for field in fields]
    except ValueError:
        index = next(index for index, field in enumerate(fields) if number(field) is None)
        raise UnreadableTimeError(
            index, f"the time {fields[index][:40]!r} is not a number like the first one"
        ) from None
    array = np.array(values, dtype=np.float64)
    bad = np.flatnonzero(~(np.abs(array) <= _MOST))  # written so that NaN is bad, too
    if len(bad):
        index = int(bad[0])
        raise UnreadableTimeError(index, f"the time {fields[index][:40]!r} is no point in time; {HINT}")
    return array / _units_per_s(column, float(np.abs(array).max()))


def _units_per_s(column: str, largest: float) -> float:
    unit = _SUFFIXES.get(column.rpartition("_")[2])
    if unit is not None:
        return unit
    # In seconds, 1e11 would be the year 5138; in milliseconds it is 1973.
    return 1.0 if largest < 1e11 else 1e3 if largest < 1e14 else 1e6 if largest < 1e17 else 1e9


def _dates_s(fields: Sequence[str]) -> Rates:
    moments = _moments(fields)
    zoned = moments[0].tzinfo is not None
    for index, when in enumerate(moments):
        if (when.tzinfo is not None) is not zoned:
            raise UnreadableTimeError(
                index,
                f"the time {fields[index][:40]!r} and the first one differ in having a zone; write all in one way",
            )
    epoch = _EPOCH if zoned else _EPOCH.replace(tzinfo=None)
    return np.array([(when - epoch).total_seconds() for when in moments], dtype=np.float64)


def _moments(fields: Sequence[str]) -> list[datetime]:
    try:
        return [datetime.fromisoformat(field) for field in fields]  # the common case, several times as fast
    except (ValueError, OverflowError):
        pass
    moments = []
    for index, field in enumerate(fields):
        when = moment(field)
        if when is None:
            raise UnreadableTimeError(index, f"the time {field[:40]!r} cannot be read; {HINT}")
        moments.append(when)
    return moments
