"""Settings as people write them in a plan, read from and checked against what takes them: a class or a function."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from tidewise.core.errors import BadInputError, InvalidValueError, PermanentError
from tidewise.core.readers import NONE, ONLY_FROM_PYTHON, Reader, Readers, did_you_mean, reader_of

Maker = Callable[..., object]
"""A class or a function whose arguments are annotated and can be given by name."""

NO_READERS: Readers = types.MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting, for one argument of its maker."""

    name: str
    """As a plan writes it: `scale_down_interval` for the argument `scale_down_interval_s`."""
    argument: str
    default: str | None
    """As a plan would write it; None where the setting has to be given."""
    doc: str
    reader: Reader

    @property
    def allowed(self) -> str:
        """What may be written, in words."""
        return self.reader.allowed

    @property
    def can_be_written(self) -> bool:
        """Whether a plan can give it, and not only code."""
        return ONLY_FROM_PYTHON not in self.allowed

    def read(self, value: object) -> object:
        """The argument; InvalidValueError, beginning with the setting's name, where the value cannot be that."""
        try:
            return self.reader.read(value)
        except PermanentError as wrong:
            raise InvalidValueError(f"{self.name}: {wrong}") from wrong


def settings_of(maker: Maker, *, readers: Readers = NO_READERS) -> tuple[Setting, ...]:
    """What a maker takes, in its order.

    Arguments that end in `_s` are durations: written without it, and with a unit. What a setting means stands below
    the field of a class, or in the docstring of a function, where a line begins with "`argument`: ".

    Raises BadInputError where an annotation names something that is not there when the program runs.
    """
    try:
        hints = typing.get_type_hints(
            maker.__init__ if isinstance(maker, type) else maker,  # type: ignore[misc]  # a class, not an instance
            include_extras=True,
        )
        parameters = inspect.signature(maker).parameters.values()
    except (NameError, ValueError) as wrong:
        raise BadInputError(f"the settings of {getattr(maker, '__name__', maker)} cannot be told: {wrong}") from wrong
    docs = _field_docs(maker) if isinstance(maker, type) else _argument_docs(maker)
    return tuple(
        Setting(
            name=_name(parameter.name),
            argument=parameter.name,
            default=None if parameter.default is parameter.empty else _written(parameter.name, parameter.default),
            doc=docs.get(parameter.name, ""),
            reader=reader_of(hints.get(parameter.name, object), seconds=_is_duration(parameter.name), readers=readers),
        )
        for parameter in parameters
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    )


def read_settings(
    maker: Maker, given: Mapping[str, object], *, where: str, readers: Readers = NO_READERS
) -> dict[str, object]:
    """The maker's arguments; BadInputError, beginning with `where`, for the first setting that is wrong.

    `readers` says how to read the types that are not plain: those of float, int, bool, str, Enum, Literal, None and
    tuples are known.
    """
    known = {setting.name: setting for setting in settings_of(maker, readers=readers)}
    arguments: dict[str, object] = {}
    for name, value in given.items():
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


def _hint(name: str, known: Iterable[Setting]) -> str:
    for setting in known:
        if name == setting.argument:
            return f'; write it as {setting.name}, with its unit: {setting.name} = "90s"'
    return did_you_mean(name, [setting.name for setting in known])


def _is_duration(argument: str) -> bool:
    return argument.endswith("_s") and not argument.endswith("_per_s")


def _name(argument: str) -> str:
    return argument.removesuffix("_s") if _is_duration(argument) else argument


def _written(argument: str, value: object) -> str:
    if value is None:
        return NONE
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return f"[{', '.join(_written(argument, part) for part in value)}]"
    if _is_duration(argument) and isinstance(value, int | float):
        unit, length_s = next(((u, n) for u, n in (("h", 3600), ("min", 60)) if value and value % n == 0), ("s", 1))
        return f"{value / length_s:g}{unit}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _field_docs(kind: type) -> dict[str, str]:
    """The strings that stand below the fields of a class; empty where its source is not at hand."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
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


def _argument_docs(function: Maker) -> dict[str, str]:
    """The paragraphs of a function's docstring that begin with the name of an argument."""
    paragraphs = re.split(r"\n(?=\n|`\w+`: )", inspect.getdoc(function) or "")
    named = (re.match(r"`(\w+)`: (.+)", paragraph, re.DOTALL) for paragraph in paragraphs)
    return {found[1]: " ".join(found[2].split()) for found in named if found is not None}
