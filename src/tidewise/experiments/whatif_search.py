"""Looks for the parameters of a profile with which the replay of a run looks like the run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tidewise.core import Observation
from tidewise.engines.simulator import SimulatorProfile
from tidewise.experiments.whatif_parts import Place, value_at, with_value
from tidewise.experiments.whatif_recording import Recording
from tidewise.experiments.whatif_replay import Figure, Floats, in_batches, replay, window_s, windows_of

RECORDS: Place = ("capacity", "records_per_core_s")
CONTENTION: Place = ("capacity", "contention")
OFF = 0.15
"""How far off a window of a good replay may be."""
TINY = 1e-9
"""What stands for nothing where a logarithm is needed."""
SEED = 1
_WEIGHTS = {Figure.LATENCY_P50: 0.5, Figure.LATENCY_P95: 1.0, Figure.BACKLOG: 0.7, Figure.BUSY_SHARE: 1.0}
_BUSY_WEIGHT = 0.5
"""Of a real job, whose busy share follows from latencies that count already."""
_STEPS = (0.6, 0.3, 0.15, 0.07, 0.03)
"""Of a logarithm: steps that are shorter meet the jumps with which single batches fall into another window."""
_STEP = 0.1
"""For slopes."""
_ROUNDS = 4
_FURTHEST = 4.0
_LONGEST_FOR_START_S = 3600.0
_ALIKE = 2.0
"""Windows that follow each other are alike: so many of them tell as much as one."""
_UNSETTLED_S = 60.0
"""For how long a real job is passed over after its start."""
_EARLY_WEIGHT = 0.6
"""What the first window of a real run counts, the last one counting 1: a JVM gets faster for minutes."""

_FIXED: Place = ("batch", "fixed_s")
_REST: Place = ("latency", "at_rest_s")
_QUEUEING: Place = ("latency", "queueing_s")
_TAIL: Place = ("latency", "p95_over_p50")
_FIXED_CORE: Place = ("batch", "fixed_core_s")
_JOIN: Place = ("live", "join_s")
_USUALLY = {_FIXED_CORE: 0.1, _JOIN: 3.0}
"""What a real job is taken to need where the other profile says nothing."""
LOG_SDS = {
    RECORDS: 2.3,
    _FIXED: 1.0,
    _REST: 1.5,
    _QUEUEING: 1.0,
    _TAIL: 0.3,
    CONTENTION: 1.5,
    _FIXED_CORE: 1.0,
    _JOIN: 0.5,
}
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
    profile = with_value(profile, ("live", "start_spread_share"), 0.0)
    for kind in profile.failures:
        profile = with_value(profile, ("failures", kind, "downtime_spread_share"), 0.0)
    for mechanism in profile.mechanisms:
        profile = with_value(profile, ("mechanisms", mechanism, "gap_spread_share"), 0.0)
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

    def __init__(
        self,
        recording: Recording,
        profile: SimulatorProfile,
        until_s: float,
        *,
        speed_sd: float = LOG_SDS[RECORDS],
    ) -> None:
        """`speed_sd`: how loosely the capacity is held by that of the profile."""
        self._speed_sd = speed_sd
        self._recording = recording
        self._until_s = math.floor(until_s)
        self._profile = without_noise(profile)
        self._width_s = window_s(recording)
        self._passed_over = _unsettled(recording)
        self._recorded = self._windows([one for one in recording.observations if one.time_s <= until_s])
        self._early_weight = 1.0 if recording.is_simulated else _EARLY_WEIGHT
        self._weights = _WEIGHTS if recording.is_simulated else {**_WEIGHTS, Figure.BUSY_SHARE: _BUSY_WEIGHT}
        self._paths = self._knobs()
        self._usual = np.log([max(TINY, value_at(profile, path) or _USUALLY.get(path, 0.0)) for path in self._paths])
        self._sds = np.array([LOG_SDS.get(path, _WARM_UP_SD) for path in self._paths])
        self._sds[self._paths.index(RECORDS)] = speed_sd
        self._replays: dict[bytes, Floats] = {}

    def _windows(self, observations: Sequence[Observation]) -> dict[Figure, Floats]:
        return windows_of(
            observations,
            width_s=self._width_s,
            seconds=self._until_s,
            passed_over=self._passed_over,
            in_batches=in_batches(self._recording, self._profile),
        )

    def _knobs(self) -> tuple[Place, ...]:
        if self._profile.batch is None:
            return (RECORDS, _REST, _QUEUEING, _TAIL)
        kinds = Counter(outage.fault.kind for outage in self._recording.outages if outage.ends_s <= self._until_s)
        how = "share" if self._recording.is_simulated else "cold_s_per_record"
        warm_up = [("failures", kind, "warm_up", how) for kind, _ in kinds.most_common(1)]
        warm_up = [path for path in warm_up if value_at(self._profile, (*path[:3], "duration_s")) > 0.0]
        seen = [one.configuration for one in self._recording.observations if one.time_s <= self._until_s]
        cores = {one.total_cores for one in seen}
        shape = [CONTENTION] if len(cores) > 1 and max(cores) > 1.0 else []
        if not self._recording.is_simulated:
            shape += [_FIXED_CORE] if len(cores) > 1 else []
            shape += [_JOIN] if len({one.executors for one in seen}) > 1 or kinds else []
        return (RECORDS, _FIXED, _REST, *warm_up, *shape)

    def found(self) -> Found:
        best = self._descend(self.start())
        logs = np.log([max(TINY, within(path, math.exp(log))) for path, log in zip(self._paths, best, strict=True)])
        windows = len(self._recorded[Figure.BACKLOG])
        free = max(1, windows - len(self._paths))
        noise = max(1.0, 2.0 * self._loss(best) / (free * len(Figure))) * _ALIKE
        # What is far off counts less, as it does in the loss.
        slope = self._slope(best) * (1.0 + self._off(best) ** 2)[:, None] ** -0.25
        precision = slope.T @ slope / noise + np.diag(self._sds**-2.0)
        covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        return Found(paths=self._paths, logs=logs, covariance=covariance, windows=windows)

    def _descend(self, logs: Floats) -> Floats:
        """Step by step along each parameter, as long as that helps, with ever shorter steps.

        No slopes: a simulated job lives by whole seconds, so that many a small step changes nothing.
        """
        lowest, highest = self._usual - _FURTHEST, self._usual + _FURTHEST
        for step in _STEPS:
            for _ in range(_ROUNDS):
                before = logs
                for index, sign in product(range(len(logs)), (1.0, -1.0)):
                    tried = logs.copy()
                    tried[index] = np.clip(tried[index] + sign * step, lowest[index], highest[index])
                    if self._loss(tried) < self._loss(logs):
                        logs = tried
                if logs is before:
                    break
        return logs

    def start(self) -> Floats:
        """The best of a coarse grid, on the beginning of the run where that is long."""
        if self._until_s <= _LONGEST_FOR_START_S:
            return min(self._starts(), key=self._loss)
        return Search(self._recording, self._profile, _LONGEST_FOR_START_S, speed_sd=self._speed_sd).start()

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

    def _loss(self, logs: Floats) -> float:
        """Nearly the sum of what is off, so that no single window decides."""
        return float((np.sqrt(1.0 + self._off(logs) ** 2) - 1.0).sum())


def _unsettled(recording: Recording) -> list[tuple[float, float]]:
    """When a real job was not itself: it had been started long before in ways that no recording knows."""
    return [] if recording.is_simulated else [(0.0, _UNSETTLED_S)]
