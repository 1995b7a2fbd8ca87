"""The cheapest sequence of configurations over the load to come, everything in money, nothing left to sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from tidewise.core import REACH, ChangeCost, Mechanism, Parameter
from tidewise.core.checks import require
from tidewise.qos import Candidates, Floats
from tidewise.qos.catch_up import COLD_S
from tidewise.search.horizon import Horizon
from tidewise.search.odds import Odds
from tidewise.search.rescue import Rescue, too_long

_FULLEST = 0.97
"""A job fuller than this does not catch up."""
_FOR_EVER_S = 3600.0
"""What a delay that does not end counts."""
_A_DAY_S = 86_400.0
"""What a backlog that does not go counts; longer than one that takes hours."""
_NOBODY_MINDS_S = 60.0
"""By how much later output may come where no latency was promised."""
_LEAST_FAILURES_PER_S = 1.0 / 3600.0
_LUCK = 0.3
"""How far (in its logarithm) the time may be off until a lost executor is replaced."""
_FULL = 10.0
"""From a chance of one in so many on, running out of memory costs as much as being late all the time."""
_HELPS = 0.1
"""A job that gets over a failure is stopped only for so much more of a chance to do that in time."""
_STOPS = 1.4
"""A change that stops the job has to earn so many times as much: it cannot be taken back soon."""
_WORST = 10.0
"""What a second can cost at most, in late seconds."""
_NEWTON_STEPS, _STEEP = 4, 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a plan is judged by."""

    late_cost_per_s: float
    """What a second that breaks the promised latency costs."""
    failures_per_s: float
    """Of the whole job."""
    unrecovered_s: float
    """What a recovery that takes too long costs besides its late seconds, in late seconds."""
    friction_s: float
    """Each change counts as so many late seconds, besides what it costs: nothing is as certain as what runs."""
    payback: float
    """How many times its own cost a change has to earn that does not stop the job."""
    latency_limit_s: float | None
    recovery_limit_s: float | None = None
    unseen_s: float = 0.0
    """How long a failure goes on before reports show it."""
    in_batches: bool = False
    """Whether records wait for the batch that is on, and then for their own."""
    shows_s: float = 0.0
    """How long it takes until a report shows what is new."""
    rest: float = 0.0
    """A job that was stopped for a change is left alone for so many times as long as it was stopped, ..."""
    rescued_s: float = 0.0
    """... unless that was to get over a failure in time: then until it has, which takes so long."""
    losses_per_s: float = 0.0
    """Of one executor, while the others go on."""
    replaced_s: float = 0.0
    """How long one is missed."""

    def asked(self, change: ChangeCost) -> float:
        """How many times its own cost this change has to earn."""
        return self.payback * (_STOPS if change.gap_s > 0.0 else 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """Where the job stands now."""

    row: int
    """What runs."""
    backlog_records: float
    """Beyond what is always there."""
    down_s: float
    """How much longer it will not work at all."""
    warmth: float
    """The share of its capacity that it has when it works; what is missing fades within `COLD_S`."""
    failed_s: float | None = None
    """How long ago it failed, where it has not got over that yet."""

    @property
    def is_behind(self) -> bool:
        return self.backlog_records > 0.0 or self.down_s > 0.0

    def worked_off_s(self, work_s: Floats, load: Floats) -> Floats:
        """So many seconds of work at full capacity, and what more it comes to while the job gets warm.

        What arrives meanwhile (the load, of the full capacity) finds it cold as well: a job may fall behind at first
        that has enough when it is warm. After t seconds, (1 - u) t of work is done and what was missing until then is
        not; Newton's way to that from above comes nearer with every step.
        """
        missing_s = (1.0 - self.warmth) * COLD_S
        spare = 1.0 - load
        takes_s = (work_s + missing_s) / spare
        for _ in range(_NEWTON_STEPS if missing_s > 0.0 else 0):
            colder = np.exp(-takes_s / COLD_S)
            too_much_s = spare * takes_s - missing_s * (1.0 - colder) - work_s
            takes_s = takes_s - too_much_s / np.maximum(spare - (1.0 - self.warmth) * colder, _STEEP)
        return np.asarray(np.where(work_s > 0.0, np.maximum(work_s, spare * takes_s), 0.0), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What to do now, and what is expected of it."""

    row: int
    """What to run."""
    mechanism: Mechanism | None
    """How to get there; None: it runs."""
    cost: float
    """Of the whole horizon, late seconds included."""
    keep_cost: float
    """The same where nothing is changed now, and whatever pays later."""
    change_cost: float
    """What the change itself costs, its late seconds included."""
    drained_s: float
    """When what is behind has been worked off; 0 where nothing is."""


class Ways:
    """How the rows of a table are reached from each other, by each mechanism."""

    def __init__(self, candidates: Candidates, changes: Sequence[ChangeCost]) -> None:
        require(len(changes) > 0, "a plan needs a mechanism of change")
        self.changes = tuple(changes)
        # Parameters are called as the axes are.
        self._classes = [candidates.alike_but_for(*REACH[change.mechanism]) for change in self.changes]
        self._orders = [np.argsort(classes, kind="stable") for classes in self._classes]
        self._firsts = [
            np.flatnonzero(np.diff(classes[order], prepend=-1))
            for classes, order in zip(self._classes, self._orders, strict=True)
        ]

    def reached(self, way: int, row: int) -> npt.NDArray[np.bool_]:
        """Which rows are reached from this one; what is reached without a gap is not by a way that has one."""
        there = np.asarray(self._classes[way] == self._classes[way][row])
        if self.changes[way].gap_s > 0.0:
            for other, change in enumerate(self.changes):
                if change.gap_s == 0.0:
                    there = there & (self._classes[other] != self._classes[other][row])
        return there

    def least(self, way: int, values: Floats) -> Floats:
        """For each row the least value among those that it reaches this way; values have one line per row."""
        by_class = np.minimum.reduceat(values[self._orders[way]], self._firsts[way], axis=0)
        return np.asarray(by_class[self._classes[way]], dtype=np.float64)


class Planner:
    """Reckons the cost of every configuration over the horizon, each with the best that can follow it.

    By dynamic programming from the end of the horizon: at each step it will be known how high the load is by then, and
    not more of the future than the forecast tells from there on. To plan for each course of the load by itself would
    make it look best to wait and see; to plan for all of them at once, best to be prepared for everything.
    """

    def __init__(self, odds: Odds, horizon: Horizon, ways: Ways, gaps_s: Sequence[float], terms: Terms) -> None:
        """`gaps_s`: how long the job gives no output, way by way."""
        self._odds = odds
        self._horizon = horizon
        self._ways = ways
        self._gaps_s = tuple(gaps_s)
        self._terms = terms
        self._load = np.minimum(np.exp(self._log_loads(horizon.log_rates)), _FULLEST)
        self._slack_s = self._slack()
        self._per_s = self._running_per_s()
        self._change_costs = [self._change_cost(way, self._late_by_gap_s(way)) for way in range(len(ways.changes))]
        self._ahead = self._planned()

    def _running_per_s(self) -> Floats:
        """Rows x steps x levels: resources, late seconds, failures, and what must not be: running out of memory."""
        odds, terms, rates = self._odds, self._terms, self._horizon.log_rates
        late = odds.late(rates)
        slow = odds.unrecovered(rates)
        full = np.clip(_FULL * odds.out_of_memory, 0.0, 1.0)[:, np.newaxis, np.newaxis]
        recovery_s = np.minimum(odds.recovery_s(rates), _FOR_EVER_S)
        # However seldom something fails, the promise is that a failure now would be got over in time.
        expected = max(terms.failures_per_s, _LEAST_FAILURES_PER_S)
        failed = terms.failures_per_s * recovery_s + expected * slow * self._slow_s() + self._lost()
        # What is more than can be done piles up, and makes as much late again when it is worked off.
        overload = np.maximum(0.0, np.exp(self._log_loads(rates)) - 1.0)
        wrong = np.minimum(late + overload + full + failed, _WORST)
        return np.asarray(odds.cost_per_s[:, np.newaxis, np.newaxis] + terms.late_cost_per_s * wrong, dtype=np.float64)

    def _slow_s(self) -> Floats | float:
        """Rows x steps x levels: late seconds that a recovery costs that takes too long, at the best that can be done.

        Where executors join without a gap, catching up is reckoned with as many as there can be: no more can be done.
        Nor where no change brings more of them.
        """
        terms, changes, odds = self._terms, self._ways.changes, self._odds
        more = [
            (gap_s + change.preparation_s, gap_s)
            for gap_s, change in zip(self._gaps_s, changes, strict=True)
            if Parameter.EXECUTORS in REACH[change.mechanism]
        ]
        if terms.recovery_limit_s is None or not more or any(change.gap_s == 0.0 for change in changes):
            return terms.unrecovered_s
        stops_s, gap_s = min(more)
        rescue = Rescue(stops_s=stops_s, shows_s=terms.shows_s, held_s=terms.rescued_s + stops_s)
        there_and_back_s = 2.0 * (gap_s + terms.friction_s)
        cost = rescue.least_cost(
            self._horizon.log_rates,
            odds.log_capacity,
            odds.cost_per_s,
            limit_s=max(0.0, terms.recovery_limit_s - terms.unseen_s),
            broken_cost=terms.late_cost_per_s * terms.unrecovered_s,
            change_cost=terms.late_cost_per_s * there_and_back_s,
        )
        return cost / terms.late_cost_per_s

    def _lost(self) -> Floats:
        """Rows x steps x levels: late seconds by losing an executor, each second.

        Until it is replaced the others carry on as far as they can; the only one leaves nobody.
        """
        terms, rates = self._terms, self._horizon.log_rates
        if terms.losses_per_s <= 0.0 or terms.replaced_s <= 0.0:
            return np.zeros_like(self._load)
        executors = self._odds.candidates.executors[:, np.newaxis, np.newaxis]
        load = np.exp(self._log_loads(rates))
        missing = np.where(executors > 1, load * executors / np.maximum(1, executors - 1) - 1.0, 1.0)
        delay_s = terms.replaced_s * np.clip(missing, 0.0, 1.0)
        felt = np.maximum(0.0, 1.0 - self._slack_s / np.maximum(delay_s, 1e-9))
        drained_s = np.minimum(delay_s / (1.0 - self._load), _FOR_EVER_S)
        late_s = felt * (terms.replaced_s + drained_s)
        if terms.recovery_limit_s is None:
            return np.asarray(terms.losses_per_s * late_s, dtype=np.float64)
        too_long = np.where(late_s > 0.0, ndtr(np.log(np.maximum(late_s, 1e-9) / terms.recovery_limit_s) / _LUCK), 0.0)
        expected = max(terms.losses_per_s, _LEAST_FAILURES_PER_S)
        return np.asarray(terms.losses_per_s * late_s + expected * terms.unrecovered_s * too_long, dtype=np.float64)

    def _log_loads(self, rates: Floats) -> Floats:
        """Rows x steps x levels: logarithms of the utilisation."""
        return np.asarray(rates - self._odds.log_capacity[:, np.newaxis, np.newaxis], dtype=np.float64)

    def _slack(self) -> Floats:
        """Rows x steps x levels: by how much later than usual output may come."""
        usual = self._odds.latency_s(self._horizon.log_rates)
        limit_s = self._terms.latency_limit_s
        return np.maximum(0.0, limit_s - usual) if limit_s is not None else np.full_like(usual, _NOBODY_MINDS_S)

    def _planned(self) -> Floats:
        """Steps x rows x levels: what the horizon costs from a step on, for who comes there with a row.

        The level is that of the step before, which is all that is known then.
        """
        lengths, turns = self._horizon.lengths_s, self._horizon.turns
        # Asked to earn as much as the first move is: or it would always look better to wait.
        costs = [
            self._asked(change)[:, np.newaxis, np.newaxis] * cost
            for change, cost in zip(self._ways.changes, self._change_costs, strict=True)
        ]
        # Until a change has been prepared, what ran before goes on.
        before = [change.preparation_s * self._per_s for change in self._ways.changes]
        run = self._per_s * lengths[np.newaxis, :, np.newaxis]
        rows, steps, levels = self._per_s.shape
        ahead = np.zeros((steps + 1, rows, levels))
        for step in reversed(range(steps)):
            held = run[:, step] + ahead[step + 1]
            ahead[step] = held
            for way, (cost, lag) in enumerate(zip(costs, before, strict=True)):
                least = self._ways.least(way, held + cost[:, step] - lag[:, step])
                np.minimum(ahead[step], least + lag[:, step], out=ahead[step])
            if step > 0:
                # As it looks a step before, when only the level at that step is known.
                ahead[step] = ahead[step] @ turns[step - 1].T
        return ahead

    def _asked(self, change: ChangeCost) -> Floats:
        """How many times its own cost this change has to earn, row by row: to what never ran, the way back as well."""
        return np.asarray(self._terms.asked(change) * (1.0 + self._odds.unproven), dtype=np.float64)

    def _late_by_gap_s(self, way: int) -> Floats:
        """Rows x steps x levels: late seconds by a stop for a change, its catching up included."""
        gap_s = np.full_like(self._load, self._gaps_s[way])
        late_s = np.maximum(0.0, self._waited_s(gap_s, self._load) - self._slack_s) / (1.0 - self._load)
        return np.asarray(np.minimum(late_s, _FOR_EVER_S), dtype=np.float64)

    def _change_cost(self, way: int, late_s: Floats) -> Floats:
        """What each row costs to be reached this way: double running, late seconds, and some more for the doubt."""
        change = self._ways.changes[way]
        double = self._odds.cost_per_s * (change.preparation_s if change.runs_double else 0.0)
        double = double.reshape(-1, *(1 for _ in late_s.shape[1:]))
        return np.asarray(double + self._terms.late_cost_per_s * (late_s + self._terms.friction_s), dtype=np.float64)

    # The first move.

    def best(self, behind: Behind) -> Move:
        """The first move that costs least; it is held until what is behind has gone, and then whatever is best."""
        row, chances = behind.row, self._horizon.chances
        late_s, hold_s = self._behind_s(behind, gap_s=0.0, lag_s=0.0)
        broken = self._broken(behind, hold_s)[row] @ chances
        keep_cost = float((self._held(late_s, hold_s) + self._broken_cost(behind, hold_s))[row] @ chances)
        move = Move(
            row=row,
            mechanism=None,
            cost=keep_cost,
            keep_cost=keep_cost,
            change_cost=0.0,
            drained_s=float(hold_s[row] @ chances) if behind.is_behind else 0.0,
        )
        asked, drained_s = keep_cost, move.drained_s
        for way, change in enumerate(self._ways.changes):
            if behind.down_s > 0.0 and change.gap_s > 0.0:
                continue  # a job that is down cannot be moved, only be given executors for when it comes back
            late_s, hold_s = self._behind_s(behind, gap_s=self._gaps_s[way], lag_s=change.preparation_s)
            itself = self._change_costs[way][:, 0] @ chances
            lag_cost = change.preparation_s * (self._per_s[row, 0] - self._per_s[:, 0])
            held = self._held(late_s, np.maximum(hold_s, self._rest_s(way, behind)))
            held = held + self._broken_cost(behind, hold_s)
            there = (held + lag_cost + self._change_cost(way, np.zeros_like(late_s))) @ chances
            # A change that only just pays is not made: what it earns is a guess, what it costs is not.
            wanted = there + (self._asked(change) - 1.0) * itself
            wanted = np.where(self._ways.reached(way, row), wanted, np.inf)
            if behind.failed_s is not None and change.gap_s > 0.0:
                # A job that is getting over a failure is stopped again only to get over it in time, or sooner.
                helps = self._broken(behind, hold_s) @ chances < broken - _HELPS
                if self._is_too_late(behind) or broken > 1.0 - _HELPS:
                    helps = hold_s @ chances < drained_s if behind.is_behind else np.ones_like(helps)
                wanted = np.where(helps, wanted, np.inf)
            wanted[row] = np.inf
            best = int(np.argmin(wanted))
            if wanted[best] < asked:
                asked = float(wanted[best])
                best = self._first_leg(way, row, best)
                move = Move(
                    row=best,
                    mechanism=change.mechanism,
                    cost=float(there[best]),
                    keep_cost=keep_cost,
                    change_cost=float(itself[best]),
                    drained_s=float(hold_s[best] @ chances) if behind.is_behind else 0.0,
                )
        return move

    def _first_leg(self, way: int, row: int, target: int) -> int:
        """Where a move leads at first: without a gap, no more than half of the executors are given back at a time.

        What a few of many would do is a guess; a step on the way there costs nothing, and shows it.
        """
        executors = self._odds.candidates.executors
        fewest = -(-int(executors[row]) // 2)
        if self._ways.changes[way].gap_s > 0.0 or executors[target] >= fewest:
            return target
        between = np.flatnonzero(self._ways.reached(way, row) & (executors >= fewest) & (executors < executors[row]))
        return int(between[np.argmin(executors[between])]) if len(between) else target

    def _rest_s(self, way: int, behind: Behind) -> float:
        """For how long nothing is changed again after a change by this way."""
        if self._ways.changes[way].gap_s == 0.0:
            return 0.0
        return self._terms.rescued_s if behind.failed_s is not None else self._terms.rest * self._gaps_s[way]

    def _broken(self, behind: Behind, hold_s: Floats) -> Floats:
        """Rows x levels: chance that a failure is not got over in time, if it takes so long from now."""
        limit_s = self._terms.recovery_limit_s
        if behind.failed_s is None or limit_s is None or self._is_too_late(behind):
            return np.zeros_like(hold_s)
        return too_long(hold_s, limit_s - behind.failed_s)

    def _broken_cost(self, behind: Behind, hold_s: Floats) -> Floats:
        return self._terms.late_cost_per_s * self._terms.unrecovered_s * self._broken(behind, hold_s)

    def _is_too_late(self, behind: Behind) -> bool:
        """Whether the promised time is over, or none was promised."""
        limit_s = self._terms.recovery_limit_s
        return limit_s is None or (behind.failed_s is not None and behind.failed_s >= limit_s)

    def _held(self, late_s: Floats, hold_s: Floats) -> Floats:
        """Rows x levels: held until what is behind has gone, and then as is best."""
        lengths = self._horizon.lengths_s
        ends_s = np.cumsum(lengths)
        step = np.minimum(np.searchsorted(ends_s, hold_s, side="right"), len(ends_s) - 1)
        rows, levels = np.indices(hold_s.shape)
        # The rest of the step in which it is over is run in the same configuration; what outlasts the horizon, too.
        run = np.cumsum(self._per_s * lengths[np.newaxis, :, np.newaxis], axis=1)[rows, step, levels]
        beyond = self._per_s[:, -1] * np.maximum(0.0, hold_s - ends_s[-1])
        late = self._terms.late_cost_per_s * late_s
        return np.asarray(run + beyond + late + self._ahead[step + 1, rows, levels], dtype=np.float64)

    def _behind_s(self, behind: Behind, *, gap_s: float, lag_s: float) -> tuple[Floats, Floats]:
        """Rows x levels: how many seconds are late, and for how long a row has to be held, by what is behind.

        Records that arrive t after a stop of g seconds wait g - (1 - u) t, at utilisation u: as late as the stop was
        long, and less and less until the backlog has gone at g / (1 - u). `lag_s`: how long what runs goes on first.
        """
        rate = np.exp(self._horizon.log_rates[0])[np.newaxis, :]
        capacity = np.exp(self._odds.log_capacity)[:, np.newaxis]
        slack_s, load = self._slack_s[:, 0], self._load[:, 0]
        # Executors that are on their way come up while the job is down: only what is left of their time is waited for.
        lag_s = max(0.0, lag_s - behind.down_s)
        before = capacity[behind.row]
        waiting = behind.backlog_records + rate * behind.down_s
        if behind.is_behind:
            # With nothing behind, what runs until then costs what it costs; here it falls behind further, or less.
            waiting = waiting + (rate - before * behind.warmth) * lag_s
        delay_s = behind.worked_off_s(np.maximum(0.0, waiting) / capacity, load) + gap_s
        late_s = np.maximum(0.0, self._waited_s(delay_s, load) - slack_s) / (1.0 - load)
        if behind.is_behind:
            # Until it is there, what runs works on what is behind as fast as it can.
            own = load[behind.row]
            delay_before_s = behind.worked_off_s((behind.backlog_records + rate * behind.down_s) / before, own)
            late_before_s = np.maximum(0.0, self._waited_s(delay_before_s, own) - slack_s[behind.row]) / (1.0 - own)
            late_s = late_s + np.minimum(lag_s, late_before_s) + np.where(late_before_s > 0.0, behind.down_s, 0.0)
        needed = behind.is_behind or gap_s > 0.0
        hold_s = delay_s / (1.0 - load) + lag_s if needed else np.zeros_like(delay_s)
        if not behind.is_behind:
            return np.minimum(late_s, _FOR_EVER_S), np.minimum(hold_s, _FOR_EVER_S)
        stuck = (rate >= _FULLEST * capacity) & (delay_s > 0.0)
        # Where nothing is enough, what falls behind less is better.
        late_s = np.where(stuck, _A_DAY_S * rate / capacity, np.minimum(late_s, _A_DAY_S))
        return late_s, np.where(stuck, _A_DAY_S, np.minimum(hold_s, _A_DAY_S))

    def _waited_s(self, delay_s: Floats, load: Floats) -> Floats:
        """How long records wait that come when so much work is to be done first.

        In batches: until the one that is on has done it, and then for their own, which takes as much less time as less
        has arrived meanwhile.
        """
        return np.asarray(delay_s * (1.0 + load) if self._terms.in_batches else delay_s, dtype=np.float64)
