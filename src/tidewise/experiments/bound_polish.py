"""A sequence that can be run, made cheaper in small steps that the simulator has to agree to.

What dynamic programming finds leaves something unused once it really runs: it reckons with round backlogs, and with
more load than there is. Stages with fewer executors, that begin somewhat earlier or later, or that are left out: what
is cheaper and still kept is the next to be tried on. Nothing says that no other is cheaper yet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tidewise.experiments.bound_path import Stage
from tidewise.experiments.bound_replay import Replayed

_SHIFTS = (1, 2, 4, 8, 20, 40)
"""In steps: how much earlier or later a stage may begin than before."""
_FEWER, _MORE, _SHIFTED = 0.35, 0.5, 0.9
"""Shares of what is tried, one on top of the other; else a stage is left out."""
_TOGETHER = (1, 1, 2)
"""So many small steps are tried at once."""
_FEWEST_STAGES = 3


def polished(
    found: Replayed,
    *,
    run: Callable[[Sequence[Stage]], Replayed],
    is_kept: Callable[[Replayed], bool],
    cost: Callable[[Replayed], float],
    step_s: int,
    executors: Sequence[int],
    tries: int,
    seed: int,
) -> Replayed:
    """The cheapest that was come to in so many tries; what the job starts with stays as it is.

    executors: all that there may be, in order.
    """
    random = np.random.default_rng(seed)
    best = found
    for _ in range(tries):
        if len(best.stages) == 1:
            break  # it has become one that is never changed
        stages = list(best.stages)
        for _ in range(int(random.choice(_TOGETHER))):
            _vary(stages, random, step_s=step_s, executors=executors)
        ran = run([stages[0], *sorted(stages[1:], key=lambda stage: stage.requested_at_s)])
        if is_kept(ran) and cost(ran) < cost(best):
            best = ran
    return best


def _vary(stages: list[Stage], random: np.random.Generator, *, step_s: int, executors: Sequence[int]) -> None:
    """One small step, in place."""
    place, kind = int(random.integers(1, len(stages))), float(random.random())
    stage = stages[place]
    if kind < _MORE:
        next_to = bisect_left(executors, stage.configuration.executors) + (-1 if kind < _FEWER else 1)
        count = executors[min(max(0, next_to), len(executors) - 1)]
        stages[place] = replace(stage, configuration=stage.configuration.with_executors(count))
    elif kind < _SHIFTED:
        by_s = float(random.choice((-1, 1)) * random.choice(_SHIFTS) * step_s)
        stages[place] = replace(stage, requested_at_s=max(0.0, stage.requested_at_s + by_s))
    elif len(stages) > _FEWEST_STAGES:
        del stages[place]
