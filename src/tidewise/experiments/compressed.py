"""A long time shown in a short one: the same load faster, and dearer, so that it costs what the long one would."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tidewise.core import Prices
from tidewise.workload import Rates


def compressed_rates(rates_per_s: Rates, seconds: int) -> Rates:
    """The same course in so many seconds: each has the mean rate of what it shows."""
    length = len(rates_per_s)
    arrived = np.concatenate(([0.0], np.cumsum(rates_per_s)))
    edges = np.linspace(0.0, length, seconds + 1)
    return np.diff(np.interp(edges, np.arange(length + 1), arrived)) * (seconds / length)


def compressed_prices(prices: Prices, factor: float) -> Prices:
    """What a second costs that shows so many."""
    return replace(prices, core_hour=prices.core_hour * factor, gib_hour=prices.gib_hour * factor)
