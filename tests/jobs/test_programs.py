"""The programs on a real Spark: bounded batches, honest offsets, exact replays and right answers."""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tests.jobs.running import PATIENCE_S, options, progress, to_the_end
from tidewise.jobs.clicks import views_per_campaign
from tidewise.jobs.copy import ordinals
from tidewise.jobs.counts import committed_end, count_losses
from tidewise.jobs.program import BatchFolders, options_of, parsed, records_of, session_of, writer_of
from tidewise.jobs.records.clicks import ADS_PER_CAMPAIGN, records
from tidewise.jobs.records.kinds import KINDS
from tidewise.jobs.schedule import Schedule, write_schedule

pytestmark = pytest.mark.xdist_group("jobs")

PAST = Schedule(began_unix_s=1_700_000_000.0, rates_per_s=(1000.0,) * 30 + (0.0,) * 30 + (500.0,) * 20, after="stop")
TOTAL = 40_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "schedule.json"
    write_schedule(path, PAST)
    return path


def stream(spark: SparkSession, given: argparse.Namespace) -> DataFrame:
    assert session_of(given) is spark
    return records_of(spark, given, KINDS["clicks"])


@pytest.mark.parametrize("sink", [pytest.param("files", marks=pytest.mark.soak), "foreachbatch"])
def test_batches_are_bounded_and_every_record_arrives_once(spark: SparkSession, file: Path, sink: str) -> None:
    given = options(file, "--sink", sink, "--max-records-per-batch", "15000")
    query = to_the_end(ordinals(stream(spark, given), state_mib=0), given)
    sources = [entry["sources"][0] for entry in progress(query) if entry["numInputRows"]]
    assert [source["endOffset"]["records"] for source in sources] == [15_000, 30_000, TOTAL]
    assert {source["latestOffset"]["records"] for source in sources} == {TOTAL}
    assert committed_end(given.checkpoint) == TOTAL
    assert count_losses(given.out, committed_end=TOTAL).clean


def test_a_slow_reader_falls_behind_what_is_available(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "live.json"
    write_schedule(file, Schedule(began_unix_s=time.time(), rates_per_s=(5000.0,)))
    given = options(file, "--max-records-per-batch", "100", "--trigger", "500 milliseconds")
    query = writer_of(stream(spark, given), given, output_mode="append").start()
    deadline_s = time.monotonic() + PATIENCE_S
    while len(query.recentProgress) < 4 and time.monotonic() < deadline_s:
        time.sleep(0.1)
    query.stop()
    batches = [entry["sources"][0] for entry in progress(query) if entry["numInputRows"]]
    assert [batch["endOffset"]["records"] for batch in batches] == [100 * (n + 1) for n in range(len(batches))]
    backlogs = [batch["latestOffset"]["records"] - batch["endOffset"]["records"] for batch in batches]
    assert len(backlogs) >= 3
    assert backlogs == sorted(backlogs)
    assert backlogs[-1] - backlogs[0] > 1000


def test_a_replayed_batch_writes_exactly_the_same(spark: SparkSession, file: Path) -> None:
    given = options(file, "--sink", "foreachbatch", "--max-records-per-batch", "15000")
    to_the_end(ordinals(stream(spark, given), state_mib=0), given)
    before = {folder.name: pq.read_table(folder) for folder in given.out.glob("batch=*")}
    last = max((given.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    to_the_end(ordinals(stream(spark, given), state_mib=0), given)
    after = {folder.name: pq.read_table(folder) for folder in given.out.glob("batch=*")}
    assert last.exists()
    assert before.keys() == after.keys()
    for name, table in before.items():
        assert table.sort_by("ordinal").equals(after[name].sort_by("ordinal"))
    assert not list(given.out.glob("_*"))


def test_a_batch_folder_is_replaced_whole(spark: SparkSession, tmp_path: Path) -> None:
    sink = BatchFolders(tmp_path)
    sink(spark.range(5).withColumnRenamed("id", "ordinal"), 3)
    sink(spark.range(2).withColumnRenamed("id", "ordinal"), 3)
    assert pq.read_table(tmp_path / "batch=3").num_rows == 2
    assert [path.name for path in tmp_path.iterdir()] == ["batch=3"]


def expected_views() -> dict[tuple[int, int], int]:
    """(window start in s, campaign) -> views, by plain counting."""
    all_records = records(seed=0, first=0, end=TOTAL, pieces=PAST.pieces(0, TOTAL))
    views = np.array(all_records.column("event_type").to_pylist()) == "view"
    starts_s = all_records.column("event_time").cast("int64").to_numpy()[views] // 10_000_000 * 10
    campaigns = all_records.column("ad_id").to_numpy()[views] // ADS_PER_CAMPAIGN
    keys, counts = np.unique(np.stack([starts_s, campaigns]), axis=1, return_counts=True)
    return {(int(start), int(campaign)): int(count) for start, campaign, count in zip(*keys, counts, strict=True)}


@pytest.mark.parametrize(("work", "provider"), [(0, "rocksdb"), (3, "hdfs")])
def test_clicks_counts_what_plain_counting_does(spark: SparkSession, file: Path, work: int, provider: str) -> None:
    given = options(file, "--sink", "foreachbatch", "--max-records-per-batch", "15000", "--state-provider", provider)
    query = to_the_end(views_per_campaign(stream(spark, given), work=work), given, output_mode="update")
    found: dict[tuple[int, int], int] = {}
    for folder in sorted(given.out.glob("batch=*"), key=lambda path: int(path.name.removeprefix("batch="))):
        for row in pq.read_table(folder).to_pylist():
            start: datetime.datetime = row["start"]
            found[int(start.timestamp()), row["campaign_id"]] = row["views"]
    assert found == expected_views()
    (state,) = progress(query)[-1]["stateOperators"]
    assert state["numShufflePartitions"] == 2


def test_ballast_fills_the_state_and_lets_every_record_through(spark: SparkSession, file: Path) -> None:
    given = options(file, "--sink", "files", "--max-records-per-batch", "20000")
    query = to_the_end(ordinals(stream(spark, given), state_mib=8), given)
    assert count_losses(given.out, committed_end=TOTAL).clean
    (state,) = progress(query)[-1]["stateOperators"]
    assert state["numRowsTotal"] == 8
    kept_mib = sum(part.stat().st_size for part in (given.checkpoint / "state").rglob("*") if part.is_file()) / 2**20
    assert kept_mib >= 8


def test_a_schedule_that_is_missing_is_told_when_the_stream_is_made(spark: SparkSession, tmp_path: Path) -> None:
    given = options(tmp_path / "nowhere.json")
    with pytest.raises(AnalysisException, match=r"nowhere\.json does not exist"):
        records_of(spark, given, KINDS["clicks"])


def test_a_sink_with_files_asks_for_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(options_of("a test"), ["--schedule", "s", "--checkpoint", "c", "--sink", "files"])
    assert "--sink files needs --out FOLDER" in capsys.readouterr().err


def test_a_program_runs_by_itself_and_ends_after_its_time(tmp_path: Path) -> None:
    file = tmp_path / "schedule.json"
    write_schedule(file, PAST)
    command = [sys.executable, "-m", "tidewise.jobs.clicks", "--schedule", str(file), "--sink", "files"]
    command += ["--out", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "checkpoint")]
    command += ["--master", "local[2]", "--seconds", "40", "--work", "1"]
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell",
    }
    environment.pop("PYSPARK_PYTHON", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert committed_end(tmp_path / "checkpoint") == TOTAL
