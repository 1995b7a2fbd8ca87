"""Memory: what fills an executor at a rate, and how likely it is to run out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from tidewise.core import Configuration
from tidewise.qos.belief import Belief
from tidewise.qos.candidates import Candidates, Floats
from tidewise.qos.fit import Fit, fit, spread_of
from tidewise.qos.monotone import decreasing
from tidewise.qos.physics import Physics, parameters
from tidewise.qos.points import Points, Table

_WINDOW_SD = 0.05
_MISFIT_SD = 0.1
_USED, _STATE, _RATE = 0, 1, 2
"""Columns of a point: the logarithm of the used MiB of the fullest executor, the job's state, the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the points say: the parameters, the state as a line over the rate, and the spread around both."""

    fit: Fit
    state_mib: float
    state_mib_per_rate: float
    usual_rate_per_s: float
    spread: float


class Memory:
    """The working set of an executor: itself, its tasks, and its share of the state, which grows with the rate."""

    def __init__(self, physics: Physics) -> None:
        self._usual = (physics.executor_base_mib, physics.slot_mib, physics.state_skew)
        self._points = Points(3, always=(_USED, _RATE))
        self._known: _Known | None = None

    def learn(
        self, configuration: Configuration, rate_per_s: float, *, memory_share: float, state_mib: float | None
    ) -> None:
        """Take in one window."""
        if memory_share <= 0.0:
            return
        used = math.log(memory_share * configuration.memory_mib_per_executor)
        self._points.take(configuration, rate_per_s, (used, state_mib, rate_per_s))
        self._known = None

    def forget(self) -> None:
        """Go back to the prior: the program has changed."""
        self._points.clear()
        self._known = None

    def predict(self, candidates: Candidates, rate_per_s: float) -> Belief:
        """MiB in use on the fullest executor of each row."""
        known = self._refitted()

        def used(logs: Floats, rate: float) -> Floats:
            return _log_used(candidates, logs, known.state_mib + known.state_mib_per_rate * rate)

        mean = used(known.fit.logs, rate_per_s)
        # Judged at one rate for all: a spread that depended on it could make a higher rate look safer.
        sd = np.hypot(known.fit.sd_of(lambda logs: used(logs, known.usual_rate_per_s)), known.spread)
        return Belief(mean, sd)

    def out_of_memory_probability(self, candidates: Candidates, rate_per_s: float) -> Floats:
        """How likely the fullest executor needs more than it has; never more with more memory or executors."""
        used = self.predict(candidates, rate_per_s)
        return decreasing(candidates, 1.0 - used.probability_at_most(candidates.memory_mib_per_executor))

    def _refitted(self) -> _Known:
        if self._known is None:
            table = self._points.table()
            if table is None:
                fit_, spread = Fit.prior(self._usual), _MISFIT_SD
                self._known = _Known(
                    fit=fit_, state_mib=0.0, state_mib_per_rate=0.0, usual_rate_per_s=0.0, spread=spread
                )
            else:
                self._known = self._fitted(table)
        return self._known

    def _fitted(self, table: Table) -> _Known:
        rates = table.means[:, _RATE]
        with_state = table.weights[:, _STATE] > 0.0
        at_all, per_rate = 0.0, 0.0
        if with_state.any():
            states, weights = table.means[with_state, _STATE], np.sqrt(table.weights[with_state, _STATE])
            scale = max(1.0, float(rates.max()))
            line = np.column_stack((np.ones(len(states)), rates[with_state] / scale)) * weights[:, np.newaxis]
            (at_all, slope), _ = nnls(line, states * weights)
            at_all, per_rate = float(at_all), float(slope) / scale
        states = np.where(with_state, table.means[:, _STATE], at_all + per_rate * rates)
        seen = table.means[:, _USED]
        window_sd = table.within_sd(_USED, usual=_WINDOW_SD)

        def used(logs: Floats) -> Floats:
            return _log_used(table.candidates, logs, states)

        misfit = _MISFIT_SD
        found = Fit.prior(self._usual)
        for _ in range(2):
            sd = np.sqrt(misfit**2 + window_sd**2 / table.weights[:, _USED])
            found = fit(used, seen, sd, self._usual)
            misfit = spread_of(seen - used(found.logs), usual=_MISFIT_SD, spent=found.spent(self._usual))
        return _Known(
            fit=found,
            state_mib=at_all,
            state_mib_per_rate=per_rate,
            usual_rate_per_s=float(np.average(rates, weights=table.weights[:, _RATE])),
            spread=math.hypot(window_sd, misfit),
        )

    def save(self) -> dict[str, object]:
        """Plain data."""
        return self._points.save()

    @classmethod
    def load(cls, physics: Physics, saved: Mapping[str, object]) -> Memory:
        """The model as it was saved."""
        model = cls(physics)
        model._points.load(saved)
        return model


def _log_used(candidates: Candidates, logs: Floats, state_mib: Floats | float) -> Floats:
    base_mib, slot_mib, skew = parameters(logs)
    used = base_mib + slot_mib * candidates.slots_per_executor + skew * state_mib / candidates.executors
    return np.asarray(np.log(used), dtype=np.float64)
