"""Dynamic programming, backwards over the steps: the least that is still to be paid, for every choice and backlog."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidewise.experiments.bound_choices import Choices
from tidewise.experiments.bound_course import Course
from tidewise.experiments.bound_moves import Move, Moves
from tidewise.experiments.bound_stretch import Landing, Levels, Stretch, landing, stretch
from tidewise.experiments.series import BoolArray, FloatArray, IntArray

Ids = npt.NDArray[np.uint16]
_KEPT_EVERY = 160
"""Steps between values that are kept for the way forwards: in between, they are reckoned a second time."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What more than choice and backlog the rest of a run depends on, in the steps around a failure."""

    bound: bool = False
    """Still has to recover in time."""
    renewed: bool = False
    """Has processes that were started after the failure, which are warm and complete."""


Values = dict[int, dict[Layer, FloatArray]]
"""For each step and layer the least that is still to be paid: by changes made, choice and backlog."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Advice:
    """What is cheapest in a step, for every number of changes from those made on, choice and backlog."""

    action: Ids
    """0: stay; from there on, every move to every choice."""
    bought: npt.NDArray[np.float32] | None
    """Records of backlog less for bad seconds, where the job stays; None: there are none to be had."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solved:
    """The answer for one price of a bad second."""

    bad_price: float
    least: FloatArray
    """Of a whole run, bad seconds priced, for each choice to begin with."""
    kept: Mapping[int, Values]


class Search:
    """The problem of one trial, solved for one price of a bad second after the other."""

    def __init__(
        self,
        *,
        course: Course,
        choices: Choices,
        moves: Moves,
        levels: Levels,
        driver_per_s: float,
        landings: dict[tuple[int, int, float], Landing],
    ) -> None:
        self._course = course
        self._choices = choices
        self._moves = moves
        self.levels = levels
        self._driver_per_s = driver_per_s
        self._stretches: dict[tuple[int, int, bool], Stretch] = {}
        self._landings = landings
        self._window_at = np.full(course.steps + 1, -1)
        for number, window in enumerate(course.windows):
            self._window_at[window.first : window.last + 1] = number
        self._rows = np.arange(len(choices))[:, np.newaxis] * levels.count
        self._bad_price = 0.0
        self._made = 0

    def solve(self, bad_price: float, *, keep: bool = False) -> Solved:
        """`keep`: so much that `advice` can tell how to get there."""
        self._bad_price, self._made = bad_price, 0
        known: Values = {}
        kept: dict[int, Values] = {}
        for step in range(self._course.steps - 1, -1, -1):
            self._add(step, known, None)
            if keep and step % _KEPT_EVERY == 0:
                kept[step] = dict(known)
        return Solved(bad_price=bad_price, least=known[0][self.entered(0)][0, :, 0], kept=kept)

    def advice(self, solved: Solved, first: int, made: int) -> tuple[int, Mapping[tuple[int, Layer], Advice]]:
        """What is cheapest from a step on with so many changes made, and up to which step that is told."""
        self._bad_price, self._made = solved.bad_price, made
        until = min(self._course.steps, (first // _KEPT_EVERY + 1) * _KEPT_EVERY)
        kept = solved.kept.get(until, {})
        known = {step: {layer: values[made:] for layer, values in found.items()} for step, found in kept.items()}
        advice: dict[tuple[int, Layer], Advice] = {}
        for step in range(until - 1, first - 1, -1):
            self._add(step, known, advice)
        return until, advice

    def _add(self, step: int, known: Values, advice: dict[tuple[int, Layer], Advice] | None) -> None:
        """The values of a step, from those of later ones; those that nobody needs any more go."""
        found: dict[Layer, FloatArray] = {}
        for layer in self._layers(step):
            found[layer], told = self._least(step, layer, known, advise=advice is not None)
            if layer.bound:
                found[layer] = self._watched(step, found[layer], found[Layer(renewed=layer.renewed)])
            if told is not None and advice is not None:
                advice[step, layer] = told
        known[step] = found
        known.pop(step + self._course.farthest, None)

    def entered(self, step: int) -> Layer:
        """Where a run is that comes into this step without having done anything about failures."""
        return Layer(bound=self._window_at[step] >= 0)

    # Layers -------------------------------------------------------------------------------------------------------

    def _layers(self, step: int) -> list[Layer]:
        """Those that exist in a step, the free ones first."""
        second = step * self._course.step_s
        renewed = any(second in span for span in self._course.renewed) and any(one.renews for one in self._moves.kinds)
        bounds = (False, True) if self._window_at[step] >= 0 else (False,)
        return [Layer(bound, new) for bound in bounds for new in ((False, True) if renewed else (False,))]

    def _watched(self, step: int, bound: FloatArray, free: FloatArray) -> FloatArray:
        """Where a recovery has ended, or did not have to: nothing is asked any more."""
        late = np.inf if step == self._course.windows[self._window_at[step]].last else bound
        return np.where(self.released(step, self.levels.records), free, late)

    def released(self, step: int, backlog: FloatArray) -> BoolArray:
        """Whether a recovery has ended with these backlogs, or need not be watched at all."""
        course, window = self._course, self._course.windows[self._window_at[step]]
        if step <= window.at:
            # Levels are rounded down: the true backlog may be a little higher.
            above = backlog + self.levels.finest + self.levels.share * backlog * 1.1
            return np.asarray(above > course.unusual[step])
        if step < window.up:
            return np.zeros(backlog.shape, dtype=np.bool_)
        return np.asarray(backlog <= course.calm[step])

    def lands_in(self, step: int, layer: Layer, move: Move | None, count: int = 0) -> Layer | None:
        """The layer in which a move of this step ends; None: it would not recover in time."""
        course = self._course
        then = step + (1 if move is None else self.steps(step, move, count))
        if then >= course.steps:
            return Layer()
        here, there = self._window_at[step], self._window_at[then]
        restarts = move is not None and move.renews
        if there < 0 or here != there:
            if layer.bound and restarts and move is not None and move.before_s == 0 and step >= course.windows[here].up:
                return None
            bound = there >= 0 and not restarts
        else:
            bound = layer.bound and not (restarts and step < course.windows[here].up)
        renewed = layer.renewed
        if move is not None and move.renews:
            renewed = self.landing(step, move, count).renewed
        spans = [span for span in course.renewed if then * course.step_s in span]
        return Layer(bound, renewed and bool(spans))

    # Values -------------------------------------------------------------------------------------------------------

    def _least(self, step: int, layer: Layer, known: Values, *, advise: bool) -> tuple[FloatArray, Advice | None]:
        course, price = self._course, self._choices.price_per_s
        stays = self._then(step + 1, self.lands_in(step, layer, None), known)
        least, _, bought = self._ride(self.stay(step, layer), stays, advise=advise)
        least += (price * course.paid_s(step * course.step_s, course.step_s))[:, np.newaxis]
        action = np.zeros(least.shape, dtype=np.uint16) if advise else None
        for number, move in enumerate(self._moves.kinds):
            if self._is_beaten(step, layer, move):
                continue
            after_it = self._after_gaps if move.renews else self._after_live
            after = after_it(step, layer, move, known)
            cost, target = self._cheapest(after, move, advise=advise)
            if move.before_s:
                cost, cells, _ = self._ride(self.before(step, layer, move), cost, lines=1, advise=advise)
                if advise:
                    target = np.take_along_axis(target, np.broadcast_to(cells, target.shape), axis=-1)
            cost = cost + (price * self.old_s(step, move))[:, np.newaxis]
            if action is not None:
                better = cost < least
                action[better] = (1 + number * len(self._choices) + target[better]).astype(np.uint16)
            np.minimum(least, cost, out=least)
        return least, None if action is None else Advice(action=action, bought=bought)

    def _is_beaten(self, step: int, layer: Layer, move: Move) -> bool:
        """Whether executors that join and leave do what a handover does, for less: all but around a failure."""
        if not move.runs_double or len(self._choices.families) > 1 or len(self._moves.kinds) == 1:
            return False
        course, first = self._course, step * self._course.step_s
        near = range(first, first + self.steps(step, move, 0) * course.step_s)
        joins = any(other.grows for other in self._moves.kinds)
        return joins and not layer.renewed and not any(span.start in near or first in span for span in course.renewed)

    def _after_live(self, step: int, layer: Layer, move: Move, known: Values) -> FloatArray:
        """For every target, what is to be paid from where it works."""
        then = self._then(step + self.steps(step, move, 0), self.lands_in(step, layer, move), known)
        if self._moves.counts > 1:
            last = np.full_like(then[:1], np.inf) if self._moves.limited else then[-1:]
            then = np.concatenate((then[1:], last))
        after, _, _ = self._ride(self.after(step, layer, move), then)
        return after + self.new_costs(step, move, 0)[:, np.newaxis]

    def _after_gaps(self, step: int, layer: Layer, move: Move, known: Values) -> FloatArray:
        """For every target, what is to be paid from the beginning of the gap: each change has its own."""
        after = np.full(self._shape, np.inf)
        for count in range(self._made, len(move.gaps_s)):
            into = self.lands_in(step, layer, move, count)
            if into is None:
                continue
            lands = self.landing(step, move, count)
            then = self._then(step + lands.steps, into, known)[min(count + 1, self._moves.counts - 1) - self._made]
            to = self.levels.about(lands.growth)
            costs = self._bad_price * (lands.bad_s + lands.down_s) + self.new_costs(step, move, count)
            np.add(then.ravel().take(to + self._rows), costs[:, np.newaxis], out=after[count - self._made])
        return after

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self._moves.counts - self._made, len(self._choices), self.levels.count

    def _then(self, step: int, layer: Layer | None, known: Values) -> FloatArray:
        if layer is None:
            return np.full(self._shape, np.inf)
        return np.zeros(self._shape) if step >= self._course.steps else known[step][layer]

    def new_costs(self, step: int, move: Move, count: int) -> FloatArray:
        """What is paid for the target of a move until the next request may come."""
        new_s, double_s = self.new_s(step, move, count)
        return self._choices.price_per_s * new_s + self._driver_per_s * double_s

    def new_s(self, step: int, move: Move, count: int) -> tuple[int, int]:
        """For how long the target of a move is paid for until the next request may come, and a second driver."""
        course = self._course
        first, steps = step * course.step_s, self.steps(step, move, count)
        before_s, all_s = (course.paid_s(first, length) for length in (move.before_s, steps * course.step_s))
        if move.runs_double:
            return all_s, before_s
        return all_s if move.pays_new_at_once else all_s - before_s, 0

    def old_s(self, step: int, move: Move) -> int:
        """For how long the source of a move is paid for."""
        return 0 if move.pays_new_at_once else self._course.paid_s(step * self._course.step_s, move.before_s)

    def _cheapest(self, cost: FloatArray, move: Move, *, advise: bool) -> tuple[FloatArray, IntArray]:
        """For each choice the cheapest target of a move, and which that is."""
        count = len(self._choices)
        best = np.full(cost.shape, np.inf)
        target = np.zeros(cost.shape if advise else (0, 0, 0), dtype=np.int64)
        for family in [slice(0, count)] if move.leaves_family else self._choices.families:
            own = cost[:, family]
            if move.grows is None:
                best[:, family] = own.min(axis=1)[:, np.newaxis]
                if advise:
                    target[:, family] = own.argmin(axis=1)[:, np.newaxis] + family.start
                continue
            # More executors lie behind, fewer before; neither is the choice itself.
            ordered = own[:, ::-1] if move.grows else own
            upto = np.minimum.accumulate(ordered, axis=1)[:, :-1]
            shifted = np.concatenate((np.full_like(own[:, :1], np.inf), upto), axis=1)
            best[:, family] = shifted[:, ::-1] if move.grows else shifted
            if advise:
                size = own.shape[1]
                numbers = np.arange(size - 1)[np.newaxis, :, np.newaxis]
                which = np.maximum.accumulate(np.where(ordered[:, :-1] <= upto, numbers, 0), axis=1)
                which = np.concatenate((np.zeros_like(own[:, :1], dtype=np.int64), which), axis=1)
                target[:, family] = family.start + (size - 1 - which[:, ::-1] if move.grows else which)
        return best, target

    def _ride(
        self, ride: Stretch, values: FloatArray, *, lines: int = 2, advise: bool = False
    ) -> tuple[FloatArray, IntArray, npt.NDArray[np.float32] | None]:
        """Through a stretch to these values: what it costs from its beginning, and where it leads to.

        `lines`: of those below what batches can do, so many are looked at; all of them hold.
        """
        records = self.levels.records
        bad_s = ride.bad_s(records.size)
        costs, cells, spared = [], [], []
        for free in ride.free[:lines]:
            then = values
            grown = ride.steepest[:, np.newaxis]
            bought = np.zeros((1, 1, 1))
            if free.saved.any():
                # Long batches save overhead, and bad seconds are the price: as many as pay, on top of those there are.
                slope = self._bad_price / np.maximum(free.saved, 1e-12)
                sloped = values - slope[:, np.newaxis] * records
                lowest = np.minimum.accumulate(sloped, axis=-1)
                if advise:
                    numbers = np.arange(records.size)
                    where = np.maximum.accumulate(np.where(sloped <= lowest, numbers, 0), axis=-1)
                    bought = records - records[where]
                then = lowest + slope[:, np.newaxis] * records
                gained = free.saved[:, np.newaxis] * (bad_s + ride.spare_s)
                grown = np.maximum(free.growth[:, np.newaxis] - gained, grown)
            to = self.levels.at(np.maximum(records + grown, ride.least[:, np.newaxis]))
            flat = then.reshape(values.shape[0], -1)
            costs.append(flat.take((to + self._rows).ravel(), axis=1).reshape(values.shape))
            if advise:
                cells.append(to)
                spared.append(np.take_along_axis(bought, to[np.newaxis], axis=-1) if bought.size > 1 else bought)
        cost, cell, relief = costs[0], cells[0] if advise else np.zeros((0, 0), dtype=np.int64), None
        if len(costs) > 1:
            # Each of the lines holds, so the higher value does.
            if advise:
                higher = costs[1] > costs[0]
                cell = np.where(higher, cells[1], cells[0])
                relief = np.where(higher, spared[1], spared[0])
            cost = np.maximum(cost, costs[1])
        elif advise and spared[0].size > 1:
            relief = spared[0]
        cost = cost + self._bad_price * (bad_s + ride.down_s)
        return cost, cell, None if relief is None else relief.astype(np.float32)

    # Stretches ----------------------------------------------------------------------------------------------------

    def steps(self, step: int, move: Move, count: int) -> int:
        """After so many steps the next request may come."""
        if move.renews:
            return self.landing(step, move, count).steps
        return max(1, math.ceil(move.before_s / self._course.step_s))

    def stay(self, step: int, layer: Layer) -> Stretch:
        course = self._course
        return self._stretch(step * course.step_s, course.step_s, renewed=layer.renewed)

    def before(self, step: int, layer: Layer, move: Move) -> Stretch:
        return self._stretch(step * self._course.step_s, move.before_s, renewed=layer.renewed)

    def after(self, step: int, layer: Layer, move: Move) -> Stretch:
        """From where executors have joined or left until the next request may come."""
        course = self._course
        length = self.steps(step, move, 0) * course.step_s - move.before_s
        return self._stretch(step * course.step_s + move.before_s, length, renewed=layer.renewed)

    def landing(self, step: int, move: Move, count: int) -> Landing:
        """From the gap of a move until the next request may come."""
        gap_s = move.gaps_s[min(count, len(move.gaps_s) - 1)]
        key = (step, move.before_s, gap_s)
        known = self._landings.get(key)
        if known is None:
            known = self._landings[key] = landing(self._course, step=step, before_s=move.before_s, gap_s=gap_s)
        return known

    def _stretch(self, first: int, length: int, *, renewed: bool) -> Stretch:
        key = (first, length, renewed)
        known = self._stretches.get(key)
        if known is None:
            work = self._course.fresh if renewed else self._course.usual
            known = self._stretches[key] = stretch(self._course, work, first=first, length=length, levels=self.levels)
        return known
