"""The checks by which the vocabulary refuses illegal values, with one wording for all of them."""

from __future__ import annotations

import math

from tidewise.core.errors import InvalidValueError


def require(condition: bool, sentence: str) -> None:  # noqa: FBT001 - reads as a sentence: require(that, else this)
    """Raise InvalidValueError with this sentence unless the condition holds."""
    if not condition:
        raise InvalidValueError(sentence)


def require_finite(name: str, value: float, *, least: float | None = None, above: float | None = None) -> None:
    """Refuse NaN, infinities and values below `least` or not above `above`."""
    if not math.isfinite(value):
        raise InvalidValueError(f"{name} must be a finite number, not {value}")
    if least is not None and value < least:
        raise InvalidValueError(f"{name} must be at least {least:g}, not {value:g}")
    if above is not None and value <= above:
        raise InvalidValueError(f"{name} must be above {above:g}, not {value:g}")


def require_share(name: str, value: float) -> None:
    """Refuse everything outside 0..1."""
    if not 0.0 <= value <= 1.0:
        raise InvalidValueError(f"{name} must lie between 0 and 1, not {value:g}")


def require_text(name: str, value: str) -> None:
    """Refuse empty and blank text."""
    if not value.strip():
        raise InvalidValueError(f"{name} must not be empty")
