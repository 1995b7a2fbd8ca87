"""Whether a load has a season, and how long it is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

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
"""A share of the best: as good as that is nearly as good."""


def find_season(rates: Rates) -> int | None:
    """The length of the season in samples, seen at least twice; None where chance could have made it.

    Changes of the load, not the load itself, are correlated with those a season before: slow wandering, which looks
    like a wave of any length, has changes that do not repeat.
    """
    if len(rates) < 3 * _SHORTEST or float(rates.max()) <= 0.0:
        return None
    logs = log_rates(rates)
    sums = np.concatenate([[0.0], np.cumsum(logs - logs.mean())])
    found: list[tuple[int, int]] = []
    for scale in _SCALES:
        if len(logs) < 10 * scale:
            break
        length = _repeats_after(_changes(sums, scale), scale)
        if length is not None:
            found.append((length, scale))
    if not found:
        return None
    # Coarser changes always repeat better: the candidates are compared by the finest of them.
    finest = found[0][1]
    correlation = _correlations(_changes(sums, finest), max(found)[0])
    return _shortest_as_good(np.unique([length for length, _ in found]), correlation, finest, len(logs))


def _changes(sums: Rates, scale: int) -> Rates:
    """How much higher the mean of so many samples is than that of those before."""
    means = (sums[scale:] - sums[:-scale]) / scale
    return np.asarray(means[scale:] - means[:-scale])


def _correlations(changes: Rates, longest: int) -> Rates:
    """How strongly changes repeat after 0, 1, ... samples."""
    count = len(changes)
    changes = changes - changes.mean()
    # Long enough that nothing goes round into the lags that are looked at.
    size = next_fast_len(count + longest + 2, real=True)
    waves = rfft(changes, size)
    products = irfft(waves.real**2 + waves.imag**2, size)[: longest + 2]
    squares = np.concatenate([[0.0], np.cumsum(changes**2)])
    lags = np.arange(len(products))
    # Each lag by the energy of the very samples it compares: without this, long lags look weak.
    energy = np.sqrt((squares[count] - squares[np.minimum(lags, count)]) * squares[np.maximum(count - lags, 0)])
    return np.asarray(products / np.maximum(energy, 1e-12))


def _repeats_after(changes: Rates, scale: int) -> int | None:
    """After how many samples changes repeat; None where that may be chance."""
    count = len(changes)
    shortest, longest = max(_SHORTEST, 2 * scale + 1), min(16 * scale, (count + 2 * scale) // 2)
    if longest <= shortest + 1:
        return None
    correlation = _correlations(changes, longest)
    inner = correlation[1:-1]
    peaks = np.flatnonzero((inner >= correlation[:-2]) & (inner > correlation[2:])) + 1
    peaks = peaks[(peaks >= shortest) & (peaks <= longest)]
    # Between two seasons lies their opposite; without it the peak is a ripple on something slower.
    lowest = np.minimum.accumulate(correlation[2 * scale :])
    peaks = peaks[lowest[peaks - 2 * scale] < 0.0]
    # Changes over `scale` samples overlap: so many fewer of them are independent.
    spread = np.sqrt(1.4 * scale / np.maximum(count - peaks, 1))
    peaks = peaks[correlation[peaks] > np.maximum(_LEAST, np.minimum(_SURE * spread, 0.9))]
    return _shortest_as_good(peaks, correlation, scale, count) if len(peaks) else None


def _shortest_as_good(lengths: NDArray[np.int64], correlation: Rates, scale: int, count: int) -> int:
    """The shortest of these, in order, that is nearly as good as the best: the longer may be multiples of it."""
    strength = correlation[lengths]
    most = float(strength.max())
    nearly = max((1.0 - _AS_GOOD) * most, float(np.sqrt(1.4 * scale / count)))
    return int(lengths[strength >= most - nearly][0])
