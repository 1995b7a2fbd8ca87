"""What is asked of a saved forecaster before it is believed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tidewise.core import BadInputError

FORMAT = 1
"""The version of what forecasters save."""


def check_saved(saved: Mapping[str, object], *, model: str) -> None:
    """Refuse a saved forecaster of another version or another model."""
    if saved.get("format") != FORMAT:
        raise BadInputError(
            f"the saved forecaster has format {saved.get('format')!r} and this version reads {FORMAT}: "
            "let the forecaster learn anew"
        )
    if saved.get("model") != model:
        raise BadInputError(f"the saved forecaster is a {saved.get('model')!r}, not a {model!r}: load it into its own")


@contextmanager
def damage_told(model: str) -> Iterator[None]:
    """Whatever a damaged state trips over, as one sentence."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as wrong:
        raise BadInputError(
            f"the saved forecaster {model!r} is damaged ({type(wrong).__name__}: {wrong}): let it learn anew"
        ) from wrong
