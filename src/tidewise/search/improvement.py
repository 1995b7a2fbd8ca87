"""How much the front of cost and one quantity is expected to gain by a measurement, in closed form.

Because the cost is known exactly, the gain is a sum over the strips between the costs of the front: in each the
candidate beats what is there by an expected improvement in one dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from tidewise.qos import Floats
from tidewise.qos.belief import LEAST_SD
from tidewise.search.pareto import front_rows

_SQRT_2_PI = math.sqrt(2.0 * math.pi)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strips:
    """A front as steps: from each edge to the next, the quantity that is reached for that cost."""

    edges: Floats
    """Costs, ascending; the last is the highest that counts. What is cheaper than the first has no level but the
    limit."""
    levels: Floats
    """One per strip, one more than the costs on the front: the limit first, then descending."""

    @classmethod
    def of(cls, cost: Floats, value: Floats, *, cost_limit: float, value_limit: float) -> Strips:
        """The front of these points, as far as it lies below both limits."""
        inside = (cost < cost_limit) & (value < value_limit)
        cost, value = cost[inside], value[inside]
        rows = front_rows(cost, value)
        return cls(edges=np.append(cost[rows], cost_limit), levels=np.concatenate([[value_limit], value[rows]]))

    def gain(self, cost: Floats, mean: Floats, sd: Floats) -> Floats:
        """The expected growth of the area under the limits, for each candidate."""
        begins = np.concatenate([[-math.inf], self.edges[:-1]])
        widths = np.maximum(self.edges[:, None] - np.maximum(cost, begins[:, None]), 0.0)
        improvement = expected_improvement(mean, sd, self.levels[:, None])
        return np.asarray(np.einsum("ij,ij->j", widths, improvement))


def expected_improvement(mean: Floats, sd: Floats, level: float | Floats) -> Floats:
    """By how much normal quantities are expected to lie below a level, counting 0 where they do not."""
    below = level - mean
    certain = sd < LEAST_SD
    z = below / np.where(certain, 1.0, sd)
    density = np.exp(-0.5 * np.square(z)) / _SQRT_2_PI
    return np.maximum(np.where(certain, below, below * ndtr(z) + sd * density), 0.0)
