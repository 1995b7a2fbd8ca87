"""Forecasters: each says what load is to come, and how sure it is."""

from tidewise.forecast.naive import Naive
from tidewise.forecast.registry import FORECASTERS, SAMPLE_S, SavedForecaster, load_forecaster, make_forecaster
from tidewise.forecast.rolling import RollingForecaster
from tidewise.forecast.season import find_season

__all__ = [
    "FORECASTERS",
    "SAMPLE_S",
    "Naive",
    "RollingForecaster",
    "SavedForecaster",
    "find_season",
    "load_forecaster",
    "make_forecaster",
]
