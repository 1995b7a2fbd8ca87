"""What it takes to help a job that would not get over a failure in time: a change, though that stops it once more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from tidewise.qos import Floats

_LUCK = 0.25
"""How far (in its logarithm) the time may be off that a change, or what is left of a recovery, takes."""
_LOADS = np.array([0.06, 0.1, 0.15, 0.22, 0.3, 0.4])
"""Utilisations to which a job may be moved so that it catches up sooner."""
_LONGER = 1.2
"""What is too long is longer, on average, than what is just too long: by so much."""
_LEAST_S = 1e-9


def too_long(takes_s: Floats, left_s: float) -> Floats:
    """Chance that what is expected to take so long takes longer than what is left."""
    return np.asarray(ndtr(np.log(np.maximum(takes_s, _LEAST_S) / max(left_s, _LEAST_S)) / _LUCK), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescue:
    """How a job that is behind can be moved."""

    stops_s: float
    """How long the change takes."""
    shows_s: float
    """How long it takes to show that the job is up again, which is when it is changed."""
    held_s: float
    """How long it is left where it was moved to."""

    def in_vain(self, load: Floats, load_there: Floats, *, limit_s: float) -> Floats:
        """Chance that the change comes too late for a recovery that would take too long without it.

        load, load_there: utilisations of what runs and of what the job is moved to. limit_s: what is left of the
        promised time when a failure shows.

        A recovery that takes just too long is one of a job that was down for all of the time but for what catching up
        with it takes: (1 - u) of it. After that, and the change, what it was moved to has to catch up in what is left.
        """
        down_s = _LONGER * limit_s * (1.0 - np.minimum(load, 1.0))
        longest_s = (limit_s - self.shows_s) * (1.0 - np.minimum(load_there, 1.0)) - down_s
        late = -np.log(np.maximum(longest_s, _LEAST_S) / max(self.stops_s, _LEAST_S)) / _LUCK
        return np.asarray(ndtr(late), dtype=np.float64)

    def least_cost(
        self,
        log_rates: Floats,
        log_capacity: Floats,
        cost_per_s: Floats,
        *,
        limit_s: float,
        broken_cost: float,
        change_cost: float,
    ) -> Floats:
        """Rows x the shape of the rates: what a recovery that takes too long costs, at the best that can be done.

        log_capacity, cost_per_s: one for each row, any of which may be moved to. broken_cost: of a promise that is
        broken. change_cost: of the changes there and back.
        """
        order = np.argsort(log_capacity)
        # The cheapest of all that can process as much.
        cheapest = np.append(np.minimum.accumulate(cost_per_s[order][::-1])[::-1], np.inf)
        shape = (-1,) + (1,) * log_rates.ndim
        load = np.exp(log_rates[np.newaxis, ...] - log_capacity.reshape(shape))
        least = np.full(load.shape, broken_cost)
        for there in _LOADS:
            place = np.searchsorted(log_capacity[order], log_rates - np.log(there))
            paid = change_cost + self.held_s * cheapest[place]
            if not np.isfinite(paid).any():
                continue
            vain = self.in_vain(load, np.asarray(there), limit_s=limit_s)
            np.minimum(least, broken_cost * vain + paid, out=least)
        return least
