"""The events on which all queries are tried: in disorder, over half an hour, with ties, and some that come too late.

They come in eight bursts, so that many windows begin and end in few events. Times are quarters of a second, so that
clicks on a product come at the same moment and events fall on the bounds of windows. Half of all events are about four
products, which so get enough clicks for windows of clicks, and the others about so many that some get none.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidewise.jobs.records.kinds import KINDS, Disorder
from tidewise.jobs.records.psm import PRODUCTS
from tidewise.jobs.schedule import Schedule

KIND = KINDS["psm"]
TOTAL = 8_000
BEGIN = datetime.datetime(2023, 11, 14, 23, 50, 0, tzinfo=datetime.UTC)
PAST = Schedule(
    began_unix_s=BEGIN.timestamp(), step_s=20.0, rates_per_s=((50.0,) + (0.0,) * 9) * 7 + (50.0,), after="stop"
)
LATE = Disorder(share=0.3, most_s=3.5)

_TIME_STEP_US = 250_000
_MANY_CLICKS = 4
_HELD_BACK_OF, _HELD_BACK_IN, _HELD_BACK_FOR = TOTAL // 8, 3, 7 * TOTAL // 8
"""Of the first burst one in three events comes so many events later, when the watermark has long passed its windows."""
_FLUSH_AT = BEGIN + datetime.timedelta(hours=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Events, in the order in which they come."""

    events: pa.Table
    on_time: pa.Table
    """The same without those that come too late."""


def made() -> Input:
    """The events of the generator, made coarse, some held back, and a click at the end that closes everything."""
    events = pa.concat_tables([_generated(), _last_click()])
    ordinals = events["ordinal"].to_numpy()
    held_back = (ordinals < _HELD_BACK_OF) & (ordinals % _HELD_BACK_IN == 0)
    order = np.argsort(ordinals + np.where(held_back, _HELD_BACK_FOR, 0), kind="stable")
    return Input(events=events.take(order), on_time=events.filter(~held_back))


def _generated() -> pa.Table:
    events = pa.Table.from_batches(
        [KIND.batch(seed=0, first=0, end=TOTAL, pieces=PAST.pieces(0, TOTAL), disorder=LATE)]
    )
    times_us, products = events["event_time"].cast(pa.int64()).to_numpy(), events["product"].to_numpy()
    few = np.where(products < PRODUCTS // 2, products % _MANY_CLICKS, products)
    events = _with(events, "event_time", pa.array(times_us - times_us % _TIME_STEP_US))
    return _with(events, "product", pa.array(few))


def _with(events: pa.Table, name: str, column: pa.Array) -> pa.Table:
    field = events.schema.field(name)
    return events.set_column(events.schema.get_field_index(name), field, column.cast(field.type))


def _last_click() -> pa.Table:
    click = {"ordinal": TOTAL, "event_time": _FLUSH_AT, "event_type": "click", "category": 0, "product": 0}
    schema = KIND.batch(seed=0, first=0, end=1, pieces=PAST.pieces(0, 1)).schema
    return pa.Table.from_pylist([click | {"owner": 0, "price": 0.5}], schema=schema)
