"""The configurations that a cheapest sequence can need: those that another one beats in everything are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tidewise.core import REACH, BadInputError, Configuration, ConfigurationSpace, Mechanism, Parameter
from tidewise.engines.simulator import SimulatorProfile
from tidewise.engines.simulator.physics import capacity_per_s, memory_share
from tidewise.experiments.series import FloatArray

_SIZE = frozenset({Parameter.SLOTS_PER_EXECUTOR, Parameter.CORES_PER_EXECUTOR, Parameter.MEMORY_MIB_PER_EXECUTOR})
"""What a mechanism that only adds and removes executors leaves as it is."""

_TOLD_APART = 26
"""Of those that matter, so many of the cheapest are told apart."""
_NEAR = 1.25
"""Dearer ones are taken together up to this factor."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choices:
    """Configurations in families (the same executors, more or fewer of them), ascending within each."""

    configurations: tuple[Configuration, ...]
    fastest: tuple[tuple[Configuration, ...], ...]
    """By which each is taken to be as fast as the fastest of these: large ones stand for some that are dearer."""
    families: tuple[slice, ...]
    """Where each family lies."""
    price_per_s: FloatArray
    """Of the executors, in what is to be kept low."""

    def __len__(self) -> int:
        return len(self.configurations)


def reaches_all(mechanism: Mechanism) -> bool:
    """Whether this mechanism leads from one family to another."""
    return REACH[mechanism] >= _SIZE | {Parameter.EXECUTORS}


def moves_executors(mechanism: Mechanism) -> bool:
    """Whether this mechanism changes how many executors there are."""
    return Parameter.EXECUTORS in REACH[mechanism]


def capacity_of(profile: SimulatorProfile, configuration: Configuration, lost: int = 0) -> float:
    """Mean records/s with so many executors away, what checkpoints take left out."""
    interval_s = configuration.commit_interval_s
    pause = profile.checkpoint_cost_s / interval_s if profile.mode == "continuous" and interval_s > 0 else 0.0
    full = capacity_per_s(profile.capacity, configuration, configuration.executors - lost)
    return full * max(0.0, 1.0 - pause)


def fastest_of(profile: SimulatorProfile, group: Sequence[Configuration], lost: int = 0) -> float:
    """Mean records/s of the fastest with so many executors away."""
    return max(capacity_of(profile, one, lost) for one in group)


def choose(
    *,
    profile: SimulatorProfile,
    space: ConfigurationSpace,
    start: Configuration | None,
    mechanisms: Sequence[Mechanism],
    prices_per_s: Sequence[tuple[float, float]],
    lost: int,
    state_mib: tuple[float, float],
    only_real: bool = False,
) -> Choices:
    """All that matter out of a space, and where the job starts.

    `prices_per_s`: of a core and of a MiB, in what is kept low, then in what decides between equals. `lost`: the most
    executors that a failure takes away. `state_mib`: the least and the most. `only_real`: without those that stand for
    dearer ones, which nobody can deploy.

    A configuration is left out where another costs no more, is no slower (with executors lost either), and has no more
    of its memory in use at any size of the state, if every mechanism leads to the other as well. Where mechanisms stay
    within a family, that holds for whole families only: every member must be beaten by a member of one other family.
    """
    candidates = _with_best_interval(profile, space, start)
    within_families = any(moves_executors(one) and not reaches_all(one) for one in mechanisms)
    families: dict[object, list[Configuration]] = {}
    for one in candidates:
        families.setdefault(_size(one) if within_families else one, []).append(one)
    measured = [_measure(profile, members, prices_per_s, lost, state_mib) for members in families.values()]
    first = next((number for number, members in enumerate(families.values()) if start in members), None)
    kept = [members for members, needed in zip(families.values(), _unbeaten(measured, first), strict=True) if needed]
    if start is not None and not any(reaches_all(one) for one in mechanisms):
        kept = [members for members in kept if start in members]
    core, mib = prices_per_s[0]

    def price(one: Configuration) -> float:
        return core * one.total_cores + mib * one.total_memory_mib

    ordered = [sorted(members, key=lambda one: (one.executors, price(one))) for members in kept]
    if not ordered:
        raise BadInputError("no configuration is left for the bound: give a space with at least one")
    candidates = [one for members in families.values() for one in members]
    rows = dict(zip(candidates, np.delete(np.concatenate(measured), 1, axis=1), strict=True))
    grouped = _with_few_large_ones(ordered, start, price, rows if within_families else None, only_real=only_real)
    ends = np.cumsum([len(members) for members in grouped]).tolist()
    configurations = tuple(group[0] for members in grouped for group in members)
    return Choices(
        configurations=configurations,
        fastest=tuple(group for members in grouped for group in members),
        families=tuple(slice(end - len(members), end) for end, members in zip(ends, grouped, strict=True)),
        price_per_s=np.array([price(one) for one in configurations]),
    )


def _with_few_large_ones(
    families: list[list[Configuration]],
    start: Configuration | None,
    price: Callable[[Configuration], float],
    rows: Mapping[Configuration, FloatArray] | None,
    *,
    only_real: bool,
) -> list[list[tuple[Configuration, ...]]]:
    """Families of groups; a group has the price of its first and the speed of its fastest, which is to the good.

    Those that are far larger than needed are many, and hardly ever worth their price: they are taken together. `rows`:
    what should be low of each, where mechanisms stay within a family. Then the large ones become the last members of
    the family that the job starts in; where others neither lie beyond that nor are beaten, all families stay.
    """
    if rows is None:
        others = sorted((one for members in families for one in members), key=price)
        few, many = others[:_TOLD_APART], others[_TOLD_APART:]
        if start is not None and start in many:
            many.remove(start)
            few.append(start)
        groups: list[tuple[Configuration, ...]] = [(one,) for one in few]
        groups += _groups([] if only_real else many, price)
        return [[group] for group in groups]
    own = next((members for members in families if start in members), families[0])
    others = [one for members in families if members is not own for one in members]
    others = [one for one in others if not any((rows[mine] <= rows[one] + 1e-12).all() for mine in own)]
    if any(price(one) < price(own[-1]) for one in others):
        return [[(one,) for one in members] for members in families]
    return [[*((one,) for one in own), *_groups([] if only_real else sorted(others, key=price), price)]]


def _groups(
    ordered: Sequence[Configuration], price: Callable[[Configuration], float]
) -> list[tuple[Configuration, ...]]:
    """Of those whose prices are near each other, ascending."""
    groups: list[list[Configuration]] = []
    for one in ordered:
        if groups and price(one) <= _NEAR * price(groups[-1][0]):
            groups[-1].append(one)
        else:
            groups.append([one])
    return [tuple(group) for group in groups]


def _with_best_interval(
    profile: SimulatorProfile, space: ConfigurationSpace, start: Configuration | None
) -> list[Configuration]:
    """Each size and number with the commit interval that leaves it most capacity: the bound knows no other effect."""
    intervals_s = space.commit_interval_s
    best_s = intervals_s[0] if profile.mode == "micro-batch" or not profile.checkpoint_cost_s else intervals_s[-1]
    partitions = space.state_partitions[0] if start is None else start.state_partitions
    # Which partitions the state has changes nothing that the bound looks at.
    found = {replace(one, commit_interval_s=best_s, state_partitions=partitions): None for one in space}
    if start is not None:
        found.pop(replace(start, commit_interval_s=best_s), None)
        found[start] = None
    return list(found)


def _size(configuration: Configuration) -> tuple[int, float, int]:
    one = configuration
    return one.slots_per_executor, one.cores_per_executor, one.memory_mib_per_executor


def _measure(
    profile: SimulatorProfile,
    members: Sequence[Configuration],
    prices_per_s: Sequence[tuple[float, float]],
    lost: int,
    state_mib: tuple[float, float],
) -> FloatArray:
    """A row per member: both prices, then what should be low: less capacity and memory in use."""
    knee = profile.memory.knee_share
    rows = []
    for one in members:
        prices = [core * one.total_cores + mib * one.total_memory_mib for core, mib in prices_per_s]
        slowness = [-capacity_of(profile, one, away) for away in {0, lost}]
        # Below the knee memory is not felt, so that less of it in use is no better.
        used = [max(knee, memory_share(profile.memory, one, max(1, one.executors - lost), mib)) for mib in state_mib]
        rows.append([*prices, *sorted(slowness), *used])
    return np.array(rows)


def _unbeaten(families: Sequence[FloatArray], first: int | None) -> list[bool]:
    """Which families no other beats; of those that are equal, the one that is cheaper by the second price stays.

    `first`: the family that the job starts in, which stays whatever the others are like.
    """
    order = sorted(range(len(families)), key=lambda index: tuple(families[index][:, :2].sum(axis=0)), reverse=True)
    order = [index for index in order if index != first]
    stays = np.ones(len(families), dtype=np.bool_)
    rows = np.concatenate(families)
    rows = np.delete(rows, 1, axis=1)
    owner = np.repeat(np.arange(len(families)), [len(family) for family in families])
    for index in order:
        others = stays[owner] & (owner != index)
        # Who beats each member; a family has to beat every one of them.
        beaten_by = np.ones(len(families), dtype=np.bool_)
        for member in rows[owner == index]:
            better = others & (rows <= member + 1e-12).all(axis=1)
            beaten_by &= np.bincount(owner[better], minlength=len(families)) > 0
        stays[index] = not beaten_by.any()
    return [bool(one) for one in stays]
