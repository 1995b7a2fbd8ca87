"""One search for what to profile: a glance at every candidate, and a close look at those that may move the front."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import log_ndtr, ndtr

from tidewise.qos import Floats
from tidewise.qos.gp import lower_root
from tidewise.search.improvement import Strips, expected_improvement
from tidewise.search.pareto import Rows
from tidewise.search.surrogate import View

_SAMPLES = 32
"""Fronts that may be true; in pairs that mirror each other."""
_CLOSER_LOOK = 400
"""So many candidates are looked at closely."""
_FEASIBILITY_BLOCK = 2000
_NO_GAIN = 1e-6
"""Of an area whose sides are e-folds; below it either all is found, or nothing can be."""
_HOPELESS = math.log(1e-4)
"""Where nothing keeps the limits with more than this, what comes nearest is worth knowing."""
_AS_NEAR = 0.01
"""Candidates whose nearness differs by less are equally near: what is left is rounding."""
_BEYOND = 0.05
"""How far beyond the dearest candidate the front ends, as a share of the range: it may be worth something too."""


class Search:
    """What is believed at one load, and the front as far as it was profiled."""

    def __init__(
        self,
        views: Mapping[str, View],
        limits: Mapping[str, float],
        *,
        objective: str,
        places: Floats,
        log_cost: Floats,
        anchor_places: Floats,
        anchor_log_cost: Floats,
        seed: int,
    ) -> None:
        """`views` of the quantities that have limits (logarithms); the `objective` makes the front, the others count by
        the probability that they keep theirs. Anchors are the configurations profiled at this load.
        """
        self._objective = objective
        self._views = views
        self._limits = limits
        self._constraints = [name for name in views if name != self._objective]
        self._places = places
        self._log_cost = log_cost
        self._cost_limit = float(log_cost.max() + _BEYOND * max(np.ptp(log_cost), 0.1))
        self._anchor_places = anchor_places
        self._anchor_log_cost = anchor_log_cost
        self._seed = seed

    def best(self, count: int) -> Rows:
        """The rows with the largest expected gain, each given those before it."""
        look = self._worth_a_look(max(_CLOSER_LOOK, 4 * count))
        rng = np.random.default_rng(self._seed)
        half = rng.standard_normal((_SAMPLES // 2, 2, len(self._anchor_places) + count))
        draws = np.concatenate([half, -half])
        chosen: list[int] = []
        for _ in range(count):
            gain = self._gain(look, chosen, draws)
            gain[np.isin(look, chosen)] = -math.inf
            if gain.max() < _NO_GAIN:
                chosen.append(self._without_gain(look, gain, chosen))
            else:
                chosen.append(int(look[int(np.argmax(gain))]))
        return np.array(chosen, dtype=np.int64)

    def _without_gain(self, look: Rows, gain: Floats, chosen: Sequence[int]) -> int:
        """Where none is expected to move the front: a new one, and of those as good as the best the farthest off."""
        anchors = self._anchors(chosen)
        everything = np.arange(len(self._places))
        distance = _distance(self._places, anchors)
        fresh = everything[distance > 0.0]
        if len(fresh) and self._is_hopeless(fresh, anchors):
            score = self._nearness(fresh, anchors)
            best = fresh[score >= score.max() - _AS_NEAR]
        else:
            new = np.isin(look, fresh)
            score = np.where(new, gain, -math.inf) if new.any() else gain
            best = look[score == score.max()]
        return int(best[int(np.argmax(distance[best]))])

    def _worth_a_look(self, count: int) -> Rows:
        """The candidates with the largest gain over the front of the expected values."""
        if len(self._places) <= count:
            return np.arange(len(self._places))
        kept = np.ones(len(self._anchor_places), dtype=np.bool_)
        for name in self._constraints:
            kept &= self._views[name].joint(self._anchor_places)[0] <= self._limits[name]
        expected = self._views[self._objective].joint(self._anchor_places)[0]
        strips = self._strips(self._anchor_log_cost[kept], expected[kept])
        mean, sd = self._views[self._objective].glance(self._places, self._anchor_places)
        gain = strips.gain(self._log_cost, mean, sd)
        ranked = np.argsort(-gain, kind="stable")
        # What is kept with some probability gains no more than if it were certain: beyond the bound nobody need look.
        for name in self._constraints:
            for begin in range(0, len(ranked), _FEASIBILITY_BLOCK):
                block = ranked[begin : begin + _FEASIBILITY_BLOCK]
                bound = gain[block[0]]
                done = ranked[:begin]
                if len(done) >= count and np.partition(gain[done], -count)[-count] >= bound:
                    gain[ranked[begin:]] = 0.0
                    break
                mean, sd = self._views[name].glance(self._places[block], self._anchor_places)
                gain[block] *= ndtr((self._limits[name] - mean) / sd)
        if gain.max() < _NO_GAIN:
            everything = np.arange(len(self._places))
            if self._is_hopeless(everything, self._anchor_places):
                gain = self._nearness(everything, self._anchor_places)
        return np.sort(np.argpartition(-gain, count)[:count])  # sorted: the first of equals is taken

    def _gain(self, look: Rows, chosen: Sequence[int], draws: Floats) -> Floats:
        """The gain averaged over joint samples of the functions at what was profiled, or is about to be."""
        anchors = self._anchors(chosen)
        costs = np.concatenate([self._anchor_log_cost, self._log_cost[list(chosen)]])
        value = _Sampled(self._views[self._objective], self._places[look], anchors, draws[:, 0])
        chances = np.ones((len(draws), len(look)))
        kept = np.ones((len(draws), len(anchors)), dtype=np.bool_)
        for name in self._constraints:
            other = _Sampled(self._views[name], self._places[look], anchors, draws[:, 1])
            chances *= ndtr((self._limits[name] - other.means) / other.sd)
            kept &= other.at_anchors <= self._limits[name]
        log_cost = self._log_cost[look]
        total = np.zeros(len(look))
        for chance, keeps, mean, front in zip(chances, kept, value.means, value.at_anchors, strict=True):
            total += chance * self._strips(costs[keeps], front[keeps]).gain(log_cost, mean, value.sd)
        return total / len(draws)

    def _is_hopeless(self, look: Rows, anchors: Floats) -> bool:
        """Whether none of these is likely to keep the limits at all."""
        log_chance = np.zeros(len(look))
        for name, view in self._views.items():
            mean, sd = view.glance(self._places[look], anchors)
            log_chance += log_ndtr((self._limits[name] - mean) / sd)
        return bool(log_chance.max() < _HOPELESS)

    def _nearness(self, look: Rows, anchors: Floats) -> Floats:
        """The fewer e-folds a candidate may miss its limits by, the more: as expected, less as many as are in doubt.

        By the expected miss alone, a plateau of overloaded candidates would never be left.
        """
        missed, variance = np.zeros(len(look)), np.zeros(len(look))
        for name, view in self._views.items():
            mean, sd = view.glance(self._places[look], anchors)
            missed += mean - self._limits[name] + expected_improvement(mean, sd, self._limits[name])
            variance += sd**2
        return np.sqrt(variance) - missed

    def _anchors(self, chosen: Sequence[int]) -> Floats:
        """What was profiled, or is about to be."""
        return np.vstack([self._anchor_places, self._places[list(chosen)]])

    def _strips(self, log_cost: Floats, value: Floats) -> Strips:
        return Strips.of(log_cost, value, cost_limit=self._cost_limit, value_limit=self._limits[self._objective])


def _distance(places: Floats, others: Floats) -> Floats:
    """Squared, of each place from the nearest of the others."""
    distance = np.full(len(places), math.inf)
    for other in others:
        distance = np.minimum(distance, ((places - other) ** 2).sum(axis=1))
    return distance


class _Sampled:
    """One quantity given what it may be at the anchors: a row per sample; the spread is the same in all of them."""

    def __init__(self, view: View, places: Floats, anchors: Floats, draws: Floats) -> None:
        mean, variance, shared = view.beside(places, anchors)
        anchor_mean, covariance = view.joint(anchors)
        root = lower_root(covariance)
        draws = draws[:, : len(anchors)]
        pull = solve_triangular(root, shared.T, lower=True, check_finite=False)
        self.at_anchors: Floats = anchor_mean + draws @ root.T
        self.means: Floats = mean + draws @ pull
        self.sd: Floats = np.sqrt(np.maximum(variance - np.einsum("ij,ij->j", pull, pull), 1e-12))
