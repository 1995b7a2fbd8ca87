"""Whether a load has a season, and how long it is."""

from __future__ import annotations

import numpy as np

from tidewise.forecast.model import log_rates
from tidewise.forecast.series import Rates

_SHORTEST = 8
_SCALES = (2, 4, 8, 16, 32, 64, 128, 256)
"""Changes over as many samples are compared; each scale looks for seasons of 2 to 16 times its length."""
_LEAST = 0.4
"""A season explains at least as much: the correlation of changes a season apart."""
_SURE = 4.0
"""It lies as many standard deviations above what changes without a season would show."""
_AS_GOOD = 0.93
"""The shortest season that is nearly as good as the best is the season; the others are multiples of it."""


def find_season(rates: Rates) -> int | None:
    """The length of the season in samples, seen at least twice; None where chance could have made it.

    Changes of the load, not the load itself, are correlated with those a season before: slow wandering, which looks
    like a wave of any length, has changes that do not repeat.
    """
    if len(rates) < 3 * _SHORTEST or float(rates.max()) <= 0.0:
        return None
    logs = log_rates(rates)
    sums = np.concatenate([[0.0], np.cumsum(logs - logs.mean())])
    found: list[tuple[float, int]] = []
    for scale in _SCALES:
        if len(logs) < 10 * scale:
            break
        means = (sums[scale:] - sums[:-scale]) / scale
        changes = means[scale:] - means[:-scale]
        best = _repeats_after(changes, shortest=max(_SHORTEST, 2 * scale + 1), longest=16 * scale, scale=scale)
        if best is not None:
            found.append(best)
    if not found:
        return None
    most = max(found)[0]
    return min(length for strength, length in found if strength >= _AS_GOOD * most)


def _repeats_after(changes: Rates, *, shortest: int, longest: int, scale: int) -> tuple[float, int] | None:
    """How strongly changes repeat, and after how many samples; None where that may be chance."""
    count = len(changes)
    longest = min(longest, (count + 2 * scale) // 2)
    if longest <= shortest + 1:
        return None
    changes = changes - changes.mean()
    size = 1 << (2 * count - 1).bit_length()
    spectrum = np.fft.rfft(changes, size)
    products = np.fft.irfft(np.abs(spectrum) ** 2, size)[: longest + 2]
    squares = np.concatenate([[0.0], np.cumsum(changes**2)])
    lags = np.arange(longest + 2)
    # Each lag by the energy of the very samples it compares: without this, long lags look weak.
    energy = np.sqrt((squares[count] - squares[np.minimum(lags, count)]) * squares[np.maximum(count - lags, 0)])
    correlation = products / np.maximum(energy, 1e-12)
    inner = correlation[1:-1]
    peaks = np.flatnonzero((inner >= correlation[:-2]) & (inner > correlation[2:])) + 1
    peaks = peaks[(peaks >= shortest) & (peaks <= longest)]
    # Between two seasons lies their opposite; without it the peak is a ripple on something slower.
    lowest = np.minimum.accumulate(correlation[2 * scale :])
    peaks = peaks[lowest[peaks - 2 * scale] < 0.0]
    # Changes over `scale` samples overlap: so many fewer of them are independent.
    spread = np.sqrt(1.4 * scale / np.maximum(count - peaks, 1))
    sure = correlation[peaks] > np.maximum(_LEAST, np.minimum(_SURE * spread, 0.9))
    peaks, spread = peaks[sure], spread[sure]
    if not len(peaks):
        return None
    most = float(correlation[peaks].max())
    nearly = np.maximum((1.0 - _AS_GOOD) * most, 0.5 * spread)
    first = int(peaks[correlation[peaks] >= most - nearly][0])
    return float(correlation[first]), first
