"""Reports through a topic of a real broker into tables: each once, and what is no report beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.telemetry_rows import reports
from tidewise.experiments.telemetry_target import Target
from tidewise.kafka.broker import LocalBroker
from tidewise.pipeline.telemetry_stream import KafkaSource, StreamSettings, run_stream
from tidewise.pipeline.telemetry_tables import open_tables

pytestmark = pytest.mark.xdist_group("jobs")


def test_what_is_told_to_a_topic_is_in_the_tables_once(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    target = Target.parse(f"kafka://{broker.address}/telemetry-to-tables")
    every = [(one.job, one.to_json()) for one in reports(count=100)]
    sink = target.open()
    settings = StreamSettings(buckets=4, partitions=2)

    def taken_in() -> tuple[int, int, int]:
        source = target.source()
        assert isinstance(source, KafkaSource)
        taken = run_stream(source, tmp_path / "tables", session=spark, once=True, settings=settings)
        return taken.rows, taken.dead_letters, taken.lost

    try:
        sink.send([*every[:200], every[7], ("a", '{"schema": 1, "kind": "repo')])
        assert taken_in() == (200, 1, 0)
        sink.send([every[150], *every[200:]])
        assert taken_in() == (100, 0, 0)
    finally:
        sink.close()
    views = open_tables(spark, tmp_path / "tables")
    found = {(row["run"], row["line"]): row["load_per_s"] for row in views["reports"].collect()}
    assert found == {(one.run, one.line): one.row.load_per_s for one in reports(count=100)}  # type: ignore[attr-defined]  # all are reports
    assert views["reports"].count() == len(every)
    (letter,) = views["dead_letters"].collect()
    assert letter["reason"] == "The line is not a JSON object."
    assert letter["where_from"].startswith("telemetry-to-tables/")
