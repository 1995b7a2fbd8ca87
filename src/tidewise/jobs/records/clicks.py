"""What the embedded source's records are: each a pure function of the seed, its ordinal and the schedule."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidewise.jobs.schedule import Pieces

SCHEMA = "ordinal bigint, event_time timestamp, ad_id int, event_type string, user_id int"
EVENT_TYPES = ("view", "click", "purchase")
CAMPAIGNS = 100
ADS_PER_CAMPAIGN = 10
USERS = 100_000

_ARROW_SCHEMA = pa.schema(
    [
        ("ordinal", pa.int64()),
        ("event_time", pa.timestamp("us", tz="UTC")),
        ("ad_id", pa.int32()),
        ("event_type", pa.string()),
        ("user_id", pa.int32()),
    ]
)


def records(*, seed: int, first: int, end: int, pieces: Pieces) -> pa.RecordBatch:
    """The records from `first` to just before `end`."""
    ordinals = np.arange(first, end, dtype=np.int64)
    chance = _mixed(ordinals, seed=seed)
    types = ((chance & np.uint64(0xFFFF)) % np.uint64(len(EVENT_TYPES))).astype(np.int8)
    ads = ((chance >> np.uint64(16)) & np.uint64(0xFFFF)) % np.uint64(CAMPAIGNS * ADS_PER_CAMPAIGN)
    users = (chance >> np.uint64(32)) % np.uint64(USERS)
    columns = [
        pa.array(ordinals),
        pa.array(pieces.times_us(ordinals)).view(_ARROW_SCHEMA.field("event_time").type),
        pa.array(ads.astype(np.int32)),
        pa.DictionaryArray.from_arrays(pa.array(types), pa.array(EVENT_TYPES)).dictionary_decode(),
        pa.array(users.astype(np.int32)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)


def _mixed(ordinals: NDArray[np.int64], *, seed: int) -> NDArray[np.uint64]:
    """Sixty-four bits per ordinal that look independent: SplitMix64 at position `ordinal`, shifted by the seed."""
    word = (seed * 0xD1342543DE82EF95 + 0x9E3779B97F4A7C15) % 2**64
    bits = ordinals.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(word)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
