"""The events on which all queries are tried: in disorder, over two days, with ties, and some that come too late.

They come in two stretches of 80 s, over a midnight and over eight in the morning, so that every part of q14's day and
two days of q15-q17 occur. Times are quarters of a second, so that bids fall on the bounds of windows, sessions and
auctions; prices have one digit and zeros, so that several are the highest, and some lie on the bounds of ranks.
One auction is open until long after all of them, so that bids on it are too late by their own times only; the highest
bid of all is one of these.
"""

from __future__ import annotations

import datetime
import functools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidewise.jobs.records.kinds import KINDS, Disorder
from tidewise.jobs.schedule import Schedule

KIND = KINDS["nexmark"]
SEED = 23
"""Chosen for its ties: two auctions with the most bids of a window, and two highest bids at the same moment."""
TOTAL = 8_000
BEGIN = datetime.datetime(2023, 11, 14, 23, 59, 20, tzinfo=datetime.UTC)
PAST = Schedule(began_unix_s=BEGIN.timestamp(), step_s=80.0, rates_per_s=(50.0,) + (0.0,) * 359 + (50.0,), after="stop")
LATE = Disorder(share=0.3, most_s=3.5)

_TIME_STEP_US = 250_000
_HELD_BACK_OF, _HELD_BACK_IN, _HELD_BACK_FOR = TOTAL // 4, 3, 7 * TOTAL // 8
"""Of the first events one in three comes so many events later, when the watermark has long passed it."""
OPEN_AUCTION = 1100
"""It gets many of the bids on both sides of the last event that may be held back, and is not held back itself."""
_OPEN_UNTIL = BEGIN + datetime.timedelta(days=1)
_HIGHEST_PRICE = 10**9
_FLUSH_AT = BEGIN + datetime.timedelta(days=2)
_FLUSH = (0, 1, 4)
"""A person, an auction and a bid that come after everything, and close it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Events, in the order in which they come."""

    events: pa.Table
    on_time: pa.Table
    """The same without those that come too late, where they come in three batches or more."""


@functools.cache
def made() -> Input:
    """The events of the generator, made coarse, some held back, and those that close everything at the end."""
    coarse = _coarse(_generated())
    ordinals = coarse["ordinal"].to_numpy()
    held_back = (ordinals < _HELD_BACK_OF) & (ordinals % _HELD_BACK_IN == 1)
    coarse = _with_a_high_bid(_with_an_open_auction(coarse), held_back)
    order = np.argsort(ordinals + np.where(held_back, _HELD_BACK_FOR, 0), kind="stable")
    return Input(events=coarse.take(order), on_time=coarse.filter(~held_back))


def _generated() -> pa.Table:
    events = KIND.batch(seed=SEED, first=0, end=TOTAL, pieces=PAST.pieces(0, TOTAL), disorder=LATE)
    ordinals = TOTAL + np.array(_FLUSH)
    # At one moment: the watermark of a join is the earlier of those that its two types of events have.
    times_us = np.full_like(ordinals, _FLUSH_AT.timestamp() * 1_000_000)
    columns = [pa.array(ordinals), pa.array(times_us), *KIND.values_at(ordinals, times_us, seed=SEED)]
    flush = pa.Table.from_arrays(columns, names=events.schema.names).cast(events.schema)
    return pa.concat_tables([pa.Table.from_batches([events]), flush])


def _coarse(events: pa.Table) -> pa.Table:
    for name in ("event_time", "expires"):
        events = _with(events, name, _earlier(events[name]))
    return _with(events, "price", _one_digit(events["price"]))


def _with(events: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    return events.set_column(events.schema.get_field_index(name), name, column)


def _with_an_open_auction(events: pa.Table) -> pa.Table:
    is_it = pc.and_(pc.equal(events["event_type"], "auction"), pc.equal(events["id"], OPEN_AUCTION))
    until = pa.scalar(_OPEN_UNTIL, events.schema.field("expires").type)
    return _with(events, "expires", pc.if_else(is_it, until, events["expires"]))


def _with_a_high_bid(events: pa.Table, held_back: NDArray[np.bool_]) -> pa.Table:
    """The last bid on the open auction that is held back is the highest."""
    on_it = pc.equal(events["auction"], OPEN_AUCTION).fill_null(False).to_numpy()
    highest = np.arange(events.num_rows) == np.flatnonzero(on_it & held_back)[-1]
    return _with(events, "price", pc.if_else(pa.array(highest), _HIGHEST_PRICE, events["price"]))


def _earlier(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """The last whole step of time before each of these."""
    numbers = times.cast(pa.int64())
    return pc.multiply(pc.divide(numbers, _TIME_STEP_US), _TIME_STEP_US).cast(times.type)


def _one_digit(prices: pa.ChunkedArray) -> pa.Array:
    """Each price with its first digit, and zeros for the others."""
    texts = (price and str(price) for price in prices.to_pylist())
    return pa.array([text and int(text[0].ljust(len(text), "0")) for text in texts])
