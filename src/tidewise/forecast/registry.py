"""Forecasters by name, each made new at every call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from tidewise.core import BadInputError, Forecaster
from tidewise.core.readers import did_you_mean
from tidewise.forecast.arima import ARIMA
from tidewise.forecast.holt import HOLT, HOLT_WINTERS
from tidewise.forecast.ladder import LADDER
from tidewise.forecast.lines import DRIFT, LEVEL, LINE
from tidewise.forecast.naive import Naive
from tidewise.forecast.ridge import RIDGE, RIDGE_LONG, RIDGE_SEASON
from tidewise.forecast.rolling import RollingForecaster
from tidewise.forecast.seasonal_naive import SEASONAL_NAIVE

SAMPLE_S = 60.0
"""Over how long forecasters average rates, where nothing else is asked for."""
ENSEMBLE = (LEVEL, ARIMA, LADDER, RIDGE_LONG, HOLT_WINTERS, RIDGE_SEASON, SEASONAL_NAIVE)
"""The members of the ensemble: those without a season in them first."""


class SavedForecaster(Forecaster, Protocol):
    """A forecaster that can be put away as plain data."""

    def save(self) -> dict[str, object]:
        """All it has learnt, as numbers and lists."""

    def load(self, saved: Mapping[str, object]) -> None:
        """Go on from what `save` gave; BadInputError where that is something else."""


class Maker(Protocol):
    """Makes a forecaster with samples of this length, which is no shorter than the reports it will learn."""

    def __call__(self, *, sample_s: float) -> SavedForecaster:
        """A new one at every call."""


def _naive(*, sample_s: float) -> Naive:
    return Naive(level_window_s=max(SAMPLE_S, sample_s))


FORECASTERS: Mapping[str, Maker] = {
    Naive.name: _naive,
    **{
        model.name: partial(RollingForecaster, name=model.name, members=(model,))
        for model in (LEVEL, DRIFT, LINE, HOLT, HOLT_WINTERS, ARIMA, LADDER, RIDGE, RIDGE_SEASON, SEASONAL_NAIVE)
    },
    "ensemble": partial(RollingForecaster, name="ensemble", members=ENSEMBLE),
}


def make_forecaster(name: str, *, sample_s: float = SAMPLE_S) -> SavedForecaster:
    """A new forecaster of this name, for reports no longer than its samples; BadInputError where there is none."""
    if name not in FORECASTERS:
        raise BadInputError(f"there is no forecaster {name!r}{did_you_mean(name, FORECASTERS)}")
    return FORECASTERS[name](sample_s=sample_s)


def load_forecaster(saved: Mapping[str, object], *, sample_s: float = SAMPLE_S) -> SavedForecaster:
    """The forecaster that was saved; BadInputError where it cannot be read, or has samples of another length."""
    forecaster = make_forecaster(str(saved.get("model")), sample_s=sample_s)
    forecaster.load(saved)
    return forecaster
