"""What nobody goes below who knows the load to the second but not the failures: the hindsight bound without luck.

Hindsight is small when no failure comes, or a short one. Whoever does not know that has to be able to get over one at
any second. This is reckoned, not simulated: the fewest core-hours of any sequence of cores, chosen with the whole load
known, that expects no more bad seconds than the goal allows and, among all failures of the benchmark, half of one
recovery that takes too long. It errs to the good: a job is warm at once, memory is never felt, every change takes its
median, what is done again after a failure is what it is on average with the shortest commit interval, and bad seconds
are those of a load that is as low as it gets in the minutes that follow.

Both limits are put at a price (Lagrange): whatever the prices, the least that a sequence costs, less what is allowed at
these prices, is no more than what any sequence takes that keeps both. The prices that make most of it are searched for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri

from tidewise.core import ConfigurationSpace, Mechanism
from tidewise.engines.simulator import SimulatorProfile
from tidewise.engines.simulator.physics import capacity_per_s
from tidewise.experiments import Experiment
from tidewise.experiments.bound import Quality
from tidewise.qos import Floats

_EXPECTED = 0.5
"""So many recoveries of all may be expected to take too long."""
_STEP_S = 60
"""How long a configuration is held at least."""
_ENDS_S = 5.0
"""Recoveries end at a multiple of this."""
_FOLLOWING = 4
"""In steps: how long a load is looked at after a failure."""
_FULLEST = 0.99
_LUCKS = np.exp(ndtri((np.arange(200) + 0.5) / 200))
_FIRST_PRICES = (50.0, 5e5)
"""In core-seconds: of a bad second, and of a recovery that takes too long; where the search begins."""
_TRIES = 80


def informed_cores(experiment: Experiment, load: str, qualities: Mapping[int, Quality]) -> float | None:
    """The mean of the seeds, `qualities` by seed; None where no recovery is promised, or other than one kind fails."""
    ground = experiment.ground(load)
    limit_s = ground.promises.recovery_s
    trials = {seed: experiment.trial(load, seed) for seed in qualities}
    kinds = {fault.kind for trial in trials.values() for fault in trial.faults}
    if limit_s is None or len(kinds) != 1:
        return None
    failures = sum(len(trial.faults) for trial in trials.values())
    least = [
        Course.of(
            trial.rates_per_s,
            ground.profile,
            ground.space,
            kind=next(iter(kinds)),
            failures=len(trial.faults),
            limit_s=limit_s,
            quality=qualities[seed],
            start_cores=experiment.start.total_cores,
        ).at_least(bad_s=qualities[seed].bad_s, broken=_EXPECTED * len(trial.faults) / failures)
        for seed, trial in trials.items()
    ]
    return float(np.mean(least))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """Step by step, for every number of cores: what is expected to go wrong."""

    cores: Floats
    bad_s: Floats
    """Steps x cores: by failures, and by a load that is more than they can do."""
    broken: Floats
    """Steps x cores: recoveries that take too long."""
    changed_bad_s: Floats
    """Steps x cores: by a change to so many."""
    start: int
    """Which of the numbers of cores it begins with."""

    @classmethod
    def of(
        cls,
        rates_per_s: Floats,
        profile: SimulatorProfile,
        space: ConfigurationSpace,
        *,
        kind: str,
        failures: int,
        limit_s: float,
        quality: Quality,
        start_cores: float,
    ) -> Course:
        """`failures`: how many of this kind come, at any second; `limit_s`: how long a recovery may take."""
        cores, able_per_s = ablest(profile, space)
        failure = profile.failures[kind]
        # By so much later than at rest may output come, for a second to be good and a recovery to be over.
        slack_s = max(0.0, quality.limit_s - profile.latency.at_rest_s)
        again_s = 0.5 * min(space.commit_interval_s) if failure.replays else 0.0
        each_s = failure.downtime_s * _LUCKS**failure.downtime_spread_share
        steps = len(rates_per_s) // _STEP_S
        means = rates_per_s[: steps * _STEP_S].reshape(steps, _STEP_S).mean(axis=1)
        per_step = failures / steps
        load = means[:, np.newaxis] / able_per_s
        spare = 1.0 - np.minimum(_least_of_the_next(means)[:, np.newaxis] / able_per_s, _FULLEST)
        down_s = float(np.maximum(0.0, each_s - slack_s).mean())
        longest_s = longest_down_s(
            rates_per_s, able_per_s, again_s=again_s, stands_s=failure.detection_s, limit_s=limit_s
        )
        longest_s += slack_s
        luck = np.log(np.maximum(longest_s, 1e-9) / failure.downtime_s) / failure.downtime_spread_share
        gap_s = max(0.0, profile.mechanisms[Mechanism.REDEPLOY].gap_s - slack_s)
        return cls(
            cores=cores,
            bad_s=per_step * down_s / spare + np.where(load >= 1.0, float(_STEP_S), 0.0),
            broken=per_step * ndtr(-luck),
            changed_bad_s=gap_s / spare,
            start=int(np.argmin(np.abs(cores - start_cores))),
        )

    def at_least(self, *, bad_s: float, broken: float) -> float:
        """The mean cores below which no sequence expects so few bad seconds and broken recoveries."""

        def missed(log_prices: Floats) -> float:
            bad_price, broken_price = (float(price) for price in np.exp(log_prices))
            return bad_price * bad_s + broken_price * broken - self._least_cost(bad_price, broken_price)

        found = minimize(
            missed,
            np.log(_FIRST_PRICES),
            method="Nelder-Mead",
            options={"maxfev": _TRIES, "xatol": 0.02, "fatol": 1.0},
        )
        return -float(found.fun) / (len(self.bad_s) * _STEP_S)

    def _least_cost(self, bad_price: float, broken_price: float) -> float:
        """Core-seconds and what goes wrong, at these prices, of the sequence that costs least."""
        held = self.cores * _STEP_S + bad_price * self.bad_s + broken_price * self.broken
        changed = bad_price * self.changed_bad_s
        ahead = np.zeros(len(self.cores))
        for step in reversed(range(len(held))):
            ahead += held[step]
            np.minimum(ahead, (ahead + changed[step]).min(), out=ahead)
        return float(ahead[self.start])


def longest_down_s(
    rates_per_s: Floats, able_per_s: Floats, *, again_s: float, stands_s: float, limit_s: float
) -> Floats:
    """Steps x capacities: how long a job may be down after a failure in the middle of a step and still recover in time.

    again_s: of how many seconds the records are processed again. stands_s: how long a failure goes on before the job
    stands still.
    """
    # What follows the end goes on as the last minute was.
    after = np.full(int(limit_s) + 2, rates_per_s[-_STEP_S:].mean())
    arrived = np.concatenate(([0.0], np.cumsum(np.concatenate((rates_per_s, after)))))
    middles_s = _STEP_S * (np.arange(len(rates_per_s) // _STEP_S) + 0.5)

    def until(time_s: float) -> Floats:
        return np.asarray(np.interp(middles_s + time_s, np.arange(len(arrived)), arrived), dtype=np.float64)

    longest_s = np.full((len(middles_s), len(able_per_s)), -np.inf)
    for end_s in np.arange(stands_s + _ENDS_S, limit_s + 1e-9, _ENDS_S):
        work_s = (until(end_s) - until(stands_s - again_s))[:, np.newaxis] / able_per_s
        np.maximum(longest_s, end_s - stands_s - work_s, out=longest_s)
    return longest_s


def ablest(profile: SimulatorProfile, space: ConfigurationSpace) -> tuple[Floats, Floats]:
    """Every number of cores that the space has, and the most records per second that so many can process."""
    able: dict[float, float] = {}
    for one in space:
        able[one.total_cores] = max(
            able.get(one.total_cores, 0.0), capacity_per_s(profile.capacity, one, one.executors)
        )
    cores = np.array(sorted(able))
    return cores, np.maximum.accumulate([able[number] for number in cores.tolist()])


def _least_of_the_next(means: Floats) -> Floats:
    """Of each step and those that follow a failure in it."""
    padded = np.concatenate((means, np.full(_FOLLOWING - 1, means[-1])))
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, _FOLLOWING).min(axis=1), dtype=np.float64)
