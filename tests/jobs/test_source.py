"""What the embedded source promises, without Spark: the same records always, and a count that only grows."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tidewise.core import BadInputError
from tidewise.jobs.embedded import EmbeddedReader, EmbeddedSource, Options
from tidewise.jobs.records.clicks import CAMPAIGNS, EVENT_TYPES, records
from tidewise.jobs.records.kinds import KINDS, Disorder
from tidewise.jobs.schedule import Schedule, write_schedule

PAST = Schedule(began_unix_s=1_700_000_000.0, rates_per_s=(300.0, 0.0, 700.5), after="stop")
TOTAL = 1000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "schedule.json"
    write_schedule(path, PAST)
    return path


def reader_of(file: Path, **options: int) -> EmbeddedReader:
    return EmbeddedReader(Options.read({"schedule": str(file)} | {name: str(value) for name, value in options.items()}))


def read(reader: EmbeddedReader, first: int, end: int) -> pa.Table:
    ranges = reader.partitions({"records": first}, {"records": end})
    sent_reader, sent_ranges = _sent((reader, ranges))
    return pa.Table.from_batches([batch for part in sent_ranges for batch in sent_reader.read(part)])


Sent = TypeVar("Sent")


def _sent(what: Sent) -> Sent:
    """As it arrives at a Python worker."""
    arrived: Sent = pickle.loads(pickle.dumps(what))  # noqa: S301 - the test's own bytes
    return arrived


@given(st.integers(0, TOTAL - 1), st.integers(1, TOTAL))
def test_any_range_gives_its_own_part_of_the_same_records(first: int, count: int) -> None:
    end = min(TOTAL, first + count)
    whole = records(seed=5, first=0, end=TOTAL, pieces=PAST.pieces(0, TOTAL))
    part = records(seed=5, first=first, end=end, pieces=PAST.pieces(first, end))
    assert part.equals(whole.slice(first, end - first))


def test_partitions_split_a_range_without_gap_or_overlap(file: Path) -> None:
    one = read(reader_of(file, partitions=1), 10, 900)
    for partitions in (2, 3, 7):
        reader = reader_of(file, partitions=partitions)
        assert len(reader.partitions({"records": 10}, {"records": 900})) == partitions
        assert read(reader, 10, 900).equals(one)
    assert one.column("ordinal").to_pylist() == list(range(10, 900))


@pytest.mark.parametrize("name", sorted(KINDS))
def test_each_kind_of_records_comes_as_its_schema_says(file: Path, name: str) -> None:
    options = {"schedule": str(file), "records": name, "late_share": "0.5", "late_most_s": "2"}
    assert EmbeddedSource(options).schema() == KINDS[name].schema
    disorder = Disorder(share=0.5, most_s=2.0)
    expected = KINDS[name].batch(seed=0, first=0, end=TOTAL, pieces=PAST.pieces(0, TOTAL), disorder=disorder)
    found = read(EmbeddedReader(Options.read(options)), 0, TOTAL)
    assert found.equals(pa.Table.from_batches([expected]))
    times = found.column("event_time").to_pylist()
    assert times != sorted(times)


def test_there_are_no_more_tasks_than_records(file: Path) -> None:
    reader = reader_of(file, partitions=4)
    assert reader.partitions({"records": 7}, {"records": 7}) == []
    assert len(reader.partitions({"records": 7}, {"records": 9})) == 2


def test_seeds_differ_and_values_are_spread_over_their_range() -> None:
    plan = Schedule(began_unix_s=0.0, rates_per_s=(100_000.0,))
    first, other = (records(seed=seed, first=0, end=90_000, pieces=plan.pieces(0, 90_000)) for seed in (1, 2))
    assert not first.column("ad_id").equals(other.column("ad_id"))
    types = dict.fromkeys(EVENT_TYPES, 0)
    for entry in first.column("event_type").value_counts().to_pylist():
        types[entry["values"]] = entry["counts"]
    assert all(abs(count - 30_000) < 1000 for count in types.values())
    ads = np.bincount(first.column("ad_id").to_numpy())
    assert len(ads) == CAMPAIGNS * 10
    assert ads.min() > 40


def test_a_limit_bounds_the_batch_and_not_the_report(file: Path) -> None:
    reader = reader_of(file, max_records_per_batch=300)
    assert reader.getDefaultReadLimit() == ReadMaxRows(300)
    assert reader.latestOffset({"records": 100}, ReadMaxRows(300)) == {"records": 400}
    assert reader.latestOffset({"records": 900}, ReadMaxRows(300)) == {"records": TOTAL}
    assert reader.latestOffset({"records": 100}, ReadAllAvailable()) == {"records": TOTAL}
    assert reader.reportLatestOffset() == {"records": TOTAL}


def test_a_changed_file_is_seen_and_never_takes_records_back(file: Path) -> None:
    reader = reader_of(file)
    assert reader.reportLatestOffset() == {"records": TOTAL}
    write_schedule(file, Schedule(began_unix_s=PAST.began_unix_s, rates_per_s=(*PAST.rates_per_s, 50.0), after="stop"))
    assert reader.reportLatestOffset() == {"records": TOTAL + 50}
    write_schedule(file, Schedule(began_unix_s=PAST.began_unix_s, rates_per_s=(1.0,), after="stop"))
    assert reader.reportLatestOffset() == {"records": TOTAL + 50}
    assert reader_of(file).latestOffset({"records": 60}, ReadAllAvailable()) == {"records": 60}


def test_a_file_that_is_gone_or_broken_is_told(file: Path) -> None:
    reader = reader_of(file)
    reader.reportLatestOffset()
    file.write_text("{")
    with pytest.raises(BadInputError, match="cannot be read"):
        reader.reportLatestOffset()
    file.unlink()
    with pytest.raises(BadInputError, match=r"is gone .* put it back"):
        reader.reportLatestOffset()


def test_the_source_is_sent_to_workers_without_its_rates(tmp_path: Path) -> None:
    file = tmp_path / "long.json"
    write_schedule(file, Schedule(began_unix_s=0.0, rates_per_s=(1.0,) * 100_000))
    source = EmbeddedSource({"schedule": str(file)})
    assert len(pickle.dumps(source)) < 2000


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "needs the option schedule"),
        ({"schedule": "FILE", "sed": "1"}, "no option 'sed'; did you mean 'seed'"),
        ({"schedule": "FILE", "partitions": "0"}, "partitions .* at least 1, not '0'"),
        ({"schedule": "FILE", "seed": "-1"}, "seed .* at least 0, not '-1'"),
        ({"schedule": "FILE", "max_records_per_batch": "many"}, "at least 1, not 'many'"),
        ({"schedule": "nowhere.json"}, "does not exist"),
        ({"schedule": "FILE", "records": "ysp"}, "no records 'ysp'; did you mean 'ysb'"),
        ({"schedule": "FILE", "late_share": "1.5"}, "share must lie between 0 and 1"),
        ({"schedule": "FILE", "late_most_s": "long"}, "must be numbers, not '0' and 'long'"),
    ],
)
def test_bad_options_are_told_when_the_source_is_made(file: Path, options: dict[str, str], sentence: str) -> None:
    given_options = {name: str(file) if value == "FILE" else value for name, value in options.items()}
    with pytest.raises(BadInputError, match=sentence):
        EmbeddedSource(given_options)


def test_reading_keeps_up_with_half_a_million_records_per_second_and_core(tmp_path: Path) -> None:
    file = tmp_path / "fast.json"
    write_schedule(file, Schedule(began_unix_s=0.0, rates_per_s=(1e6,)))
    reader = reader_of(file, partitions=1)
    (part,) = reader.partitions({"records": 0}, {"records": 1_000_000})
    began_s = time.process_time()
    assert sum(batch.num_rows for batch in reader.read(part)) == 1_000_000
    assert time.process_time() - began_s < 2.0
