"""What nobody can go below who does not know the failures: the load known to the second, changes free and at once.

Hindsight is small when no failure comes, or a short one. Whoever does not know that has to have, at every second, what
it takes to get over a failure in time, however long the job may be down. This is reckoned, not simulated: the least
cores, second by second, with which a failure then would be got over within the promised time, for all but so few
downtimes that among all failures of the benchmark half of one is expected to take longer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from tidewise.core import ConfigurationSpace
from tidewise.engines.simulator import SimulatorProfile
from tidewise.engines.simulator.physics import capacity_per_s
from tidewise.experiments import Experiment
from tidewise.qos import Floats

_EXPECTED = 0.5
"""So many recoveries of all may be expected to take too long."""
_STEP_S = 5.0


def informed_cores(experiment: Experiment, load: str, seeds: Sequence[int]) -> float | None:
    """The mean over the load and the seeds; None where no recovery is promised or nothing fails."""
    ground = experiment.ground(load)
    trials = [experiment.trial(load, seed) for seed in seeds]
    failures = sum(len(trial.faults) for trial in trials)
    limit_s = ground.promises.recovery_s
    if limit_s is None or failures == 0:
        return None
    kinds = sorted({fault.kind for trial in trials for fault in trial.faults})
    cores = []
    for trial in trials:
        needed = [
            needed_per_s(trial.rates_per_s, ground.profile, kind, limit_s=limit_s, failures=failures) for kind in kinds
        ]
        cores.append(float(least_cores(np.max(needed, axis=0), ground.profile, ground.space).mean()))
    return float(np.mean(cores))


def needed_per_s(rates_per_s: Floats, profile: SimulatorProfile, kind: str, *, limit_s: float, failures: int) -> Floats:
    """The capacity that gets over a failure of this kind in time, by the second in which it begins."""
    failure = profile.failures[kind]
    unlikely = float(ndtri(1.0 - _EXPECTED / failures))
    stands_from_s = failure.detection_s
    works_from_s = stands_from_s + failure.downtime_s * float(np.exp(failure.downtime_spread_share * unlikely))
    # What follows the end goes on as the last minute was.
    after = np.full(int(limit_s) + 2, rates_per_s[-60:].mean())
    arrived = np.concatenate(([0.0], np.cumsum(np.concatenate((rates_per_s, after)))))
    seconds = np.arange(len(rates_per_s), dtype=np.float64)

    def until(time_s: float) -> Floats:
        return np.interp(seconds + time_s, np.arange(len(arrived)), arrived)

    needed = np.full(len(seconds), np.inf)
    for end_s in np.arange(works_from_s + _STEP_S, limit_s + 1e-9, _STEP_S):
        np.minimum(needed, (until(end_s) - until(stands_from_s)) / (end_s - works_from_s), out=needed)
    return needed


def least_cores(needed_per_s: Floats, profile: SimulatorProfile, space: ConfigurationSpace) -> Floats:
    """The fewest cores of the space that process as much, second by second; all of them where none does."""
    every = sorted(space, key=lambda one: one.total_cores)
    cores = np.array([one.total_cores for one in every])
    able = np.maximum.accumulate([capacity_per_s(profile.capacity, one, one.executors) for one in every])
    return np.asarray(cores[np.minimum(np.searchsorted(able, needed_per_s), len(cores) - 1)], dtype=np.float64)
