"""A policy in one line of text, as a command takes it: a name, and its settings."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue, ValidationError

from tidewise.core import BadInputError
from tidewise.experiments.plan import PolicyTable
from tidewise.policies import BestFixed, make_policy

_WRONG_PREFIX = "Value error, "


def words_of_policy(text: str) -> tuple[str, dict[str, JsonValue]]:
    """The name and the settings of a line such as `ds2:target_utilisation=0.7,stabilisation=30s`."""
    name, _, written = text.partition(":")
    settings: dict[str, JsonValue] = {}
    for part in filter(None, written.split(",")):
        key, equals, value = part.partition("=")
        if not (key.strip() and equals and value.strip()):
            raise BadInputError(f"--policy {text}: write settings like ds2:target_utilisation=0.7,stabilisation=30s")
        settings[key.strip()] = plain_value(value.strip())
    return name, settings


def policy_of(text: str, *, usual: Mapping[str, JsonValue] | None = None, label: str | None = None) -> PolicyTable:
    """The policy of such a line; BadInputError, and nothing else, for whatever is wrong with it.

    `usual`: its settings where the line has none.
    """
    name, given = words_of_policy(text)
    try:
        table = PolicyTable.model_validate({"policy": name, "name": label, **(given or usual or {})})
    except ValidationError as error:
        raise BadInputError(f"--policy {text}: {error.errors()[0]['msg'].removeprefix(_WRONG_PREFIX)}") from error
    if name != BestFixed.name:  # made from what a run was like, which is not known yet
        make_policy(name, table.settings)
    return table


def plain_value(text: str) -> JsonValue:
    """A number, true or false where it is one; else the text."""
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | bool | list) else text
