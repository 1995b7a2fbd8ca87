"""Small regressions, thousands of them: straight to LAPACK, without what numpy does around a single one."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dposv

from tidewise.forecast.series import Rates


def before(values: Rates, lags: int) -> Rates:
    """The values 1, 2, ... samples before, a row for each lag; zeros before the first."""
    rows = np.zeros((lags, len(values)))
    for lag in range(1, lags + 1):
        rows[lag - 1, lag:] = values[:-lag]
    return rows


def solved(gram: Rates, right: Rates) -> Rates:
    """The weights that a positive matrix of products turns into this right side."""
    _, weights, wrong = dposv(gram, right)
    # What rounding made not quite positive has a solution all the same.
    return np.asarray(weights if wrong == 0 else np.linalg.solve(gram, right), dtype=np.float64)
