"""Hindsight: the cheapest constant configuration that would have kept the promises, had the load been known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidewise.core import BadInputError, Configuration, ConfigurationSpace, Prices, Promises, format_duration
from tidewise.engines.simulator import SimulatorProfile
from tidewise.engines.simulator.physics import capacity_per_s
from tidewise.experiments.fixed_run import run_fixed
from tidewise.experiments.measures import good_seconds, recoveries_of
from tidewise.experiments.record import FaultRecord, Series
from tidewise.workload import Rates


def judge(series: Series, faults: Sequence[FaultRecord], promises: Promises) -> tuple[float, float]:
    """Share of all seconds that keep the latency promise (1 without one), and the longest recovery."""
    limit_s = promises.latency_p95_s
    good = good_seconds(series, series.latency_p95_s, limit_s)
    share = float(good.mean()) if limit_s is not None else 1.0
    recoveries = recoveries_of(faults, series, good) if promises.recovery_s is not None else ()
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
        self._mean_rate = float(rates_per_s.mean())

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
        # What cannot even keep up with the mean falls behind for ever: no need to simulate that.
        if capacity_per_s(self._profile.capacity, configuration, configuration.executors) < self._mean_rate:
            return False
        share, recovery_s = self.verdict(configuration)
        limit_s = self._promises.recovery_s
        return share >= self._promises.good_share and (limit_s is None or recovery_s <= limit_s)

    def refuse_the_impossible(self, load: str, *others: Configuration) -> None:
        """BadInputError where the most the space has to offer does not keep the promises either."""
        largest = self._space.largest
        if any(self.keeps(configuration) for configuration in (largest, *others)):
            return
        share, recovery_s = self.verdict(largest)
        wanted = []
        if self._promises.latency_p95_s is not None:
            limit = format_duration(self._promises.latency_p95_s)
            wanted.append(
                f"a p95 latency of {limit} in {self._promises.good_share:.1%} of the seconds (it reaches {share:.1%})"
            )
        if self._promises.recovery_s is not None:
            limit = format_duration(self._promises.recovery_s)
            wanted.append(f"a recovery within {limit} (it takes up to {format_duration(recovery_s)})")
        raise BadInputError(
            f"no configuration can keep the promises on the load {load!r}: even {largest} does not keep "
            f"{' and '.join(wanted)}; promise less or widen the space"
        )

    def cheapest(self) -> Configuration:
        """The cheapest configuration that keeps the promises; the largest where none does.

        More executors never do worse, so for each choice of the rest the fewest are found by halving, and a rest
        that cannot beat the best so far is left out.
        """
        best: Configuration | None = None
        rests = [one for one in self._space if one.executors == self._space.executors[0]]
        for rest in sorted(rests, key=self._least_cost):
            if best is not None and self._least_cost(rest) >= self._prices.per_hour(best):
                continue
            found = self._fewest(rest)
            if found is not None and (best is None or self._prices.per_hour(found) < self._prices.per_hour(best)):
                best = found
        return best if best is not None else self._space.largest

    def _least_cost(self, rest: Configuration) -> float:
        for executors in self._space.executors:
            if capacity_per_s(self._profile.capacity, rest, executors) >= self._mean_rate:
                return self._prices.per_hour(replace(rest, executors=executors))
        return float("inf")

    def _fewest(self, rest: Configuration) -> Configuration | None:
        choices = [rest.with_executors(executors) for executors in self._space.executors]
        low, high = 0, len(choices)
        while low < high:
            middle = (low + high) // 2
            if self.keeps(choices[middle]):
                high = middle
            else:
                low = middle + 1
        return choices[low] if low < len(choices) else None
