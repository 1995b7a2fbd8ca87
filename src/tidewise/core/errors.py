"""What can go wrong, by what the caller should do about it: give up, try again, or wait."""

from __future__ import annotations


class TidewiseError(Exception):
    """Base of every error that Tidewise raises on purpose; its text is one sentence for a person."""


class PermanentError(TidewiseError):
    """Trying again cannot help: the request itself has to change."""


class InvalidValueError(PermanentError, ValueError):
    """A value that no object of the vocabulary may hold."""


class BadInputError(PermanentError):
    """A file, option or plan of the user is wrong; says what, where and what to write instead."""


class ImpossibleChangeError(PermanentError):
    """No mechanism that the engine offers can carry a configuration over to another."""


class JournalVersionError(PermanentError):
    """The journal was written by a version whose format this one does not read."""


class TemporaryError(TidewiseError):
    """The same call may succeed later."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotReadyError(TidewiseError):
    """There is too little data yet; nothing is wrong, and nobody needs to hear of it."""
