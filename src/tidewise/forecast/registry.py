"""Forecasters by name, each made new at every call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from tidewise.core import BadInputError, Forecaster
from tidewise.core.readers import did_you_mean
from tidewise.forecast.arima import ARIMA
from tidewise.forecast.holt import HOLT, HOLT_WINTERS
from tidewise.forecast.ladder import LADDER
from tidewise.forecast.lines import DRIFT, LINE
from tidewise.forecast.naive import Naive
from tidewise.forecast.ridge import RIDGE, RIDGE_LONG, RIDGE_SEASON
from tidewise.forecast.rolling import RollingForecaster
from tidewise.forecast.seasonal_naive import SEASONAL_NAIVE

ENSEMBLE = (ARIMA, LADDER, RIDGE_LONG, HOLT_WINTERS, RIDGE_SEASON, SEASONAL_NAIVE)
"""The members of the ensemble: those without a season in them first."""


class SavedForecaster(Forecaster, Protocol):
    """A forecaster that can be put away as plain data."""

    def save(self) -> dict[str, object]:
        """All it has learnt, as numbers and lists."""

    def load(self, saved: Mapping[str, object]) -> None:
        """Go on from what `save` gave; BadInputError where that is something else."""


FORECASTERS: Mapping[str, Callable[[], SavedForecaster]] = {
    Naive.name: Naive,
    **{
        model.name: partial(RollingForecaster, name=model.name, members=(model,))
        for model in (DRIFT, LINE, HOLT, HOLT_WINTERS, ARIMA, LADDER, RIDGE, RIDGE_SEASON, SEASONAL_NAIVE)
    },
    "ensemble": partial(RollingForecaster, name="ensemble", members=ENSEMBLE),
}


def make_forecaster(name: str) -> SavedForecaster:
    """A new forecaster of this name; BadInputError where there is none."""
    if name not in FORECASTERS:
        raise BadInputError(f"there is no forecaster {name!r}{did_you_mean(name, FORECASTERS)}")
    return FORECASTERS[name]()


def load_forecaster(saved: Mapping[str, object]) -> SavedForecaster:
    """The forecaster that was saved, with its usual settings; BadInputError where it cannot be read."""
    forecaster = make_forecaster(str(saved.get("model")))
    forecaster.load(saved)
    return forecaster
