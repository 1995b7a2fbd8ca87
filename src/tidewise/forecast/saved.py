"""What is asked of a saved forecaster before it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from tidewise.core import BadInputError
from tidewise.core import saved as saved_state

FORMAT = 1
"""The version of what forecasters save."""


def check_saved(saved: Mapping[str, object], *, model: str) -> None:
    """Refuse a saved forecaster of another version or another model."""
    saved_state.check_format(
        saved, version=FORMAT, what="the saved forecaster has", instead="let the forecaster learn anew"
    )
    if saved.get("model") != model:
        raise BadInputError(f"the saved forecaster is a {saved.get('model')!r}, not a {model!r}: load it into its own")


def damage_told(model: str) -> AbstractContextManager[None]:
    """Whatever a damaged state trips over, as one sentence."""
    return saved_state.damage_told(what=f"the saved forecaster {model!r} is", instead="let it learn anew")
