"""A run by the advice of the search, forwards: which configuration when, what it takes, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tidewise.core import Configuration, Mechanism
from tidewise.experiments.bound_choices import Choices
from tidewise.experiments.bound_course import Course
from tidewise.experiments.bound_moves import Move
from tidewise.experiments.bound_search import Advice, Layer, Search
from tidewise.experiments.bound_stretch import Levels


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


def follow(
    advice: Mapping[tuple[int, Layer], Advice],
    *,
    search: Search,
    course: Course,
    choices: Choices,
    moves: tuple[Move, ...],
    levels: Levels,
    start: int,
) -> Way:
    """The sequence from this choice on, with backlogs as they come about: the search rounds them, and saw less."""
    stages = [Stage(requested_at_s=0.0, configuration=choices.configurations[start], mechanism=None)]
    step, choice, backlog, layer = 0, start, 0.0, search.entered(0)
    bad_s = double_s = 0.0
    used_s = np.zeros(len(choices))
    while step < course.steps:
        # The advice for the level above: by that for the one below, small backlogs would never go.
        level = min(int(np.searchsorted(levels.records, backlog * (1.0 - 1e-9))), levels.count - 1)
        if layer.bound and search.released(step, np.array([backlog]))[0]:
            layer = Layer(bound=False, renewed=layer.renewed)
        told = advice[step, layer]
        action = int(told.action[choice, level])
        move = moves[(action - 1) // len(choices)] if action else None
        if move is None:
            ride = search.stay(step, layer)
            worse_s = float(ride.bad_at(choice, backlog))
            saved = float(ride.saved[choice])
            worse_s += float(told.bought[choice, level]) / saved if saved > 0.0 else 0.0
            bad_s += ride.down_s + worse_s
            backlog = ride.after(choice, backlog, worse_s)
            used_s[choice] += course.paid_s(step * course.step_s, course.step_s)
        else:
            target = (action - 1) % len(choices)
            for ride, one in ((search.before(step, layer, move), choice), (search.after(step, layer, move), target)):
                worse_s = ride.bad_at(one, backlog)
                bad_s += ride.down_s + worse_s
                backlog = ride.after(one, backlog, worse_s)
            used_s[choice] += search.old_s(step, move)
            new_s, second_driver_s = search.new_s(step, move)
            used_s[target] += new_s
            double_s += second_driver_s
            choice = target
            at_s = float(step * course.step_s)
            stages.append(
                Stage(requested_at_s=at_s, configuration=choices.configurations[target], mechanism=move.mechanism)
            )
        landing = search.lands_in(step, layer, move)
        step += 1 if move is None else move.steps
        layer = Layer() if landing is None else landing
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
