"""Dynamic programming, backwards over the steps: the least that is still to be paid, for every choice and backlog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidewise.experiments.bound_choices import Choices
from tidewise.experiments.bound_course import Course
from tidewise.experiments.bound_moves import Move
from tidewise.experiments.bound_stretch import Levels, Stretch, stretch
from tidewise.experiments.series import BoolArray, FloatArray, IntArray

Ids = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Layer:
    """What more than choice and backlog the rest of a run depends on, in the steps around a failure."""

    bound: bool = False
    """Still has to recover in time."""
    renewed: bool = False
    """Has processes that were started after the failure, which are warm and complete."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Advice:
    """What is cheapest in a step, for every choice and backlog."""

    action: Ids
    """0: stay; from there on, every move to every choice."""
    bought: npt.NDArray[np.float32]
    """Records of backlog less for bad seconds, where the job stays."""


class Search:
    """The problem of one trial, solved for one price of a bad second after the other."""

    def __init__(
        self, *, course: Course, choices: Choices, moves: Sequence[Move], levels: Levels, driver_per_s: float
    ) -> None:
        self._course = course
        self._choices = choices
        self._moves = tuple(moves)
        self._levels = levels
        self._driver_per_s = driver_per_s
        self._stretches: dict[tuple[int, int, float, bool], Stretch] = {}
        self._window_at = np.full(course.steps + 1, -1)
        for number, window in enumerate(course.windows):
            self._window_at[window.first : window.last + 1] = number
        self._bad_price = 0.0

    def solve(self, bad_price: float, *, advise: bool) -> tuple[FloatArray, Mapping[tuple[int, Layer], Advice]]:
        """The least cost of a whole run, bad seconds priced, for each choice to begin with; and how to get there."""
        self._bad_price = bad_price
        course = self._course
        ahead = max((move.steps for move in self._moves), default=1)
        known: dict[int, dict[Layer, FloatArray]] = {}
        advice: dict[tuple[int, Layer], Advice] = {}
        for step in range(course.steps - 1, -1, -1):
            found: dict[Layer, FloatArray] = {}
            for layer in self._layers(step):
                found[layer], told = self._least(step, layer, known, advise=advise)
                if layer.bound:
                    found[layer] = self._watched(step, found[layer], found[Layer(renewed=layer.renewed)])
                if told is not None:
                    advice[step, layer] = told
            known[step] = found
            known.pop(step + ahead, None)
        return known[0][self.entered(0)][:, 0], advice

    def entered(self, step: int) -> Layer:
        """Where a run is that comes into this step without having done anything about failures."""
        return Layer(bound=self._window_at[step] >= 0)

    # Layers -------------------------------------------------------------------------------------------------------

    def _layers(self, step: int) -> list[Layer]:
        """Those that exist in a step, the free ones first."""
        second = step * self._course.step_s
        renewed = any(second in span for span in self._course.renewed) and any(move.renews for move in self._moves)
        bounds = (False, True) if self._window_at[step] >= 0 else (False,)
        return [Layer(bound, new) for bound in bounds for new in ((False, True) if renewed else (False,))]

    def _watched(self, step: int, bound: FloatArray, free: FloatArray) -> FloatArray:
        """Where a recovery has ended, or did not have to: nothing is asked any more."""
        late = np.inf if step == self._course.windows[self._window_at[step]].last else bound
        return np.where(self.released(step, self._levels.records), free, late)

    def released(self, step: int, backlog: FloatArray) -> BoolArray:
        """Whether a recovery has ended with these backlogs, or need not be watched at all."""
        course, window = self._course, self._course.windows[self._window_at[step]]
        if step <= window.at:
            # Levels are rounded down: the true backlog may be a little higher.
            above = backlog + self._levels.finest + self._levels.share * backlog * 1.1
            return np.asarray(above > course.unusual[step])
        if step < window.up:
            return np.zeros(backlog.shape, dtype=np.bool_)
        return np.asarray(backlog <= course.calm[step])

    def lands_in(self, step: int, layer: Layer, move: Move | None) -> Layer | None:
        """The layer in which a move of this step ends; None: it would not recover in time."""
        course = self._course
        steps = 1 if move is None else move.steps
        then = step + steps
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
            renewed = self._is_renewed(step * course.step_s + move.before_s + move.gap_s) is not None
        spans = [span for span in course.renewed if then * course.step_s in span]
        return Layer(bound, renewed and bool(spans))

    def _is_renewed(self, up_s: float) -> range | None:
        """The failure that processes which come up at this time have missed."""
        return next((span for span in self._course.renewed if span.start <= up_s < span.stop), None)

    # Values -------------------------------------------------------------------------------------------------------

    def _least(
        self, step: int, layer: Layer, known: Mapping[int, Mapping[Layer, FloatArray]], *, advise: bool
    ) -> tuple[FloatArray, Advice | None]:
        course, price = self._course, self._choices.price_per_s
        first = step * course.step_s
        stays = self._then(step + 1, self.lands_in(step, layer, None), known)
        least, _, bought = self._ride(self.stay(step, layer), stays, advise=advise)
        least += (price * course.paid_s(first, course.step_s))[:, np.newaxis]
        action = np.zeros(least.shape, dtype=np.uint16) if advise else None
        for number, move in enumerate(self._moves):
            landing = self.lands_in(step, layer, move)
            if landing is None:
                continue
            after, _, _ = self._ride(self.after(step, layer, move), self._then(step + move.steps, landing, known))
            after += self.new_costs(step, move)[:, np.newaxis]
            cost, target = self._cheapest(after, move, advise=advise)
            if move.before_s:
                cost, cells, _ = self._ride(self.before(step, layer, move), cost)
                if advise:
                    target = np.take_along_axis(target, cells, axis=1)
            cost = cost + (self._choices.price_per_s * self.old_s(step, move))[:, np.newaxis]
            if action is not None:
                better = cost < least
                action[better] = (1 + number * len(self._choices) + target[better]).astype(np.uint16)
            least = np.minimum(least, cost)
        if action is None or bought is None:
            return least, None
        return least, Advice(action=action, bought=bought)

    def _then(self, step: int, layer: Layer | None, known: Mapping[int, Mapping[Layer, FloatArray]]) -> FloatArray:
        if step >= self._course.steps or layer is None:
            return np.zeros((len(self._choices), self._levels.count))
        return known[step][layer]

    def new_costs(self, step: int, move: Move) -> FloatArray:
        """What is paid for the target of a move until the next request may come."""
        new_s, double_s = self.new_s(step, move)
        return self._choices.price_per_s * new_s + self._driver_per_s * double_s

    def new_s(self, step: int, move: Move) -> tuple[int, int]:
        """For how long the target of a move is paid for until the next request may come, and a second driver."""
        course = self._course
        first = step * course.step_s
        before_s, all_s = (course.paid_s(first, length) for length in (move.before_s, move.steps * course.step_s))
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
        target = np.zeros(cost.shape, dtype=np.int64) if advise else np.zeros((0, 0), dtype=np.int64)
        for family in [slice(0, count)] if move.leaves_family else self._choices.families:
            own = cost[family]
            if move.grows is None:
                best[family] = own.min(axis=0)
                if advise:
                    target[family] = own.argmin(axis=0) + family.start
                continue
            # More executors lie behind, fewer before; neither is the choice itself.
            ordered = own[::-1] if move.grows else own
            upto = np.minimum.accumulate(ordered, axis=0)[:-1]
            shifted = np.concatenate((np.full((1, cost.shape[1]), np.inf), upto))
            best[family] = shifted[::-1] if move.grows else shifted
            if advise:
                numbers = np.arange(own.shape[0])[:, np.newaxis]
                which = np.maximum.accumulate(np.where(ordered[:-1] <= upto, numbers[:-1], 0), axis=0)
                which = np.concatenate((np.zeros((1, cost.shape[1]), dtype=np.int64), which))
                target[family] = family.start + (own.shape[0] - 1 - which[::-1] if move.grows else which)
        return best, target

    def _ride(
        self, ride: Stretch, values: FloatArray, *, advise: bool = False
    ) -> tuple[FloatArray, IntArray, npt.NDArray[np.float32] | None]:
        """Through a stretch to these values: what it costs from its beginning, and where it leads to."""
        records = self._levels.records
        bad_s = ride.bad_s(records.size)
        bought = None
        grown = ride.steepest[:, np.newaxis]
        if ride.saved.any():
            # Long batches save overhead, and bad seconds are their price: as many as pay, on top of those there are.
            slope = self._bad_price / np.maximum(ride.saved, 1e-12)
            sloped = values - slope[:, np.newaxis] * records
            lowest = np.minimum.accumulate(sloped, axis=1)
            if advise:
                numbers = np.arange(records.size)
                bought = records - records[np.maximum.accumulate(np.where(sloped <= lowest, numbers, 0), axis=1)]
            values = lowest + slope[:, np.newaxis] * records
            grown = np.maximum(ride.growth[:, np.newaxis] - ride.saved[:, np.newaxis] * (bad_s + ride.spare_s), grown)
        to = self._levels.at(np.maximum(records + grown, ride.least[:, np.newaxis]))
        cost = np.take_along_axis(values, to, axis=1) + self._bad_price * (bad_s + ride.down_s)
        if not advise:
            return cost, to, None
        spared = np.zeros(to.shape) if bought is None else np.take_along_axis(bought, to, axis=1)
        return cost, to, spared.astype(np.float32)

    # Stretches ----------------------------------------------------------------------------------------------------

    def stay(self, step: int, layer: Layer) -> Stretch:
        course = self._course
        return self._stretch(step * course.step_s, course.step_s, 0.0, renewed=layer.renewed)

    def before(self, step: int, layer: Layer, move: Move) -> Stretch:
        return self._stretch(step * self._course.step_s, move.before_s, 0.0, renewed=layer.renewed)

    def after(self, step: int, layer: Layer, move: Move) -> Stretch:
        """From the gap of a move until the next request may come."""
        course = self._course
        first = step * course.step_s + move.before_s
        renewed = self._is_renewed(first + move.gap_s) is not None if move.renews else layer.renewed
        return self._stretch(first, move.steps * course.step_s - move.before_s, move.gap_s, renewed=renewed)

    def _stretch(self, first: int, length: int, gap_s: float, *, renewed: bool) -> Stretch:
        key = (first, length, gap_s, renewed)
        known = self._stretches.get(key)
        if known is None:
            capacity = self._course.fresh if renewed else self._course.capacity
            known = self._stretches[key] = stretch(
                self._course, capacity, first=first, length=length, gap_s=gap_s, levels=self._levels
            )
        return known
