"""Plain values, as a file holds them, read into the types of the code; what does not fit is told in one sentence."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from tidewise.core.errors import InvalidValueError
from tidewise.core.quantities import parse_duration_s

ONLY_FROM_PYTHON = "(from Python only)"
"""How a value is marked that no plan can write."""
NONE = "none"
"""How a file says None: TOML has no word of its own for it."""

_SECONDS = "written with its unit"
Seconds = Annotated[float, _SECONDS]
"""Seconds where no name can say so with `_s`, such as in a tuple: written as a duration, like "90s"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """How plain values are read into one type."""

    allowed: str
    """What may be written, in words that follow "is not"."""
    read: Callable[[object], object]
    """The value as that type; PermanentError, with one sentence, where it cannot be that."""


Readers = Mapping[object, Reader]
"""Readers by their types, for types of which this module does not know."""


class _MismatchError(InvalidValueError):
    """The value is not of this kind at all: another alternative may fit."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about a word that is not known: the nearest that is, or else all of them."""
    names = list(known)
    if not names:
        return "; there are none"
    # A name without its unit is the commonest slip, and too far off for difflib.
    close = [name for name in names if word and name.startswith(f"{word}_")]
    close = close or difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(names)}"


def read_duration_s(value: object) -> float:
    """Seconds of a duration with its unit; a bare number is refused with what to write instead."""
    if isinstance(value, str):
        return parse_duration_s(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        example = f"{value}s" if 0 <= value < 1e15 else "90s"
        raise InvalidValueError(f'{_shown(value)} has no unit; write it like "{example}"')
    raise mismatch(value, 'a duration such as "90s"')


def reader_of(hint: object, *, seconds: bool, readers: Readers) -> Reader:  # noqa: PLR0911 - one way out per kind
    """The reader for a type as it is annotated; `seconds`: its numbers are durations."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return reader_of(inner[0], seconds=seconds or _SECONDS in inner[1:], readers=readers)
    if hint in readers:
        return readers[hint]
    if origin in (typing.Union, types.UnionType):
        return _first_that_fits([reader_of(part, seconds=seconds, readers=readers) for part in inner])
    if origin is tuple:
        parts = [reader_of(part, seconds=seconds, readers=readers) for part in inner if part is not Ellipsis]
        return _list_of(parts[0]) if Ellipsis in inner else _list_with(parts)
    if origin is typing.Literal:
        return _choice({str(value): value for value in inner})
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice({str(member.value): member for member in hint})
    if seconds and hint in _DURATIONS:
        return _DURATIONS[hint]
    return _PLAIN.get(hint) or _as_it_is(hint)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python does not write out whole numbers of thousands of digits.
        return "this number"
    return text if len(text) <= 60 else f"{text[:57]}..."


def mismatch(value: object, allowed: str) -> InvalidValueError:
    """What a reader raises where a value is not what may be written."""
    return _MismatchError(f"{_shown(value)} is not {allowed}")


def _first_that_fits(readers: list[Reader]) -> Reader:
    allowed = " or ".join(dict.fromkeys(reader.allowed for reader in readers))

    def read(value: object) -> object:
        wrong: InvalidValueError | None = None
        for reader in readers:
            try:
                return reader.read(value)
            except _MismatchError:
                continue
            except InvalidValueError as error:
                wrong = wrong or error
        raise wrong or mismatch(value, allowed)

    return Reader(allowed=allowed, read=read)


def _list_of(item: Reader) -> Reader:
    allowed = f"a list, each item {item.allowed}"

    def read(value: object) -> object:
        if not isinstance(value, list | tuple):
            raise mismatch(value, allowed)
        return tuple(item.read(part) for part in value)

    return Reader(allowed=allowed, read=read)


def _list_with(items: list[Reader]) -> Reader:
    allowed = f"a list of {' and '.join(item.allowed for item in items)}"

    def read(value: object) -> object:
        if not isinstance(value, list | tuple) or len(value) != len(items):
            raise mismatch(value, allowed)
        return tuple(item.read(part) for item, part in zip(items, value, strict=True))

    return Reader(allowed=allowed, read=read)


def _choice(choices: Mapping[str, object]) -> Reader:
    words = [f'"{written}"' for written in choices]
    allowed = " or ".join(words) if len(words) < 3 else f"one of {', '.join(words)}"

    def read(value: object) -> object:
        for chosen in choices.values():
            if type(value) is type(chosen) and value == chosen:
                return chosen
        if not isinstance(value, str):
            raise mismatch(value, allowed)
        if value not in choices:
            raise InvalidValueError(f"there is no {_shown(value)}{did_you_mean(value, choices)}")
        return choices[value]

    return Reader(allowed=allowed, read=read)


def _as_it_is(hint: object) -> Reader:
    """Values that only code can give: nothing to read, only to check as far as can be."""
    kind = typing.get_origin(hint) or hint
    allowed = f"a {getattr(hint, '__name__', hint)} {ONLY_FROM_PYTHON}"

    def read(value: object) -> object:
        try:
            fits = not isinstance(kind, type) or isinstance(value, kind)
        except TypeError:  # A protocol that cannot be checked when it runs.
            fits = not isinstance(value, str | int | float | list | dict)
        if not fits:
            raise mismatch(value, allowed)
        return value

    return Reader(allowed=allowed, read=read)


def _none(value: object) -> None:
    if value is not None and value != NONE:
        raise mismatch(value, f'"{NONE}"')


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise mismatch(value, "true or false")
    return value


def _int(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise mismatch(value, "a whole number")
    return value


def _float(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise mismatch(value, "a number")
    try:
        return float(value)
    except OverflowError:
        raise InvalidValueError(f"{_shown(value)} is too large") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise mismatch(value, "a text")
    return value


def _whole_duration_s(value: object) -> int:
    seconds = read_duration_s(value)
    if not seconds.is_integer():
        raise InvalidValueError(f"{_shown(value)} is not a whole number of seconds")
    return int(seconds)


_PLAIN: Readers = {
    type(None): Reader(allowed=f'"{NONE}"', read=_none),
    bool: Reader(allowed="true or false", read=_bool),
    int: Reader(allowed="a whole number", read=_int),
    float: Reader(allowed="a number", read=_float),
    str: Reader(allowed="a text", read=_text),
    object: Reader(allowed="anything", read=lambda value: value),
    typing.Any: Reader(allowed="anything", read=lambda value: value),
}
_DURATIONS: Readers = {
    float: Reader(allowed='a duration such as "90s"', read=read_duration_s),
    int: Reader(allowed='a duration of whole seconds such as "90s"', read=_whole_duration_s),
}
