"""One function over the jobs of a table, on a real Spark: told, and not stopped by any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.observation_files import BEGIN_S, TABLE, window, write_observations
from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.pipeline import action
from tidewise.pipeline.grouped import Looks, _tasks, each_job
from tidewise.pipeline.job_files import START, Bucket, Listed, Wanted
from tidewise.pipeline.job_rows import Thinning
from tidewise.pipeline.table_sql import ask

pytestmark = pytest.mark.xdist_group("spark")

NEWEST = Looks(table=TABLE, thinning=Thinning(newest_s=600.0), wanted=Wanted.of(means=(), sums=()))
SCHEMA = "rows int, first_s bigint, last_s bigint"


@pytest.fixture(scope="module")
def view(spark: SparkSession) -> str:
    """600 rows of three jobs."""
    jobs = spark.range(600).selectExpr("case when id < 100 then 'a' when id < 300 then 'b' else 'c' end as job")
    jobs.createOrReplaceTempView("t")
    return "t"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three jobs with a row a minute for 100, 200 and 300 minutes."""
    folder = tmp_path_factory.mktemp("grouped") / "tables"
    write_observations(
        folder, [window(job, minute) for job, count in (("a", 100), ("b", 200), ("c", 300)) for minute in range(count)]
    )
    return folder


def _span(_job: str, rows: pa.Table) -> Sequence[Mapping[str, object]]:
    times = rows.column(START).to_pylist()
    assert times == sorted(times)
    return [{"rows": len(times), "first_s": times[0], "last_s": times[-1]}]


def _not_b(job: str, rows: pa.Table) -> Sequence[Mapping[str, object]]:
    if job == "b":
        raise ValueError("b is\nnot wanted")
    return [*_span(job, rows), *_span(job, rows)]


def _rows(spark: SparkSession, folder: Path) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for row in spark.read.parquet(str(folder)).collect():
        found.setdefault(row["job"], []).append(row.asDict())
    return found


def test_every_job_is_worked_on_with_its_newest_rows_in_order(
    spark: SparkSession, tables: Path, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    worked = each_job(
        spark,
        tables,
        _span,
        looks=NEWEST,
        schema=SCHEMA,
        folder=tmp_path / "out",
        progress=lambda *at: told.append(at),
    )
    assert (worked.groups, worked.failed) == (3, 0)
    assert worked.work_s > 0.0
    found = _rows(spark, tmp_path / "out")
    assert {job: (rows[0]["rows"], rows[0]["last_s"]) for job, rows in found.items()} == {
        "a": (10, BEGIN_S + 99 * 60),
        "b": (10, BEGIN_S + 199 * 60),
        "c": (10, BEGIN_S + 299 * 60),
    }
    assert told[0] == (0, 3)
    assert told[-1] == (3, 3)
    assert told == sorted(told)


def test_a_job_that_raises_is_a_row_with_its_error_and_stops_nobody(
    spark: SparkSession, tables: Path, tmp_path: Path
) -> None:
    worked = each_job(spark, tables, _not_b, looks=NEWEST, schema=SCHEMA, folder=tmp_path / "out")
    assert (worked.groups, worked.failed) == (3, 1)
    found = _rows(spark, tmp_path / "out")
    assert [row["error"] for row in found["b"]] == ["ValueError: b is not wanted"]
    assert found["b"][0]["rows"] is None
    # The time is that of a job, and told once.
    assert [row["work_s"] is None for row in found["a"]] == [False, True]


def test_what_was_there_is_replaced_whole(spark: SparkSession, tables: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    each_job(spark, tables, _span, looks=NEWEST, schema=SCHEMA, folder=folder)
    some = replace(NEWEST, only=lambda jobs: jobs[:1])
    each_job(spark, tables, _span, looks=some, schema=SCHEMA, folder=folder)
    assert list(_rows(spark, folder)) == ["a"]


def test_a_table_without_rows_is_refused(spark: SparkSession, tables: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"the table observations_10s in .* has no rows yet"):
        each_job(spark, tables, _span, looks=replace(NEWEST, table="observations_10s"), schema=SCHEMA, folder=tmp_path)


def test_a_damaged_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    write_observations(tmp_path, [window("a", 0)])
    (file,) = (tmp_path / TABLE).rglob("*.parquet")
    file.write_bytes(b"PAR1 and nothing that could be read")
    with pytest.raises(PermanentError, match=r"part-0\.parquet cannot be read .*: bring it back"):
        each_job(spark, tmp_path, _span, looks=NEWEST, schema=SCHEMA, folder=tmp_path / "out")


def test_what_spark_gives_up_is_told_in_a_sentence(spark: SparkSession, tables: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("not a folder", encoding="utf-8")
    with pytest.raises(PermanentError, match=r"Spark gave the work up: .*out"):
        each_job(spark, tables, _span, looks=NEWEST, schema=SCHEMA, folder=tmp_path / "out")


def test_tasks_are_many_and_the_longest_come_first() -> None:
    buckets = [Bucket(days=((name,),)) for name in "xyz"]
    contents = [Listed(jobs=tuple(f"{count}-{job}" for job in range(count)), rows=count) for count in (3, 0, 16)]
    tasks = _tasks(buckets, contents, tuple, cores=3)
    assert [len(task.jobs) for task in tasks] == [4, 4, 4, 4, 1, 1, 1]
    assert sorted(job for task in tasks for job in task.jobs) == sorted(job for each in contents for job in each.jobs)
    huge = [replace(content, rows=50_000_000) for content in contents]
    assert len(_tasks(buckets, huge, tuple, cores=1)) == 6


def test_tasks_that_nobody_takes_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action, "_BEGIN_S", 0.5)
    cancelled = Event()
    stuck = SimpleNamespace(numActiveTasks=0, numCompletedTasks=0)
    tracker = SimpleNamespace(getActiveStageIds=lambda: [1], getStageInfo=lambda _: stuck)
    context = SimpleNamespace(
        master="spark://127.0.0.1:7077",
        statusTracker=lambda: tracker,
        setJobGroup=lambda *_, **__: None,
        cancelJobGroup=lambda _: cancelled.set(),
    )
    stuck_work = action.Action(context, lambda: cancelled.wait(30.0), called="it")  # type: ignore[arg-type]  # stands for one
    with pytest.raises(TemporaryError, match=r"no worker of spark://127\.0\.0\.1:7077 took a task"):
        stuck_work.wait()
    assert cancelled.is_set()


@pytest.mark.usefixtures("view")
def test_a_query_is_answered_in_bounded_rows(spark: SparkSession) -> None:
    found = ask(spark, "SELECT job, count(*) AS n FROM t GROUP BY job ORDER BY n DESC;", at_most=2)
    assert found.columns == ("job", "n")
    assert found.rows == (("c", 300), ("b", 200))
    assert found.is_cut
    assert not ask(spark, "SELECT 1 AS a -- nothing", at_most=1).is_cut
    assert ask(spark, "DESCRIBE t", at_most=10).dicts()[0]["col_name"] == "job"


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELEC job FROM t", "cannot be answered: Syntax error at or near 'SELEC'"),
        ("SELECT jib FROM t", "cannot be answered: .*`jib` cannot be resolved"),
        ("SELECT * FROM nowhere", "cannot be answered: The table or view `nowhere` cannot be found"),
        ("DROP VIEW t", "only questions are answered"),
        ("INSERT INTO t SELECT * FROM t", "only questions are answered"),
        ("SELECT raise_error('oh')", "cannot be answered: oh"),
        ("  ; ", "the question is empty"),
    ],
)
def test_bad_sql_is_one_sentence(spark: SparkSession, view: str, sql: str, told: str) -> None:
    with pytest.raises(BadInputError, match=told) as caught:
        ask(spark, sql, at_most=5)
    assert "\n" not in str(caught.value)
    assert spark.table(view).count() == 600
