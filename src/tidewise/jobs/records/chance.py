"""Chance that can be repeated: bits that depend on a seed and an ordinal only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidewise.jobs.schedule import Whole

Bits = NDArray[np.uint64]


def mixed(ordinals: Whole, *, seed: int) -> Bits:
    """Sixty-four bits per ordinal that look independent: SplitMix64 at position `ordinal`, shifted by the seed."""
    word = (seed * 0xD1342543DE82EF95 + 0x9E3779B97F4A7C15) % 2**64
    bits = ordinals.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(word)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def below(bits: Bits, count: int, *, shift: int) -> Whole:
    """Whole numbers from 0 to just below `count` (at most 65,536), from the sixteen bits after `shift`."""
    return (((bits >> np.uint64(shift)) & np.uint64(0xFFFF)) % np.uint64(count)).astype(np.int64)


def shares(bits: Bits, *, shift: int) -> NDArray[np.float64]:
    """Numbers from 0 to just below 1, from the thirty-two bits after `shift`."""
    return ((bits >> np.uint64(shift)) & np.uint64(0xFFFFFFFF)).astype(np.float64) / 2**32


def among(bits: Bits, counts: Whole | int, *, shift: int) -> Whole:
    """Whole numbers from 0 to just below each count (at most 2^32), from the thirty-two bits after `shift`."""
    part = (bits >> np.uint64(shift)) & np.uint64(0xFFFFFFFF)
    return ((part * np.asarray(counts, dtype=np.uint64)) >> np.uint64(32)).astype(np.int64)
