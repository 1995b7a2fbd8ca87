"""Records as bytes, fast: what repeats is encoded once, so that only ordinal, time and the rest cost anything."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidewise.core.checks import require_share
from tidewise.jobs.records import avro
from tidewise.jobs.records.chance import below, mixed, shares
from tidewise.jobs.records.kinds import Disorder, RecordKind
from tidewise.jobs.schedule import Pieces, Whole

Encoding = Literal["json", "avro"]
"""json: one compact object; avro: Avro's binary form of the kind's schema, without container or schema number.

The event time is a number of milliseconds since the epoch in both.
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
        encoded = _encoded(self._kind, self._encoding, self._seed, ordinals, times_us // 1000)
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


def _encoded(kind: RecordKind, encoding: Encoding, seed: int, ordinals: Whole, times_ms: Whole) -> list[bytes]:
    pool = _pool(kind, encoding, seed)
    again = [] if pool is None else [pool[ordinals % len(pool)].tolist()]
    fresh: Sequence[pa.Array] = ()
    fresh_columns = kind.columns[2 + kind.repeating :]
    if fresh_columns:
        fresh = kind.values(ordinals, seed=seed)[kind.repeating :]
    if encoding == "avro":
        parts = [avro.varints(ordinals), avro.varints(times_ms), *again, *_avro_parts(fresh_columns, fresh)]
        return [b"".join(row) for row in zip(*parts, strict=True)]
    members = ['{"ordinal":%d,"event_time":%d', *("%b" for _ in again), *_json_forms(fresh_columns)]
    form = (",".join(members) + "}").encode()
    rows = zip(ordinals.tolist(), times_ms.tolist(), *again, *map(_json_values, fresh), strict=True)
    return [form % row for row in rows]


@functools.lru_cache(maxsize=4)
def _pool(kind: RecordKind, encoding: Encoding, seed: int) -> NDArray[np.object_] | None:
    """What repeats, encoded, one item for each record until it does; None where nothing does."""
    if kind.repeats_after is None:
        return None
    columns = kind.columns[2 : 2 + kind.repeating]
    values = kind.values(np.arange(kind.repeats_after), seed=seed)[: kind.repeating]
    pool = np.empty(kind.repeats_after, dtype=object)
    if encoding == "avro":
        pool[:] = [b"".join(row) for row in zip(*_avro_parts(columns, values), strict=True)]
    else:
        form = ",".join(_json_forms(columns)).encode()
        pool[:] = [form % row for row in zip(*map(_json_values, values), strict=True)]
    return pool


_JSON_FORMS = {"int": "%d", "bigint": "%d", "double": "%a", "string": "%b"}  # %a: a double with all its digits


def _json_forms(columns: Sequence[tuple[str, str]]) -> list[str]:
    return [f'"{name}":{_JSON_FORMS[kind]}' for name, kind in columns]


def _json_values(column: pa.Array) -> list[object]:
    if pa.types.is_string(column.type):
        return list(_texts(column, lambda text: json.dumps(text).encode()))
    listed: list[object] = column.to_numpy().tolist()
    return listed


def _avro_parts(columns: Sequence[tuple[str, str]], values: Sequence[pa.Array]) -> list[list[bytes]]:
    return [_AVRO[kind](column) for (_, kind), column in zip(columns, values, strict=True)]


def _texts(column: pa.Array, encode: Callable[[str], bytes]) -> list[bytes]:
    """Each text of a column, where each different one is encoded once."""
    coded = column.dictionary_encode()
    words = np.array([encode(word) for word in coded.dictionary.to_pylist()], dtype=object)
    listed: list[bytes] = words[coded.indices.to_numpy()].tolist()
    return listed


_AVRO: dict[str, Callable[[pa.Array], list[bytes]]] = {
    "int": lambda column: avro.varints(column.to_numpy().astype(np.int64)),
    "bigint": lambda column: avro.varints(column.to_numpy()),
    "double": lambda column: avro.doubles(column.to_numpy()),
    "string": lambda column: _texts(column, avro.text),
}
