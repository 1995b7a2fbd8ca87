"""What all kinds of records promise: pure functions of seed and ordinal, with times that fit the schedule."""

from __future__ import annotations

import json
import uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import InvalidValueError
from tidewise.jobs.records import clicks, tsw, ysb
from tidewise.jobs.records.kinds import KINDS, TYPE_COLUMN, Disorder, RecordKind
from tidewise.jobs.schedule import Schedule, Whole

BEGAN_S = 1_800_000_000
SCHEDULE = Schedule(began_unix_s=BEGAN_S, rates_per_s=(1000.0,))

each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def batch(kind: RecordKind, first: int, end: int, *, seed: int = 1, disorder: Disorder | None = None) -> pa.RecordBatch:
    return kind.batch(seed=seed, first=first, end=end, pieces=SCHEDULE.pieces(first, end), disorder=disorder)


def times_us(records: pa.RecordBatch) -> Whole:
    found: Whole = records.column("event_time").cast("int64").to_numpy()
    return found


@each_kind
@given(first=st.integers(0, 10**8), count=st.integers(2, 40), cut=st.integers(1, 39))
def test_a_part_of_a_range_holds_the_same_records(kind: RecordKind, first: int, count: int, cut: int) -> None:
    disorder = Disorder(share=0.3, most_s=5.0)
    end, middle = first + count, first + min(cut, count - 1)
    parts = [batch(kind, first, middle, disorder=disorder), batch(kind, middle, end, disorder=disorder)]
    assert pa.Table.from_batches(parts).to_pylist() == batch(kind, first, end, disorder=disorder).to_pylist()


@each_kind
def test_another_seed_gives_other_records(kind: RecordKind) -> None:
    assert batch(kind, 0, 100, seed=1) != batch(kind, 0, 100, seed=2)


@each_kind
def test_a_batch_has_the_columns_of_its_schema(kind: RecordKind) -> None:
    assert batch(kind, 0, 10).schema.names == [column.split()[0] for column in kind.schema.split(", ")]
    assert kind.schema.startswith("ordinal bigint, event_time timestamp, ")
    assert [field["name"] for field in json.loads(kind.avro_schema)["fields"]] == batch(kind, 0, 10).schema.names


@each_kind
def test_records_come_at_the_times_of_the_schedule(kind: RecordKind) -> None:
    assert times_us(batch(kind, 0, 2000)).tolist() == [BEGAN_S * 1_000_000 + 1000 * n for n in range(1, 2001)]


@pytest.mark.parametrize("name", sorted(set(KINDS) - {"clicks"}))
def test_event_times_are_whole_milliseconds(name: str) -> None:
    found = times_us(batch(KINDS[name], 0, 500, disorder=Disorder(share=0.5, most_s=3.3)))
    assert not (found % 1000).any()


@each_kind
def test_a_share_of_the_records_happened_earlier_and_no_more_than_said(kind: RecordKind) -> None:
    late_us = times_us(batch(kind, 0, 20_000)) - times_us(
        batch(kind, 0, 20_000, disorder=Disorder(share=0.1, most_s=4.0))
    )
    assert 0.08 < (late_us > 0).mean() < 0.12
    assert late_us.min() == 0
    assert 3_900_000 < late_us.max() <= 4_001_000
    assert 1_700_000 < late_us[late_us > 0].mean() < 2_300_000


@each_kind
def test_a_record_has_the_columns_of_its_type_and_no_others(kind: RecordKind) -> None:
    optional = {name for names in kind.parts.values() for name in names}
    for row in batch(kind, 0, 200).to_pylist():
        own = set(row) - optional | set(kind.parts[row[TYPE_COLUMN]] if kind.parts else ())
        assert {name for name, value in row.items() if value is not None} == own


def test_clicks_are_what_they_always_were() -> None:
    pieces = SCHEDULE.pieces(0, 1000)
    assert batch(KINDS["clicks"], 0, 1000, seed=7) == clicks.records(seed=7, first=0, end=1000, pieces=pieces)
    assert batch(KINDS["clicks"], 5, 7, seed=3).drop_columns(["event_time"]).to_pylist() == [
        {"ordinal": 5, "ad_id": 62, "event_type": "click", "user_id": 33472},
        {"ordinal": 6, "ad_id": 361, "event_type": "purchase", "user_id": 740},
    ]


def test_every_advertisement_belongs_to_a_campaign_and_is_seen() -> None:
    known = ysb.campaigns(1)
    assert len({ad for ad, _ in known}) == 1000
    campaigns = [campaign for _, campaign in known]
    assert {campaigns.count(campaign) for campaign in set(campaigns)} == {10}
    records = batch(KINDS["ysb"], 0, ysb.REPEATS_AFTER)
    assert set(records.column("ad_id").to_pylist()) == {ad for ad, _ in known}
    assert {str(uuid.UUID(ad)) for ad, _ in known} == {ad for ad, _ in known}


def test_a_third_of_the_events_are_views() -> None:
    types = batch(KINDS["ysb"], 0, ysb.REPEATS_AFTER).column("event_type").to_pylist()
    assert set(types) == {"view", "click", "purchase"}
    assert 0.32 < types.count("view") / len(types) < 0.35


def test_a_car_changes_its_speed_by_five_and_its_distance_is_the_sum_of_its_speeds() -> None:
    ticks = tsw.TICKS_PER_ROUND * 2 + 50
    records = batch(KINDS["tsw"], 0, tsw.CARS * ticks)
    cars, speeds, distances = (records.column(name).to_numpy() for name in ("car", "speed", "distance"))
    assert (cars == np.arange(len(cars)) % tsw.CARS).all()
    for car in range(0, tsw.CARS, 17):
        speed, distance = speeds[car :: tsw.CARS], distances[car :: tsw.CARS]
        assert set(np.abs(np.diff(speed)).tolist()) == {5}
        assert speed.min() >= 0
        assert speed.max() <= 100
        assert np.abs(distance - np.cumsum(speed / 3.6)).max() < 0.006


def test_records_of_a_key_go_to_one_partition_and_others_in_turn() -> None:
    ordinals = np.arange(1000)
    assert (KINDS["tsw"].partitions(ordinals, 3) == (ordinals % tsw.CARS) % 3).all()
    assert (KINDS["ysb"].partitions(ordinals, 3) == ordinals % 3).all()


def test_illegal_disorder_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="share must lie between 0 and 1"):
        Disorder(share=2.0, most_s=1.0)
    with pytest.raises(InvalidValueError, match="most_s must be at least 0"):
        Disorder(share=0.1, most_s=-1.0)
