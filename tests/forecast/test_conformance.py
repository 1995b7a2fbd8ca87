"""Every forecaster of the house keeps what the port promises."""

from __future__ import annotations

from tidewise.core import Forecaster
from tidewise.forecast import Naive, RollingForecaster, make_forecaster
from tidewise.forecast.registry import ENSEMBLE
from tidewise.testing import ForecasterConformance


class TestNaive(ForecasterConformance):
    def make_forecaster(self) -> Forecaster:
        return Naive()


class TestNaiveWithLittleMemory(ForecasterConformance):
    def make_forecaster(self) -> Forecaster:
        return Naive(max_points=64, level_window_s=5.0, error_window_s=60.0)


class RollingConformance(ForecasterConformance):
    """They compare hundreds of past forecasts with what came, at every forecast."""

    forecast_limit_s = 0.1  # 14 ms on a quiet core; the tests may share theirs with others
    state_growth = 2.0  # 20,000 seconds are 333 samples: its memory is bounded, and not full yet
    model: str

    def make_forecaster(self) -> Forecaster:
        return make_forecaster(self.model)


class TestLevel(RollingConformance):
    model = "level"


class TestDrift(RollingConformance):
    model = "drift"


class TestLine(RollingConformance):
    model = "line"


class TestHolt(RollingConformance):
    model = "holt"


class TestHoltWinters(RollingConformance):
    model = "holt-winters"


class TestArima(RollingConformance):
    model = "arima"


class TestLadder(RollingConformance):
    model = "ladder"


class TestRidge(RollingConformance):
    model = "ridge"


class TestRidgeSeason(RollingConformance):
    model = "ridge-season"


class TestSeasonalNaive(RollingConformance):
    model = "seasonal-naive"


class TestEnsemble(RollingConformance):
    model = "ensemble"


class TestEnsembleWithLittleMemory(RollingConformance):
    state_growth = 1.1  # a minute of memory is full

    def make_forecaster(self) -> Forecaster:
        return RollingForecaster(
            name="ensemble", members=ENSEMBLE, sample_s=5.0, max_samples=120, max_origins=20, remembered=10
        )
