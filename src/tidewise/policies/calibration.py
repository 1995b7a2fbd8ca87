"""How far off the policy's own expectations were, and how much wider its margins have to be for that."""

from __future__ import annotations

import math

_PRIOR = 30.0
"""Expectations are taken to have been right so many times before the first one is checked."""
_FADES = 0.995
"""What a check weighs against the next one: the last two hundred or so decide."""
_FARTHEST = 6.0
"""Standard deviations; what is farther off than this is no expectation that was too narrow, but something else."""
_WIDEST = 3.0


class Calibration:
    """Follows how far above what was expected a latency came, in what was thought to be its spread.

    Expectations that are as good as they claim to be leave the margins as they are; better ones do not narrow them.
    """

    def __init__(self) -> None:
        self._squares = _PRIOR
        self._weight = _PRIOR

    def check(self, *, actual_s: float, expected_s: float, log_sd: float) -> None:
        """Take in what came of an expectation, given as a median and the spread of its logarithm."""
        off = math.log(max(1e-9, actual_s) / expected_s) / max(1e-6, log_sd)
        # What comes below its expectation breaks no promise; above it is one half of all that comes.
        square = 2.0 * min(_FARTHEST, max(0.0, off)) ** 2
        self._squares = _FADES * self._squares + square
        self._weight = _FADES * self._weight + 1.0

    @property
    def widening(self) -> float:
        """By how much wider margins are than the models say; at least 1."""
        return min(_WIDEST, math.sqrt(max(1.0, self._squares / self._weight)))
