"""One function over the groups of a table, on a real Spark: bounded, told, and not stopped by any group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.pipeline import action
from tidewise.pipeline.context import spark_session
from tidewise.pipeline.grouped import Thinning, each_group, thinned
from tidewise.pipeline.table_sql import ask

pytestmark = pytest.mark.xdist_group("spark")

NEWEST = Thinning(by="job", order="at_s", newest_s=600.0, narrow=("load",))
WHOLE = Thinning(by="job", order="at_s", newest_s=600.0, narrow=("load",), whole=20, kinds=("size",))
SCHEMA = "rows int, first_s double, last_s double"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[2]") as session:
        session.conf.set("spark.sql.shuffle.partitions", "2")
        # Three jobs with a row a minute for 100, 200 and 300 minutes; one row in fifty is of another size.
        session.range(600).selectExpr(
            "case when id < 100 then 'a' when id < 300 then 'b' else 'c' end as job",
            "60.0D * (id - case when id < 100 then 0 when id < 300 then 100 else 300 end) as at_s",
            "cast(id as double) as load",
            "if(id % 50 = 0, 9, 2) as size",
            "'x' as other",
        ).createOrReplaceTempView("t")
        yield session


def _span(_key: str, rows: pa.Table) -> Sequence[Mapping[str, object]]:
    times = rows.column("at_s").to_pylist()
    assert times == sorted(times)
    return [{"rows": len(times), "first_s": times[0], "last_s": times[-1]}]


def _not_b(key: str, rows: pa.Table) -> Sequence[Mapping[str, object]]:
    if key == "b":
        raise ValueError("b is\nnot wanted")
    return [*_span(key, rows), *_span(key, rows)]


def _rows(spark: SparkSession, folder: Path) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for row in spark.read.parquet(str(folder)).collect():
        found.setdefault(row["job"], []).append(row.asDict())
    return found


def test_every_group_is_worked_on_with_its_newest_rows_in_order(spark: SparkSession, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    worked = each_group(
        spark.table("t"),
        _span,
        thinning=NEWEST,
        schema=SCHEMA,
        folder=tmp_path / "out",
        progress=lambda *at: told.append(at),
    )
    assert (worked.groups, worked.failed) == (3, 0)
    assert worked.work_s > 0.0
    found = _rows(spark, tmp_path / "out")
    assert {job: (rows[0]["rows"], rows[0]["last_s"]) for job, rows in found.items()} == {
        "a": (10, 99 * 60.0),
        "b": (10, 199 * 60.0),
        "c": (10, 299 * 60.0),
    }
    assert told[0] == (0, 3)
    assert told[-1] == (3, 3)
    assert told == sorted(told)


def test_a_group_that_raises_is_a_row_with_its_error_and_stops_nobody(spark: SparkSession, tmp_path: Path) -> None:
    worked = each_group(spark.table("t"), _not_b, thinning=NEWEST, schema=SCHEMA, folder=tmp_path / "out")
    assert (worked.groups, worked.failed) == (3, 1)
    found = _rows(spark, tmp_path / "out")
    assert [row["error"] for row in found["b"]] == ["ValueError: b is not wanted"]
    assert found["b"][0]["rows"] is None
    # The time is that of a group, and told once.
    assert [row["work_s"] is None for row in found["a"]] == [False, True]


def test_what_was_there_is_replaced_whole(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    each_group(spark.table("t"), _span, thinning=NEWEST, schema=SCHEMA, folder=folder)
    each_group(spark.table("t").where("job = 'a'"), _span, thinning=NEWEST, schema=SCHEMA, folder=folder)
    assert list(_rows(spark, folder)) == ["a"]


def test_rare_kinds_come_whole_and_the_others_thinned(spark: SparkSession) -> None:
    rows = [row.asDict() for row in thinned(spark.table("t"), WHOLE).collect()]
    whole = [row for row in rows if row["is_whole"]]
    for job, count in (("a", 100), ("b", 200), ("c", 300)):
        of_job = [row for row in whole if row["job"] == job]
        assert sum(row["size"] == 9 for row in of_job) == count // 50
        assert 5 <= sum(row["size"] == 2 for row in of_job) <= 25
    assert {row["other"] for row in whole} == {"x"}
    assert {row["other"] for row in rows if not row["is_whole"]} == {None}
    # Rows of one block come together.
    c = sorted(row["at_s"] for row in whole if row["job"] == "c" and row["size"] == 2)
    assert any(later - before == 60.0 for before, later in pairwise(c))


def test_a_table_without_its_columns_or_rows_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.table("t")
    with pytest.raises(BadInputError, match="no column 'load': it has job, at_s"):
        each_group(frame.drop("load"), _span, thinning=NEWEST, schema=SCHEMA, folder=tmp_path)
    with pytest.raises(BadInputError, match="no rows to work on"):
        each_group(frame.where("false"), _span, thinning=NEWEST, schema=SCHEMA, folder=tmp_path)


def test_what_spark_gives_up_is_told_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    broken = spark.table("t").selectExpr("job", "at_s", "raise_error('no such disk') as load")
    with pytest.raises(PermanentError, match=r"Spark gave the work up: .*no such disk"):
        each_group(broken, _span, thinning=NEWEST, schema=SCHEMA, folder=tmp_path / "out")


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
def test_bad_sql_is_one_sentence(spark: SparkSession, sql: str, told: str) -> None:
    with pytest.raises(BadInputError, match=told) as caught:
        ask(spark, sql, at_most=5)
    assert "\n" not in str(caught.value)
    assert spark.table("t").count() == 600
