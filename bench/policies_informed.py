"""What nobody goes below who knows the load to the second but not the failures: the hindsight bound without luck.

Hindsight is small when no failure comes, or a short one. Whoever does not know that has to be able to get over one at
any second, or to be moved to where it can as soon as it is known how long this one was. This is reckoned, not
simulated: the fewest core-hours of any sequence of cores, chosen with the whole load known, that expects no more bad
seconds than the goal allows and, among all failures of the benchmark, half of one recovery that takes too long. It errs
to the good: a job is warm at once, memory is never felt, every change takes its median, a job is moved the moment it is
up again, what is done again after a failure is what it is on average with the shortest commit interval, and bad seconds
are those of a load that is as low as it gets in the minutes that follow.

Both limits are put at a price (Lagrange): whatever the prices, the least that a sequence costs, less what is allowed at
these prices, is no more than what any sequence takes that keeps both. The prices that make most of it are searched for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr

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
_LUCKS = np.linspace(-3.0, 4.0, 71)
"""Of how long failures last, in spreads of its logarithm: between two of them, all are as the shorter one."""
_CHANCES = np.diff(ndtr(_LUCKS)) / np.diff(ndtr(_LUCKS)).sum()
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
    overloaded_s: Floats
    """Steps x cores: bad by a load that is more than they can do."""
    changed_bad_s: Floats
    """Steps x cores: by a change to so many."""
    failures_per_step: float
    failed_bad_s: Floats
    """Steps x cores x lengths of a failure: by one that is got over with what runs."""
    too_long: Floats
    """The same: the share of these that take too long."""
    moved_bad_s: Floats
    """The same: by one after which the job is moved to so many; endless where that takes too long as well."""
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
        steps = len(rates_per_s) // _STEP_S
        means = rates_per_s[: steps * _STEP_S].reshape(steps, _STEP_S).mean(axis=1)
        spare = 1.0 - np.minimum(_least_of_the_next(means)[:, np.newaxis] / able_per_s, _FULLEST)
        gap_s = profile.mechanisms[Mechanism.REDEPLOY].gap_s
        down_s = failure.downtime_s * np.exp(_LUCKS[:-1] * failure.downtime_spread_share)
        longest_s = longest_down_s(
            rates_per_s, able_per_s, again_s=again_s, stands_s=failure.detection_s, limit_s=limit_s
        )
        longest_s = longest_s[..., np.newaxis] + slack_s
        luck = np.log(np.maximum(longest_s, 1e-9) / failure.downtime_s) / failure.downtime_spread_share
        moved_bad_s = np.maximum(0.0, down_s + gap_s - slack_s) / spare[..., np.newaxis]
        return cls(
            cores=cores,
            overloaded_s=np.where(means[:, np.newaxis] >= able_per_s, float(_STEP_S), 0.0),
            changed_bad_s=max(0.0, gap_s - slack_s) / spare,
            failures_per_step=failures / steps,
            failed_bad_s=np.maximum(0.0, down_s - slack_s) / spare[..., np.newaxis],
            too_long=np.clip((_LUCKS[1:] - luck) / np.diff(_LUCKS), 0.0, 1.0),
            moved_bad_s=np.where(down_s + gap_s <= longest_s, moved_bad_s, np.inf),
            start=int(np.argmin(np.abs(cores - start_cores))),
        )

    @property
    def bad_s(self) -> Floats:
        """Steps x cores: by overload and failures, where the job is not moved after them."""
        return np.asarray(self.overloaded_s + self.failures_per_step * (self.failed_bad_s @ _CHANCES), dtype=np.float64)

    @property
    def broken(self) -> Floats:
        """Steps x cores: recoveries that take too long, where the job is not moved."""
        return np.asarray(self.failures_per_step * (self.too_long @ _CHANCES), dtype=np.float64)

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
        return -float(found.fun) / (len(self.overloaded_s) * _STEP_S)

    def _least_cost(self, bad_price: float, broken_price: float) -> float:
        """Core-seconds and what goes wrong, at these prices, of the sequence that costs least.

        A sequence is a plan for whatever fails, and for however long it does: a job that has failed stays as it is, or
        is moved to where what follows costs least.
        """
        held = self.cores * _STEP_S + bad_price * self.overloaded_s
        changed = bad_price * self.changed_bad_s
        stayed = bad_price * self.failed_bad_s + broken_price * self.too_long
        moved = bad_price * self.moved_bad_s
        ahead = np.zeros(len(self.cores))
        for step in reversed(range(len(held))):
            elsewhere = (moved[step] + ahead[:, np.newaxis]).min(axis=0) - ahead[:, np.newaxis]
            failed = np.minimum(stayed[step], elsewhere) @ _CHANCES
            ahead += held[step] + self.failures_per_step * failed
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
