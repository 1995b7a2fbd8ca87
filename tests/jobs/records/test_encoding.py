"""What is encoded is what `batch` gives, read back by readers that share nothing with the encoder."""

from __future__ import annotations

import datetime
import io
import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import InvalidValueError
from tidewise.jobs.records import avro
from tidewise.jobs.records.encoding import OVERSIZED_BYTES, Encoder, Encoding, broken, is_broken
from tidewise.jobs.records.kinds import KINDS, Disorder, RecordKind
from tidewise.jobs.schedule import Schedule

SCHEDULE = Schedule(began_unix_s=1_800_000_000.0, rates_per_s=(1000.0, 2500.5, 0.0, 40.0))

kinds = st.sampled_from(sorted(KINDS)).map(KINDS.__getitem__)
encodings: st.SearchStrategy[Encoding] = st.sampled_from(["json", "avro"])
disorders = st.builds(Disorder, share=st.floats(0.0, 1.0), most_s=st.floats(0.0, 100.0))


def take(data: io.BytesIO, size: int) -> bytes:
    taken = data.read(size)
    if len(taken) != size:
        raise ValueError("the record is cut")
    return taken


def read_long(data: io.BytesIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = take(data, 1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)
    raise ValueError("a whole number has more than ten bytes")


def read_avro(schema: str, encoded: bytes) -> dict[str, object]:
    """A record in Avro's binary form, as its specification tells; ValueError where it is none."""
    data = io.BytesIO(encoded)
    record = {field["name"]: read_value(field["type"], data) for field in json.loads(schema)["fields"]}
    assert not data.read(), "bytes are left over"
    return record


def read_value(avro_type: object, data: io.BytesIO) -> object:
    match avro_type:
        case "null":
            return None
        case "int" | "long" | {"type": "long"}:
            return read_long(data)
        case "double":
            return struct.unpack("<d", take(data, 8))[0]
        case "string":
            return take(data, read_long(data)).decode()
        case [*union]:
            return read_value(union[read_long(data)], data)
    raise AssertionError(f"the records have no {avro_type}")


def decoded(kind: RecordKind, encoding: Encoding, encoded: bytes) -> dict[str, object]:
    if encoding == "avro":
        return read_avro(kind.avro_schema, encoded)
    record = json.loads(encoded)
    assert isinstance(record, dict)
    return record


def expected(kind: RecordKind, *, seed: int, first: int, end: int, disorder: Disorder) -> list[dict[str, object]]:
    batch = kind.batch(seed=seed, first=first, end=end, pieces=SCHEDULE.pieces(first, end), disorder=disorder)
    return [{name: in_milliseconds(value) for name, value in row.items()} for row in batch.to_pylist()]


def in_milliseconds(value: object) -> object:
    if not isinstance(value, datetime.datetime):
        return value
    return (value - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(milliseconds=1)


def without_nulls(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if value is not None}


ranges = st.tuples(st.integers(0, 10**9), st.integers(1, 50)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1]))


# Few seeds, because each costs the encoding of all that repeats.
@given(kinds, encodings, st.integers(0, 2), ranges, disorders)
def test_what_is_encoded_is_what_batch_gives(
    kind: RecordKind, encoding: Encoding, seed: int, bounds: tuple[int, int], disorder: Disorder
) -> None:
    first, end = bounds
    encoded = Encoder(kind, encoding, seed=seed, disorder=disorder).encode(first, end, SCHEDULE.pieces(first, end))
    read = [decoded(kind, encoding, one) for one in encoded]
    made = expected(kind, seed=seed, first=first, end=end, disorder=disorder)
    if encoding == "json":
        made = [without_nulls(row) for row in made]
    assert read == made
    assert [[*row] for row in read] == [[*row] for row in made], "the columns are not in the order of the schema"


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_records_stay_right_where_what_was_encoded_before_comes_again(kind: RecordKind, encoding: Encoding) -> None:
    first = 3 * (kind.repeats_after or 30_000) - 50
    encoded = Encoder(kind, encoding, seed=1).encode(first, first + 100, SCHEDULE.pieces(first, first + 100))
    read = [without_nulls(decoded(kind, encoding, one)) for one in encoded]
    made = expected(kind, seed=1, first=first, end=first + 100, disorder=Disorder())
    assert read == [without_nulls(row) for row in made]


def test_only_the_ordinals_asked_for_are_encoded_and_in_their_order() -> None:
    encoder, ordinals = Encoder(KINDS["ysb"], "json", seed=1), np.array([7, 11, 30])
    whole = encoder.encode(0, 31, SCHEDULE.pieces(0, 31))
    assert encoder.encode_each(ordinals, SCHEDULE.pieces(7, 31)) == [whole[7], whole[11], whole[30]]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_whole_numbers_of_all_sizes_survive_avro(values: list[int]) -> None:
    assert [read_long(io.BytesIO(one)) for one in avro.varints(np.array(values, dtype=np.int64))] == values


@given(st.text(max_size=200))
def test_texts_of_all_letters_survive_avro(text: str) -> None:
    schema = '{"fields": [{"name": "a", "type": "string"}]}'
    assert read_avro(schema, avro.text(text)) == {"a": text}


def test_a_column_that_some_types_do_not_have_may_be_null_in_avro() -> None:
    types = {field["name"]: field["type"] for field in json.loads(KINDS["nexmark"].avro_schema)["fields"]}
    assert types["extra"] == "string"
    assert types["price"] == ["null", "long"]
    assert types["expires"] == ["null", {"type": "long", "logicalType": "timestamp-millis"}]


def test_no_records_are_no_bytes() -> None:
    for kind in KINDS.values():
        for encoding in ("json", "avro"):
            assert Encoder(kind, encoding).encode_each(np.array([], dtype=np.int64), SCHEDULE.pieces(0, 1)) == []


@given(kinds, encodings, st.integers(0, 10**6))
def test_a_broken_record_cannot_be_read_or_is_far_too_large(kind: RecordKind, encoding: Encoding, ordinal: int) -> None:
    sample = broken(kind, encoding, 5, ordinal)
    if len(sample) == OVERSIZED_BYTES:
        return
    with pytest.raises(ValueError, match=r"cut|ten bytes|line 1 column|can't decode"):
        decoded(kind, encoding, sample)


def test_all_ways_to_break_a_record_occur() -> None:
    sizes = {len(broken(KINDS["ysb"], "json", 5, ordinal)) for ordinal in range(100)}
    assert 20 in sizes
    assert OVERSIZED_BYTES in sizes
    assert len(sizes) > 10


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_broken_records_take_the_place_of_proper_ones(encoding: Encoding) -> None:
    kind, pieces, ordinals = KINDS["ysb"], SCHEDULE.pieces(0, 5000), np.arange(5000)
    proper = Encoder(kind, encoding, seed=2).encode(0, 5000, pieces)
    mixed = Encoder(kind, encoding, seed=2, broken_share=0.02).encode(0, 5000, pieces)
    differ = [index for index in range(5000) if proper[index] != mixed[index]]
    assert differ == np.flatnonzero(is_broken(ordinals, seed=2, share=0.02)).tolist()
    assert 50 <= len(differ) <= 150


def test_a_share_of_broken_records_above_one_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="broken_share must lie between 0 and 1"):
        Encoder(KINDS["ysb"], "json", broken_share=1.5)
