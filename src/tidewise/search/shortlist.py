"""The few configurations of a large space that a plan can be made of: those that nothing cheaper can replace."""

from __future__ import annotations

import numpy as np

from tidewise.core import Configuration, Prices
from tidewise.qos import Candidates, Floats
from tidewise.qos.candidates import Integers
from tidewise.qos.model import JobModel

_LEVELS = 16
"""Capacities, evenly apart in logarithms, for each of which the cheapest are kept."""
_KINDS = 4
"""Kinds (all but the number of executors) that are kept with every number of executors."""
_FULL = 0.05
"""A configuration more likely than this to run out of memory is not worth a thought while others are not."""


def shortlist(
    model: JobModel, candidates: Candidates, *, prices: Prices, rate_per_s: float, running: Configuration
) -> Candidates:
    """Of all candidates, and of what runs, those that a plan may need.

    For every level of capacity and every commit interval the cheapest; the few cheapest kinds with all their numbers of
    executors, so that a job can be moved by its executors alone; and the kind that runs.
    """
    own = candidates.row_of(running)
    if own is None:
        own, candidates = len(candidates), candidates.with_one_more(running)
    capacity = model.capacity_at(candidates, rate_per_s)
    # What can be relied on, not what may be hoped for: a kind that was never seen has to be cheaper by its doubt.
    log_able = capacity.log_mean - capacity.log_sd
    cost = candidates.cost_per_hour(prices)
    full = model.memory.out_of_memory_probability(candidates, rate_per_s)
    usable = full <= max(_FULL, float(full.min()))
    kinds = candidates.kind_numbers
    levels = np.linspace(log_able[usable].min(), log_able[usable].max(), _LEVELS)
    kept = kinds == kinds[own]
    intervals = candidates.commit_interval_s
    for interval_s in np.unique(intervals):
        rows = np.flatnonzero(usable & (intervals == interval_s))
        if len(rows):
            cheapest = _cheapest_by_level(log_able[rows], cost[rows], levels)
            kept[rows[cheapest]] = True
    for kind in _cheapest_kinds(kinds[usable], log_able[usable], cost[usable], levels):
        kept |= usable & (kinds == kind)
    return candidates.only(np.flatnonzero(kept))


def _cheapest_by_level(log_able: Floats, cost: Floats, levels: Floats) -> Integers:
    """For each level the cheapest row that reaches it; of equally cheap ones the ablest."""
    order = np.lexsort((-log_able, cost))
    best_so_far = np.maximum.accumulate(log_able[order])
    places = np.searchsorted(best_so_far, levels - 1e-12)
    return np.unique(order[places[places < len(order)]]).astype(np.int64)


def _cheapest_kinds(kinds: Integers, log_able: Floats, cost: Floats, levels: Floats) -> list[int]:
    """The kinds that cost least over all levels, what they do not reach counted as the most expensive of all."""
    dearest = 2.0 * float(cost.max())
    order = np.lexsort((cost, kinds))
    names, firsts, numbers = np.unique(kinds[order], return_index=True, return_inverse=True)
    ends = np.append(firsts[1:], len(order))
    # All kinds in one go: lifted by more than they differ by, one kind after another is one ascending line.
    lift = 1.0 + float(max(log_able.max(), levels.max()) - min(log_able.min(), levels.min()))
    able_so_far = np.maximum.accumulate(log_able[order] + lift * numbers)
    wanted = levels[np.newaxis, :] - 1e-12 + lift * np.arange(len(names))[:, np.newaxis]
    places = np.searchsorted(able_so_far, wanted)
    # What a kind does not reach, the next one does not answer for.
    prices = np.where(places < ends[:, np.newaxis], cost[order][np.minimum(places, len(order) - 1)], dearest)
    return [int(names[place]) for place in np.argsort(prices.mean(axis=1), kind="stable")[:_KINDS]]
