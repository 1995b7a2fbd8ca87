"""The events of the price search machine: what people search for, what they are shown, and what they click on."""

from __future__ import annotations

import types
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tidewise.jobs.records.chance import among, below, mixed, shares
from tidewise.jobs.schedule import Whole

SCHEMA = (
    "ordinal bigint, event_time timestamp, event_type string, category int, product int, owner int, price double, "
    "rank int"
)
PARTS: Mapping[str, tuple[str, ...]] = types.MappingProxyType(
    {"click": ("owner", "price"), "impression": (), "search": ("rank",)}
)
CATEGORIES = 10
PRODUCTS = 1_000
"""Each is of one category: its number's last digit."""
OWNERS = 100
RANKS = 200
LEAST_PRICE, MOST_PRICE = 0.2, 0.7


def values(ordinals: Whole, *, seed: int) -> list[pa.Array]:
    """The columns from `event_type` to `rank`: in turn a search, and a click on or an impression of what was found."""
    pairs, place = np.divmod(ordinals, 2)
    # Three words of chance for each pair: what both share, and what each has alone.
    shared, own = mixed(pairs * 3, seed=seed), mixed(pairs * 3 + 1 + place, seed=seed)
    found = place == 1
    clicked = found & (below(shared, 2, shift=0) == 0)
    product = among(shared, PRODUCTS, shift=32)
    kinds = np.where(found, np.where(clicked, 0, 1), 2).astype(np.int8)
    price = LEAST_PRICE + (MOST_PRICE - LEAST_PRICE) * shares(own, shift=32)
    return [
        pa.DictionaryArray.from_arrays(pa.array(kinds), pa.array(tuple(PARTS))).dictionary_decode(),
        pa.array((product % CATEGORIES).astype(np.int32)),
        pa.array(product.astype(np.int32)),
        pa.array(below(own, OWNERS, shift=0).astype(np.int32), mask=~clicked),
        pa.array(price, mask=~clicked),
        pa.array(below(own, RANKS, shift=0).astype(np.int32), mask=found),
    ]
