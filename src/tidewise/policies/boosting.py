"""Gradient boosting: small regression trees, each fitted to what those before it have left over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

_DEPTH = 3
"""How many questions a tree asks before it answers."""
_LEAVES = 2**_DEPTH
_MOST_EDGES = 31
"""As many places to split a feature are tried, spread over its values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boosted:
    """A sum of trees, a row each; in a row stand the nodes of all levels, the root first."""

    base: float
    features: Whole
    edges: Floats
    """Where the feature of a node is above this, the way leads to the right."""
    leaves: Floats

    def predict(self, rows: Floats) -> Floats:
        """The target of each row."""
        trees = np.arange(len(self.leaves))[:, None]
        node = np.zeros((len(self.leaves), len(rows)), dtype=np.int64)
        everything = np.arange(len(rows))
        for _ in range(_DEPTH):
            right = rows[everything, self.features[trees, node]] > self.edges[trees, node]
            node = 2 * node + 1 + right
        return np.asarray(self.base + self.leaves[trees, node - (_LEAVES - 1)].sum(axis=0))


def fit_boosted(rows: Floats, targets: Floats, *, trees: int = 50, rate: float = 0.2) -> Boosted:
    """Trees for squared errors; each takes away the share `rate` of what is left over. There is at least one row."""
    edges = [_edges(rows[:, feature]) for feature in range(rows.shape[1])]
    codes = [np.searchsorted(places, rows[:, feature]) for feature, places in enumerate(edges)]
    base = float(targets.mean())
    left_over = targets - base
    grown = []
    for _ in range(trees):
        features, places, leaf_of = _grow(edges, codes, left_over)
        sums = np.bincount(leaf_of, weights=left_over, minlength=_LEAVES)
        leaves = rate * sums / np.maximum(np.bincount(leaf_of, minlength=_LEAVES), 1)
        left_over = left_over - leaves[leaf_of]
        grown.append((features, places, leaves))
    features, places, leaves = (np.stack(parts) for parts in zip(*grown, strict=True))
    return Boosted(base=base, features=features, edges=places, leaves=leaves)


def _edges(values: Floats) -> Floats:
    """Half-way between neighbouring values; where there are many, some of those."""
    distinct = np.unique(values)
    between = distinct[:-1] + 0.5 * np.diff(distinct)
    if len(between) > _MOST_EDGES:
        between = between[np.linspace(0, len(between) - 1, _MOST_EDGES).round().astype(np.int64)]
    return between


def _grow(edges: list[Floats], codes: list[Whole], left_over: Floats) -> tuple[Whole, Floats, Whole]:
    """The features and edges of a tree's nodes, and the leaf to which each row comes."""
    features, places = [], []
    node = np.zeros(len(left_over), dtype=np.int64)
    for level in range(_DEPTH):
        nodes = 2**level
        gains = np.zeros(nodes)
        # Where nothing is to be gained all rows go to the left, as they do at an edge that lies above all of them.
        feature, place = np.zeros(nodes, dtype=np.int64), np.full(nodes, np.inf)
        right = np.zeros(len(left_over), dtype=bool)
        for number, (choices, code) in enumerate(zip(edges, codes, strict=True)):
            if not len(choices):
                continue
            gain, cut = _best_cuts(node * (len(choices) + 1) + code, left_over, nodes, len(choices) + 1)
            better = gain > gains
            gains[better], feature[better], place[better] = gain[better], number, choices[cut][better]
            right = np.where(better[node], code > cut[node], right)
        features.append(feature)
        places.append(place)
        node = 2 * node + right
    return np.concatenate(features), np.concatenate(places), node


def _best_cuts(cells: Whole, left_over: Floats, nodes: int, width: int) -> tuple[Floats, Whole]:
    """Of every node, how much the best cut takes off the squared errors, and behind which code it lies."""
    sums = np.bincount(cells, weights=left_over, minlength=nodes * width).reshape(nodes, width)
    counts = np.bincount(cells, minlength=nodes * width).reshape(nodes, width)
    below, below_count = np.cumsum(sums, axis=1)[:, :-1], np.cumsum(counts, axis=1)[:, :-1]
    total, total_count = sums.sum(axis=1, keepdims=True), counts.sum(axis=1, keepdims=True)
    above, above_count = total - below, total_count - below_count
    gain = below**2 / np.maximum(below_count, 1) + above**2 / np.maximum(above_count, 1)
    gain -= total**2 / np.maximum(total_count, 1)
    gain[(below_count == 0) | (above_count == 0)] = 0.0
    cut = gain.argmax(axis=1)
    return gain[np.arange(nodes), cut], cut
