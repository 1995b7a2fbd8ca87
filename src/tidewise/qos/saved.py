"""Saved models: plain data with a version, and what is asked of it before it is believed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict

from tidewise.core import BadInputError, Configuration, InvalidValueError

FORMAT = 1
"""The version of what models of quality save."""


def configuration_plain(configuration: Configuration) -> dict[str, object]:
    """A configuration as a JSON file can hold it."""
    plain = asdict(configuration)
    plain["settings"] = [list(pair) for pair in configuration.settings]
    return plain


def configuration_from(plain: Mapping[str, object]) -> Configuration:
    """What `configuration_plain` gave."""
    values = dict(plain)
    values["settings"] = tuple((str(name), str(value)) for name, value in values["settings"])  # type: ignore[attr-defined]  # a TypeError is what damage should give
    return Configuration(**values)  # type: ignore[arg-type]  # checked by Configuration itself


def check_format(saved: Mapping[str, object]) -> None:
    """Refuse a model of another version."""
    if saved.get("format") != FORMAT:
        raise BadInputError(
            f"the saved model of quality has format {saved.get('format')!r} and this version reads {FORMAT}: "
            "let it learn anew"
        )


@contextmanager
def damage_told() -> Iterator[None]:
    """Whatever a damaged model trips over, as one sentence."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, InvalidValueError) as wrong:
        raise BadInputError(
            f"the saved model of quality is damaged ({type(wrong).__name__}: {wrong}): let it learn anew"
        ) from wrong
