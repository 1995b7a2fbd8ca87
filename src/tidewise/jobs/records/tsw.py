"""The ticks of the top-speed benchmark: cars that tell, second by second, how fast and how far they went."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa

from tidewise.jobs.records.chance import below, mixed
from tidewise.jobs.schedule import Whole

CARS = 100
TICK_S = 1.0
"""The driving time that a tick stands for, however fast ticks are sent."""
TICKS_PER_ROUND = 400
"""After so many ticks a car drives as it did before; its distance goes on growing."""
REPEATS_AFTER = CARS * TICKS_PER_ROUND
"""A record has the car and the speed of the one so many before it."""

_MOST_KMH = 100
_STEP_KMH = 5
_CM_PER_KMH = TICK_S * 100 / 3.6


def values(ordinals: Whole, *, seed: int) -> list[pa.Array]:
    """The columns `car`, `speed` (km/h) and `distance` (metres since the start, to the centimetre)."""
    speeds, driven = _round(seed)
    ticks, cars = np.divmod(ordinals, CARS)
    rounds, tick = np.divmod(ticks, TICKS_PER_ROUND)
    kmh = rounds * driven[cars, -1] + driven[cars, tick]
    return [
        pa.array(cars.astype(np.int32)),
        pa.array(speeds[cars, tick].astype(np.int32)),
        pa.array(np.rint(kmh * _CM_PER_KMH) / 100.0),
    ]


@functools.lru_cache(maxsize=16)
def _round(seed: int) -> tuple[Whole, Whole]:
    """The speed of each car at each tick of a round, and their sums: a random walk there, and the same way back."""
    half = TICKS_PER_ROUND // 2
    chance = mixed(np.arange(CARS * (half + 1)), seed=seed).reshape(CARS, half + 1)
    moves = np.where(below(chance, 2, shift=0) == 0, -_STEP_KMH, _STEP_KMH)
    there = np.empty_like(moves)
    there[:, 0] = below(chance[:, 0], _MOST_KMH // _STEP_KMH + 1, shift=16) * _STEP_KMH
    for tick in range(1, half + 1):
        before, move = there[:, tick - 1], moves[:, tick]
        fits = (before + move >= 0) & (before + move <= _MOST_KMH)
        # At its bounds a car can only turn round.
        there[:, tick] = np.where(fits, before + move, before - move)
    speeds = np.concatenate((there[:, :-1], there[:, :0:-1]), axis=1)
    return speeds, np.cumsum(speeds, axis=1)
