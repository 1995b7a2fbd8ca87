"""Durations, memory and ranges as people write them, and as Tidewise prints them."""

from __future__ import annotations

import math
import re

from tidewise.core.errors import InvalidValueError

_DURATION_UNITS_S = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MEMORY_UNITS_MIB = {"MiB": 1.0, "GiB": 1024.0, "TiB": 1024.0 * 1024.0}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")
_RANGE = re.compile(r"\s*([^.\s]+(?:\.[0-9]+[^.\s]*)?)\s*\.\.\s*(\S+?)(?:\s+step\s+(\S+))?\s*")


def _quantity(text: str, units: dict[str, float], *, what: str, example: str) -> float:
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise InvalidValueError(f'{text!r} is not {what}; write it like "{example}"')
    number, unit = found.groups()
    if not unit:
        raise InvalidValueError(f'{text!r} has no unit; write it like "{example}"')
    if unit not in units:
        raise InvalidValueError(f"{text!r} has the unknown unit {unit!r}; use one of {', '.join(units)}")
    amount = float(number) * units[unit]
    if not math.isfinite(amount):
        raise InvalidValueError(f'{text[:40]!r} is too large to be {what}; write it like "{example}"')
    return amount


def parse_duration_s(text: str) -> float:
    """Seconds of a duration such as "500ms", "2s", "10min" or "18h"; the unit is not optional."""
    return _quantity(text, _DURATION_UNITS_S, what="a duration", example="90s")


def parse_memory_mib(text: str) -> int:
    """MiB of an amount such as "512MiB" or "4GiB"; the unit is not optional."""
    mib = _quantity(text, _MEMORY_UNITS_MIB, what="an amount of memory", example="4GiB")
    if mib != int(mib) or mib < 1:
        raise InvalidValueError(f'{text!r} is not a whole number of MiB; write it like "512MiB"')
    return int(mib)


def parse_range(text: str) -> tuple[str, str, str | None]:
    """First, last and step of a range such as "1..24", "10s..90s step 20s"."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise InvalidValueError(f'{text!r} is not a range; write it like "1..24" or "10s..90s step 20s"')
    first, last, step = found.groups()
    return first, last, step


def format_duration(seconds: float) -> str:
    """A duration as a person would say it: 850 ms, 12.5 s, 3 min 20 s, 18 h."""
    if not math.isfinite(seconds):
        return "for ever"
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if seconds < 0.9995:
        return f"{abs(seconds) * 1000:.0f} ms"  # abs: minus zero is zero
    if seconds < 99.5:
        return f"{seconds:.3g} s"
    # From an hour on in whole minutes, rounded: 1 h 59 min 50 s is 2 h, not 1 h 59 min.
    rounded = round(seconds) if seconds < 3599.5 else 60 * round(seconds / 60)
    hours, rest = divmod(rounded, 3600)
    minutes, left = divmod(rest, 60)
    parts = [
        f"{hours} h" if hours else "",
        f"{minutes} min" if minutes else "",
        f"{left} s" if left and not hours else "",
    ]
    return " ".join(part for part in parts if part)


def format_memory(mib: float) -> str:
    """An amount of memory in MiB below one GiB, in GiB above."""
    return f"{mib:.0f} MiB" if mib < 1024 else f"{mib / 1024:.3g} GiB"
