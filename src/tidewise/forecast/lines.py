"""The simplest models: the level of the last half hour, the drift of the last hour, a line through the last minutes."""

from __future__ import annotations

import numpy as np

from tidewise.forecast.model import STEPS, Model
from tidewise.forecast.series import Rates

_LEVEL_SAMPLES = 30
_DRIFT_SAMPLES = 60
_LINE_SAMPLES = 9
"""540 s at a sample a minute, as TidalScale's short-term prediction has it."""

_AHEAD = np.arange(1, STEPS + 1)


def _level(rates: Rates, _season: int | None) -> Rates:
    return np.full(STEPS, np.median(rates[-_LEVEL_SAMPLES:]))


def _drift(rates: Rates, _season: int | None) -> Rates:
    recent = rates[-_DRIFT_SAMPLES:]
    return np.asarray(np.maximum(recent[-1] + _AHEAD * (recent[-1] - recent[0]) / (len(recent) - 1), 0.0))


def _line(rates: Rates, _season: int | None) -> Rates:
    recent = rates[-_LINE_SAMPLES:]
    place = np.arange(len(recent)) - (len(recent) - 1) / 2.0
    slope = float(place @ recent) / float(place @ place)
    return np.asarray(np.maximum(recent.mean() + slope * (place[-1] + _AHEAD), 0.0))


LEVEL = Model(name="level", predict=_level, needs=3)
"""The best of all where short bursts rise above a steady load: a median follows none of them."""
DRIFT = Model(name="drift", predict=_drift, needs=3)
LINE = Model(name="line", predict=_line, needs=3)
