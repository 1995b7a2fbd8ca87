"""Saved models: plain data with a version, and what is asked of it before it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import fields

from tidewise.core import Configuration
from tidewise.core import saved as saved_state

FORMAT = 1
"""The version of what models of quality save."""
_FIELDS = tuple(field.name for field in fields(Configuration))


def configuration_plain(configuration: Configuration) -> dict[str, object]:
    """A configuration as a JSON file can hold it."""
    plain: dict[str, object] = {name: getattr(configuration, name) for name in _FIELDS}
    plain["settings"] = [list(pair) for pair in configuration.settings]
    return plain


def configuration_from(plain: Mapping[str, object]) -> Configuration:
    """What `configuration_plain` gave."""
    values = dict(plain)
    values["settings"] = tuple((str(name), str(value)) for name, value in values["settings"])  # type: ignore[attr-defined]  # a TypeError is what damage should give
    return Configuration(**values)  # type: ignore[arg-type]  # checked by Configuration itself


def check_format(saved: Mapping[str, object]) -> None:
    """Refuse a model of another version."""
    saved_state.check_format(saved, version=FORMAT, what="the saved model of quality has", instead="let it learn anew")


def damage_told() -> AbstractContextManager[None]:
    """Whatever a damaged model trips over, as one sentence."""
    return saved_state.damage_told(what="the saved model of quality is", instead="let it learn anew")
