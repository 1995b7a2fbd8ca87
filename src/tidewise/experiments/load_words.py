"""A load in one line of text, as a command takes it: a CSV file or a shape's name, and its settings."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

from tidewise.core import BadInputError
from tidewise.core.readers import did_you_mean
from tidewise.workload import Load, build_load
from tidewise.workload.registry import LOADS

_EXAMPLE = 'write it like "sine mean_per_s=1000 period=10min" or "trace.csv compress=48"'


def load_of(text: str) -> Load:
    """The load that a line such as `square low_per_s=10 high_per_s=100` or `trace.csv compress=48` names.

    Settings are those of plans. Raises BadInputError, and nothing else.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadInputError(f"the load {text!r} cannot be read ({error}); {_EXAMPLE}") from None
    if not words:
        raise BadInputError(f"the load is empty; {_EXAMPLE}")
    name, *rest = words
    settings = dict(_setting(word, text) for word in rest)
    if name in LOADS:
        return build_load(name, settings)
    if not _is_file(name):
        raise BadInputError(f"there is no load shape {name!r}{did_you_mean(name, LOADS)}, and no such file")
    return build_load("trace", {"file": name, **settings})


def _is_file(name: str) -> bool:
    path = Path(name)
    return path.exists() or len(path.parts) > 1 or bool(path.suffix)


def _setting(word: str, text: str) -> tuple[str, object]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise BadInputError(f"{word!r} in the load {text!r} is not a setting; {_EXAMPLE}")
    try:
        # As a plan writes it, but for the quotation marks, which a shell would take away.
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value
