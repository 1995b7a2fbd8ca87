"""Capacity: records per second that a configuration processes when it is always busy."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tidewise.core import Configuration
from tidewise.core.checks import require_finite
from tidewise.qos.belief import Belief
from tidewise.qos.candidates import Candidates, Floats
from tidewise.qos.fit import Fit, fit, spread_of
from tidewise.qos.monotone import highest_of_less, lowest_of_more
from tidewise.qos.physics import Physics, log_capacity
from tidewise.qos.points import Points
from tidewise.qos.residual import Residual

GUARD = 2.33
"""Standard deviations within which beliefs keep their order: quantiles between 1 and 99 %."""
_WINDOW_SD = 0.1
_MISFIT_SD = 0.08
"""Before anything is seen: spread of a window around its configuration, and of a configuration around the law."""
_BOUND_SD = 0.1
_LEAST_SD = 0.01
_OFTEN = 2.0
"""From so many windows on a configuration has shown what it can do; corrected ones count as no more."""


class Capacity:
    """The Universal Scalability Law with slots that contend, and what a Gaussian process finds beside it.

    Learns from rates that a saturated (or partly busy) job shows, and from rates that it is known to keep up with.
    """

    def __init__(self, physics: Physics) -> None:
        self._usual = (
            physics.records_per_core_s,
            physics.cores_per_slot,
            physics.slot_contention,
            physics.contention,
            physics.coherence,
        )
        self._exact = Points(1, limit=96)
        self._bounds = Points(1, limit=64)
        self._corrections = 0
        self._fit: Fit | None = None
        self._residual: Residual | None = None

    @property
    def windows(self) -> int:
        """How many windows were learnt from."""
        return self._exact.count + self._bounds.count

    @property
    def version(self) -> tuple[int, int]:
        """Another one whenever something was learnt."""
        return self.windows, self._corrections

    def shown(self, configuration: Configuration, *, least: bool = False) -> tuple[float, float] | None:
        """Logarithm of what this very configuration has done at full speed, and its spread; None: it has hardly run.

        least: or the most that fewer of the same executors have done.
        """
        points = [self._exact.point(configuration, 1.0)]
        if least:
            points += [
                self._exact.point(configuration.with_executors(n), 1.0) for n in range(1, configuration.executors)
            ]
        shown = [point for point in points if point is not None and point.weights[0] >= _OFTEN]
        if not shown:
            return None
        most = max(shown, key=lambda point: point.means[0])
        return most.means[0], math.sqrt((_WINDOW_SD**2 + most.variances[0]) / 2.0)

    def learn(self, configuration: Configuration, rate_per_s: float, *, at_least: bool = False) -> None:
        """Take in a rate at full speed; `at_least`: the job kept up with this rate, and more is not known."""
        require_finite("rate_per_s", rate_per_s, above=0.0)
        # A bound is worth a place of its own at every rate, the highest telling most.
        if at_least:
            self._bounds.take(configuration, rate_per_s, (math.log(rate_per_s),))
        else:
            self._exact.take(configuration, 1.0, (math.log(rate_per_s),))
        self._fit = None

    def correct(self, factor: float, *, by: Configuration | None = None) -> None:
        """All configurations do so many times as much as they have shown; `by` one of them: what was seen later stays.

        How sure that is, later windows tell.
        """
        require_finite("factor", factor, above=0.0)
        point = None if by is None else self._exact.point(by, 1.0)
        if by is not None and point is None:
            return
        until = math.inf if point is None else point.seen
        self._exact.shift(0, math.log(factor), until=until, worth=_OFTEN)
        if factor < 1.0:
            # What the job is known to keep up with, it keeps up with all the same if it does more.
            self._bounds.shift(0, math.log(factor), until=until, worth=_OFTEN)
        self._corrections += 1
        self._fit = None

    def forget(self) -> None:
        """Go back to the prior: the program has changed."""
        self._exact.clear()
        self._bounds.clear()
        self._fit = None

    def predict(self, candidates: Candidates, *, speed: Floats | None = None) -> Belief:
        """What is believed of each row; `speed`: the share of it that memory pressure leaves."""
        found = self._refitted()

        def law(logs: Floats) -> Floats:
            return log_capacity(candidates, logs)

        mean, variance = law(found.logs), found.sd_of(law) ** 2
        if self._residual is None:
            variance = variance + _MISFIT_SD**2
        else:
            beside, beside_sd = self._residual.predict(candidates)
            mean, variance = mean + beside, variance + beside_sd**2
        if speed is not None:
            mean = mean + np.log(speed)
        sd = np.sqrt(variance)
        # What less of everything can be relied on for, more of it can as well; what more cannot reach, less cannot.
        lower = highest_of_less(candidates, mean - GUARD * sd)
        upper = lowest_of_more(candidates, mean + GUARD * sd)
        lower, upper = np.minimum(lower, upper), np.maximum(lower, upper)
        # Where the data contradict the order the two cross: that is no reason to be sure.
        upper = np.maximum(upper, lower + 2.0 * GUARD * _LEAST_SD)
        return Belief(0.5 * (lower + upper), (upper - lower) / (2.0 * GUARD))

    def _refitted(self) -> Fit:
        if self._fit is None:
            self._fit, self._residual = self._fitted()
        return self._fit

    def _fitted(self) -> tuple[Fit, Residual | None]:
        exact, bounds = self._exact.table(), self._bounds.table()
        tables = [table for table in (exact, bounds) if table is not None]
        if not tables:
            return Fit.prior(self._usual), None
        everything = tables[0].candidates
        if len(tables) > 1:
            everything = Candidates.listing([row for table in tables for row in _rows(table.candidates)])
        seen = np.concatenate([table.means[:, 0] for table in tables])
        exact_rows = 0 if exact is None else len(exact.candidates)
        is_bound = np.arange(len(seen)) >= exact_rows
        window_sd = _WINDOW_SD if exact is None else exact.within_sd(0, usual=_WINDOW_SD)
        weights = np.concatenate([table.weights[:, 0] for table in tables])

        def law(logs: Floats) -> Floats:
            return log_capacity(everything, logs)

        misfit = _MISFIT_SD
        found = Fit.prior(self._usual)
        for _ in range(2):
            sd = np.where(is_bound, _BOUND_SD, np.sqrt(misfit**2 + window_sd**2 / weights))
            found = fit(law, seen, sd, self._usual, is_bound=is_bound)
            misfit = spread_of((seen - law(found.logs))[~is_bound], usual=_MISFIT_SD, spent=found.spent(self._usual))
        return found, _beside(everything, seen - law(found.logs), window_sd / np.sqrt(weights), is_bound, misfit)

    def save(self) -> dict[str, object]:
        """Plain data."""
        return {"exact": self._exact.save(), "bounds": self._bounds.save()}

    @classmethod
    def load(cls, physics: Physics, saved: Mapping[str, object]) -> Capacity:
        """The model as it was saved."""
        model = cls(physics)
        model._exact.load(saved["exact"])  # type: ignore[arg-type]  # damage is told by whoever loads
        model._bounds.load(saved["bounds"])  # type: ignore[arg-type]  # as above
        return model


def _rows(candidates: Candidates) -> list[Configuration]:
    return [candidates[row] for row in range(len(candidates))]


def _beside(
    seen: Candidates, off: Floats, noise_sd: Floats, is_bound: npt.NDArray[np.bool_], misfit: float
) -> Residual | None:
    """What the law leaves unexplained; bounds that are not kept count as measurements, the others not at all."""
    used = ~is_bound | (off > 0.0)
    residual = None
    for _ in range(2):
        if not used.any():
            break
        rows = np.flatnonzero(used)
        residual = Residual(seen.only(rows), off[rows], noise_sd[rows], usual_sd=misfit)
        kept = ~is_bound | (off > residual.predict(seen)[0])
        if (kept == used).all():
            break
        used = kept
    return residual
