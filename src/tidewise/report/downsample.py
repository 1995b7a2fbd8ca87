"""Fewer points than seconds, so that a page of many hours stays small and quick."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_POINTS = 1500
_WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)

Reduce = Callable[..., npt.NDArray[np.float64]]


def bin_width_s(seconds: int) -> int:
    """The smallest round width that leaves no more than `MOST_POINTS`."""
    for width in _WIDTHS_S:
        if seconds <= width * MOST_POINTS:
            return width
    return -(-seconds // MOST_POINTS)


def binned(values: npt.NDArray[Any], width: int, reduce: Reduce) -> npt.NDArray[np.float32]:
    """One value per bin of so many seconds; NaN only where a whole bin has none."""
    padded = np.full(-(-values.size // width) * width, np.nan)
    padded[: values.size] = values
    with warnings.catch_warnings():
        # A bin without a value is what the result says with NaN.
        warnings.simplefilter("ignore", RuntimeWarning)
        return reduce(padded.reshape(-1, width), axis=1).astype(np.float32)


def steps(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The seconds in which a value became another, the first and the last of all included."""
    return np.unique(np.concatenate(([0], np.flatnonzero(np.diff(values)) + 1, [values.size - 1])))


def thinned(count: int, most: int = MOST_POINTS) -> npt.NDArray[np.int64]:
    """Which of so many points to keep, evenly."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))
