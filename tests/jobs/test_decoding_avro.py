"""Avro's binary form: records become rows, everything else a dead letter with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.jobs.letters import check_stream, reasons
from tidewise.jobs.decoding import TOO_LARGE_BYTES
from tidewise.jobs.records.encoding import Encoder
from tidewise.jobs.records.kinds import KINDS
from tidewise.jobs.schedule import Schedule

pytestmark = pytest.mark.xdist_group("jobs")

KIND = KINDS["tsw"]
NOT_AVRO = "malformed: not Avro of a tsw record"


def test_each_broken_record_is_kept_with_what_is_wrong(spark: SparkSession) -> None:
    plan = Schedule(began_unix_s=1_700_000_000.0, rates_per_s=(10.0,))
    (whole,) = Encoder(KIND, "avro").encode(3, 4, plan.pieces(3, 4))
    ahead = Schedule(began_unix_s=1_800_000_000.0, rates_per_s=(10.0,))
    (early,) = Encoder(KIND, "avro").encode(3, 4, ahead.pieces(3, 4))
    # An ordinal of 3 is one byte; the time after it is the largest number that Avro can write.
    no_time = whole[:1] + b"\xfe" + b"\xff" * 8 + b"\x01" + whole[7:]
    cases = [
        (whole, None),
        (None, "empty: it has no value"),
        (b"", NOT_AVRO),
        (b"\xff" * 20, NOT_AVRO),
        *[(whole[:length], NOT_AVRO) for length in range(1, len(whole))],
        (whole.ljust(TOO_LARGE_BYTES), "oversized: 65536 bytes, 65536 or more"),
        (no_time, NOT_AVRO),
        (early, "malformed: event_time is before 1970 or more than a day ahead"),
    ]
    assert reasons(spark, [value for value, _ in cases], KIND, "avro") == [reason for _, reason in cases]


def test_a_record_needs_the_columns_of_its_type_only(spark: SparkSession) -> None:
    plan = Schedule(began_unix_s=1_700_000_000.0, rates_per_s=(10.0,))
    search, found = Encoder(KINDS["psm"], "avro").encode(0, 2, plan.pieces(0, 2))
    # The rank, which is of two bytes at most, comes last; a null in its place is a single byte.
    unranked = search[: search.rindex(b"\x02")] + b"\x00"
    cases = [
        (search, None),
        (found, None),
        (unranked, "malformed: rank is missing or is not int"),
        (search.replace(b"search", b"sneeze"), "malformed: event_type is none of click, impression, search"),
    ]
    assert reasons(spark, [value for value, _ in cases], KINDS["psm"], "avro") == [reason for _, reason in cases]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "nexmark" else pytest.mark.soak) for name in sorted(KINDS)]
)
def test_a_stream_goes_on_over_broken_records(spark: SparkSession, tmp_path: Path, name: str) -> None:
    check_stream(spark, tmp_path, KINDS[name], "avro")
