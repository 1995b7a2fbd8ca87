"""The ways from one choice to another, with the shortest times that a seed's luck can give them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tidewise.core import Mechanism
from tidewise.engines.simulator import SimulatorProfile
from tidewise.engines.simulator.chance import Chance
from tidewise.experiments.bound_choices import moves_executors, reaches_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One kind of change."""

    mechanism: Mechanism
    grows: bool | None
    """Whether it only adds executors, or only removes them; None: either."""
    leaves_family: bool
    before_s: int
    """With the old configuration, from the request on."""
    gap_s: float
    """Down, after that."""
    steps: int
    """After so many the next request may come."""
    pays_new_at_once: bool
    runs_double: bool
    renews: bool
    """Whether the job has new processes afterwards."""


def moves_of(
    profile: SimulatorProfile,
    mechanisms: Sequence[Mechanism],
    *,
    seed: int,
    steps: int,
    step_s: int,
    bad_s: float,
    least_state_mib: float,
    usual_luck: bool,
) -> tuple[Move, ...]:
    """All that the mechanisms offer; those that leave the number of executors alone are of no use to a bound.

    Each change has its own luck, by its number. The bound does not count changes, so each gets the best luck among
    those that can come about: a change by a gap is that many bad seconds, and no more than `bad_s` of them are allowed.
    With `usual_luck`, each takes as long as the profile says in the middle.
    """
    used = [one for one in profile.mechanisms if one in mechanisms and moves_executors(one)]
    restarts = {one: profile.mechanisms[one] for one in used if one is not Mechanism.LIVE}
    numbers = range(steps)
    if restarts and len(restarts) == len(used):
        shortest = min(restarts.values(), key=lambda cost: cost.gap_s)
        numbers = range(_most_changes(shortest.gap_s, shortest.gap_spread_share, seed, bad_s, steps))
    found = []
    for mechanism, cost in restarts.items():
        state_s = cost.gap_s_per_state_gib * least_state_mib / 1024
        luck = min((Chance.of_change(seed, n).spread(cost.gap_spread_share) for n in numbers), default=1.0)
        gap_s = cost.gap_s * (1.0 if usual_luck else luck) + state_s
        before_s = math.ceil(cost.preparation_s)
        found.append(
            Move(
                mechanism=mechanism,
                grows=None,
                leaves_family=reaches_all(mechanism),
                before_s=before_s,
                gap_s=gap_s,
                steps=max(1, math.ceil((before_s + gap_s) / step_s)),
                pays_new_at_once=False,
                runs_double=cost.runs_double,
                renews=True,
            )
        )
    if Mechanism.LIVE in used:
        luck = min((_start_up_luck(profile, seed, number) for number in numbers), default=1.0)
        soonest_s = profile.live.start_s * (1.0 if usual_luck else luck)
        for grows, takes_s in ((True, soonest_s), (False, profile.live.leave_s)):
            before_s = math.ceil(takes_s)
            found.append(
                Move(
                    mechanism=Mechanism.LIVE,
                    grows=grows,
                    leaves_family=False,
                    before_s=before_s,
                    gap_s=0.0,
                    steps=max(1, math.ceil(before_s / step_s)),
                    pays_new_at_once=grows,
                    runs_double=False,
                    renews=False,
                )
            )
    return tuple(found)


def _most_changes(gap_s: float, spread_share: float, seed: int, bad_s: float, most: int) -> int:
    """How many changes fit into the bad seconds that are allowed, at least one."""
    spent_s = 0.0
    for number in range(most):
        spent_s += math.floor(gap_s * Chance.of_change(seed, number).spread(spread_share))
        if spent_s > bad_s:
            return max(1, number)
    return most


def _start_up_luck(profile: SimulatorProfile, seed: int, number: int) -> float:
    chance = Chance.of_change(seed, number)
    chance.spread(0.0)  # that of the gap is drawn first
    return chance.spread(profile.live.start_spread_share)
