"""What one kind of failure does to a job, learnt from how long the job took to get over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky
from scipy.optimize import minimize
from scipy.special import expit, stdtr

from tidewise.core.checks import require, require_finite, require_share
from tidewise.host.threads import on_one_thread
from tidewise.qos.candidates import Floats
from tidewise.qos.catch_up import NEVER_S, Outage, replayed_s, steady_recovery_s
from tidewise.qos.physics import Physics, Usual

PARAMETERS = 5
"""How many numbers describe a kind: those of `Outage`, and the spread of its downtimes."""

_PILING = (1.5, 1.0)
_COLD = (-2.0, 1.2)
_SLACK_SD = 2.0
_DOWN_SPREAD = (float(np.log(0.25)), 0.5)
"""Means and spreads beforehand: of the logits of the shares, and of logarithms."""
_TAIL = 5.0
"""Degrees of freedom of the noise: a failure that went quite differently shifts the rest little."""
RESOLUTION_S = 1.0
"""Recoveries are measured to about a second, where nothing else is said, ..."""
LEAST_S = 1.0
"""... and one that was not felt counts as this long."""
MODEL_SD = 0.05
"""What the sum leaves out, as a spread of the logarithm."""
_QUARTER, _UNIFORM_SD = 0.25, 0.289
"""A moment anywhere in an interval: felt between its quarters, and its spread, in intervals."""
_STEP, _NUDGE = 0.05, 1e-6
_ROUNDS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """One recovery, and what it depended on."""

    took_s: float
    is_bound: bool
    """Whether it took at least so long, and nobody knows how long."""
    rate_per_s: float
    capacity_per_s: float
    capacity_log_sd: float
    commit_interval_s: float
    just_before_commit: bool
    """Whether the failure came when all of the commit interval had passed; otherwise it came at any moment."""
    resolution_s: float = RESOLUTION_S
    """To about how many seconds it was measured."""
    weight: float = 1.0
    """Less than 1 for one that says less, because the program has changed since."""

    def __post_init__(self) -> None:
        require_finite("took_s", self.took_s, least=0.0)
        require_finite("rate_per_s", self.rate_per_s, least=0.0)
        require_finite("capacity_per_s", self.capacity_per_s, above=0.0)
        require_finite("capacity_log_sd", self.capacity_log_sd, least=0.0)
        require_finite("commit_interval_s", self.commit_interval_s, least=0.0)
        require_finite("resolution_s", self.resolution_s, above=0.0)
        require_share("weight", self.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageFit:
    """A kind of failure: its numbers as a normal belief, in logarithms, the two shares as logits."""

    mean: Floats
    root: Floats
    """The lower triangular root of the covariance."""

    @property
    def cold_share(self) -> float:
        """The most probable share of its capacity that the job lacks when it comes up."""
        return _outage(self.mean).cold_share

    def outage(self, shifts: Floats, luck: float) -> Outage:
        """The numbers moved by standard normal shifts, and a downtime moved by so many of its spreads."""
        numbers = self.mean + self.root @ shifts
        numbers[0] += luck * np.exp(min(numbers[-1], 1.0))
        return _outage(numbers)


@on_one_thread
def fit_outage(usual: Usual, physics: Physics, seen: Sequence[Recovered]) -> OutageFit:
    """The most probable numbers, and a normal belief around them; without any recovery, what is usual."""
    slack = (np.log(_usual_slack_s(physics)), _SLACK_SD)
    prior_mean, prior_sd = np.array(
        [(np.log(usual.median), usual.log_sd), _PILING, _COLD, slack, _DOWN_SPREAD], dtype=np.float64
    ).T
    if not seen:
        return OutageFit(mean=prior_mean, root=np.diag(prior_sd))
    surprise = _Surprise(prior_mean, prior_sd, physics, seen)
    # Two ways to explain the same recoveries: catching up takes its part of them, or nearly all of it is downtime.
    middle_s = float(np.median([max(LEAST_S, one.took_s) for one in seen]))
    all_down = np.array([np.log(middle_s), *prior_mean[1:3], np.log(0.5 * middle_s), prior_mean[4]])
    box = [(mean - 5.0 * sd, mean + 5.0 * sd) for mean, sd in zip(prior_mean, prior_sd, strict=True)]
    box[0] = (np.log(0.05), np.log(NEVER_S))
    found = [
        minimize(surprise.with_slope, first, jac=True, method="L-BFGS-B", bounds=box, options={"maxiter": _ROUNDS})
        for first in (prior_mean, all_down)
    ]
    best = np.asarray(min(found, key=lambda one: float(one.fun)).x, dtype=np.float64)
    return OutageFit(mean=best, root=_root(surprise, best, prior_sd))


class _Surprise:
    """How improbable numbers are (the negative logarithm), given what is usual and what was seen."""

    def __init__(self, mean: Floats, sd: Floats, physics: Physics, seen: Sequence[Recovered]) -> None:
        require(len(seen) > 0, "a fit needs at least one recovery")
        self._mean, self._sd = mean, sd
        self._took_log = np.log([max(LEAST_S, one.took_s) for one in seen])
        self._is_bound = np.array([one.is_bound for one in seen])
        rate = np.array([one.rate_per_s for one in seen])
        capacity = np.array([one.capacity_per_s for one in seen])
        capacity_sd = np.array([one.capacity_log_sd for one in seen])
        interval_s = np.array([one.commit_interval_s for one in seen])
        worst = np.array([one.just_before_commit for one in seen])
        self._weight = np.array([one.weight for one in seen])
        resolution_s = np.array([one.resolution_s for one in seen])
        self._resolution = (resolution_s / np.exp(self._took_log)) ** 2 + MODEL_SD**2
        moment = np.where(worst, 0.0, _QUARTER)
        middle = np.where(worst, 1.0, 0.5)
        # As expected; a longer and a shorter downtime; a later and an earlier moment; less and more capacity.
        self._lucks = np.array([[0.0], [1.0], [-1.0], [0.0], [0.0], [0.0], [0.0]])
        slowness = np.array([[0.0], [0.0], [0.0], [0.0], [0.0], [1.0], [-1.0]]) * capacity_sd
        phases = middle + np.array([[0.0], [0.0], [0.0], [1.0], [-1.0], [0.0], [0.0]]) * moment
        self._usual = rate / capacity * np.exp(slowness)
        self._replayed_s = replayed_s(self._usual, interval_s, phases, overhead_s=overhead_s(physics))

    def with_slope(self, numbers: Floats) -> tuple[float, Floats]:
        """How improbable these are, and how that changes with each: all in one go, which is what makes a fit quick."""
        values = self(np.vstack([numbers, numbers + _NUDGE * np.eye(PARAMETERS)]))
        return float(values[0]), (values[1:] - values[0]) / _NUDGE

    def __call__(self, numbers: Floats) -> Floats:
        """One value for each line of numbers."""
        down, piling, cold, slack, spread = numbers.T[:, :, None, None]
        took_s = steady_recovery_s(
            down_s=np.exp(down + np.exp(spread) * self._lucks),
            piling_share=expit(piling),
            cold_share=expit(cold),
            slack_s=np.exp(slack),
            usual=self._usual,
            replayed_s=self._replayed_s,
        )
        took_log = np.log(np.maximum(LEAST_S, took_s))
        expected, longer, shorter, later, earlier, slower, faster = np.moveaxis(took_log, 1, 0)
        luck, speed = 0.5 * (longer - shorter), 0.5 * (slower - faster)
        moment = (later - earlier) * (_UNIFORM_SD / (2.0 * _QUARTER))
        scale = np.sqrt(luck**2 + moment**2 + speed**2 + self._resolution)
        off = (self._took_log - expected) / scale
        density = -0.5 * (_TAIL + 1.0) * np.log1p(off**2 / _TAIL) - np.log(scale)
        beyond = np.log(np.maximum(stdtr(_TAIL, -off), 1e-300))
        likely = (self._weight * np.where(self._is_bound, beyond, density)).sum(axis=1)
        return np.asarray(0.5 * (((numbers - self._mean) / self._sd) ** 2).sum(axis=1) - likely, dtype=np.float64)


def overhead_s(physics: Physics) -> float:
    """What each micro-batch costs; 0 where records flow."""
    return physics.batch_overhead_s.median if physics.micro_batch else 0.0


def _usual_slack_s(physics: Physics) -> float:
    """A job is well again at twice the latency it had: what makes up one such latency may still be piled up."""
    return physics.at_rest_s.median + 2.0 * overhead_s(physics)


def _outage(numbers: Floats) -> Outage:
    down, piling, cold, slack = numbers[:4]
    return Outage(
        down_s=float(np.exp(min(down, np.log(NEVER_S)))),
        piling_share=float(expit(piling)),
        cold_share=float(expit(cold)),
        slack_s=float(np.exp(slack)),
    )


def _root(surprise: _Surprise, best: Floats, prior_sd: Floats) -> Floats:
    """The root of the covariance that the curvature at the most probable numbers tells of."""
    grid = np.diag(_STEP * prior_sd)
    pairs = [(row, column) for row in range(PARAMETERS) for column in range(row + 1)]
    signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    corners = np.array([best + one * grid[row] + two * grid[column] for row, column in pairs for one, two in signs])
    values = surprise(corners).reshape(len(pairs), 4) @ np.array([1.0, -1.0, -1.0, 1.0])
    scaled = np.empty((PARAMETERS, PARAMETERS))
    for (row, column), value in zip(pairs, values, strict=True):
        scaled[row, column] = scaled[column, row] = value / (2.0 * _STEP) ** 2
    # In units of the prior, where nothing may be less certain than it was before.
    values, vectors = np.linalg.eigh(scaled)
    covariance = (vectors / np.maximum(values, 1.0)) @ vectors.T * np.outer(prior_sd, prior_sd)
    return np.asarray(cholesky(covariance + 1e-9 * np.diag(prior_sd**2), lower=True), dtype=np.float64)
