"""Latency: the wait for the trigger, the batch, the queues near saturation, and the backlog beyond it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tidewise.core import Configuration, InvalidValueError
from tidewise.qos.belief import Belief
from tidewise.qos.candidates import Candidates, Floats, Integers
from tidewise.qos.capacity import GUARD, Capacity
from tidewise.qos.fit import Fit, fit, spread_of
from tidewise.qos.monotone import decreasing, highest_of_less
from tidewise.qos.physics import Physics, parameters
from tidewise.qos.points import Points, Table
from tidewise.qos.residual import Residual

LEVELS = (0.5, 0.95, 0.99)
_LEVEL_SHARES = np.array(LEVELS)
_LEAST_LOGS = np.array([-np.inf, -np.inf, -np.inf, 0.0, 0.0])
"""Of the five parameters: no percentile is below a lower one."""
FULLEST = 0.98
"""Utilisation beyond which queues are not reckoned with any more but the backlog that grows."""
_MEDIUM = 0.5
"""The utilisation at which the spread of the parameters is judged: a spread must not depend on the rate."""
_WINDOW_SD, _WINDOW_WORTH = 0.12, 2.0
"""Spread of a window before any is seen, and how many windows that is worth."""
_FEWEST = 5.0
"""Windows below which the variance of a point says nothing."""
_CROWDED, _STEEPEST = 0.9, 2.5
"""Utilisation beyond which the spread of a window is not let grow further, and how steeply it may grow before."""
_ALIKE = 0.5
"""How far apart the logarithms of two intervals may be for their windows to be alike."""
_MISFIT_SD = 0.1
_P95, _LOAD, _RATE = 1, 3, 4
"""Columns of a point: the three percentiles, the utilisation and the rate, all but the last two in logarithms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """What is believed of each percentile."""

    p50: Belief
    p95: Belief
    p99: Belief
    noise: Floats
    """Of p95: the part of the spread that stays however often it is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noise:
    """How far a single window lies from what is usual: told by windows at like intervals, growing with the load."""

    scaled_intervals: Floats
    weights: Floats
    variances: Floats
    """One per point that was seen, less what its load makes of it."""
    power: float
    """Of 1 / (1 - utilisation); 0 where the load does not matter."""
    left_sd: float
    """What neither the formula nor the process explains."""

    @classmethod
    def prior(cls) -> _Noise:
        nothing = np.zeros(0)
        return cls(scaled_intervals=nothing, weights=nothing, variances=nothing, power=0.0, left_sd=_MISFIT_SD)

    @classmethod
    def of(cls, table: Table, load: Floats, *, left_sd: float) -> _Noise:
        weights = np.maximum(0.0, table.weights[:, _P95] - 1.0)
        variances = table.variances[:, _P95]
        # A line through the logarithms tells how the variance grows; few points hardly bend it away from none.
        known = (weights > _FEWEST) & (variances > 0.0)
        power = 0.0
        if known.any():
            x, y, w = np.log(_crowding(load[known])), np.log(variances[known]), weights[known] / _FEWEST
            x, y = x - np.average(x, weights=w), y - np.average(y, weights=w)
            power = min(_STEEPEST, max(0.0, float((w * x * y).sum() / ((w * x * x).sum() + 1.0))))
        return cls(
            scaled_intervals=np.log1p(table.candidates.commit_interval_s),
            weights=weights,
            variances=variances / _crowding(load) ** power,
            power=power,
            left_sd=left_sd,
        )

    def variance(self, interval_s: Floats, load: Floats) -> Floats:
        """Variance of one window at each of these intervals and utilisations; never falls with the utilisation."""
        different, place = np.unique(interval_s, return_inverse=True)
        apart = (np.log1p(different)[:, np.newaxis] - self.scaled_intervals) / _ALIKE
        weights = self.weights * np.exp(-0.5 * apart**2)
        usual = _WINDOW_WORTH * _WINDOW_SD**2 / _crowding(np.array([_MEDIUM])) ** self.power
        window = (usual + (weights * self.variances).sum(axis=1)) / (_WINDOW_WORTH + weights.sum(axis=1))
        return np.asarray(window[place.reshape(-1)] * _crowding(load) ** self.power + self.left_sd**2, dtype=np.float64)


def _crowding(load: Floats) -> Floats:
    return 1.0 / (1.0 - np.minimum(load, _CROWDED))


class Latency:
    """The percentiles of latency as a formula of utilisation, and what a Gaussian process finds beside it.

    The rate enters by the utilisation alone, and what is learnt beside the formula does not depend on it: so a higher
    rate never lowers a latency, whatever was seen.
    """

    def __init__(self, physics: Physics) -> None:
        self._physics = physics
        self._usual = (
            physics.batch_overhead_s,
            physics.at_rest_s,
            physics.queueing_s,
            physics.p95_over_p50,
            physics.p99_over_p95,
        )
        self._points = Points(5, logarithms=len(LEVELS), always=(_RATE,))
        self._fit: Fit | None = None
        self._fitted_to = (0, 0)
        """The version of the capacity that the fit was made with."""
        self._residual: Residual | None = None
        self._noise = _Noise.prior()

    @property
    def windows(self) -> int:
        """How many windows were learnt from."""
        return self._points.count

    def learn(
        self,
        configuration: Configuration,
        rate_per_s: float,
        *,
        p50_s: float | None,
        p95_s: float | None,
        p99_s: float | None,
        busy_share: float | None,
    ) -> None:
        """Take in one window of a job that keeps up and has nothing to catch up on."""
        logs = [None if value is None or value <= 0.0 else math.log(value) for value in (p50_s, p95_s, p99_s)]
        self._points.take(configuration, rate_per_s, (*logs, busy_share, rate_per_s))
        self._fit = None

    def forget(self) -> None:
        """Go back to the prior: the program has changed."""
        self._points.clear()
        self._fit = None

    def refit(self, capacity: Capacity) -> None:
        """Learn from all points, where anything is new; the capacity stands in where no busy share was reported."""
        if self._fit is not None and self._fitted_to == capacity.version:
            return
        table = self._points.table()
        self._fitted_to = capacity.version
        if table is None:
            self._fit, self._residual = Fit.prior(self._usual), None
            self._noise = _Noise.prior()
        elif self._fit is None or not (table.weights[:, _LOAD] > 0.0).all():
            self._fit, self._residual, self._noise = self._fitted(table, capacity)

    def _fitted(self, table: Table, capacity: Capacity) -> tuple[Fit, Residual | None, _Noise]:
        load, reported = table.means[:, _LOAD], table.weights[:, _LOAD] > 0.0
        if not reported.all():
            reckoned = np.minimum(FULLEST, table.means[:, _RATE] / capacity.predict(table.candidates).median)
            load = np.where(reported, load, reckoned)
        rows, levels = np.nonzero(table.weights[:, : len(LEVELS)] > 0.0)
        if len(rows) == 0:
            return Fit.prior(self._usual), None, _Noise.prior()
        weights = table.weights[rows, levels]
        seen = table.means[rows, levels]
        window_sd = table.within_sd(_P95, usual=_WINDOW_SD)
        intervals = table.candidates.commit_interval_s

        seen_intervals, seen_load = intervals[rows], load[rows]

        def formula(logs: Floats) -> Floats:
            return self._log_latency(logs, seen_intervals, seen_load, levels)

        misfit = _MISFIT_SD
        found = Fit.prior(self._usual)
        for _ in range(2):
            found = fit(formula, seen, np.sqrt(misfit**2 + window_sd**2 / weights), self._usual)
            misfit = spread_of(seen - formula(found.logs), usual=_MISFIT_SD, spent=found.spent(self._usual))
        of_p95 = levels == _P95
        if not of_p95.any():
            return found, None, _Noise.of(table, load, left_sd=misfit)
        at = rows[of_p95]
        off = (seen - formula(found.logs))[of_p95]
        configurations = table.candidates.only(at)
        noise = np.sqrt(window_sd**2 / weights[of_p95] + misfit**2)
        residual = Residual(configurations, off, noise, usual_sd=misfit)
        left = spread_of(off - residual.predict(configurations)[0], usual=0.3 * _MISFIT_SD)
        return found, residual, _Noise.of(table, load, left_sd=left)

    def predict(self, candidates: Candidates, log_load: Floats, log_load_sd: Floats) -> Latencies:
        """What is believed at these utilisations (rate over capacity, in logarithms, with their spread)."""
        found, intervals = self._found(), candidates.commit_interval_s
        usual, heavy = np.exp(np.minimum(log_load, 50.0)), np.exp(np.minimum(log_load + GUARD * log_load_sd, 50.0))
        noise = self._noise.variance(intervals, usual)
        beside, doubt = self._beside(candidates)
        variance = doubt + noise
        beliefs = []
        for level in range(len(LEVELS)):
            median = self._log_latency(found.logs, intervals, usual, level)
            worse = self._log_latency(found.logs, intervals, heavy, level)
            sd = np.sqrt(variance + ((worse - median) / GUARD) ** 2)
            # Both curves fall with resources and rise with the rate; so does all that lies between them.
            low = decreasing(candidates, median + beside)
            high = np.maximum(low, -highest_of_less(candidates, -(median + beside + GUARD * sd)))
            beliefs.append(Belief(low, (high - low) / GUARD))
        stays = np.minimum(np.sqrt(noise), beliefs[_P95].log_sd)
        return Latencies(p50=beliefs[0], p95=beliefs[1], p99=beliefs[2], noise=stays)

    def p95_by_load(self, candidates: Candidates, log_loads: Floats, log_load_sd: Floats) -> tuple[Floats, Floats]:
        """Rows x loads: mean and spread of the logarithm of the 95th percentile, for every row at every utilisation.

        As `predict`, at a fraction of its price; the order along resources is left to what was learnt.
        """
        found, (beside, doubt) = self._found(), self._beside(candidates)
        shape = (len(candidates), len(log_loads))
        intervals = np.broadcast_to(candidates.commit_interval_s[:, np.newaxis], shape)
        loads = np.broadcast_to(np.exp(log_loads), shape)
        noise = self._noise.variance(intervals.ravel(), loads.ravel()).reshape(shape)
        median = self._log_latency(found.logs, intervals, loads, _P95)
        heavy = loads * np.exp(GUARD * log_load_sd)[:, np.newaxis]
        worse = self._log_latency(found.logs, intervals, heavy, _P95)
        variance = doubt[:, np.newaxis] + noise + ((worse - median) / GUARD) ** 2
        return median + beside[:, np.newaxis], np.sqrt(variance)

    def _found(self) -> Fit:
        if self._fit is None:
            raise InvalidValueError("latencies are foretold from a fit: call refit after learn and before predict")
        return self._fit

    def _beside(self, candidates: Candidates) -> tuple[Floats, Floats]:
        """What the process finds beside the formula, and the variance of both, which must not depend on the rate."""
        intervals, middle = candidates.commit_interval_s, np.full(len(candidates), _MEDIUM)
        variance = self._found().sd_of(lambda logs: self._log_latency(logs, intervals, middle, _P95)) ** 2
        if self._residual is None:
            return np.zeros(len(candidates)), variance
        beside, beside_sd = self._residual.predict(candidates)
        return beside, variance + beside_sd**2

    def _log_latency(self, logs: Floats, interval_s: Floats, load: Floats, level: int | Integers) -> Floats:
        """The formula: rises with the load, and with the level; one level for all, or one for each."""
        overhead_s, at_rest_s, queueing_s, p95, p99 = parameters(np.maximum(logs, _LEAST_LOGS))
        share = _LEVEL_SHARES[level]
        tail = np.where(share > LEVELS[0], p95, 1.0) * np.where(share > LEVELS[1], p99, 1.0)
        busy = np.minimum(load, FULLEST)
        latency = (at_rest_s + queueing_s * busy / (1.0 - busy)) * tail
        if self._physics.micro_batch:
            # A batch takes what arrived since the last one began; one that outlasts the interval is followed at once.
            batch_s = np.maximum(overhead_s + busy * interval_s, overhead_s / (1.0 - busy))
            latency = latency + batch_s + share * np.maximum(interval_s, batch_s)
        behind_s = np.maximum(0.0, load - FULLEST) * self._physics.overload_horizon_s
        return np.asarray(np.log(latency + share * behind_s), dtype=np.float64)

    def save(self) -> dict[str, object]:
        """Plain data."""
        return self._points.save()

    @classmethod
    def load(cls, physics: Physics, saved: Mapping[str, object]) -> Latency:
        """The model as it was saved."""
        model = cls(physics)
        model._points.load(saved)
        return model
