"""The kinds of records that jobs read, by name: what they hold, and how to make any range of them again."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewise.core.checks import require_finite, require_share
from tidewise.jobs.records import clicks, nexmark, psm, tsw, ysb
from tidewise.jobs.records.chance import mixed, shares
from tidewise.jobs.schedule import Pieces, Whole

TYPE_COLUMN = "event_type"
"""The column that tells which columns a record has, where not all have the same."""
_MICROS = 1_000_000
_LATE = 0x1A7E
"""Added to the seed for who is late, so that it says nothing about what the record holds."""
_ARROW = {
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "int": pa.int32(),
    "double": pa.float64(),
    "string": pa.string(),
}
_AVRO = {
    "bigint": "long",
    "timestamp": {"type": "long", "logicalType": "timestamp-millis"},
    "int": "int",
    "double": "double",
    "string": "string",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Disorder:
    """Records that happened earlier than they come."""

    share: float = 0.0
    """Which share of the records."""
    most_s: float = 0.0
    """How much earlier at most; all delays up to it are as likely."""

    def __post_init__(self) -> None:
        require_share("share", self.share)
        require_finite("most_s", self.most_s, least=0.0)

    def delays_us(self, ordinals: Whole, *, seed: int) -> Whole:
        """By how much each of these records is late: 0 for most."""
        bits = mixed(ordinals, seed=seed + _LATE)
        delays = (shares(bits, shift=32) * self.most_s * _MICROS).astype(np.int64)
        return np.where(shares(bits, shift=0) < self.share, delays, 0)


class Values(Protocol):
    """What a kind's records hold, in the order of its schema, but for the ordinal and the event time.

    Another moment is given as the time from the event to it (pa.duration), so that no schedule is needed.
    """

    def __call__(self, ordinals: Whole, *, seed: int) -> list[pa.Array]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKind:
    """One kind of records; each is a pure function of the seed, its ordinal and the schedule."""

    name: str
    schema: str
    """As Spark writes it; `ordinal bigint, event_time timestamp` come first."""
    values: Values
    time_step_us: int = 1000
    """Event times are multiples of it; encoded they always are whole milliseconds."""
    repeats_after: int | None = None
    """A record's first `repeating` values are those of the record so many before it; None: nothing repeats."""
    repeating: int = 0
    keys: int | None = None
    """The key of a record is its ordinal modulo this, and all of a key go to one partition; None: no keys."""
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)  # a mapping has no hash
    """The columns that only some event types have, by the type; all have the others. Empty: there are no types."""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Names and Spark types, in order."""
        return tuple((name, kind) for name, kind in (column.split() for column in self.schema.split(",")))

    @property
    def avro_schema(self) -> str:
        """The Avro schema of an encoded record, as JSON."""
        fields = [
            {"name": name, "type": ["null", _AVRO[kind]] if self.types_with(name) else _AVRO[kind]}
            for name, kind in self.columns
        ]
        return json.dumps({"type": "record", "name": self.name, "namespace": "tidewise", "fields": fields})

    def types_with(self, column: str) -> tuple[str, ...]:
        """The event types that have this column, where it is empty in records of the others; none: all have it."""
        return tuple(event_type for event_type, names in self.parts.items() if column in names)

    def times_us(self, ordinals: Whole, *, seed: int, pieces: Pieces, disorder: Disorder) -> Whole:
        """When each of these records happened, in microseconds since the epoch."""
        times = pieces.times_us(ordinals)
        if disorder.share > 0.0:
            times = np.maximum(times - disorder.delays_us(ordinals, seed=seed), 0)
        return times - times % self.time_step_us

    def values_at(self, ordinals: Whole, times_us: Whole, *, seed: int) -> list[pa.Array]:
        """What these records, which happened then, hold besides their ordinal and event time."""
        times = pa.array(times_us).view(_ARROW["timestamp"])
        return [
            pc.add(times, column) if pa.types.is_duration(column.type) else column
            for column in self.values(ordinals, seed=seed)
        ]

    def batch(
        self, *, seed: int, first: int, end: int, pieces: Pieces, disorder: Disorder | None = None
    ) -> pa.RecordBatch:
        """The records from `first` to just before `end`."""
        ordinals = np.arange(first, end, dtype=np.int64)
        times = self.times_us(ordinals, seed=seed, pieces=pieces, disorder=disorder or Disorder())
        held = self.values_at(ordinals, times, seed=seed)
        columns = [pa.array(ordinals), pa.array(times).view(_ARROW["timestamp"]), *held]
        fields = [(name, _ARROW[kind]) for name, kind in self.columns]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def partitions(self, ordinals: Whole, count: int) -> Whole:
        """Which of `count` partitions each of these records belongs to: by its key, or in turn."""
        return (ordinals if self.keys is None else ordinals % self.keys) % count


KINDS: Mapping[str, RecordKind] = types.MappingProxyType(
    {
        kind.name: kind
        for kind in (
            RecordKind(name="clicks", schema=clicks.SCHEMA, values=clicks.values, time_step_us=1),
            RecordKind(
                name="tsw",
                schema="ordinal bigint, event_time timestamp, car int, speed int, distance double",
                values=tsw.values,
                repeats_after=tsw.REPEATS_AFTER,
                repeating=2,
                keys=tsw.CARS,
            ),
            RecordKind(
                name="ysb",
                schema="ordinal bigint, event_time timestamp, user_id string, page_id string, ad_id string, "
                "ad_type string, event_type string, ip_address string",
                values=ysb.values,
                repeats_after=ysb.REPEATS_AFTER,
                repeating=6,
            ),
            RecordKind(name="nexmark", schema=nexmark.SCHEMA, values=nexmark.values, parts=nexmark.PARTS),
            RecordKind(name="psm", schema=psm.SCHEMA, values=psm.values, parts=psm.PARTS),
        )
    }
)
"""Every kind of records by its name."""
