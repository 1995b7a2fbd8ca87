"""Events as JSON and back; a class of its own for each kind, so that an illegal event cannot be read in."""

from __future__ import annotations

import typing

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from tidewise.core import BadInputError, InvalidValueError, JournalEvent, PermanentError

_CLASSES: dict[str, type[JournalEvent]] = {each.__name__: each for each in typing.get_args(JournalEvent)}
_ADAPTERS: dict[str, TypeAdapter[JournalEvent]] = {name: TypeAdapter(each) for name, each in _CLASSES.items()}


def _plain(value: object) -> object:
    """Numbers of other libraries as Python's own: policies reckon with NumPy."""
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)


def encode(event: JournalEvent) -> tuple[str, str]:
    """The kind of an event and its body as JSON; numbers that are not finite become null, which is 'unknown'."""
    kind = type(event).__name__
    adapter = _ADAPTERS.get(kind)
    if adapter is None:
        raise PermanentError(f"A journal holds no {kind}.")
    try:
        return kind, adapter.dump_json(event, warnings=False, fallback=_plain).decode()
    except PydanticSerializationError as error:
        raise PermanentError(f"This {kind} cannot be written to the journal: {error}.") from error


def decode(kind: str, body: str, *, where: str) -> JournalEvent:
    """The event that was encoded; BadInputError names the place where one cannot be read."""
    adapter = _ADAPTERS.get(kind)
    if adapter is None:
        raise BadInputError(f"{where} holds an event of the unknown kind {kind!r}; the journal is damaged.")
    try:
        return adapter.validate_json(body)
    except (ValidationError, InvalidValueError) as error:
        first = str(error).splitlines()[0]
        raise BadInputError(f"{where} holds a {kind} that cannot be read ({first}); the journal is damaged.") from error
