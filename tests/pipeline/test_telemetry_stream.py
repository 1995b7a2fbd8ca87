"""Lines become tables on a real Spark: each row once, what is bad beside it, whatever is repeated, late or killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipeline import telemetry_rows as rows
from tests.pipeline.observation_files import TABLE, window, write_observations
from tests.pipeline.telemetry_child import SETTINGS
from tests.pipeline.telemetry_rows import MIDNIGHT_S, envelope, having, report, without, write_lines
from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.host.processes import wait_until
from tidewise.pipeline import telemetry_tables
from tidewise.pipeline.telemetry_claim import CHECKPOINT, FACTS
from tidewise.pipeline.telemetry_compact import Compaction, compact, retain
from tidewise.pipeline.telemetry_stream import FolderSource, StreamSettings, Taken, run_stream
from tidewise.pipeline.telemetry_tables import TABLES, open_tables, read_committed, read_table

pytestmark = pytest.mark.xdist_group("spark")

TODAY = date.fromisoformat(datetime.fromtimestamp(MIDNIGHT_S, UTC).date().isoformat()) + timedelta(days=1)
GOOD = envelope(report(MIDNIGHT_S + 5.0), job="x", line=1).to_json()
BAD = [
    ("nonsense", "The line is not a JSON object."),
    ('{"schema": 1, "kind": "repo', "The line is not a JSON object."),
    ("[1, 2]", "The line is not a JSON object."),
    ("", "The line is empty."),
    ("{" + " " * 70_000 + "}", "The line has more than 65536 characters."),
    (GOOD + GOOD, "The line goes on after its JSON object."),
    (without(GOOD, "schema"), "Its schema is missing or no version."),
    (having(GOOD, schema=2, executors="many"), "Its schema 2 is newer than 1, the newest that is known here."),
    (having(GOOD, kind="rumour"), 'There is no kind of row "rumour", only report, change, recovery, forecast_error.'),
    (having(GOOD, job=" "), "The field job of its envelope is empty."),
    (without(GOOD, "line"), "The field line of its envelope is missing or not a whole number."),
    (having(GOOD, line=0), "Lines are numbered from 1 on, not from 0."),
    (without(GOOD, "load_per_s"), "The field load_per_s of a report is missing or not a number."),
    (having(GOOD, executors="two"), "The field executors of a report is missing or not a whole number."),
    (having(GOOD, executors=2.5), "The field executors of a report is missing or not a whole number."),
    (having(GOOD, cpu_share="half"), "The field cpu_share of a report is not a number."),
    (having(GOOD, load_per_s=-1), "The field load_per_s of a report must be at least 0 and at most 1e+18, not -1.0."),
    (having(GOOD, window_s=0), "The field window_s of a report must be above 0 and at most 1e+18, not 0.0."),
    (having(GOOD, executors=0), "The field executors of a report must be above 0 and at most 1e+18, not 0."),
    (having(GOOD, cores_per_executor=0), "The field cores_per_executor of a report must be above 0 and at most 1e+18"),
    (having(GOOD, busy_share=1.5), "The field busy_share of a report must be at least 0 and at most 1, not 1.5."),
    (GOOD.replace("1000.0", "1e999"), "at least 0 and at most 1e+18, not Infinity."),
    (GOOD.replace("1000.0", "NaN", 1), "at least 0 and at most 1e+18, not NaN."),
    (having(GOOD, at_unix_s=time.time() + 9000), "s ahead of when it was received."),
    (having(GOOD, at_unix_s=float("nan")), "s ahead of when it was received."),
    (having(GOOD, at_unix_s=time.time() - 31 * 86_400), "and no more than 2592000 s are taken."),
]


def _stream(spark: SparkSession, lines: Path, tables: Path) -> Taken:
    source = FolderSource(folder=lines, files_per_batch=1)
    return run_stream(source, tables, session=spark, once=True, settings=SETTINGS)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files: rows; the same again among new and bad ones; late ones and other kinds."""
    folder = tmp_path_factory.mktemp("telemetry") / "lines"
    every = [one.to_json() for one in rows.reports()]
    write_lines(folder, "1.jsonl", every[:40] + every[:3], ago_s=30)
    write_lines(folder, "2.jsonl", [*every[20:60], *(line for line, _ in BAD)], ago_s=20)
    write_lines(folder, "3.jsonl", [*every[60:], *(one.to_json() for one in rows.others()), *every[:2]], ago_s=10)
    return folder


@pytest.fixture(scope="module")
def written(spark: SparkSession, told: Path) -> Path:
    folder = told.parent / "tables"
    taken = _stream(spark, told, folder)
    assert (taken.batches, taken.rows, taken.dead_letters) == (3, 75, len(BAD))
    return folder


def _contents(spark: SparkSession, tables: Path) -> dict[str, list[str]]:
    """Everything that views show, in an order of its own."""
    views = open_tables(spark, tables)
    return {
        name: sorted(json.dumps(one.asDict(), default=str) for one in view.collect()) for name, view in views.items()
    }


def _by(spark: SparkSession, view: str, *keys: str) -> dict[tuple[Any, ...], Any]:
    found = spark.table(view).collect()
    by = {tuple(one[key] for key in keys): one for one in found}
    assert len(by) == len(found)
    return by


def _equal(found: dict[tuple[Any, ...], Any], wanted: dict[tuple[Any, ...], dict[str, float | None]]) -> None:
    assert found.keys() == wanted.keys()
    for key, columns in wanted.items():
        got = {name: found[key][name] for name in columns}
        assert got == {name: None if value is None else pytest.approx(value) for name, value in columns.items()}, key


def test_tables_are_what_plain_python_computes(spark: SparkSession, written: Path) -> None:
    open_tables(spark, written)
    every = rows.reports()
    for name, window_s in (("observations_10s", 10), ("observations_60s", 60)):
        found = _by(spark, name, "job", "window_start_unix_s", "executors")
        _equal(found, rows.observations(every, window_s))
        assert {(one["day"].isoformat()) for one in found.values()} == {
            datetime.fromtimestamp(start, UTC).date().isoformat() for _, start, _ in found
        }
    _equal(_by(spark, "performance", "job", "executors"), rows.performance(every))


def test_every_row_is_there_once_as_it_was_told(spark: SparkSession, written: Path) -> None:
    open_tables(spark, written)
    found = _by(spark, "reports", "run", "line")
    for one in rows.reports():
        row = found.pop((one.run, one.line))
        as_told = json.loads(one.to_json())
        assert {name: row[name] for name in as_told if name not in {"schema", "kind"}} == {
            name: value for name, value in as_told.items() if name not in {"schema", "kind"}
        }
    assert not found
    assert _by(spark, "changes", "line")[1000,]["sentence"] == rows.others()[0].row.sentence  # type: ignore[attr-defined]  # a change has one
    assert _by(spark, "recoveries", "line")[1001,]["took_s"] == 30.0
    assert _by(spark, "forecast_errors", "line")[1002,]["error_share"] == 0.5


def test_what_is_bad_is_told_with_its_reason(spark: SparkSession, written: Path) -> None:
    open_tables(spark, written)
    found = _by(spark, "dead_letters", "raw")
    for line, reason in BAD:
        letter = found.pop((line[:65_536],))
        assert reason in letter["reason"], line
        assert letter["where_from"].endswith("2.jsonl")
        assert abs(letter["received_unix_s"] - time.time()) < 3600
    assert not found


def test_a_batch_that_is_written_again_changes_nothing(
    spark: SparkSession, told: Path, written: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    shutil.copytree(written, tables)
    before = _contents(spark, tables)
    # Killed after all was written and before Spark noted it down.
    last = read_committed(tables)
    for left in (tables / CHECKPOINT / "commits").glob(f"*{last}*"):
        left.unlink()
    assert _stream(spark, told, tables).batches == 0
    assert _contents(spark, tables) == before
    # Killed before the batch was whole: what is left of it is replaced.
    (tables / "_committed.json").write_text(json.dumps({"batch": last - 1}))
    assert _contents(spark, tables) != before
    for left in (tables / CHECKPOINT / "commits").glob(f"*{last}*"):
        left.unlink()
    assert _stream(spark, told, tables).batches == 1
    assert _contents(spark, tables) == before


def test_a_file_from_far_ahead_hides_none_that_comes_later(spark: SparkSession, tmp_path: Path) -> None:
    lines, tables = tmp_path / "lines", tmp_path / "tables"
    every = [
        envelope(report(MIDNIGHT_S + 5.0, state_partitions=partitions), line=line).to_json()
        for line, partitions in enumerate((None, 8, 16), start=1)
    ]
    write_lines(lines, "1.jsonl", every[:1], ago_s=-60 * 86_400)
    assert _stream(spark, lines, tables).rows == 1
    write_lines(lines, "2.jsonl", every[1:], ago_s=0)
    assert _stream(spark, lines, tables).rows == 2
    open_tables(spark, tables)
    for view in ("observations_60s", "performance"):
        found = _by(spark, view, "state_partitions")
        assert {key: row["reports"] for (key,), row in found.items()} == {None: 1, 8: 1, 16: 1}


def test_a_clock_that_was_ahead_and_is_set_back_costs_no_row(spark: SparkSession, tmp_path: Path) -> None:
    lines, tables = tmp_path / "lines", tmp_path / "tables"
    every = [envelope(report(MIDNIGHT_S + 5.0), line=line).to_json() for line in (1, 2, 3)]
    write_lines(lines, "1.jsonl", every[:1], ago_s=3)
    assert _stream(spark, lines, tables).rows == 1
    # As Spark leaves it where the clock was six hours ahead meanwhile.
    commits = tables / CHECKPOINT / "commits"
    version, told = (commits / "0").read_text().splitlines()
    ahead = json.loads(told) | {"nextBatchWatermarkMs": round(1000 * time.time()) + 5 * 3_600_000}
    (commits / "0").write_text(f"{version}\n{json.dumps(ahead)}")
    (commits / ".0.crc").unlink()
    for number, is_told in ((2, True), (3, False)):
        heard: list[str] = []
        write_lines(lines, f"{number}.jsonl", every[1:number], ago_s=0)
        source = FolderSource(folder=lines)
        taken = run_stream(source, tables, session=spark, once=True, settings=SETTINGS, tell=heard.append)
        assert (taken.rows, taken.dead_letters, taken.lost) == (1, 0, 0)
        assert any("This machine's clock was set back" in one for one in heard) == is_told


def test_a_generation_that_is_being_written_is_not_read_beside_the_one_that_counts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_observations(tmp_path, [window("a", 0), window("a", 1)], batch=-1)
    found_add = telemetry_tables._Found.add

    def add_and_write(found: telemetry_tables._Found, day: date, path: Path) -> None:
        found_add(found, day, path)
        for made in path.glob("bucket=*/batch=-1"):
            shutil.copytree(made, made.with_name("batch=-2"))

    monkeypatch.setattr(telemetry_tables._Found, "add", add_and_write)
    assert read_table(spark, tmp_path, TABLES[TABLE]).count() == 2


def test_a_day_with_a_damaged_file_is_told_and_the_others_are_compacted(spark: SparkSession, tmp_path: Path) -> None:
    write_observations(tmp_path, [window("a", minute) for minute in (0, 1440, 2880)])
    damaged = sorted((tmp_path / TABLE).rglob("*.parquet"))[1]
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: len(whole) // 2])
    heard: list[str] = []
    done = compact(spark, tmp_path, TODAY, tell=heard.append)
    assert done.days == 2
    (problem,) = done.problems
    assert problem.startswith(f"{TABLE} of 2026-01-02 stays as it is: {damaged} cannot be read (")
    assert f"{problem}." in heard
    assert not (tmp_path / "_compacting").exists()
    damaged.write_bytes(whole)
    assert read_table(spark, tmp_path, TABLES[TABLE]).count() == 3
    assert compact(spark, tmp_path, TODAY) == Compaction(days=1, folders_removed=0)


def test_compaction_and_late_rows_after_it_change_no_view(spark: SparkSession, written: Path, tmp_path: Path) -> None:
    lines, tables = tmp_path / "lines", tmp_path / "tables"
    shutil.copytree(written, tables)
    before = _contents(spark, tables)
    assert compact(spark, tables, TODAY - timedelta(days=1)).days > 0  # the first of the two days
    assert _contents(spark, tables) == before
    # Killed before it said so: rows that nobody names are not read, and it can be run again.
    for made in tables.glob("*/day=*/_compacted.json"):
        made.unlink()
    assert _contents(spark, tables) == before
    done = compact(spark, tables, TODAY)
    assert compact(spark, tables, TODAY, readers_s=0.0).folders_removed > 0
    assert _contents(spark, tables) == before
    assert compact(spark, tables, TODAY).days == 0
    files = list((tables / "reports").glob("day=*/bucket=*/batch=*/*.parquet"))
    assert len(files) == len(list((tables / "reports").glob("day=*/bucket=*")))
    late = envelope(report(MIDNIGHT_S - 5.0, load_per_s=4000.0), line=500)
    write_lines(lines, "4.jsonl", [late.to_json()], ago_s=0)
    _stream(spark, lines, tables)
    with_late = _contents(spark, tables)
    wanted = rows.observations([*rows.reports(), late], 60)
    _equal(_by(spark, "observations_60s", "job", "window_start_unix_s", "executors"), wanted)
    assert 0 < compact(spark, tables, TODAY).days < done.days
    assert _contents(spark, tables) == with_late
    assert retain(tables, {"reports": 1, "changes": 5}, today=TODAY) == 1
    kept = _contents(spark, tables)
    assert 0 < len(kept["reports"]) < len(with_late["reports"])
    assert kept | {"reports": []} == with_late | {"reports": []}


def test_a_column_that_older_files_lack_is_null(spark: SparkSession, written: Path, tmp_path: Path) -> None:
    older = tmp_path / "tables"
    older.mkdir()
    shutil.copy(written / FACTS, older)
    shutil.copy(written / "_committed.json", older)
    for name in ("reports", "observations_60s"):
        whole = read_table(spark, written, TABLES[name])
        lacking = whole.drop(
            "currency", "memory_share", "memory_share__sum", "memory_share__known_s", "state_partitions"
        )
        lacking.write.partitionBy("day", "bucket", "batch").parquet(str(older / name))
    open_tables(spark, older)
    for name in ("reports", "observations_60s"):
        counts = ("count(*)", "count(currency)", "count(memory_share)", "count(job)")
        (found,) = spark.table(name).selectExpr(*counts).collect()
        assert (found[1], found[2]) == (0, 0)
        assert found[0] == found[3] > 0


def test_files_of_others_are_told_and_passed_by(spark: SparkSession, written: Path, tmp_path: Path) -> None:
    mixed = tmp_path / "tables"
    shutil.copytree(written, mixed)
    before = _contents(spark, mixed)
    bucket = next((mixed / "reports").glob("day=*/bucket=*"))
    (bucket / "notes.txt").write_text("hello")
    (next(bucket.glob("batch=*")) / "part-1.parquet").write_text("no parquet")
    (mixed / "reports" / "day=yesterday").mkdir()
    heard: list[str] = []
    open_tables(spark, mixed, tell=heard.append)
    assert _contents(spark, mixed) == before
    assert len(heard) == 1
    assert "3 files or folders are none of the table reports" in heard[0]


def test_folders_of_others_are_refused(spark: SparkSession, told: Path, written: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="have 4 buckets, not 5"):
        run_stream(FolderSource(folder=told), written, session=spark, settings=StreamSettings(buckets=5))
    other = tmp_path / "other"
    shutil.copytree(written, other)
    shutil.rmtree(other / CHECKPOINT)
    with pytest.raises(BadInputError, match="were written by another query"):
        _stream(spark, told, other)
    (other / FACTS).write_text(json.dumps({"format": 9, "buckets": 4}))
    with pytest.raises(BadInputError, match="have format 9, and this version of Tidewise knows format 1"):
        _stream(spark, told, other)
    with pytest.raises(BadInputError, match="there are no tables in"):
        open_tables(spark, tmp_path)
    with pytest.raises(BadInputError, match="there is no folder"):
        _stream(spark, tmp_path / "missing", tmp_path / "new")


def test_a_second_query_is_refused_and_one_that_was_replaced_stops(spark: SparkSession, tmp_path: Path) -> None:
    lines, tables, stop = tmp_path / "lines", tmp_path / "tables", threading.Event()
    write_lines(lines, "1.jsonl", [GOOD], ago_s=1)
    heard: list[str] = []
    ended: list[BaseException | None] = []

    def follow() -> None:
        try:
            source = FolderSource(folder=lines)
            run_stream(source, tables, session=spark, trigger_s=0.2, stop=stop, settings=SETTINGS, tell=heard.append)
            ended.append(None)
        except PermanentError as error:
            ended.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        assert wait_until(lambda: any("Batch 0" in one for one in heard), deadline_s=200)
        with pytest.raises(TemporaryError, match="another query writes the tables in"):
            _stream(spark, lines, tables)
        facts = json.loads((tables / FACTS).read_text())
        (tables / FACTS).write_text(json.dumps(facts | {"writer": "somebody else"}))
        write_lines(lines, "2.jsonl", [GOOD], ago_s=0)
        assert wait_until(lambda: bool(ended), deadline_s=200)
        assert "somebody else writes the tables in" in str(ended[0])
    finally:
        stop.set()
        thread.join(timeout=200)
    assert read_committed(tables) == 0


# Killed while it writes -----------------------------------------------------------------------------------------------


def _kill_while_it_writes(lines: Path, tables: Path, batch: int) -> None:
    """Start a stream in a process of its own, and kill it with its Java while it writes this batch."""
    command = [sys.executable, "-m", "tests.pipeline.telemetry_child", str(lines), str(tables)]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        try:
            # The first of its tables is there, and the last is not.
            begun = wait_until(
                lambda: child.poll() is not None or any((tables / "reports").glob(f"day=*/bucket=*/batch={batch}")),
                deadline_s=300,
            )
            assert begun
            assert child.poll() is None, child.stderr.read().decode() if child.stderr is not None else ""
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    assert read_committed(tables) < batch


def _many_lines(folder: Path, files: int) -> None:
    every = [one.to_json() for one in (*rows.reports(), *rows.others())]
    for number in range(files):
        write_lines(
            folder, f"{number:02d}.jsonl", [*every[number::files], *every[:2], f"bad {number}"], ago_s=100 - number
        )


@pytest.mark.soak
def test_killed_while_it_writes_and_started_again_the_tables_are_the_same(spark: SparkSession, tmp_path: Path) -> None:
    lines, tables, calm = (tmp_path / name for name in ("lines", "tables", "calm"))
    _many_lines(lines, 2)
    _kill_while_it_writes(lines, tables, 1)
    assert _stream(spark, lines, tables).batches == 1
    _stream(spark, lines, calm)
    assert _contents(spark, tables) == _contents(spark, calm)


@pytest.mark.soak
def test_killed_ten_times_while_it_writes_the_tables_are_the_same(spark: SparkSession, tmp_path: Path) -> None:
    lines, tables, calm = (tmp_path / name for name in ("lines", "tables", "calm"))
    _many_lines(lines, 12)
    for batch in range(1, 11):
        _kill_while_it_writes(lines, tables, batch)
    _stream(spark, lines, tables)
    _stream(spark, lines, calm)
    assert _contents(spark, tables) == _contents(spark, calm)
