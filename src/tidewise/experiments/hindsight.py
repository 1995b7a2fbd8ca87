"""Hindsight: the cheapest constant configuration that would have kept the promises, had the load been known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tidewise.core import BadInputError, Configuration, ConfigurationSpace, Prices, Promises, format_duration
from tidewise.engines.simulator import SimulatorProfile
from tidewise.engines.simulator.physics import capacity_per_s
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
        self._needed_per_s = _needed_per_s(rates_per_s, promises)

    def verdict(self, configuration: Configuration) -> tuple[float, float]:
        """What `judge` says of this configuration."""
        known = self._verdicts.get(configuration)
        if known is None:
            series, _ = run_fixed(
                profile=self._profile,
                rates_per_s=self._rates,
                seed=self._seed,
                faults=self._faults,
                configuration=configuration,
            )
            known = self._verdicts[configuration] = judge(series, self._faults, self._promises)
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
        """The cheapest configuration found to keep the promises; None where none is.

        For each choice of the rest the fewest executors that do are searched for, and a rest that cannot beat the best
        so far is left out. Whatever was judged before takes part as well.
        """
        kept = [one for one in self._verdicts if one in self._space and self.keeps(one)]
        best = min(kept, key=self._prices.per_hour, default=None)
        rests = [one for one in self._space if one.executors == self._space.executors[0]]
        for rest in sorted(rests, key=self._least_cost):
            best = self._fewest(rest, math.inf if best is None else self._prices.per_hour(best)) or best
        return best

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

    def _with_executors(self, rest: Configuration) -> list[Configuration]:
        return [rest.with_executors(executors) for executors in self._space.executors]

    def _least_cost(self, rest: Configuration) -> float:
        enough = (one for one in self._with_executors(rest) if self._capacity_per_s(one) >= self._needed_per_s)
        return next(map(self._prices.per_hour, enough), math.inf)

    def _fewest(self, rest: Configuration, cheaper_than: float) -> Configuration | None:
        """The fewest executors with this rest that keep the promises for less than this per hour."""
        choices = [one for one in self._with_executors(rest) if self._prices.per_hour(one) < cheaper_than]
        if not choices or self._least_cost(rest) >= cheaper_than:
            return None
        capacities = [self._capacity_per_s(one) for one in choices]
        peak = capacities.index(max(capacities))
        # Up to the peak, more executors never make latency worse, so halving finds the fewest. Beyond it each costs
        # capacity; what it brings is memory, and that may be what lacks.
        low, high = (0, peak) if self._is_fast_enough(choices[peak]) else (peak + 1, peak + 1)
        while low < high:
            middle = (low + high) // 2
            if self._is_fast_enough(choices[middle]):
                high = middle
            else:
                low = middle + 1
        # From there on one by one: a job that is hardly fast enough may be back at ITS latency soon after a failure.
        return next((one for one in choices[low:] if self.keeps(one)), None)

    def _is_fast_enough(self, configuration: Configuration) -> bool:
        """Whether this configuration keeps the promise about latency."""
        # What cannot get enough of the records through needs no simulation.
        if self._capacity_per_s(configuration) < self._needed_per_s:
            return False
        share, _ = self.verdict(configuration)
        return share >= self._promises.good_share


def _needed_per_s(rates_per_s: Rates, promises: Promises) -> float:
    """A capacity below which the latency promise cannot be kept, whatever the order in which records are processed.

    The records of the good seconds have to be output within the run, 95 % of each. Those are fewest where the good
    seconds are the quietest, and the seconds that the end leaves undecided need not be among them. Without a promise
    about latency nothing follows.
    """
    if promises.latency_p95_s is None:
        return 0.0
    decided = max(0, len(rates_per_s) - math.ceil(promises.latency_p95_s))
    quietest = np.sort(rates_per_s)[: int(promises.good_share * decided)]
    # The capacity of single seconds is noisy, so a little more than its mean may come of it.
    return 0.95 * 0.95 * float(quietest.sum()) / len(rates_per_s)


def _percent(share: float) -> str:
    """Rounded down: what falls short is never shown as reached."""
    return f"{math.floor(share * 1000) / 10:.1f}%"
