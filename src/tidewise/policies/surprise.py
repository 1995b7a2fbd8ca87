"""What the latest reports say that models and forecasts have not heard of yet: a burst, a job that became slower."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from tidewise.core import MEDIAN, Configuration, Forecast, JobStatus, Observation
from tidewise.policies.load_habits import mean_rate

_RECENT_S = 30.0
_BELIEVED = 0.15
"""By how much (of its logarithm) a capacity has to differ from what is known to be believed."""
_JUMP = 1.2
_IDLE = 0.05
_LEAST_S, _LOOKED_AT_S = 30.0, 60.0
_SURE = 2.0
"""Standard errors of what the reports say."""
_JOINED = 0.25
"""How long executors that join or leave disturb the others, in times to settle."""
_LONG = 30.0
"""What has been held for so many times to settle is no passing trouble."""
_NOTHING = 0.01
"""A forecast of less than this share of what arrives forecasts nothing."""
_LARGEST = math.log(4.0)


Known = Callable[[Configuration, float], tuple[float, float]]
"""Mean and spread of the logarithm of a configuration's capacity, at a rate."""


CapacityOf = Callable[[Observation], tuple[float, float] | None]
"""The same for the configuration of a report; None where it is not known."""


class Shown(Protocol):
    """What configurations have done themselves."""

    def __call__(self, observation: Observation, *, least: bool) -> tuple[float, float] | None:
        """Mean and spread of the logarithm of what the configuration of a report has done; None: it has hardly run.

        `least`: or the most that fewer of its executors have.
        """


class Surprise:
    """Follows the reports since the last disturbance."""

    def __init__(self, *, settle_s: float) -> None:
        """`settle_s`: for how long after a disturbance reports tell nothing of what is usual."""
        self._settle_s = settle_s
        self._looked_at_s = max(2.0 * settle_s, _LOOKED_AT_S)
        self._calm_from_s = -math.inf
        self._last: Observation | None = None
        self._calm: deque[Observation] = deque()
        self._held = 1.0
        self._held_since_s = -math.inf
        self._told_from_s = -math.inf

    def learn(self, observation: Observation) -> None:
        """Take one report in."""
        last, self._last = self._last, observation
        if observation.status is not JobStatus.RUNNING or last is None:
            self._calm_from_s = observation.time_s + self._settle_s
            self._calm.clear()
        elif last.configuration != observation.configuration:
            # Executors that come and go disturb the others for a moment only.
            same_kind = last.configuration.with_executors(1) == observation.configuration.with_executors(1)
            if not same_kind:
                self._calm.clear()
            rest_s = _JOINED * self._settle_s if same_kind else self._settle_s
            self._calm_from_s = max(self._calm_from_s, observation.time_s + rest_s)
        if observation.busy_share is not None and self.is_calm(observation):
            self._calm.append(observation)
        while self._calm and self._calm[0].time_s <= observation.time_s - self._looked_at_s:
            self._calm.popleft()

    def felt(self, at_s: float) -> None:
        """The job has failed and come up again before a report could tell that it was down."""
        self._calm_from_s = max(self._calm_from_s, at_s + self._settle_s)
        self._calm.clear()

    def rate_per_s(self, history: Sequence[Observation]) -> float:
        """What has arrived lately; by the last two reports alone where both of them show more."""
        latest = history[-1]
        recent = [seen for seen in history if seen.time_s > latest.time_s - _RECENT_S]
        mean = mean_rate(recent)
        return max(mean, min(seen.load_per_s for seen in history[-2:])) if len(history) > 1 else mean

    def is_calm(self, observation: Observation) -> bool:
        """Whether nothing has disturbed the job shortly before this report."""
        return (
            observation.status is JobStatus.RUNNING and observation.time_s - observation.window_s >= self._calm_from_s
        )

    def is_jumping(self, history: Sequence[Observation]) -> bool:
        """Whether the last report shows so much more than the ones before that the next may show more again."""
        return history[-1].load_per_s > _JUMP * self.rate_per_s(history)

    def bent(self, forecast: Forecast, rate_per_s: float, now_s: float) -> Forecast:
        """The forecast from now on; lifted where more arrives than it thought possible."""
        passed = int(max(0.0, now_s - forecast.made_at_s) // forecast.step_s)
        passed = min(passed, len(forecast.paths_per_s[0]) - 1)
        paths = [path[passed:] for path in forecast.paths_per_s]
        middle, highest = paths[forecast.levels.index(MEDIAN)][0], paths[-1][0]
        if rate_per_s > highest:
            if middle > _NOTHING * rate_per_s:
                factor = rate_per_s / middle
                paths = [tuple(rate * factor for rate in path) for path in paths]
            else:
                paths = [tuple(max(rate, rate_per_s) for rate in path) for path in paths]
        return replace(forecast, made_at_s=now_s, paths_per_s=tuple(paths))

    @property
    def cores_in_use(self) -> float | None:
        """Of CPU, by the calm reports of the last minute; None where they do not tell."""
        told = [
            (each.cpu_share * each.configuration.total_cores, each.window_s)
            for each in self._calm
            if each.cpu_share is not None
        ]
        lasted_s = sum(window_s for _, window_s in told)
        if lasted_s < max(self._settle_s, _LEAST_S):
            return None
        return sum(cores * window_s for cores, window_s in told) / lasted_s

    def slower(self, known: Known) -> float:
        """What is left of the capacity that is known; 1 where the reports do not contradict it.

        Where they do not tell, just after a failure, it is what was held of it.
        """
        left = self._left(self._by_model(known))
        return self._held if left is None else left

    @property
    def held(self) -> float:
        """What is left of every capacity of a job that does less than it did itself before; never more than all of it.

        It is the job that has changed, and not what is believed of one configuration: what the job shows meanwhile says
        nothing else of what configurations do beside each other.
        """
        return self._held

    def hold(self, shown: Shown, *, known: Known) -> float:
        """Let the latest report change what is held; how many times as much as it did before the job does now.

        What a job does more than ever it does for good: it was cold, or it was not known how little of a batch is work.
        What it does less may come back.
        """
        if not self._calm or self._calm[-1] is not self._last:
            return 1.0

        def own(seen: Observation) -> tuple[float, float] | None:
            return shown(seen, least=False)

        now = self._left(own)
        if now is None:
            self._hold_at_first(shown, known)
            return 1.0
        if now < self._held == 1.0 and not self._lasts(own):
            return 1.0
        self._keep(min(1.0, now))
        if now > 1.0:
            self._told_from_s = self._calm[-1].time_s
        return max(1.0, now)

    def settled(self, now_s: float) -> float:
        """What is left of every capacity of a job that has been held to be slower for long: it is how the job is now.

        It is not held any longer then, and whoever asks has to learn it. 1: nothing has been held for long.
        """
        if self._held == 1.0 or now_s - self._held_since_s < _LONG * self._settle_s:
            return 1.0
        left, self._told_from_s = self._held, now_s
        self._keep(1.0)
        return left

    def _keep(self, held: float) -> None:
        if self._held == 1.0 and self._last is not None:
            self._held_since_s = self._last.time_s
        self._held = held

    def _hold_at_first(self, shown: Shown, known: Known) -> None:
        """With a configuration that has hardly run, too much may have been believed of it: it tells of no other.

        Unless it does less than fewer of the same executors have done: more of them are no reason to do less.
        """
        by_model = self._by_model(known)
        left = self._left(by_model) if self._held == 1.0 else None
        # What fewer have done takes long to look up where there are hundreds.
        if left is None or left >= 1.0 or not self._lasts(by_model):
            return
        of_least = self._left(lambda seen: shown(seen, least=True))
        if of_least is not None and of_least < 1.0:
            self._keep(left)

    def _lasts(self, capacity_of: CapacityOf) -> bool:
        """Whether the job has been slower for as long as is looked at: a start that nobody noticed is over sooner."""
        middle_s = self._calm[-1].time_s - 0.5 * self._looked_at_s
        least_s = 0.25 * self._looked_at_s
        earlier = [each for each in self._calm if each.time_s <= middle_s]
        later = [each for each in self._calm if each.time_s > middle_s]
        halves = [self._left(capacity_of, half, least_s=least_s) for half in (earlier, later)]
        return all(half is not None and half < 1.0 for half in halves)

    def _by_model(self, known: Known) -> Callable[[Observation], tuple[float, float]]:
        rate = self._calm[-1].load_per_s if self._calm else 0.0
        return lambda seen: known(seen.configuration, rate)

    def _left(
        self, capacity_of: CapacityOf, calm: Iterable[Observation] | None = None, *, least_s: float | None = None
    ) -> float | None:
        """How many times that much the job does; 1 where it is not sure to differ, None where nothing tells."""
        seen = self._calm if calm is None else calm
        calm = [each for each in seen if each.time_s - each.window_s >= self._told_from_s]
        lasted_s = sum(each.window_s for each in calm)
        least_s = max(self._settle_s, _LEAST_S) if least_s is None else least_s
        done = [each.processed_rate_per_s * each.window_s for each in calm]
        busy_s = [(each.busy_share or 0.0) * each.window_s for each in calm]
        if lasted_s < least_s or sum(busy_s) < _IDLE * lasted_s or sum(done) <= 0.0:
            return None
        capacities = [capacity_of(each) for each in calm]
        known = [each for each in capacities if each is not None]
        if len(known) < len(calm):
            return None
        possible = [busy * math.exp(log_mean) for busy, (log_mean, _) in zip(busy_s, known, strict=True)]
        off = math.log(sum(done) / sum(possible))
        doubt = max(log_sd for _, log_sd in known) + _SURE * _standard_error(done, possible)
        # What has been held is held until the job does again what it did.
        if abs(off) < (_BELIEVED if off < 0.0 and self._held < 1.0 else _BELIEVED + doubt):
            return 1.0
        return math.exp(max(-_LARGEST, min(_LARGEST, off)))


def _standard_error(done: Sequence[float], possible: Sequence[float]) -> float:
    """Of the logarithm of the ratio of the two sums: by how it changes when one window is left out."""
    all_done, all_possible, count = sum(done), sum(possible), len(done)
    logs = [
        math.log(max(_NOTHING * all_done, all_done - one) / max(_NOTHING * all_possible, all_possible - other))
        for one, other in zip(done, possible, strict=True)
    ]
    middle = sum(logs) / count
    return math.sqrt((count - 1) / count * sum((each - middle) ** 2 for each in logs))
