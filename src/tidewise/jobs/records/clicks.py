"""What the embedded source's records are: each a pure function of the seed, its ordinal and the schedule."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidewise.jobs.records.chance import below, mixed
from tidewise.jobs.schedule import Pieces, Whole

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
    columns = [
        pa.array(ordinals),
        pa.array(pieces.times_us(ordinals)).view(_ARROW_SCHEMA.field("event_time").type),
        *values(ordinals, seed=seed),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)


def values(ordinals: Whole, *, seed: int) -> list[pa.Array]:
    """The columns `ad_id`, `event_type` and `user_id` of these records."""
    chance = mixed(ordinals, seed=seed)
    types = below(chance, len(EVENT_TYPES), shift=0).astype(np.int8)
    ads = below(chance, CAMPAIGNS * ADS_PER_CAMPAIGN, shift=16)
    users = (chance >> np.uint64(32)) % np.uint64(USERS)
    return [
        pa.array(ads.astype(np.int32)),
        pa.DictionaryArray.from_arrays(pa.array(types), pa.array(EVENT_TYPES)).dictionary_decode(),
        pa.array(users.astype(np.int32)),
    ]
