"""The ways from one choice to another, with the times that a seed's luck gives them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tidewise.core import Mechanism
from tidewise.engines.simulator import SimulatorProfile
from tidewise.engines.simulator.chance import Chance
from tidewise.experiments.bound_choices import moves_executors, reaches_all

_COUNTED = 20
"""So many changes are counted; those beyond are all as lucky as the luckiest of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One kind of change."""

    mechanism: Mechanism
    grows: bool | None
    """Whether it only adds executors, or only removes them; None: either."""
    leaves_family: bool
    before_s: int
    """With the old configuration, from the request on."""
    gaps_s: tuple[float, ...]
    """Down, after that: for the first change of a run, the second and so on; empty: it has none.

    The last is for all that come later as well, if there can be any.
    """
    pays_new_at_once: bool
    runs_double: bool
    renews: bool
    """Whether the job has new processes afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """All that a policy can do, and how often."""

    kinds: tuple[Move, ...]
    counts: int
    """How many numbers of changes are told apart, none included."""
    limited: bool
    """Whether the last of them is the most there can be; otherwise it stands for all beyond."""

    @property
    def longest_s(self) -> float:
        return max((move.before_s + max(move.gaps_s, default=0.0) for move in self.kinds), default=0.0)


def moves_of(
    profile: SimulatorProfile,
    mechanisms: Sequence[Mechanism],
    *,
    seed: int,
    steps: int,
    bad_s: float,
    least_state_mib: float,
    usual_luck: bool,
    max_changes: int | None,
) -> Moves:
    """All that the mechanisms offer; those that leave the number of executors alone are of no use to a bound.

    Each change has its own luck, by its number. Where every change has a gap, changes are counted up to a number, and
    each has its own luck; those beyond, and all where executors join and leave, get the best luck that any can have.
    A gap is that many bad seconds, and no more than `bad_s` of them are allowed. With `usual_luck`, each takes as long
    as the profile says in the middle.
    """
    offered = [one for one in profile.mechanisms if one in mechanisms]
    used = [one for one in offered if moves_executors(one)]
    restarts = {one: profile.mechanisms[one] for one in used if one is not Mechanism.LIVE}
    # By a change that costs next to nothing, a policy could pass on to the next one's luck.
    has_own_luck = bool(restarts) and len(restarts) == len(offered)
    most = steps if max_changes is None else max_changes
    if has_own_luck:
        shortest = min(restarts.values(), key=lambda cost: cost.gap_s)
        most = min(most, _most_changes(shortest.gap_s, shortest.gap_spread_share, seed, bad_s, steps))
    counted = most if max_changes is not None else min(most, _COUNTED) if has_own_luck and not usual_luck else 0
    limited = counted == most
    if most == 0:
        return Moves(kinds=(), counts=1, limited=True)
    found = []
    for mechanism, cost in restarts.items():
        state_s = cost.gap_s_per_state_gib * least_state_mib / 1024
        lucks = [1.0 if usual_luck else Chance.of_change(seed, n).spread(cost.gap_spread_share) for n in range(most)]
        if not has_own_luck:
            lucks = [min(lucks, default=1.0)] * len(lucks)
        gaps_s = lucks[:counted] if limited else [*lucks[:counted], min(lucks[counted:], default=1.0)]
        found.append(
            Move(
                mechanism=mechanism,
                grows=None,
                leaves_family=reaches_all(mechanism),
                before_s=math.ceil(cost.preparation_s),
                gaps_s=tuple(cost.gap_s * luck + state_s for luck in gaps_s),
                pays_new_at_once=False,
                runs_double=cost.runs_double,
                renews=True,
            )
        )
    if Mechanism.LIVE in used:
        luck = min((_start_up_luck(profile, seed, number) for number in range(most)), default=1.0)
        soonest_s = profile.live.start_s * (1.0 if usual_luck else luck)
        for grows, takes_s in ((True, soonest_s), (False, profile.live.leave_s)):
            found.append(
                Move(
                    mechanism=Mechanism.LIVE,
                    grows=grows,
                    leaves_family=False,
                    before_s=math.ceil(takes_s),
                    gaps_s=(),
                    pays_new_at_once=grows,
                    runs_double=False,
                    renews=False,
                )
            )
    return Moves(kinds=tuple(found), counts=counted + 1, limited=limited)


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
