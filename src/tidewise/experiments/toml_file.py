"""Reads a TOML file into a checked model, telling what is wrong with its line and what to write instead; writes one."""

from __future__ import annotations

import json
import re
import tomllib
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, ValidationError

from tidewise.core import BadInputError, InvalidValueError, parse_memory_mib, parse_range
from tidewise.core.readers import did_you_mean, read_duration_s

Model = TypeVar("Model", bound=BaseModel)
Place = tuple[str | int, ...]

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?")
_KEY = re.compile(r"""^\s*("[^"]*"|'[^']*'|[A-Za-z0-9_.-]+)\s*=""")


class Table(BaseModel):
    """A table of a file: every key is known, and nothing is changed after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _memory(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f'{value!r} has no unit; write it like "{value}MiB" or "{value}GiB"')
    return parse_memory_mib(value) if isinstance(value, str) else value


Duration = Annotated[float, BeforeValidator(read_duration_s)]
"""Seconds, written with a unit."""
Memory = Annotated[int, BeforeValidator(_memory)]
"""MiB, written with a unit."""


def _values(value: object, read: typing.Callable[[object], float]) -> tuple[float, ...]:
    """One value, a list of values, or a range with a step, ascending."""
    if isinstance(value, list):
        return tuple(sorted({read(item) for item in value}))
    if isinstance(value, str) and ".." in value:
        first_text, last_text, step_text = parse_range(value)
        first, last = read(_plain(first_text)), read(_plain(last_text))
        step = read(_plain(step_text)) if step_text is not None else 1.0
        if step <= 0 or last < first:
            raise ValueError(f"{value!r} holds nothing; write the smaller end first and a step above 0")
        count = int((last - first) / step + 1e-9) + 1
        if count > 10_000:
            raise ValueError(f"{value!r} holds {count} values; give a larger step")
        return tuple(first + step * index for index in range(count))
    return (read(value),)


def _plain(text: str) -> object:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f'{value!r} is not a number, a list of numbers or a range such as "1..24"')
    return float(value)


def _whole_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f'{value!r} is not a whole number, a list of them or a range such as "1..24"')
    return value


def _mib(value: object) -> float:
    read = _memory(value)
    if not isinstance(read, int):
        raise ValueError(f'{value!r} is not an amount of memory; write it like "4GiB"')
    return read


Counts = Annotated[tuple[int, ...], BeforeValidator(lambda value: tuple(map(int, _values(value, _whole_number))))]
Numbers = Annotated[tuple[float, ...], BeforeValidator(lambda value: _values(value, _number))]
Durations = Annotated[tuple[float, ...], BeforeValidator(lambda value: _values(value, read_duration_s))]
Memories = Annotated[tuple[int, ...], BeforeValidator(lambda value: tuple(map(int, _values(value, _mib))))]


class TomlFile:
    """A file that a user wrote, read once; knows in which line each key stands."""

    def __init__(self, path: Path) -> None:
        """BadInputError where there is no such file, or it is no text."""
        self.path = path
        self.text = _read_text(path)
        self._lines = _lines(self.text)

    def read(self, model: type[Model]) -> Model:
        """The file as this model; BadInputError, and nothing else, for whatever is wrong with it."""
        try:
            content = tomllib.loads(self.text)
        except (ValueError, RecursionError) as error:  # Beside its own error: for endless numbers and deep nesting.
            raise BadInputError(f"{self.path} is not TOML: {error}") from error
        try:
            return model.model_validate(content)
        except ValidationError as error:
            place, sentence = _first_fault(error, model)
            raise self.wrong(place, sentence) from error

    def wrong(self, place: Place, sentence: str) -> BadInputError:
        """The error to raise for what stands at this place: the file, the line, and what is wrong there."""
        line = self._line_of(place)
        return BadInputError(f"{self.path}" + (f", line {line}" if line is not None else "") + f": {sentence}")

    @contextmanager
    def at(self, *place: str | int) -> Iterator[None]:
        """Whatever is found wrong inside is told with this place."""
        try:
            yield
        except (BadInputError, InvalidValueError) as error:
            raise self.wrong(place, str(error)) from error

    def has(self, *place: str | int) -> bool:
        """Whether something is written at this place."""
        return place in self._lines

    def _line_of(self, place: Place) -> int | None:
        """The line in which this key stands, or else the table that it belongs to."""
        for length in range(len(place), 0, -1):
            if place[:length] in self._lines:
                return self._lines[place[:length]]
        return None


def _read_text(path: Path) -> str:
    """The text of the file; a mark that some editors put first is no part of it."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise BadInputError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise BadInputError(f"{path} is a folder; name the file in it") from None
    except UnicodeDecodeError:
        raise BadInputError(f"{path} is not a text file (UTF-8)") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}") from error


def _lines(text: str) -> dict[Place, int]:
    found: dict[Place, int] = {}
    counts: dict[Place, int] = {}
    table: Place = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        if header:
            names: Place = tuple(part.strip().strip("\"'") for part in header[2].split("."))
            if header[1] == "[[":
                index = counts.get(names, 0)
                counts[names] = index + 1
                table = (*names, index)
                found.setdefault(names, number)
            else:
                table = names
            found.setdefault(table, number)
            continue
        key = _KEY.match(line)
        if key:
            dotted: Place = tuple(part.strip("\"'") for part in key[1].split("."))
            found.setdefault((*table, *dotted), number)
    return found


def _first_fault(error: ValidationError, model: type[BaseModel]) -> tuple[Place, str]:
    """What to tell the user first, and where it stands."""
    # A key that is misspelt is missing as well: the spelling is what helps.
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    place: Place = first["loc"]
    name = ".".join(str(part) for part in place)
    if first["type"] == "extra_forbidden":
        known = _keys_at(model, place[:-1])
        return place, f"unknown key {str(place[-1])!r}{did_you_mean(str(place[-1]), known)}"
    if first["type"] == "missing":
        return place, f"{name} is missing"
    if first["type"] in _SHAPES:
        return place, _SHAPES[first["type"]].format(name=name, last=place[-1] if place else name)
    message = first["msg"].removeprefix("Value error, ")
    return place, f"{name or 'the file'}: {message}"


_SHAPES = {
    "model_type": "{name} is a table; write [{name}] and its keys below",
    "model_attributes_type": "{name} is a table; write [{name}] and its keys below",
    "dict_type": "{name} is a table; write [{name}] and its keys below",
    "tuple_type": "{name} is a list; for tables write [[{last}]], once for each",
    "too_short": "{name} is empty; give at least one",
    "string_type": "{name} must be a text in quotes",
    "int_type": "{name} must be a whole number",
    "int_from_float": "{name} must be a whole number",
    "float_type": "{name} must be a number",
    "bool_type": "{name} must be true or false",
}
"""What is of the wrong kind, in words for somebody who writes TOML."""


def _keys_at(model: type[BaseModel], place: Place) -> list[str]:
    """The keys that the table at this place may have."""
    here: type[BaseModel] = model
    for part in place:
        if isinstance(part, int):
            continue
        field = here.model_fields.get(part)
        inner = _model_in(field.annotation) if field is not None else None
        if inner is None:
            return []
        here = inner
    return list(here.model_fields)


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in typing.get_args(annotation):
        inner = _model_in(part)
        if inner is not None:
            return inner
    return None


def to_toml(document: Mapping[str, JsonValue]) -> str:
    """Plain values first, then tables and lists of tables: what such a file is read from."""
    lines = [_line(key, value) for key, value in document.items() if not _is_tables(value)]
    for key, value in document.items():
        if isinstance(value, dict):
            lines += ["", f"[{key}]", *(_line(*one) for one in value.items())]
        elif isinstance(value, list) and _is_tables(value):
            for table in (one for one in value if isinstance(one, dict)):
                lines += ["", f"[[{key}]]", *(_line(*one) for one in table.items())]
    return "\n".join(lines) + "\n"


def duration_text(seconds: float) -> str:
    """A duration as a file writes it: never with an exponent, which no duration is written with."""
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def _is_tables(value: JsonValue) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _line(key: str, value: JsonValue) -> str:
    return f"{json.dumps(key)} = {_inline(value)}"


def _inline(value: JsonValue) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(_line(*one) for one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value)
