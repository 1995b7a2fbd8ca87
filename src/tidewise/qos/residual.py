"""What the formulas leave unexplained, learnt from one configuration and expected of those like it."""

from __future__ import annotations

import math

import numpy as np

from tidewise.qos.candidates import Candidates, Floats
from tidewise.qos.gp import GaussianProcess

_FEWEST = 3
"""Configurations below which there is nothing to learn a shape from."""


class Residual:
    """A Gaussian process on logarithms, whose mean far from everything seen is zero; it never sees a rate."""

    def __init__(self, seen: Candidates, off: Floats, noise_sd: Floats, *, usual_sd: float) -> None:
        """`off`: seen less explained, one per row; rows of the same configuration are first averaged."""
        x, place = np.unique(seen.scaled, axis=0, return_inverse=True)
        place = place.reshape(-1)
        precision = 1.0 / np.maximum(noise_sd, 1e-6) ** 2
        total = np.bincount(place, weights=precision, minlength=len(x))
        mean = np.bincount(place, weights=precision * off, minlength=len(x)) / total
        self._usual_sd = usual_sd
        self._process: GaussianProcess | None = None
        self._noise_sd = 0.0
        self._stretch = 1.0
        self._last: tuple[Candidates, Floats, Floats] | None = None
        if len(x) >= _FEWEST:
            self._process = GaussianProcess.fit(
                x, mean, noise_sd=np.sqrt(1.0 / total), mean=0.0, usual_sd=usual_sd, starts=1
            )
            self._noise_sd = self._process.noise_sd
            self._stretch = _judged(self._process, mean)

    def predict(self, candidates: Candidates) -> tuple[Floats, Floats]:
        """Mean and spread of the logarithm that is left, per row, were the configuration tried once more."""
        if self._process is None:
            return np.zeros(len(candidates)), np.full(len(candidates), self._usual_sd)
        # The same table is asked about again and again, at other rates, which do not matter here.
        if self._last is None or self._last[0] is not candidates:
            mean, sd = self._process.predict(candidates.scaled)
            self._last = (candidates, mean, np.hypot(sd, self._noise_sd) * self._stretch)
        return self._last[1], self._last[2]


def _judged(process: GaussianProcess, values: Floats) -> float:
    """By how much the process is too sure of itself, judged on each configuration from all the others."""
    mean, sd = process.leave_one_out()
    squares = float((((values - mean) / np.maximum(sd, 1e-9)) ** 2).sum())
    # As if ten more configurations had been judged just right: few of them do not say much about spreads.
    return max(1.0, math.sqrt((10.0 + squares) / (10.0 + len(mean))))
