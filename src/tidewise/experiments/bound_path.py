"""A run by the advice of the search, forwards: which configuration when, what it takes, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidewise.core import Configuration, Mechanism
from tidewise.experiments.bound_choices import Choices
from tidewise.experiments.bound_course import Course
from tidewise.experiments.bound_moves import Moves
from tidewise.experiments.bound_search import Layer, Search, Solved


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One configuration of a sequence."""

    requested_at_s: float
    configuration: Configuration
    mechanism: Mechanism | None
    """By which it came about; None: the job started with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A whole sequence, with what its executors take and the seconds that are bad, as the bound counts them."""

    stages: tuple[Stage, ...]
    core_s: float
    memory_mib_s: float
    double_s: float
    """In which a second driver runs."""
    bad_s: float
    cost: float
    """Of the executors, in what is kept low."""


def follow(solved: Solved, *, search: Search, course: Course, choices: Choices, moves: Moves, start: int) -> Way:
    """The sequence from this choice on, with backlogs as they come about: the search rounds them, and saw less."""
    stages = [Stage(requested_at_s=0.0, configuration=choices.configurations[start], mechanism=None)]
    levels = search.levels
    step, choice, backlog, layer = 0, start, 0.0, search.entered(0)
    made = 0
    until, advice = search.advice(solved, step, made)
    bad_s = double_s = 0.0
    used_s = np.zeros(len(choices))
    while step < course.steps:
        count = min(len(stages) - 1, moves.counts - 1)
        if step >= until:
            made = count
            until, advice = search.advice(solved, step, made)
        # The advice for the level above: by that for the one below, small backlogs would never go.
        level = min(int(np.searchsorted(levels.records, backlog * (1.0 - 1e-9))), levels.count - 1)
        if layer.bound and search.released(step, np.array([backlog]))[0]:
            layer = Layer(bound=False, renewed=layer.renewed)
        told = advice[step, layer]
        action = int(told.action[count - made, choice, level])
        if not action:
            ride = search.stay(step, layer)
            worse_s = float(ride.bad_at(choice, backlog))
            if told.bought is not None:
                worse_s += ride.bought_s(choice, float(told.bought[count - made, choice, level]))
            bad_s += ride.down_s + worse_s
            backlog = ride.after(choice, backlog, worse_s)
            used_s[choice] += course.paid_s(step * course.step_s, course.step_s)
            into, steps = search.lands_in(step, layer, None), 1
        else:
            move, target = moves.kinds[(action - 1) // len(choices)], (action - 1) % len(choices)
            rides = [(search.before(step, layer, move), choice)]
            if not move.renews:
                rides.append((search.after(step, layer, move), target))
            for ride, one in rides:
                worse_s = ride.bad_at(one, backlog)
                bad_s += ride.down_s + worse_s
                backlog = ride.after(one, backlog, worse_s)
            if move.renews:
                lands = search.landing(step, move, count)
                bad_s += lands.down_s + float(lands.bad_s[target])
                backlog = max(0.0, backlog + float(lands.growth[target]))
            used_s[choice] += search.old_s(step, move)
            new_s, second_driver_s = search.new_s(step, move, count)
            used_s[target] += new_s
            double_s += second_driver_s
            at_s = float(step * course.step_s)
            configuration = choices.configurations[target]
            stages.append(Stage(requested_at_s=at_s, configuration=configuration, mechanism=move.mechanism))
            into, steps = search.lands_in(step, layer, move, count), search.steps(step, move, count)
            choice = target
        step += steps
        layer = Layer() if into is None else into
    return Way(
        stages=tuple(stages),
        core_s=float(sum(s * one.total_cores for s, one in zip(used_s, choices.configurations, strict=True))),
        memory_mib_s=float(
            sum(s * one.total_memory_mib for s, one in zip(used_s, choices.configurations, strict=True))
        ),
        double_s=double_s,
        bad_s=bad_s,
        cost=float(used_s @ choices.price_per_s),
    )
