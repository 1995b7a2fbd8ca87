"""The hindsight bound: what no policy can be cheaper than, had it known the load and the failures.

Dynamic programming over the moments at which a policy may decide, with the configuration and the backlog as state. It
is to stay below every run of the simulator at no more bad seconds, so it errs to the good where it does not know:

- Backlogs are rounded down, at every step.
- Nothing that was done is done again after a failure, and commit intervals make no difference but by what
  checkpoints take. No change fails, no executor runs out of memory.
- A change has the best luck that a change of this seed can have; failures have the luck they really have. The gap of a
  change that meets a downtime passes within it. Changes leave no warming up behind.
- Capacity is its mean: the noise from one second to the next is left out, and so is the noise of a batch's length. With
  noise the bound holds in the mean only, and a very lucky run may lie below it.
- Latency noise is taken to the good, and the short queues within a second are left out.
- Micro-batches: records are in time only if batches are short, and every batch has its fixed cost: where no second
  is bad, at least `2 x fixed / limit` of the time goes into it, and each bad second gives one second's part of that
  back. That holds over a whole run, and is asked of every step. Batches are otherwise a flow.
- A recovery is watched only where neither another failure nor the end of the run is near; a job whose latency may have
  been unusual before a failure, or that is restarted meanwhile, is not held to the limit.
- No profile is ever paid for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tidewise.core import BadInputError, Configuration, ConfigurationSpace, Mechanism, Prices, Promises
from tidewise.core.checks import require, require_finite
from tidewise.engines.simulator import SimulatorProfile
from tidewise.experiments.bound_choices import Choices, choose
from tidewise.experiments.bound_course import Course, outages_of, state_range
from tidewise.experiments.bound_moves import Move, moves_of
from tidewise.experiments.bound_path import Stage, Way, follow
from tidewise.experiments.bound_search import Search
from tidewise.experiments.bound_stretch import Levels
from tidewise.experiments.record import FaultRecord
from tidewise.experiments.series import FloatArray

Objective = Literal["cores", "money"]
_HOUR_S = 3600.0
_FINEST_SHARE = 0.02
"""The first level of backlog, as a share of what a core does in one step."""
_LEVEL_SHARE = 0.015
"""Between two levels far up."""
_ROUGHER = 4.0
"""The price of a bad second is searched for with levels this many times as far apart: any price gives a bound."""
_OUTAGES = 3.0
"""Backlogs are told apart up to what arrives at most in so many of the longest downtimes, and a minute."""
_FIRST_PRICE = 30.0
"""Of a bad second, in core-seconds: where the search begins."""
_FACTOR = 4.0
"""How far apart the first prices are."""
_CLOSE_FACTOR = 1.15
"""Prices that are closer than this are not told apart."""
_SOLUTIONS = 10
"""So many prices are tried at most."""
_DEARER = 1.3
"""Where the sequence has too many bad seconds after all, the next one pays so much more for each."""
_SEQUENCES = 3
"""So many sequences are tried at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """What the compared runs may have at most."""

    bad_s: float
    """Seconds, downtime included."""
    limit_s: float
    """The latency up to which a second is good."""
    on: Literal["p50", "p95"] = "p50"
    """Of the records that arrive in it."""

    def __post_init__(self) -> None:
        require_finite("bad_s", self.bad_s, least=0.0)
        require_finite("limit_s", self.limit_s, above=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The cheapest sequence that was found, and what none can be cheaper than."""

    objective: Objective
    at_least: float
    """Core-hours or money, driver and controller included: no sequence of this quality takes less."""
    core_hours: float
    """Of the sequence, everything included."""
    gib_hours: float
    money: float
    bad_s: float
    """Of the sequence, as the bound reckons; the simulator shows more."""
    keeps_quality: bool
    """Whether the sequence has no more bad seconds than allowed; where none was found, it is the nearest one."""
    stages: tuple[Stage, ...]

    @property
    def changes(self) -> int:
        return len(self.stages) - 1

    @property
    def reached(self) -> float:
        """What `at_least` is the bound of, for the sequence."""
        return self.core_hours if self.objective == "cores" else self.money

    @property
    def gap_share(self) -> float:
        """By how much the sequence is above the bound, in the bound's own reckoning.

        In the simulator, the sequence has more bad seconds than it says: this does not tell how far the bound is from
        what can be reached there.
        """
        return self.reached / self.at_least - 1.0 if self.at_least > 0 else math.inf


def hindsight_bound(
    *,
    profile: SimulatorProfile,
    rates_per_s: FloatArray,
    faults: Sequence[FaultRecord],
    space: ConfigurationSpace,
    promises: Promises,
    prices: Prices,
    start: Configuration | None,
    quality: Quality,
    seed: int,
    mechanisms: Sequence[Mechanism] | None = None,
    decide_every_s: float = 15.0,
    objective: Objective = "cores",
    controlled: bool = True,
    usual_luck: bool = False,
    resolution: float = 1.0,
) -> Bound:
    """The bound for runs that begin with `start` (None: with whatever is best) and change the job at given moments.

    For any price of a bad second, the least of cost and priced seconds, less the price of those allowed, is a lower
    bound of what every sequence with no more bad seconds costs; the price is searched for at which it is highest.
    `mechanisms`: those a policy may use, all of the profile if not given. `controlled`: whether a controller is paid
    for, as it is where a policy changes the job. `usual_luck`: changes take as long as they usually do; that is nearer
    to what can be reached, but a run whose changes are lucky may lie below it. `resolution`: more of it tells smaller
    backlogs apart. Where nobody can keep the quality, the bound is as high as the search went, or infinite.
    """
    require(decide_every_s >= 1 and decide_every_s == int(decide_every_s), "decide_every_s must be full seconds")
    require(resolution > 0, f"resolution must be above 0, not {resolution:g}")
    unknown = [fault.kind for fault in faults if fault.kind not in profile.failures]
    if unknown:
        raise BadInputError(f"the profile {profile.name} knows no fault {unknown[0]!r}")
    offered = tuple(profile.mechanisms)
    used = offered if mechanisms is None else tuple(one for one in mechanisms if one in offered)
    step_s = int(decide_every_s)
    cores, money = (1.0 / _HOUR_S, 0.0), (prices.core_hour / _HOUR_S, prices.gib_hour / 1024 / _HOUR_S)
    per_s = (cores, money) if objective == "cores" else (money, cores)
    outages = outages_of(profile, faults, seed, used)
    states = state_range(profile, rates_per_s)
    choices = choose(
        profile=profile,
        space=space,
        start=start,
        mechanisms=used,
        prices_per_s=per_s,
        lost=max((outage.lost for outage in outages), default=0),
        state_mib=states,
    )
    moves = moves_of(
        profile,
        used,
        seed=seed,
        steps=-(-len(rates_per_s) // step_s),
        step_s=step_s,
        bad_s=quality.bad_s,
        least_state_mib=states[0],
        usual_luck=usual_luck,
    )
    longest = max((move.steps for move in moves), default=1)
    course = Course(
        profile=profile,
        choices=choices,
        rates_per_s=rates_per_s,
        faults=faults,
        outages=outages,
        limit_s=quality.limit_s,
        on_p95=quality.on == "p95",
        recovery_s=promises.recovery_s,
        step_s=step_s,
        beyond_s=(longest + 1) * step_s,
    )
    downtimes_s = [outage.up_s - outage.noticed_s for outage in outages] + [move.gap_s for move in moves]
    problem = _Problem(
        course=course,
        choices=choices,
        moves=moves,
        driver_per_s=profile.driver.cores * per_s[0][0] + profile.driver.memory_mib * per_s[0][1],
        finest=_FINEST_SHARE * profile.capacity.records_per_core_s * step_s / resolution,
        share=_LEVEL_SHARE / resolution,
        most=float(rates_per_s.max()) * (_OUTAGES * max(downtimes_s, default=0.0) + 60.0),
        first=None if start is None else choices.configurations.index(start),
        allowed_s=quality.bad_s,
    )
    least, way = problem.highest(_FIRST_PRICE * (per_s[0][0] + 1024 * per_s[0][1]))
    fixed = [profile.driver, profile.controller] if controlled else [profile.driver]
    seconds = len(rates_per_s)
    fixed_core_s = sum(one.cores for one in fixed) * seconds
    fixed_mib_s = sum(one.memory_mib for one in fixed) * seconds
    core_s = way.core_s + fixed_core_s + profile.driver.cores * way.double_s
    mib_s = way.memory_mib_s + fixed_mib_s + profile.driver.memory_mib * way.double_s
    return Bound(
        objective=objective,
        at_least=least + per_s[0][0] * fixed_core_s + per_s[0][1] * fixed_mib_s,
        core_hours=core_s / _HOUR_S,
        gib_hours=mib_s / 1024 / _HOUR_S,
        money=prices.cost(core_s=core_s, memory_mib_s=mib_s),
        bad_s=way.bad_s,
        keeps_quality=way.bad_s <= quality.bad_s,
        stages=way.stages,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Problem:
    """Everything but the price of a bad second."""

    course: Course
    choices: Choices
    moves: tuple[Move, ...]
    driver_per_s: float
    finest: float
    share: float
    most: float
    first: int | None
    """The choice that the job starts with; None: any."""
    allowed_s: float

    def highest(self, price: float) -> tuple[float, Way]:
        """The best bound over the prices of a bad second, and the cheapest sequence seen that keeps the quality.

        `price`: where to begin.
        """
        rough, fine = self._levels(_ROUGHER), self._levels(1.0)
        best = self._best_price(self._search(rough), price)
        search = self._search(fine)
        least, price = -math.inf, best
        ways = []
        for _ in range(_SEQUENCES):
            values, advice = search.solve(price, advise=True)
            start = int(values.argmin()) if self.first is None else self.first
            least = max(least, float(values[start]) - price * self.allowed_s)
            way = follow(
                advice,
                search=search,
                course=self.course,
                choices=self.choices,
                moves=self.moves,
                levels=fine,
                start=start,
            )
            ways.append(way)
            if way.bad_s <= self.allowed_s:
                break
            price *= _DEARER
        return least, min(ways, key=lambda way: (max(0.0, way.bad_s - self.allowed_s), way.cost))

    def _best_price(self, search: Search, price: float) -> float:
        """Where the bound, which is concave in the price, is highest: looked for by factors that become smaller."""
        known: dict[float, float] = {}

        def bound_at(price: float) -> float:
            if price not in known:
                values, _ = search.solve(price, advise=False)
                known[price] = float(values.min() if self.first is None else values[self.first])
                known[price] -= price * self.allowed_s
            return known[price]

        factor = _FACTOR
        while factor > _CLOSE_FACTOR and len(known) < _SOLUTIONS:
            up, down = price * factor, price / factor
            if bound_at(up) > bound_at(price):
                price = up
            elif bound_at(down) > bound_at(price):
                price = down
            else:
                factor = math.sqrt(factor)
        return price

    def _levels(self, rougher: float) -> Levels:
        return Levels.up_to(self.most, finest=self.finest * rougher, share=self.share * rougher)

    def _search(self, levels: Levels) -> Search:
        return Search(
            course=self.course, choices=self.choices, moves=self.moves, levels=levels, driver_per_s=self.driver_per_s
        )
