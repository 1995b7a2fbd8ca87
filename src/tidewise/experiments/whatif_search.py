"""Looks for the parameters of a profile with which the replay of a run looks like the run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import optimize

from tidewise.core import Mechanism, Observation
from tidewise.engines.simulator import SimulatorProfile
from tidewise.experiments.whatif_parts import Place, value_at, with_value
from tidewise.experiments.whatif_recording import Recording
from tidewise.experiments.whatif_replay import Figure, Floats, replay, window_s, windows_of

RECORDS: Place = ("capacity", "records_per_core_s")
CONTENTION: Place = ("capacity", "contention")
OFF = 0.15
"""How far off a window of a good replay may be."""
TINY = 1e-6
"""What stands for nothing where a logarithm is needed."""
SEED = 1
_WEIGHTS = {Figure.LATENCY_P50: 0.5, Figure.LATENCY_P95: 1.0, Figure.BACKLOG: 0.7, Figure.BUSY_SHARE: 1.0}
_BUSY_WEIGHT = 0.2
"""Of a real job, whose busy share rests on a guess at the fixed cost of its batches."""
_STEP = 0.03
"""Of a logarithm: steps that are shorter meet the jumps with which single batches fall into another window."""
_ROUNDS = 12
_FURTHEST = 4.0
_LONGEST_FOR_START_S = 3600.0
_ALIKE = 2.0
"""Windows that follow each other are alike: so many of them tell as much as one."""
_UNSETTLED_S = (60.0, 30.0, 15.0, 0.0)
"""For how long a job is passed over after its start or a change: the first that leaves enough of the run."""
_ENOUGH = 0.3
_EARLY_WEIGHT = 0.6
"""What the first window of a real run counts, the last one counting 1: a JVM gets faster for minutes."""

_FIXED: Place = ("batch", "fixed_s")
_REST: Place = ("latency", "at_rest_s")
_QUEUEING: Place = ("latency", "queueing_s")
_TAIL: Place = ("latency", "p95_over_p50")
LOG_SDS = {RECORDS: 2.3, _FIXED: 1.0, _REST: 1.5, _QUEUEING: 1.0, _TAIL: 0.3, CONTENTION: 1.5}
"""How loosely each parameter is held by the other profile: the spread of its logarithm."""
_WARM_UP_SD = 0.5
_LEAST = {_TAIL: 1.0, _REST: 0.01}
_SHARE = "share"
"""Ends the name of what cannot be more than 1."""


def within(path: Place, value: float) -> float:
    """The nearest value that a parameter can have."""
    return min(1.0 if path[-1] == _SHARE else math.inf, max(_LEAST.get(path, 0.0), value))


def without_noise(profile: SimulatorProfile) -> SimulatorProfile:
    """The profile as it is to be expected, without what comes by chance."""
    parts = ("capacity", "latency", *(["batch"] if profile.batch is not None else []))
    for part in parts:
        profile = with_value(profile, (part, "noise_share"), 0.0)
    return profile


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """The most probable logarithms of the parameters, and how sure they are."""

    paths: tuple[Place, ...]
    logs: Floats
    covariance: Floats
    windows: int
    """That were looked at."""


class Search:
    """Looks for the parameters with which the replay of a run looks like the run."""

    def __init__(self, recording: Recording, profile: SimulatorProfile, until_s: float) -> None:
        self._recording = recording
        self._until_s = math.floor(until_s)
        self._profile = without_noise(profile)
        self._width_s = window_s(recording)
        self._passed_over = _unsettled(recording, until_s)
        self._recorded = self._windows([one for one in recording.observations if one.time_s <= until_s])
        self._early_weight = 1.0 if recording.is_simulated else _EARLY_WEIGHT
        self._weights = _WEIGHTS if recording.is_simulated else {**_WEIGHTS, Figure.BUSY_SHARE: _BUSY_WEIGHT}
        self._paths = self._knobs()
        self._usual = np.log([max(TINY, value_at(profile, path)) for path in self._paths])
        self._sds = np.array([LOG_SDS.get(path, _WARM_UP_SD) for path in self._paths])
        self._replays: dict[bytes, Floats] = {}

    def _windows(self, observations: Sequence[Observation]) -> dict[Figure, Floats]:
        return windows_of(observations, width_s=self._width_s, seconds=self._until_s, passed_over=self._passed_over)

    def _knobs(self) -> tuple[Place, ...]:
        if self._profile.batch is None:
            return (RECORDS, _REST, _QUEUEING, _TAIL)
        kinds = Counter(outage.fault.kind for outage in self._recording.outages if outage.ends_s <= self._until_s)
        warm_up = [("failures", kind, "warm_up", "share") for kind, _ in kinds.most_common(1)]
        warm_up = [path for path in warm_up if value_at(self._profile, (*path[:3], "duration_s")) > 0.0]
        cores = {one.total_cores for one in self._recording.configurations}
        return (RECORDS, _FIXED, _REST, *warm_up, *([CONTENTION] if len(cores) > 1 and max(cores) > 1.0 else []))

    def found(self) -> Found:
        start = self.start()
        best = optimize.least_squares(
            self._off,
            start,
            jac=self._slope,
            bounds=(self._usual - _FURTHEST, self._usual + _FURTHEST),
            loss="cauchy",
            max_nfev=_ROUNDS,
        )
        logs = np.log([max(TINY, within(path, math.exp(log))) for path, log in zip(self._paths, best.x, strict=True)])
        windows = len(self._recorded[Figure.BACKLOG])
        free = max(1, windows - len(self._paths))
        noise = max(1.0, 2.0 * float(best.cost) / (free * len(Figure))) * _ALIKE
        slope = np.asarray(best.jac, dtype=np.float64)
        precision = slope.T @ slope / noise + np.diag(self._sds**-2.0)
        covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        return Found(paths=self._paths, logs=logs, covariance=covariance, windows=windows)

    def start(self) -> Floats:
        """The best of a coarse grid, on the beginning of the run where that is long."""
        if self._until_s <= _LONGEST_FOR_START_S:
            return min(self._starts(), key=lambda logs: self._loss(self._off(logs)))
        return Search(self._recording, self._profile, _LONGEST_FOR_START_S).start()

    def _starts(self) -> list[Floats]:
        """A coarse grid: from a start where the job drowns, no step leads anywhere."""
        around = {RECORDS: (-1.5, -0.8, -0.3, 0.0, 0.3, 0.8, 1.5), _FIXED: (-1.0, -0.5, 0.0, 0.5)}
        steps = [around.get(path, (0.0,)) for path in self._paths]
        starts = [self._usual + np.array(step) for step in product(*steps)]
        if _REST in self._paths and self._profile.batch is None:
            known = self._recorded[Figure.LATENCY_P50]
            known = known[np.isfinite(known)]
            if len(known):
                for start in starts:
                    start[self._paths.index(_REST)] = math.log(max(_LEAST[_REST], float(np.quantile(known, 0.2))))
        return [np.clip(start, self._usual - _FURTHEST + _STEP, self._usual + _FURTHEST - _STEP) for start in starts]

    def profile_at(self, logs: Floats) -> SimulatorProfile:
        profile = self._profile
        for path, log in zip(self._paths, logs, strict=True):
            profile = with_value(profile, path, within(path, math.exp(log)))
        return profile

    def _off(self, logs: Floats) -> Floats:
        """How far each window is off, in what it may be off; then how far the parameters are from the usual."""
        key = np.asarray(logs, dtype=np.float64).tobytes()
        if key not in self._replays:
            replayed = replay(self.profile_at(logs), self._recording, seed=SEED, until_s=self._until_s)
            made = self._windows(replayed.observations)
            self._replays[key] = np.concatenate([self._of(figure, made[figure]) for figure in Figure])
        return np.concatenate([self._replays[key], (logs - self._usual) / self._sds])

    def _of(self, figure: Figure, made: Floats) -> Floats:
        seen = self._recorded[figure]
        known = np.isfinite(seen)
        mean = float(seen[known].mean()) if known.any() else 0.0
        if mean <= 0.0:
            return np.zeros(len(seen))
        # Where the replay shows nothing though the run did, it is off by all of it.
        off = np.where(np.isfinite(made), made - seen, -seen)
        weights = self._weights[figure] * np.geomspace(self._early_weight, 1.0, len(seen))
        return np.asarray(np.where(known, weights * off / mean / OFF, 0.0), dtype=np.float64)

    def _slope(self, logs: Floats) -> Floats:
        columns = []
        for index in range(len(logs)):
            higher, lower = logs.copy(), logs.copy()
            higher[index] += _STEP
            lower[index] -= _STEP
            columns.append((self._off(higher) - self._off(lower)) / (2.0 * _STEP))
        return np.column_stack(columns)

    @staticmethod
    def _loss(off: Floats) -> float:
        return float(np.log1p(off**2).sum())


def _unsettled(recording: Recording, until_s: float) -> list[tuple[float, float]]:
    """When a real job was not itself: it warms up in ways that no simulator knows.

    Not after an outage: nothing shows better what a job can do than how it catches up.
    """
    if recording.is_simulated:
        return []
    # Executors that leave disturb nobody.
    felt = [
        one
        for one in recording.changes
        if one.mechanism is not Mechanism.LIVE or one.target.executors > one.source.executors
    ]
    troubles = [(0.0, 0.0), *((one.requested_at_s, one.finished_at_s or one.requested_at_s) for one in felt)]
    passed_over: list[tuple[float, float]] = []
    middles = np.array([one.time_s - one.window_s / 2 for one in recording.observations if one.time_s <= until_s])
    for settle_s in _UNSETTLED_S:
        passed_over = [(begin_s, end_s + settle_s) for begin_s, end_s in troubles]
        left = np.ones(len(middles), dtype=np.bool_)
        for begin_s, end_s in passed_over:
            left &= (middles < begin_s) | (middles >= end_s)
        if left.mean() >= _ENOUGH:
            return passed_over
    return []
