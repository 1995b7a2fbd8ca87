"""The hindsight bound: what no policy can be cheaper than, had it known the load and the failures.

Dynamic programming over the moments at which a policy may decide, with the configuration, the backlog and the number of
changes as state. It is to stay below every run of the simulator at no more bad seconds, so it errs to the good where it
does not know:

- Backlogs are rounded down, at every step.
- Nothing that was done is done again after a failure or a change, and commit intervals make no difference but by what
  checkpoints take. No change fails, no executor runs out of memory.
- Where every change has a gap, the first changes have the luck they really have, by their number. Those beyond, and all
  where executors join and leave, have the best luck that a change of this seed can have. Failures have the luck they
  really have. Changes leave no warming up behind. Bad seconds between a gap and the next decision are counted as for a
  job that had no backlog before the gap.
- Continuous: the noise of capacity and latency is that of this seed, second by second. A second that ends with nothing
  to do is good.
- Micro-batches: bad seconds are what long batches cost, by lines below what can be done: see `bound_batches`. Batches
  are otherwise a flow. Without noise that holds for every run, with noise in the mean only: a very lucky run may lie
  below the bound.
- A recovery is watched only where neither another failure nor the end of the run is near; a job whose latency may have
  been unusual before a failure, or that is restarted meanwhile, is not held to the limit.
- The largest configurations are taken together: the price of the cheapest, the speed of the fastest. Where executors
  join and leave, a handover to more or fewer of them is looked at around failures only.
- No profile is ever paid for.

How far that is from what can be done is told by a sequence that keeps quality and promises in the simulator: `achieve`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tidewise.core import BadInputError, Configuration, ConfigurationSpace, Mechanism, Prices, Promises
from tidewise.core.checks import require, require_finite
from tidewise.engines.simulator import SimulatorProfile
from tidewise.experiments.bound_batches import Trade, trades_of
from tidewise.experiments.bound_choices import Choices, choose
from tidewise.experiments.bound_course import Course, outages_of, state_range
from tidewise.experiments.bound_moves import Moves, moves_of
from tidewise.experiments.bound_path import Stage, Way, follow
from tidewise.experiments.bound_polish import polished
from tidewise.experiments.bound_replay import Replayed, replay
from tidewise.experiments.bound_search import Search, Solved
from tidewise.experiments.bound_stretch import Landing, Levels
from tidewise.experiments.record import FaultRecord
from tidewise.experiments.series import FloatArray

Objective = Literal["cores", "money"]
_HOUR_S = 3600.0
_FINEST_SHARE = 0.005
"""The first level of backlog, as a share of what a core does in one step."""
_LEVEL_SHARE = 0.015
"""Between two levels far up."""
_ROUGHER = 4.0
"""The price of a bad second is searched for with levels this many times as far apart: any price gives a bound."""
_OUTAGES = 3.0
"""Backlogs are told apart up to what arrives at most in so many of the longest downtimes, and a minute."""
_FIRST_PRICE = 70.0
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
_CAUTION = (
    *((0.0, 1.0), (0.02, 1.2), (0.04, 1.4), (0.06, 1.6), (0.09, 1.8), (0.13, 2.0)),
    *((0.17, 2.2), (0.21, 2.4), (0.25, 2.6), (0.3, 3.0), (0.4, 3.5)),
)
"""By how much more load, and by which factor of the price of a bad second, sequences are looked for that can be run."""
_FIRST_CAUTION = 2
"""Which of them is tried first."""
_POLISHED, _MOST_POLISHED = 400, 50
"""So many small steps are tried to make a sequence cheaper that can be run, if it has no more changes than this."""


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
    achieved: Replayed | None = None
    """A sequence that keeps quality and promises in the simulator: the best possible lies between `at_least` and this.

    None: it was not asked for, or none was found.
    """

    @property
    def changes(self) -> int:
        return len(self.stages) - 1

    @property
    def at_most(self) -> float | None:
        """What `at_least` is the bound of, for the sequence that was achieved."""
        if self.achieved is None:
            return None
        return self.achieved.core_hours if self.objective == "cores" else self.achieved.money

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
    max_changes: int | None = None,
    usual_luck: bool = False,
    resolution: float = 1.0,
    achieve: bool = False,
) -> Bound:
    """The bound for runs that begin with `start` (None: with whatever is best) and change the job at given moments.

    For any price of a bad second, the least of cost and priced seconds, less the price of those allowed, is a lower
    bound of what every sequence with no more bad seconds costs; the price is searched for at which it is highest.
    `mechanisms`: those a policy may use, all of the profile if not given. `controlled`: whether a controller is paid
    for, as it is where a policy changes the job. `max_changes`: no sequence may have more. `usual_luck`: changes take
    as long as they usually do; that is nearer to what can be reached, but a run whose changes are lucky may lie below.
    `resolution`: more of it tells smaller backlogs apart. `achieve`: look for a sequence as well that the simulator
    shows to keep quality and promises, which takes about as long again. Where nobody can keep the quality, the bound
    is as high as the search went, or infinite.
    """
    require(decide_every_s >= 1 and decide_every_s == int(decide_every_s), "decide_every_s must be full seconds")
    require(resolution > 0, f"resolution must be above 0, not {resolution:g}")
    require(max_changes is None or max_changes >= 0, f"max_changes must not be below 0, as {max_changes} is")
    unknown = [fault.kind for fault in faults if fault.kind not in profile.failures]
    if unknown:
        raise BadInputError(f"the profile {profile.name} knows no fault {unknown[0]!r}")
    offered = tuple(profile.mechanisms)
    cores, money = (1.0 / _HOUR_S, 0.0), (prices.core_hour / _HOUR_S, prices.gib_hour / 1024 / _HOUR_S)
    used = offered if mechanisms is None else tuple(one for one in mechanisms if one in offered)
    down_s = sum(outage.up_s - outage.noticed_s for outage in outages_of(profile, faults, seed, used))
    trades = trades_of(
        profile,
        limit_s=quality.limit_s,
        on_p95=quality.on == "p95",
        seed=seed,
        intervals_s=sorted({*space.commit_interval_s, *([] if start is None else [start.commit_interval_s])}),
        bad_share=max(0.0, quality.bad_s - down_s) / len(rates_per_s) / 2,
    )
    trial = _Trial(
        profile=profile,
        rates_per_s=rates_per_s,
        faults=tuple(faults),
        space=space,
        recovery_s=promises.recovery_s,
        start=start,
        quality=quality,
        seed=seed,
        mechanisms=used,
        step_s=int(decide_every_s),
        per_s=(cores, money) if objective == "cores" else (money, cores),
        max_changes=max_changes,
        resolution=resolution,
        trades=trades,
    )
    per_core_s, per_mib_s = trial.per_s[0]
    least, way, price = trial.problem(usual_luck=usual_luck).highest(_FIRST_PRICE * (per_core_s + 1024 * per_mib_s))
    fixed = [profile.driver, profile.controller] if controlled else [profile.driver]
    seconds = len(rates_per_s)
    fixed_core_s = sum(one.cores for one in fixed) * seconds
    fixed_mib_s = sum(one.memory_mib for one in fixed) * seconds
    core_s = way.core_s + fixed_core_s + profile.driver.cores * way.double_s
    mib_s = way.memory_mib_s + fixed_mib_s + profile.driver.memory_mib * way.double_s
    found = Bound(
        objective=objective,
        at_least=least + per_core_s * fixed_core_s + per_mib_s * fixed_mib_s,
        core_hours=core_s / _HOUR_S,
        gib_hours=mib_s / 1024 / _HOUR_S,
        money=prices.cost(core_s=core_s, memory_mib_s=mib_s),
        bad_s=way.bad_s,
        keeps_quality=way.bad_s <= quality.bad_s,
        stages=way.stages,
    )
    if not achieve:
        return found
    return replace(found, achieved=_achieved(trial, price, way.stages, prices, controlled=controlled))


def _achieved(
    trial: _Trial, price: float, stages: Sequence[Stage], prices: Prices, *, controlled: bool
) -> Replayed | None:
    """The cheapest sequence that was found to keep the quality in the simulator.

    After the bound's own, sequences for more load than there is: for the least more that is enough, found by halving.
    What was found is made cheaper in small steps.
    """

    def run(stages: Sequence[Stage]) -> Replayed:
        return replay(
            stages,
            profile=trial.profile,
            rates_per_s=trial.rates_per_s,
            faults=trial.faults,
            seed=trial.seed,
            limit_s=trial.quality.limit_s,
            on_p95=trial.quality.on == "p95",
            prices=prices,
            controlled=controlled,
        )

    first = run(stages)
    kept = [first] if trial.is_kept_by(first) else []
    low, high, middle = 0, 0 if kept else len(_CAUTION), _FIRST_CAUTION
    while low < high:
        margin, factor = _CAUTION[middle]
        ran = run(trial.problem(margin=margin).cautious(price * factor).stages)
        if trial.is_kept_by(ran):
            kept.append(ran)
            high = middle
        else:
            low = middle + 1
        middle = (low + high) // 2
    core, mib = trial.per_s[0]

    def cost(ran: Replayed) -> float:
        return ran.core_hours * core + ran.gib_hours * 1024 * mib

    best = min(kept, key=cost, default=None)
    if best is None or best.changes > _MOST_POLISHED:
        return best
    return polished(
        best,
        run=run,
        is_kept=trial.is_kept_by,
        cost=cost,
        step_s=trial.step_s,
        executors=trial.space.executors,
        tries=_POLISHED,
        seed=trial.seed,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Trial:
    """What is asked."""

    profile: SimulatorProfile
    rates_per_s: FloatArray
    faults: tuple[FaultRecord, ...]
    space: ConfigurationSpace
    recovery_s: float | None
    start: Configuration | None
    quality: Quality
    seed: int
    mechanisms: tuple[Mechanism, ...]
    step_s: int
    per_s: tuple[tuple[float, float], tuple[float, float]]
    """Prices of a core and of a MiB: in what is kept low, then in what decides between equals."""
    max_changes: int | None
    resolution: float
    trades: tuple[Trade, ...]

    def is_kept_by(self, ran: Replayed) -> bool:
        """Whether a run has the quality, and keeps the other promises."""
        late = self.recovery_s is not None and ran.recovery_s > self.recovery_s
        often = self.max_changes is not None and ran.changes > self.max_changes
        return ran.bad_s <= self.quality.bad_s and not late and not often

    def problem(self, *, usual_luck: bool = False, margin: float | None = None) -> _Problem:
        """`margin`: for a sequence that is to be run, so that nothing is taken to the good, with so much more load."""
        profile, quality = self.profile, self.quality
        rates_per_s = self.rates_per_s * (1.0 + (margin or 0.0))
        outages = outages_of(profile, self.faults, self.seed, self.mechanisms)
        states = state_range(profile, rates_per_s)
        choices = choose(
            profile=profile,
            space=self.space,
            start=self.start,
            mechanisms=self.mechanisms,
            prices_per_s=self.per_s,
            lost=max((outage.lost for outage in outages), default=0),
            state_mib=states,
            only_real=margin is not None,
        )
        moves = moves_of(
            profile,
            self.mechanisms,
            seed=self.seed,
            steps=-(-len(rates_per_s) // self.step_s),
            bad_s=quality.bad_s,
            least_state_mib=states[0],
            # Where changes do not have their own luck, what is to be run had better not count on the best.
            usual_luck=usual_luck or (margin is not None and Mechanism.LIVE in self.mechanisms),
            max_changes=self.max_changes,
        )
        downtimes_s = [outage.up_s - outage.noticed_s for outage in outages]
        course = Course(
            profile=profile,
            choices=choices,
            rates_per_s=rates_per_s,
            faults=self.faults,
            outages=outages,
            limit_s=quality.limit_s,
            on_p95=quality.on == "p95",
            recovery_s=self.recovery_s,
            step_s=self.step_s,
            farthest=2 + int((moves.longest_s + max(downtimes_s, default=0.0)) / self.step_s),
            seed=self.seed,
            trades=self.trades,
            cautious=margin is not None,
        )
        downtimes_s += [gap_s for move in moves.kinds for gap_s in move.gaps_s]
        driver, (per_core_s, per_mib_s) = profile.driver, self.per_s[0]
        return _Problem(
            course=course,
            choices=choices,
            moves=moves,
            driver_per_s=driver.cores * per_core_s + driver.memory_mib * per_mib_s,
            finest=_FINEST_SHARE * profile.capacity.records_per_core_s * self.step_s / self.resolution,
            share=_LEVEL_SHARE / self.resolution,
            most=float(rates_per_s.max()) * (_OUTAGES * max(downtimes_s, default=0.0) + 60.0),
            first=None if self.start is None else choices.configurations.index(self.start),
            allowed_s=quality.bad_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Problem:
    """Everything but the price of a bad second."""

    course: Course
    choices: Choices
    moves: Moves
    driver_per_s: float
    finest: float
    share: float
    most: float
    first: int | None
    """The choice that the job starts with; None: any."""
    allowed_s: float
    landings: dict[tuple[int, int, float], Landing] = field(default_factory=dict)
    """Those that are known: they are the same whatever levels a search has."""

    def highest(self, price: float) -> tuple[float, Way, float]:
        """The best bound over the prices of a bad second, the best sequence seen, and the price at which it was.

        `price`: where to begin.
        """
        rough = self._search(self._levels(_ROUGHER))
        best = self._best_price(rough, price)
        fine = self._search(self._levels(1.0))
        solved = fine.solve(best, keep=True)
        least = self._first_of(solved) - best * self.allowed_s
        ways = [self._way(fine, solved)]
        price = best
        while ways[-1].bad_s > self.allowed_s and len(ways) < _SEQUENCES:
            price *= _DEARER
            ways.append(self._way(rough, rough.solve(price, keep=True)))
        return least, min(ways, key=lambda way: (max(0.0, way.bad_s - self.allowed_s), way.cost)), best

    def cautious(self, price: float) -> Way:
        """A sequence at this price of a bad second, backlogs rounded to the nearest level."""
        search = self._search(self._levels(_ROUGHER, rounding=0.5))
        return self._way(search, search.solve(price, keep=True))

    def _first_of(self, solved: Solved) -> float:
        return float(solved.least.min() if self.first is None else solved.least[self.first])

    def _way(self, search: Search, solved: Solved) -> Way:
        start = int(solved.least.argmin()) if self.first is None else self.first
        return follow(solved, search=search, course=self.course, choices=self.choices, moves=self.moves, start=start)

    def _best_price(self, search: Search, price: float) -> float:
        """Where the bound, which is concave in the price, is highest: looked for by factors that become smaller."""
        known: dict[float, float] = {}

        def bound_at(price: float) -> float:
            if price not in known:
                known[price] = self._first_of(search.solve(price)) - price * self.allowed_s
            return known[price]

        factor = _FACTOR
        while factor > _CLOSE_FACTOR and len(known) < _SOLUTIONS:
            up, down = price * factor, price / factor
            if bound_at(up) > bound_at(price):
                price = up
            elif bound_at(down) > bound_at(price):
                price = down
            else:
                factor = math.cbrt(factor)
        return price

    def _levels(self, rougher: float, *, rounding: float = 0.0) -> Levels:
        # Near none, where a job mostly is, a step that adds less than the first level would add nothing.
        finest, share = self.finest * math.sqrt(rougher), self.share * rougher
        return Levels.up_to(self.most, finest=finest, share=share, rounding=rounding)

    def _search(self, levels: Levels) -> Search:
        return Search(
            course=self.course,
            choices=self.choices,
            moves=self.moves,
            levels=levels,
            driver_per_s=self.driver_per_s,
            landings=self.landings,
        )
