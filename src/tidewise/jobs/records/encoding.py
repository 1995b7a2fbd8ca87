"""Records as bytes, fast: what repeats is encoded once, so that only ordinal, time and the rest cost anything."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidewise.core.checks import require_share
from tidewise.jobs.records import avro
from tidewise.jobs.records.chance import below, mixed, shares
from tidewise.jobs.records.kinds import TYPE_COLUMN, Disorder, RecordKind
from tidewise.jobs.schedule import Pieces, Whole

Encoding = Literal["json", "avro"]
"""json: one compact object; avro: Avro's binary form of the kind's schema, without container or schema number.

Moments, such as the event time, are numbers of milliseconds since the epoch in both. A column that records of a type
do not have is left out of the object, and null in Avro.
"""

OVERSIZED_BYTES = 65_536
"""The size of a broken record that is too large: many times that of any proper one."""
_BROKEN = 0xB20CE
"""Added to the seed for which records are broken, so that it says nothing about what they hold."""


class Encoder:
    """Encodes the records of one kind and seed; decoded they are what the kind's `batch` gives, to the millisecond.

    That share of the records which `broken_share` says is replaced by what no reader can take: see `is_broken`.
    """

    def __init__(
        self,
        kind: RecordKind,
        encoding: Encoding,
        *,
        seed: int = 0,
        disorder: Disorder | None = None,
        broken_share: float = 0.0,
    ) -> None:
        require_share("broken_share", broken_share)
        self._kind = kind
        self._encoding: Encoding = encoding
        self._seed = seed
        self._disorder = disorder or Disorder()
        self._broken_share = broken_share

    def encode(self, first: int, end: int, pieces: Pieces) -> list[bytes]:
        """The records from `first` to just before `end`."""
        return self.encode_each(np.arange(first, end, dtype=np.int64), pieces)

    def encode_each(self, ordinals: Whole, pieces: Pieces) -> list[bytes]:
        """The records with these ordinals."""
        times_us = self._kind.times_us(ordinals, seed=self._seed, pieces=pieces, disorder=self._disorder)
        encoded = _encoded(self._kind, self._encoding, self._seed, ordinals, times_us)
        if self._broken_share > 0.0:
            for index in np.flatnonzero(is_broken(ordinals, seed=self._seed, share=self._broken_share)).tolist():
                encoded[index] = broken(self._kind, self._encoding, self._seed, int(ordinals[index]))
        return encoded


def is_broken(ordinals: Whole, *, seed: int, share: float) -> NDArray[np.bool_]:
    """Which of these records an encoder with this share breaks."""
    return shares(mixed(ordinals, seed=seed + _BROKEN), shift=32) < share


def broken(kind: RecordKind, encoding: Encoding, seed: int, ordinal: int) -> bytes:
    """What no reader should take for a record: no record at all, a cut one, or one that is far too large."""
    bits = mixed(np.array([ordinal]), seed=seed + _BROKEN)
    proper = _encoded(kind, encoding, seed, np.array([ordinal]), np.array([0]))[0]
    match int(below(bits, 3, shift=0)[0]):
        case 0:
            # Neither JSON, nor UTF-8, nor a whole number as Avro writes it.
            return b"\xff" * 12 + bits.tobytes()
        case 1:
            return proper[: 1 + int(below(bits, len(proper) - 1, shift=16)[0])]
        case _:
            return proper.ljust(OVERSIZED_BYTES)


class _Field(NamedTuple):
    """A column of some records that are encoded alike."""

    name: str
    spark_type: str
    optional: bool
    values: pa.Array | None
    """None: these records do not have it."""


def _encoded(kind: RecordKind, encoding: Encoding, seed: int, ordinals: Whole, times_us: Whole) -> list[bytes]:
    pool, times_ms, fresh = _pool(kind, encoding, seed), times_us // 1000, list[_Field]()
    again = [] if pool is None else [pool[ordinals % len(pool)]]
    if columns := kind.columns[2 + kind.repeating :]:
        fresh = _fields(kind, columns, kind.values_at(ordinals, times_us, seed=seed)[kind.repeating :])
    if not kind.parts:
        return _alike(encoding, ordinals, times_ms, again, fresh)
    (types,) = (field.values for field in fresh if field.name == TYPE_COLUMN)
    encoded = np.empty(len(ordinals), dtype=object)
    for event_type in kind.parts:
        rows = pc.equal(types, event_type).to_numpy(zero_copy_only=False)
        own = [field._replace(values=_own(kind, field, event_type, rows)) for field in fresh]
        encoded[rows] = _alike(encoding, ordinals[rows], times_ms[rows], [one[rows] for one in again], own)
    listed: list[bytes] = encoded.tolist()
    return listed


def _fields(kind: RecordKind, columns: Sequence[tuple[str, str]], values: Sequence[pa.Array]) -> list[_Field]:
    return [
        _Field(name, spark_type, bool(kind.types_with(name)), column)
        for (name, spark_type), column in zip(columns, values, strict=True)
    ]


def _own(kind: RecordKind, field: _Field, event_type: str, rows: NDArray[np.bool_]) -> pa.Array | None:
    if field.values is None or (field.optional and event_type not in kind.types_with(field.name)):
        return None
    return field.values.filter(rows)


def _alike(
    encoding: Encoding, ordinals: Whole, times_ms: Whole, again: list[NDArray[np.object_]], fresh: Sequence[_Field]
) -> list[bytes]:
    """Records that have the same columns, so that one form does for all of them."""
    repeated = [one.tolist() for one in again]
    if encoding == "avro":
        parts = [avro.varints(ordinals), avro.varints(times_ms), *repeated, *_avro_parts(fresh, len(ordinals))]
        return [b"".join(row) for row in zip(*parts, strict=True)]
    members = ['{"ordinal":%d,"event_time":%d', *("%b" for _ in again), *_json_forms(fresh)]
    form = (",".join(members) + "}").encode()
    rows = zip(ordinals.tolist(), times_ms.tolist(), *repeated, *_json_values(fresh), strict=True)
    return [form % row for row in rows]


@functools.lru_cache(maxsize=4)
def _pool(kind: RecordKind, encoding: Encoding, seed: int) -> NDArray[np.object_] | None:
    """What repeats, encoded, one item for each record until it does; None where nothing does."""
    if kind.repeats_after is None:
        return None
    values = kind.values(np.arange(kind.repeats_after), seed=seed)[: kind.repeating]
    fields = _fields(kind, kind.columns[2 : 2 + kind.repeating], values)
    pool = np.empty(kind.repeats_after, dtype=object)
    if encoding == "avro":
        pool[:] = [b"".join(row) for row in zip(*_avro_parts(fields, kind.repeats_after), strict=True)]
    else:
        form = ",".join(_json_forms(fields)).encode()
        pool[:] = [form % row for row in zip(*_json_values(fields), strict=True)]
    return pool


def _json_forms(fields: Sequence[_Field]) -> list[str]:
    return [f'"{field.name}":{_JSON_FORMS[field.spark_type]}' for field in fields if field.values is not None]


_JSON_FORMS = {"int": "%d", "bigint": "%d", "timestamp": "%d", "double": "%a", "string": "%b"}  # %a: all its digits


def _json_values(fields: Sequence[_Field]) -> list[list[object]]:
    return [_JSON.get(field.spark_type, _plain)(field.values) for field in fields if field.values is not None]


def _avro_parts(fields: Sequence[_Field], count: int) -> list[list[bytes]]:
    return [_avro_part(field, count) for field in fields]


def _avro_part(field: _Field, count: int) -> list[bytes]:
    if field.values is None:
        return [avro.NULL] * count
    encoded = _AVRO[field.spark_type](field.values)
    return [avro.NOT_NULL + one for one in encoded] if field.optional else encoded


def _plain(column: pa.Array) -> list[object]:
    listed: list[object] = column.to_numpy().tolist()
    return listed


def _texts(column: pa.Array, encode: Callable[[str], bytes]) -> list[bytes]:
    """Each text of a column, where each different one is encoded once."""
    coded = column.dictionary_encode()
    words = np.array([encode(word) for word in coded.dictionary.to_pylist()], dtype=object)
    listed: list[bytes] = words[coded.indices.to_numpy()].tolist()
    return listed


def _milliseconds(column: pa.Array) -> Whole:
    whole: Whole = column.cast(pa.int64()).to_numpy() // 1000
    return whole


_JSON: dict[str, Callable[[pa.Array], list[object]]] = {
    "string": lambda column: list(_texts(column, lambda text: json.dumps(text).encode())),
    "timestamp": lambda column: _milliseconds(column).tolist(),
}
_AVRO: dict[str, Callable[[pa.Array], list[bytes]]] = {
    "int": lambda column: avro.varints(column.to_numpy().astype(np.int64)),
    "bigint": lambda column: avro.varints(column.to_numpy()),
    "timestamp": lambda column: avro.varints(_milliseconds(column)),
    "double": lambda column: avro.doubles(column.to_numpy()),
    "string": lambda column: _texts(column, avro.text),
}
