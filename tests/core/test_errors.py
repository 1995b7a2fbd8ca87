"""Errors tell by their type whether to give up, to try again or to wait."""

from __future__ import annotations

import pickle

import pytest

from tidewise.core import (
    BadInputError,
    ImpossibleChangeError,
    InvalidValueError,
    JournalVersionError,
    NotReadyError,
    PermanentError,
    TemporaryError,
    TidewiseError,
)


@pytest.mark.parametrize("kind", [InvalidValueError, BadInputError, ImpossibleChangeError, JournalVersionError])
def test_what_cannot_get_better_is_permanent(kind: type[Exception]) -> None:
    assert issubclass(kind, PermanentError)


def test_temporary_permanent_and_not_ready_are_three_things() -> None:
    kinds = [PermanentError, TemporaryError, NotReadyError]
    for kind in kinds:
        assert issubclass(kind, TidewiseError)
        assert not any(issubclass(kind, other) for other in kinds if other is not kind)


def test_an_invalid_value_is_a_value_error_too() -> None:
    assert issubclass(InvalidValueError, ValueError)  # pydantic turns those, and only those, into its own


def test_a_temporary_error_says_when_to_try_again_even_from_another_process() -> None:
    assert TemporaryError("busy").retry_after_s == 1.0
    copy = pickle.loads(pickle.dumps(TemporaryError("busy", retry_after_s=5.0)))  # noqa: S301 - our own bytes
    assert copy.retry_after_s == 5.0
    assert str(copy) == "busy"
