"""Every forecaster of the house keeps what the port promises."""

from __future__ import annotations

from tidewise.core import Forecaster
from tidewise.forecast import Naive
from tidewise.testing import ForecasterConformance


class TestNaive(ForecasterConformance):
    def make_forecaster(self) -> Forecaster:
        return Naive()


class TestNaiveWithLittleMemory(ForecasterConformance):
    def make_forecaster(self) -> Forecaster:
        return Naive(max_points=64, level_window_s=5.0, error_window_s=60.0)
