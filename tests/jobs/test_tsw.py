"""TSW fires as its definition says, whatever order records come in, and over a restart."""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given as with_any
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.jobs import answers
from tests.jobs.running import (
    cut_short,
    options,
    options_without_source,
    progress,
    rows_of,
    to_the_end,
    write_in_order,
)
from tidewise.jobs.program import records_of, session_of
from tidewise.jobs.records.kinds import Disorder
from tidewise.jobs.schedule import Schedule, write_schedule
from tidewise.jobs.tsw import KIND, SPAN_MS, Car, Fired, Waiting, main, top_speeds

pytestmark = pytest.mark.xdist_group("jobs")

PAST = Schedule(began_unix_s=1_700_000_003.0, rates_per_s=(400.0,) * 30 + (0.0,) * 40 + (200.0,) * 20, after="stop")
TOTAL = 16_000
WATERMARK_MS = 5000
LATE = Disorder(share=0.3, most_s=4.0)

TICKS = st.lists(
    st.tuples(st.integers(0, 40_000), st.integers(0, 9), st.sampled_from([0, 5, 25, 50, 51])), min_size=1, max_size=60
)


def drive(made: list[tuple[int, int, int]]) -> list[Waiting]:
    """Records of one car from (time, speed, metres since the record before)."""
    driven, records = 0.0, []
    for ordinal, (at_ms, speed, metres) in enumerate(sorted(made)):
        driven += metres
        records.append((at_ms, ordinal, speed, driven))
    return records


@with_any(TICKS, st.randoms(use_true_random=False), st.lists(st.integers(0, 40_000), max_size=5))
def test_a_car_fires_as_looking_through_everything_does(
    made: list[tuple[int, int, int]], chance: random.Random, watermarks_ms: list[int]
) -> None:
    records = drive(made)
    shuffled = list(records)
    chance.shuffle(shuffled)
    car, until_ms = Car(), -1
    fired: list[Fired] = []
    for watermark_ms in [*sorted(watermarks_ms), 40_000]:
        fired += car.take([record for record in shuffled if until_ms < record[0] <= watermark_ms])
        until_ms = max(until_ms, watermark_ms)
    ticks = [
        answers.Tick(at_ms=at_ms, ordinal=ordinal, car=7, speed=speed, distance=distance)
        for at_ms, ordinal, speed, distance in records
    ]
    assert sorted((7, *firing) for firing in fired) == answers.top_speeds(ticks)
    newest_ms = records[-1][0]
    assert all(at_ms > newest_ms - SPAN_MS for at_ms, _ in car.tops)


def firings(found: list[dict[str, Any]]) -> list[answers.Firing]:
    def ms(moment: datetime.datetime) -> int:
        return round(moment.timestamp() * 1000)

    return sorted((row["car"], ms(row["event_time"]), row["top_speed"], ms(row["top_time"])) for row in found)


def ticks_of(*, disorder: Disorder) -> pa.RecordBatch:
    return KIND.batch(seed=0, first=0, end=TOTAL, pieces=PAST.pieces(0, TOTAL), disorder=disorder)


def passed(ticks: list[answers.Tick]) -> list[answers.Tick]:
    """Those that the watermark has passed at the end; the others still wait."""
    watermark_ms = max(tick.at_ms for tick in ticks) - WATERMARK_MS
    return [tick for tick in ticks if tick.at_ms <= watermark_ms]


def test_records_in_any_order_fire_the_same_over_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "schedule.json"
    write_schedule(file, PAST)
    disorder = ("--late-share", str(LATE.share), "--late-most-s", str(LATE.most_s))
    given = options(file, "--sink", "foreachbatch", "--max-records-per-batch", "2500", *disorder)
    assert session_of(given) is spark
    assert 0 < cut_short(top_speeds(records_of(spark, given, KIND)), given) < TOTAL
    to_the_end(top_speeds(records_of(spark, given, KIND)), given)
    expected = answers.top_speeds(passed(answers.ticks(ticks_of(disorder=LATE))))
    assert firings(rows_of(given.out)) == expected
    assert len(expected) > 500


def test_what_comes_minutes_too_late_is_dropped_and_the_state_stays_small(spark: SparkSession, tmp_path: Path) -> None:
    records, given = tmp_path / "records", options_without_source(tmp_path, "--sink", "foreachbatch")
    session_of(given)
    batch = ticks_of(disorder=LATE)
    too_late = [tick.ordinal for tick in answers.ticks(batch) if tick.ordinal >= TOTAL // 2 and tick.ordinal % 9 == 0]
    late = set(too_late)
    rows = batch.to_pylist()
    for ordinal in too_late:
        rows[ordinal]["event_time"] -= datetime.timedelta(minutes=5)
    write_in_order(records, pa.Table.from_pylist(rows, schema=batch.schema), files=4)
    stream = spark.readStream.schema(KIND.schema).option("maxFilesPerTrigger", 1).parquet(str(records))
    query = to_the_end(top_speeds(stream), given)
    ticks = [tick for tick in answers.ticks(batch) if tick.ordinal not in late]
    assert firings(rows_of(given.out)) == answers.top_speeds(passed(ticks))
    (state,) = progress(query)[-1]["stateOperators"]
    assert sum(entry["stateOperators"][0]["numRowsDroppedByWatermark"] for entry in progress(query)) == len(late)
    # One row for each car, its timer under two orders, and nothing that grows with the records.
    assert state["numRowsTotal"] <= 3 * 100


def test_a_provider_that_cannot_hold_its_state_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--schedule", "s", "--checkpoint", "c", "--state-provider", "hdfs"])
    assert "needs --state-provider rocksdb" in capsys.readouterr().err


def test_real_time_mode_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    kafka = ["--source", "kafka", "--brokers", "b:1", "--topic", "t", "--sink", "kafka", "--out-topic", "o"]
    with pytest.raises(SystemExit):
        main([*kafka, "--checkpoint", "c", "--mode", "real-time"])
    assert "fails to run transformWithState" in capsys.readouterr().err
