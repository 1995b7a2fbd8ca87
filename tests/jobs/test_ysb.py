"""YSB counts what plain counting does: in any order, with late records, and over a restart."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from tests.jobs import answers
from tests.jobs.running import cut_short, observed, options, options_without_source, rows_of, to_the_end, write_in_order
from tidewise.jobs.program import records_of, session_of
from tidewise.jobs.records.kinds import Disorder
from tidewise.jobs.records.ysb import campaigns
from tidewise.jobs.schedule import Schedule, write_schedule
from tidewise.jobs.ysb import KIND, ads_of, views_per_campaign

pytestmark = pytest.mark.xdist_group("jobs")

PAST = Schedule(began_unix_s=1_700_000_003.0, rates_per_s=(1000.0,) * 25 + (0.0,) * 30 + (500.0,) * 10, after="stop")
TOTAL = 30_000
LATE = Disorder(share=0.3, most_s=8.0)
MINUTES_MS = 300_000


def events(*, disorder: Disorder) -> pa.RecordBatch:
    return KIND.batch(seed=0, first=0, end=TOTAL, pieces=PAST.pieces(0, TOTAL), disorder=disorder)


def milliseconds(moment: datetime.datetime) -> int:
    return round(moment.timestamp() * 1000)


def windows(found: list[dict[str, Any]]) -> dict[answers.Window, tuple[int, int]]:
    """The last that was said of each window."""
    for row in found:
        assert milliseconds(row["end"]) - milliseconds(row["start"]) == answers.WINDOW_MS
    return {
        (milliseconds(row["start"]), row["campaign_id"]): (row["views"], milliseconds(row["last_update"]))
        for row in found
    }


@pytest.mark.parametrize(
    "sliding", [pytest.param(False, id="tumbling", marks=pytest.mark.soak), pytest.param(True, id="sliding")]
)
def test_records_in_any_order_are_counted_once_over_a_restart(
    spark: SparkSession, tmp_path: Path, sliding: bool
) -> None:
    file = tmp_path / "schedule.json"
    write_schedule(file, PAST)
    disorder = ("--late-share", str(LATE.share), "--late-most-s", str(LATE.most_s))
    given = options(file, "--sink", "foreachbatch", "--max-records-per-batch", "4000", *disorder)
    assert session_of(given) is spark
    first, second = (
        views_per_campaign(records_of(spark, given, KIND), ads_of(spark, seed=0), sliding=sliding) for _ in range(2)
    )
    assert 0 < cut_short(first, given, output_mode="update") < TOTAL
    to_the_end(second, given, output_mode="update")
    expected = answers.views_per_campaign(
        answers.rows(events(disorder=LATE)), dict(campaigns(0)), slide_ms=1000 if sliding else answers.WINDOW_MS
    )
    assert windows(rows_of(given.out)) == expected


def test_what_comes_minutes_too_late_is_dropped_and_unknown_ads_are_told(spark: SparkSession, tmp_path: Path) -> None:
    table, records = pa.Table.from_batches([events(disorder=LATE)]), tmp_path / "records"
    # Of the last third every tenth record is minutes late, and every seventh shows an ad that nobody knows.
    ordinals = table.column("ordinal")
    last = pc.greater_equal(ordinals, 2 * TOTAL // 3)
    too_late = pc.and_(last, pc.equal(pc.subtract(ordinals, pc.multiply(pc.divide(ordinals, 10), 10)), 0))
    unknown = pc.and_(last, pc.equal(pc.subtract(ordinals, pc.multiply(pc.divide(ordinals, 7), 7)), 0))
    times = table.column("event_time")
    earlier = pc.subtract(times, pa.scalar(MINUTES_MS * 1000, pa.duration("us")))
    table = table.set_column(1, "event_time", pc.if_else(too_late, earlier, times))
    table = table.set_column(4, "ad_id", pc.if_else(unknown, "nobody's", table.column("ad_id")))
    write_in_order(records, table, files=5)
    stream = spark.readStream.schema(KIND.schema).option("maxFilesPerTrigger", 1).parquet(str(records))
    given = options_without_source(tmp_path, "--sink", "foreachbatch")
    session_of(given)
    views = views_per_campaign(stream, ads_of(spark, seed=0), sliding=False)
    query = to_the_end(views, given, output_mode="update")
    kept = answers.rows(table.filter(pc.invert(too_late)).combine_chunks().to_batches()[0])
    expected = answers.views_per_campaign(kept, dict(campaigns(0)), slide_ms=answers.WINDOW_MS)
    assert windows(rows_of(given.out)) == expected
    shown = pc.and_(unknown, pc.equal(table.column("event_type"), "view"))
    assert observed(query, "unknown_ads", "views") == pc.sum(shown).as_py() > 0
