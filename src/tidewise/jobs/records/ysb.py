"""The events of the Yahoo streaming benchmark: who saw, clicked or bought by which advertisement."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tidewise.jobs.records.chance import below, mixed
from tidewise.jobs.schedule import Whole

CAMPAIGNS = 100
ADS_PER_CAMPAIGN = 10
ADS = CAMPAIGNS * ADS_PER_CAMPAIGN
USERS = 10_000
PAGES = 1_000
AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
EVENT_TYPES = ("view", "click", "purchase")
REPEATS_AFTER = 32_768
"""A record has the values of the one so many before it, but for its ordinal and its time."""

_ADDRESSES = tuple(f"10.{number // 256}.{number % 256}.7" for number in range(4096))


def campaigns(seed: int) -> list[tuple[str, str]]:
    """Every advertisement with the campaign that it belongs to."""
    ads, owners = _identifiers("ad", ADS, seed), _identifiers("campaign", CAMPAIGNS, seed)
    return [(ad, owners[number // ADS_PER_CAMPAIGN]) for number, ad in enumerate(ads)]


def values(ordinals: Whole, *, seed: int) -> list[pa.Array]:
    """The columns from `user_id` to `ip_address` of these records."""
    positions = ordinals % REPEATS_AFTER
    who, what = mixed(positions, seed=seed), mixed(positions + REPEATS_AFTER, seed=seed)
    return [
        _named(_identifiers("user", USERS, seed), below(who, USERS, shift=0)),
        _named(_identifiers("page", PAGES, seed), below(who, PAGES, shift=16)),
        _named(_identifiers("ad", ADS, seed), below(who, ADS, shift=32)),
        _named(AD_TYPES, below(what, len(AD_TYPES), shift=0)),
        _named(EVENT_TYPES, below(what, len(EVENT_TYPES), shift=16)),
        _named(_ADDRESSES, below(what, len(_ADDRESSES), shift=32)),
    ]


@functools.lru_cache(maxsize=16)
def _identifiers(what: str, count: int, seed: int) -> tuple[str, ...]:
    """Names that look like random ones, and are the same for the same seed."""
    bits = mixed(np.arange(2 * count), seed=seed + int.from_bytes(what.encode()))
    return tuple(str(uuid.UUID(bytes=half.tobytes(), version=4)) for half in bits.astype(">u8").reshape(count, 2))


def _named(names: Sequence[str], numbers: Whole) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), pa.array(names)).dictionary_decode()
