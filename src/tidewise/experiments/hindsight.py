"""Hindsight: the cheapest constant configuration that would have kept the promises, had the load been known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidewise.core import BadInputError, Configuration, ConfigurationSpace, Prices, Promises, format_duration
from tidewise.engines.simulator import SimulatorProfile
from tidewise.engines.simulator.physics import capacity_per_s, memory_share
from tidewise.experiments.fixed_run import run_fixed
from tidewise.experiments.measures import good_share, recoveries_of
from tidewise.experiments.record import FaultRecord
from tidewise.experiments.series import Series
from tidewise.workload import Rates


def judge(series: Series, faults: Sequence[FaultRecord], promises: Promises) -> tuple[float, float]:
    """Share of all seconds that keep the latency promise (1 without one), and the longest recovery."""
    limit_s = promises.latency_p95_s
    share = 1.0 if limit_s is None else good_share(series, series.latency_p95_s, limit_s)
    recoveries = recoveries_of(faults, series) if promises.recovery_s is not None else ()
    return share, max((recovery.at_least_s for recovery in recoveries), default=0.0)


class Hindsight:
    """Judges constant configurations on one load, with one seed and its failures, remembering every verdict."""

    def __init__(
        self,
        *,
        profile: SimulatorProfile,
        rates_per_s: Rates,
        seed: int,
        faults: Sequence[FaultRecord],
        space: ConfigurationSpace,
        promises: Promises,
        prices: Prices,
    ) -> None:
        self._profile = profile
        self._rates = rates_per_s
        self._seed = seed
        self._faults = tuple(faults)
        self._space = space
        self._promises = promises
        self._prices = prices
        self._verdicts: dict[Configuration, tuple[float, float]] = {}
        self._by_physics: dict[_Physics, tuple[float, float]] = {}
        self._needed_per_s = _needed_per_s(rates_per_s, promises)
        self._busiest_per_s = float(np.max(_minutes(rates_per_s)))
        memory = profile.memory
        self._most_state_mib = memory.state_base_mib + memory.state_mib_per_record_per_s * float(rates_per_s.max())

    def verdict(self, configuration: Configuration) -> tuple[float, float]:
        """What `judge` says of this configuration."""
        known = self._verdicts.get(configuration)
        if known is None:
            physics = self._physics(configuration)
            known = self._by_physics.get(physics)
            if known is None:
                series, _ = run_fixed(
                    profile=self._profile,
                    rates_per_s=self._rates,
                    seed=self._seed,
                    faults=self._faults,
                    configuration=configuration,
                )
                known = self._by_physics[physics] = judge(series, self._faults, self._promises)
            self._verdicts[configuration] = known
        return known

    def keeps(self, configuration: Configuration) -> bool:
        """Whether this configuration keeps every promise over the whole run."""
        return self._is_fast_enough(configuration) and not self._broken(configuration)

    def refuse_the_impossible(self, load: str, *others: Configuration) -> None:
        """BadInputError where no configuration of the space keeps the promises, with the one that comes nearest.

        The largest and `others` are tried first, so that the search is only paid for where it may end in a refusal.
        """
        largest = self._space.largest
        if any(self.keeps(configuration) for configuration in (largest, *others)) or self.cheapest() is not None:
            return
        self.verdict(largest)  # there is always one that is nearest
        nearest = max(self._verdicts, key=self._nearness)
        raise BadInputError(
            f"no configuration can keep the promises on the load {load!r}: the nearest that was found, {nearest}, "
            f"{' and '.join(self._broken(nearest))}; promise less or widen the space"
        )

    def cheapest(self) -> Configuration | None:
        """The cheapest configuration that keeps the promises; None where none does.

        In order of their price, without those that something at least as good was seen to fail with. Before that, the
        least capacity that is enough is searched for by halving: what it finds not to be enough rules out most others.
        """
        able = [one for one in self._space if self._capacity_per_s(one) >= self._needed_per_s]
        failed: list[_Physics] = []
        for interval_s in self._space.commit_interval_s:
            self._look_for_the_least(able, interval_s, failed)
        for one in sorted(able, key=lambda one: (self._prices.per_hour(one), one.commit_interval_s)):
            physics = self._physics(one)
            if any(self._rules_out(other, physics) for other in failed):
                continue
            if self.keeps(one):
                return one
            failed.append(physics)
        return None

    def _look_for_the_least(self, able: Sequence[Configuration], interval_s: float, failed: list[_Physics]) -> None:
        """By halving, among those of this commit interval whose memory is never felt."""
        knee = self._profile.memory.knee_share
        choices = {self._physics(one): one for one in able if one.commit_interval_s == interval_s}
        ordered = sorted((one for one in choices if one.pressure <= knee), key=lambda one: one.capacity_per_s)
        low, high = 0, len(ordered)
        while low < high:
            middle = (low + high) // 2
            physics = ordered[middle]
            if any(self._rules_out(other, physics) for other in failed):
                low = middle + 1
            elif self.keeps(choices[physics]):
                high = middle
            else:
                failed.append(physics)
                low = middle + 1

    def _physics(self, configuration: Configuration) -> _Physics:
        memory, executors = self._profile.memory, configuration.executors
        pressure = memory_share(memory, configuration, executors, self._most_state_mib)
        return _Physics(
            capacity_per_s=self._capacity_per_s(configuration),
            interval_s=configuration.commit_interval_s,
            pressure=max(pressure, memory.knee_share),
            # Memory that is felt is felt by each executor, and losing one of few is losing much.
            executors=executors if pressure > memory.knee_share or self._loses_executors else None,
        )

    @property
    def _loses_executors(self) -> bool:
        return any(self._profile.failures[fault.kind].executors_lost > 0 for fault in self._faults)

    def _rules_out(self, failed: _Physics, other: _Physics) -> bool:
        """Whether one that fails shows that the other does as well: it has no more of anything."""
        if failed.capacity_per_s < other.capacity_per_s or failed.pressure > other.pressure:
            return False
        if failed.executors is not None and (other.executors is None or failed.executors < other.executors):
            return False
        # Where commits cost nothing, more of them only mean that less is done again after a failure.
        free = self._profile.mode == "continuous" and self._profile.checkpoint_cost_s == 0.0
        if failed.interval_s != other.interval_s and not (free and failed.interval_s < other.interval_s):
            return False
        # A job that is overloaded now and then may be back at ITS latency soon after a failure: it is tried for itself.
        return other.capacity_per_s >= self._busiest_per_s or not self._by_recovery(failed)

    def _by_recovery(self, failed: _Physics) -> bool:
        """Whether it fails only because it takes too long to recover."""
        share, _ = self._by_physics.get(failed, (0.0, 0.0))
        return self._promises.latency_p95_s is None or share >= self._promises.good_share

    def _broken(self, configuration: Configuration) -> list[str]:
        """What this configuration does instead of what was promised; empty: it keeps all promises."""
        share, recovery_s = self.verdict(configuration)
        promises = self._promises
        told = []
        if promises.latency_p95_s is not None and share < promises.good_share:
            limit = format_duration(promises.latency_p95_s)
            told.append(
                f"keeps a p95 latency of {limit} in {_percent(share)} of the seconds instead of "
                f"{promises.good_share:.1%}"
            )
        if promises.recovery_s is not None and recovery_s > promises.recovery_s:
            limit = format_duration(promises.recovery_s)
            told.append(f"takes up to {format_duration(recovery_s)} to recover instead of {limit}")
        return told

    def _nearness(self, configuration: Configuration) -> tuple[float, float]:
        """More is nearer: the share of good seconds as far as it was promised, then the time to recover."""
        share, recovery_s = self.verdict(configuration)
        return min(share, self._promises.good_share), -recovery_s

    def _capacity_per_s(self, configuration: Configuration) -> float:
        return capacity_per_s(self._profile.capacity, configuration, configuration.executors)

    def _is_fast_enough(self, configuration: Configuration) -> bool:
        """Whether this configuration keeps the promise about latency."""
        # What cannot get enough of the records through needs no simulation.
        if self._capacity_per_s(configuration) < self._needed_per_s:
            return False
        share, _ = self.verdict(configuration)
        return share >= self._promises.good_share


@dataclass(frozen=True, slots=True, kw_only=True)
class _Physics:
    """All of a configuration that the course of a run depends on."""

    capacity_per_s: float
    interval_s: float
    pressure: float
    """The largest share of memory that can come about; the same for all that never feel it."""
    executors: int | None
    """None: their number makes no difference."""


def _needed_per_s(rates_per_s: Rates, promises: Promises) -> float:
    """A capacity below which the latency promise cannot be kept, even by a job that nothing ever happens to.

    Found by halving: without failures and fixed costs, records wait for nothing but those before them. Without a
    promise about latency nothing follows.
    """
    if promises.latency_p95_s is None:
        return 0.0
    low, high = 0.0, float(rates_per_s.max())
    while high - low > 0.001 * high:
        middle = (low + high) / 2
        if _ideal_share(rates_per_s, middle, promises.latency_p95_s) < promises.good_share:
            low = middle
        else:
            high = middle
    # The capacity of single seconds is noisy, so a little more than its mean may come of it.
    return 0.95 * low


def _ideal_share(rates_per_s: Rates, capacity_per_s: float, limit_s: float) -> float:
    """The most seconds that can be good with this capacity: those whose first record does not wait too long."""
    decided = max(1, len(rates_per_s) - math.ceil(limit_s))
    growth = np.cumsum(rates_per_s - capacity_per_s)
    backlog = growth - np.minimum(np.minimum.accumulate(growth), 0.0)
    late = np.concatenate(([0.0], backlog[:-1])) > limit_s * capacity_per_s
    return 1.0 - float(late[:decided].sum()) / decided


def _minutes(rates_per_s: Rates) -> Rates:
    """Means over minutes; of all, where there is no whole one."""
    whole = len(rates_per_s) // 60 * 60
    return np.asarray(rates_per_s[:whole].reshape(-1, 60).mean(axis=1) if whole else [rates_per_s.mean()])


def _percent(share: float) -> str:
    """Rounded down: what falls short is never shown as reached."""
    return f"{math.floor(share * 1000) / 10:.1f}%"
