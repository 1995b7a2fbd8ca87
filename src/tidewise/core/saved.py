"""What is asked of saved state before it is believed: its version, and that it is whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tidewise.core.errors import BadInputError


def check_format(saved: Mapping[str, object], *, version: int, what: str, instead: str) -> None:
    """Refuse what another version has saved; `what` opens the sentence ("the saved model has"), `instead` ends it."""
    if saved.get("format") != version:
        raise BadInputError(f"{what} format {saved.get('format')!r} and this version reads {version}: {instead}")


@contextmanager
def damage_told(*, what: str, instead: str) -> Iterator[None]:
    """Whatever damaged state trips over, as one sentence; `what` opens it ("the saved model is"), `instead` ends it."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as wrong:
        raise BadInputError(f"{what} damaged ({type(wrong).__name__}: {wrong}): {instead}") from wrong
