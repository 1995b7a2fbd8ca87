"""The load of the next minutes as Phoebe and its baseline saw it: one ARIMA model on samples of one length."""

from __future__ import annotations

import math

from tidewise.core import Observation
from tidewise.forecast.arima import ARIMA
from tidewise.forecast.series import RateSeries, filled
from tidewise.host.threads import on_one_thread

_KEPT = 1000
"""As many samples as the model looks at."""


class LoadAhead:
    """Learns from every report at next to no cost; the model is fitted when it is asked, once for every sample.

    The forecasters of the house judge themselves by their past forecasts, to know how far they may be off. Phoebe did
    not ask for that, and it would cost several times as much.
    """

    def __init__(self, *, sample_s: float) -> None:
        """`sample_s`: over how long each rate is a mean, of those that are learnt from and of those to come."""
        self.step_s = sample_s
        self._series = RateSeries(sample_s=sample_s, keep=_KEPT)
        self._made_at: tuple[int, int] | None = None
        self._path: tuple[float, ...] | None = None

    def learn(self, observation: Observation) -> None:
        """Take one report in; one that is not later than the last is ignored."""
        self._series.add(observation)

    def path_per_s(self, horizon_s: float) -> tuple[float, ...] | None:
        """The rates after the last complete sample, step by step; None while too little is known."""
        made_at = self._series.epoch, self._series.count
        if self._made_at != made_at:
            self._made_at, self._path = made_at, self._fitted()
        if self._path is None:
            return None
        steps = max(1, math.ceil(horizon_s / self.step_s - 1e-9))
        return self._path[:steps] + self._path[-1:] * (steps - len(self._path))

    @on_one_thread
    def _fitted(self) -> tuple[float, ...] | None:
        rates = filled(self._series.history(until=self._series.count, at_most=_KEPT))
        path = ARIMA.path(rates, None)
        return None if path is None else tuple(path.tolist())
