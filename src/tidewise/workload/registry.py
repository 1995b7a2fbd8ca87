"""Loads by name, for plans: what a name or a parameter must be is told where it is wrong."""

from __future__ import annotations

import difflib
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from tidewise.core import BadInputError, InvalidValueError
from tidewise.workload.bursts import Bursts
from tidewise.workload.combined import Noisy, Sum
from tidewise.workload.load import Load
from tidewise.workload.seasons import Daily, Weekly
from tidewise.workload.shapes import Constant, Growth, RegimeChange, Sine, Square, Steps
from tidewise.workload.trace_file import read_trace

LOADS: Mapping[str, Callable[..., Load]] = types.MappingProxyType(
    {
        "bursts": Bursts,
        "constant": Constant,
        "daily": Daily,
        "growth": Growth,
        "noisy": Noisy,
        "regime-change": RegimeChange,
        "sine": Sine,
        "square": Square,
        "steps": Steps,
        "sum": Sum,
        "trace": read_trace,
        "weekly": Weekly,
    }
)
"""Every load a plan can name, with what makes it."""

_KINDS: Mapping[object, str] = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "a text",
    Path: "a text",
    Load: "a table with a shape of its own",
}


class _MismatchError(Exception):
    """A value is not of its parameter's type; the text says what it should be."""


def build_load(shape: str, parameters: Mapping[str, object], *, folder: Path | None = None) -> Load:
    """The load of this name with these parameters, as a plan writes them (lists for tuples, tables for loads).

    The file of a trace is looked for in `folder`, where one is given. Raises BadInputError, and nothing else.
    """
    make = LOADS.get(shape)
    if make is None:
        raise BadInputError(
            f"there is no load shape {shape!r}{_did_you_mean(shape, LOADS)}; shapes: {', '.join(LOADS)}"
        )
    hints = get_type_hints(make)
    wanted = {
        name: parameter for name, parameter in inspect.signature(make).parameters.items() if _is_parameter(hints[name])
    }
    arguments: dict[str, object] = {}
    for name, value in parameters.items():
        if name not in wanted:
            raise BadInputError(
                f"load shape {shape!r} has no parameter {name!r}{_did_you_mean(name, wanted)}; "
                f"parameters: {', '.join(wanted)}"
            )
        try:
            arguments[name] = _coerced(hints[name], value, folder)
        except _MismatchError as mismatch:
            raise BadInputError(f"load shape {shape!r}: {name} must be {mismatch}, not {value!r}") from None
    missing = [
        name for name, parameter in wanted.items() if parameter.default is parameter.empty and name not in arguments
    ]
    if missing:
        raise BadInputError(f"load shape {shape!r} needs {' and '.join(missing)}")
    if "file" in arguments and folder is not None:
        arguments["file"] = folder / str(arguments["file"])
    try:
        return make(**arguments)
    except InvalidValueError as error:
        raise BadInputError(f"load shape {shape!r}: {error}") from None


def _is_parameter(hint: object) -> bool:
    return get_origin(hint) is not ClassVar


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    # A name without its unit is the commonest slip, and too far off for difflib.
    close = [name for name in known if word and name.startswith(f"{word}_")]
    close = close or difflib.get_close_matches(word, list(known), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def _coerced(hint: object, value: object, folder: Path | None) -> object:  # noqa: C901, PLR0911 - one branch per type
    """The value as its parameter wants it; _MismatchError where it cannot be that."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return _first_that_fits(inner, value, folder)
    if origin is Literal:
        if value in inner:
            return value
        raise _MismatchError(" or ".join(f'"{choice}"' for choice in inner))
    if origin is tuple:
        return _tuple(inner, value, folder)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise _MismatchError("a number that is not so large") from None
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint is Load and isinstance(value, Mapping):
        inside = {str(name): part for name, part in value.items()}
        shape = inside.pop("shape", None)
        if isinstance(shape, str):
            return build_load(shape, inside, folder=folder)
    if hint in {bool, str, Path} and isinstance(value, hint):
        return value
    raise _MismatchError(_KINDS.get(hint, "something else"))


def _first_that_fits(choices: tuple[object, ...], value: object, folder: Path | None) -> object:
    wanted: list[str] = []
    for choice in choices:
        if choice is types.NoneType:
            if value is None:
                return None
            continue
        try:
            return _coerced(choice, value, folder)
        except _MismatchError as mismatch:
            wanted.append(str(mismatch))
    raise _MismatchError(" or ".join(dict.fromkeys(wanted)))


def _tuple(inner: tuple[object, ...], value: object, folder: Path | None) -> object:
    if not isinstance(value, list | tuple):
        raise _MismatchError("a list")
    if len(inner) == 2 and inner[1] is Ellipsis:
        return tuple(_coerced(inner[0], part, folder) for part in value)
    if len(value) != len(inner):
        raise _MismatchError(f"a list of lists of {len(inner)}")
    return tuple(_coerced(hint, part, folder) for hint, part in zip(inner, value, strict=True))
