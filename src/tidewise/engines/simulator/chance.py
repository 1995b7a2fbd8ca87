"""Chance, drawn apart for every fault and every change, so that what a policy does leaves the others' luck alone."""

from __future__ import annotations

import math

import numpy as np

_FAULTS, _CHANGES = 4, 5


class Chance:
    """The luck of one event."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    @classmethod
    def of_fault(cls, seed: int, number: int) -> Chance:
        """The n-th fault of a seed is the same for every policy."""
        return cls(np.random.default_rng([seed, _FAULTS, number]))

    @classmethod
    def of_change(cls, seed: int, number: int) -> Chance:
        return cls(np.random.default_rng([seed, _CHANGES, number]))

    def spread(self, share: float) -> float:
        """A factor around 1, lognormal."""
        drawn = float(self._generator.standard_normal())
        return math.exp(share * drawn)

    def happens(self, share: float) -> bool:
        return bool(self._generator.random() < share)
