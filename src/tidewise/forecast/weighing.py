"""How the members of an ensemble are weighed, and how wide an interval must be: both by errors that were made."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tidewise.core import MEDIAN
from tidewise.forecast.series import Rates

_OUTER = 0.45
"""How far 0.05 and 0.95 are from the median: the levels at which the early spread is meant."""
_BESIDE = 2
"""How many steps to either side a member is judged by as well."""
_OVERLAP = 5.0
"""Errors so many samples ahead are worth half of independent ones."""


def what_came(after: Rates, *, steps: int) -> Rates:
    """What followed each origin, a row each: the first lies before these samples, the last after; NaN: to come."""
    return sliding_window_view(np.concatenate([after, np.full(steps, np.nan)]), steps)


def blended(paths: Rates, came: Rates, *, remembered: int, power: float) -> Rates:
    """One path per origin, the weighted geometric mean of its members'.

    Weights are the recent errors to a negative power. At each origin, and for each step, only errors count that were
    known by then; what a member has shown at the steps beside counts too, so that weights do not jump. `paths` has a
    row per origin, then per member; NaN where a member had nothing to say.
    """
    origins, members, steps = paths.shape
    if members == 1:
        return paths[:, 0, :]
    errors = np.abs(paths - came[:, None, :])
    known = np.full((origins, members, steps), np.nan)
    for step in range(min(steps, origins - 1)):
        # The error of origin j at step k is known at origin j + k + 1.
        known[step + 1 :, :, step] = errors[: origins - step - 1, :, step]
    counted = ~np.isnan(known)
    beside = 1.0 * (np.abs(np.subtract.outer(np.arange(steps), np.arange(steps))) <= _BESIDE)
    sums = _recent_sums(np.where(counted, known, 0.0), remembered) @ beside
    counts = _recent_sums(counted * 1.0, remembered) @ beside
    said = ~np.isnan(paths)
    mean = sums / np.maximum(counts, 1.0)
    # A member that has not been judged yet counts as little as the worst; where none was judged, all are equal.
    worst = np.where(said, mean, 0.0).max(axis=1, keepdims=True)
    mean = np.where(counts > 0.5, mean, worst)
    floor = 1e-3 * worst + 1e-12
    weights = np.where(said, (mean + floor) ** -power, 0.0)
    weights /= weights.sum(axis=1, keepdims=True)
    # Geometric: where loads are skewed, one member that expects a spike must not carry all the others with it.
    logs = np.log(np.where(said, np.maximum(paths, 1e-9), 1.0))
    return np.asarray(np.exp((weights * logs).sum(axis=1)))


def _recent_sums(values: Rates, remembered: int) -> Rates:
    """Sums over the latest rows up to each."""
    sums = np.cumsum(values, axis=0)
    sums[remembered:] -= sums[:-remembered].copy()
    return np.maximum(sums, 0.0)  # what is left of a spike that was taken away may be below nothing


def widths(errors: Rates, levels: tuple[float, ...], *, reach: Rates, early: Rates, least_errors: int) -> Rates:
    """How far each level lies from the median, for every step: quantiles of the errors, a row of them per origin.

    Rolling conformal prediction, with its correction for a finite number of errors; errors far ahead (`reach`, in
    samples) overlap and count for fewer. Where too few are known the early spread holds, meant at 0.05 and 0.95, and
    no step is surer than a nearer one that could be judged.
    """
    known = np.count_nonzero(~np.isnan(errors), axis=0)
    ordered = np.sort(errors, axis=0)  # the unknown last
    trusted = known >= least_errors
    columns = np.arange(errors.shape[1])
    corrected = (1.0 + reach / _OVERLAP) / np.maximum(known, 1)
    offsets = np.zeros((len(levels), errors.shape[1]))
    for row, level in enumerate(levels):
        if level == MEDIAN:
            continue
        upper = level > MEDIAN
        beyond = np.maximum(min(level, 1.0 - level) - corrected, 0.0)
        rank = np.ceil(known * (1.0 - beyond)) if upper else np.floor(known * beyond) + 1
        index = np.clip(rank.astype(np.int64) - 1, 0, np.maximum(known - 1, 0))
        signed = ordered[index, columns] if upper else -ordered[index, columns]
        found = np.fmax(signed, 0.0)  # on the other side of the median, or unknown: nothing
        judged = np.maximum.accumulate(np.where(trusted, found, 0.0))
        width = np.where(trusted, found, np.maximum(judged, early * abs(level - MEDIAN) / _OUTER))
        offsets[row] = width if upper else -width
    return np.maximum.accumulate(offsets, axis=0)
