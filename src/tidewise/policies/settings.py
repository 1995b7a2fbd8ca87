"""Settings as people write them in a plan, read from and checked against a policy's constructor."""

from __future__ import annotations

import ast
import difflib
import inspect
import itertools
import textwrap
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from tidewise.core import BadInputError, Configuration, InvalidValueError, parse_duration_s

_NONE = "none"
"""How a plan says None: TOML has no word of its own for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of a policy."""

    name: str
    """As a plan writes it: `scale_down_interval` for the argument `scale_down_interval_s`."""
    argument: str
    allowed: str
    """What may be written, in words."""
    default: str | None
    """As a plan would write it; None where the setting has to be given."""
    doc: str
    kinds: tuple[object, ...]
    """The types of the argument."""

    @property
    def is_duration(self) -> bool:
        return _is_duration(self.argument)

    def read(self, value: object) -> object:
        """The argument for the constructor; InvalidValueError with one sentence where the value is not allowed."""
        if type(None) in self.kinds and (value is None or value == _NONE):
            return None
        if self.is_duration and float in self.kinds:
            return self._duration_s(value)
        for kind in self.kinds:
            accepted, result = _fit(kind, value)
            if accepted:
                return result
        hint = did_you_mean(value, _choices(self.kinds)) if isinstance(value, str) else ""
        raise InvalidValueError(f"{self.name} = {value!r} is not allowed: it takes {self.allowed}{hint}")

    def _duration_s(self, value: object) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise InvalidValueError(f'{self.name} = {value!r} has no unit; write it like {self.name} = "{value:g}s"')
        if not isinstance(value, str):
            raise InvalidValueError(f"{self.name} = {value!r} is not allowed: it takes {self.allowed}")
        try:
            return parse_duration_s(value)
        except InvalidValueError as wrong:
            raise InvalidValueError(f"{self.name}: {wrong}") from None


def settings_of(policy: type) -> tuple[Setting, ...]:
    """What a policy's constructor takes, in its order."""
    hints = typing.get_type_hints(policy.__init__)  # type: ignore[misc]  # a class is at hand, not an instance
    docs = _field_docs(policy)
    found = []
    for parameter in inspect.signature(policy).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        kinds = _alternatives(hints.get(parameter.name, object))
        found.append(
            Setting(
                name=parameter.name.removesuffix("_s") if _is_duration(parameter.name) else parameter.name,
                argument=parameter.name,
                allowed=_allowed(parameter.name, kinds),
                default=None if parameter.default is parameter.empty else _written(parameter.name, parameter.default),
                doc=docs.get(parameter.name, ""),
                kinds=kinds,
            )
        )
    return tuple(found)


def read_settings(policy: type, settings: Mapping[str, object], *, where: str) -> dict[str, object]:
    """The constructor's arguments; BadInputError, beginning with `where`, for the first that is wrong."""
    known = {setting.name: setting for setting in settings_of(policy)}
    arguments: dict[str, object] = {}
    for name, value in settings.items():
        setting = known.get(name)
        if setting is None:
            raise BadInputError(f"{where} has no setting {name!r}{_hint(name, known.values())}")
        try:
            arguments[setting.argument] = setting.read(value)
        except InvalidValueError as wrong:
            raise BadInputError(f"{where}: {wrong}") from wrong
    for setting in known.values():
        if setting.default is None and setting.argument not in arguments:
            raise BadInputError(f"{where} needs the setting {setting.name}: {setting.allowed}")
    return arguments


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question to end an error with; empty where nothing known is near."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f". Did you mean {close[0]!r}?" if close else ""


def _hint(name: str, known: Iterable[Setting]) -> str:
    for setting in known:
        if name == setting.argument:
            return f'; write it as {setting.name}, with its unit: {setting.name} = "90s"'
    names = [setting.name for setting in known]
    listed = f"It has {', '.join(names)}" if names else "It has none"
    return f"{did_you_mean(name, names) or '.'} {listed}"


def _is_duration(argument: str) -> bool:
    return argument.endswith("_s") and not argument.endswith("_per_s")


def _alternatives(hint: object) -> tuple[object, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _fit(kind: object, value: object) -> tuple[bool, object]:
    """Whether a value may stand for this type, and what it becomes."""
    if kind is bool or isinstance(value, bool):
        return kind in (bool, object) and isinstance(value, bool), value
    if kind is float and isinstance(value, int):
        return True, float(value)
    if isinstance(kind, type) and issubclass(kind, Enum) and isinstance(value, str):
        members = {member.value: member for member in kind}
        return value in members, members.get(value)
    return isinstance(kind, type) and isinstance(value, kind), value


def _allowed(argument: str, kinds: tuple[object, ...]) -> str:
    words = []
    for kind in kinds:
        if kind is type(None):
            words.append(f'"{_NONE}"')
        elif kind is float and _is_duration(argument):
            words.append('a duration such as "90s"')
        elif isinstance(kind, type) and issubclass(kind, Enum):
            words.append("one of " + ", ".join(f'"{choice}"' for choice in _choices((kind,))))
        else:
            plain = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
            named = {**plain, Configuration: "a configuration (from Python only)"}
            words.append(named.get(typing.cast("type", kind), getattr(kind, "__name__", str(kind))))
    return " or ".join(words)


def _choices(kinds: tuple[object, ...]) -> list[str]:
    return [str(member.value) for kind in kinds if isinstance(kind, type) and issubclass(kind, Enum) for member in kind]


def _written(argument: str, value: object) -> str:
    if value is None:
        return _NONE
    if _is_duration(argument) and isinstance(value, int | float):
        unit, length_s = next(((u, n) for u, n in (("h", 3600), ("min", 60)) if value and value % n == 0), ("s", 1))
        return f"{value / length_s:g}{unit}"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _field_docs(policy: type) -> dict[str, str]:
    """The strings that stand below the fields of a class; empty where its source is not at hand."""
    docs: dict[str, str] = {}
    for base in reversed(policy.__mro__[:-1]):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError, SyntaxError):
            continue
        body = tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else []
        for field, below in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                text = below.value if isinstance(below, ast.Expr) else None
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    docs[field.target.id] = inspect.cleandoc(text.value)
    return docs
