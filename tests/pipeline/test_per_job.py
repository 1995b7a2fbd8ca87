"""An object for every job inside a streaming query: each row once and in order, nothing forgotten, no job disturbed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidewise.core import BadInputError
from tidewise.pipeline.per_job import JobRow, fed
from tidewise.pipeline.per_job_query import BatchTold, FolderTarget, PerJobService, mark_of, serve
from tidewise.pipeline.telemetry_stream import FolderSource

pytestmark = pytest.mark.xdist_group("spark")


class Sum:
    """Adds up what its job tells; a job that says `broken` raises."""

    def __init__(self) -> None:
        self.total = 0.0

    def take(self, rows: list[JobRow]) -> list[dict[str, object]]:
        if any(row["number"] is None for row in rows):
            raise ValueError("there is  no number")
        self.total += sum(row["number"] for row in rows)
        seen = ",".join(f"{row['run']}{row['line']}" for row in rows)
        return [{"topic": "sums", "run": "sums", "total": self.total, "seen": seen}]

    def save(self) -> str:
        return json.dumps(self.total)

    def load(self, text: str) -> None:
        self.total = float(json.loads(text))


SUMS = PerJobService(
    name="sum",
    tells=("sums",),
    fields="job string, run string, line bigint, at_unix_s double, number double",
    where="at_unix_s IS NOT NULL",
    columns=("job", "run", "line", "at_unix_s", "number"),
    make=Sum,
    answers="run string, total double, seen string",
    forget_after_s=3600.0,
)


def row(line: int, *, run: str = "a", at_unix_s: float | None = None, number: float | None = 1.0) -> JobRow:
    return {"run": run, "line": line, "at_unix_s": float(line) if at_unix_s is None else at_unix_s, "number": number}


def seen(*batches: list[JobRow]) -> list[object]:
    """What an object was given, batch after batch."""
    held, given = None, []
    for batch in batches:
        answers, problems, held = fed(Sum, held, batch)
        assert problems == []
        given += [answer["seen"] for answer in answers]
    return given


# Without Spark -----------------------------------------------------------------------------------------------------


def test_rows_come_by_line_whatever_order_they_arrived_in() -> None:
    assert seen([row(3), row(1), row(2)]) == ["a1,a2,a3"]


def test_a_row_that_was_told_before_is_passed_over() -> None:
    assert seen([row(1), row(2), row(2)], [row(2), row(3)], [row(1), row(3)]) == ["a1,a2", "a3"]


def test_runs_are_merged_by_time_and_each_keeps_its_order() -> None:
    first = [row(1, at_unix_s=10.0), row(2, at_unix_s=30.0)]
    # The clock of the second run is set back: its rows still come in their order.
    second = [row(7, run="b", at_unix_s=20.0), row(8, run="b", at_unix_s=5.0), row(9, run="b", at_unix_s=40.0)]
    assert seen(second + first) == ["a1,b7,b8,a2,b9"]


def test_every_run_counts_its_own_lines() -> None:
    assert seen([row(5)], [row(1, run="b")], [row(5), row(6), row(1, run="b")]) == ["a5", "b1", "a6"]


def test_only_so_many_runs_are_remembered() -> None:
    _, _, held = fed(Sum, None, [row(1, run=f"run-{number}", at_unix_s=float(number)) for number in range(100)])
    assert len(json.loads(held[0])) == 16


def test_what_raises_is_told_and_starts_anew() -> None:
    _, _, held = fed(Sum, None, [row(1, number=5.0)])
    answers, problems, held = fed(Sum, held, [row(2, number=None)])
    assert answers == []
    (problem,) = problems
    assert problem.endswith("starts anew: ValueError: there is no number")
    answers, problems, _ = fed(Sum, held, [row(2), row(3, number=2.0)])
    assert (answers[0]["total"], answers[0]["seen"], problems) == (2.0, "a3", [])


def test_what_was_saved_and_cannot_be_read_is_told_and_the_rows_count() -> None:
    answers, problems, _ = fed(Sum, ('{"a": 1}', "[]"), [row(2, number=7.0)])
    assert answers[0]["total"] == 7.0
    assert "what was saved could not be read" in problems[0]


def test_every_checkpoint_has_a_mark_of_its_own_for_good(tmp_path: Path) -> None:
    one, other = mark_of(tmp_path / "state" / "one"), mark_of(tmp_path / "state" / "other")
    assert one != other
    assert mark_of(tmp_path / "state" / "one") == one


# On Spark ----------------------------------------------------------------------------------------------------------


class Service:
    """A folder of lines, and what the service has made of them."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self._session = session
        self.lines, self.out, self.checkpoint = folder / "lines", folder / "out", folder / "checkpoint"
        self.lines.mkdir()
        self._files = 0

    def tell(self, *rows: dict[str, Any] | str) -> None:
        self._files += 1
        lines = [one if isinstance(one, str) else json.dumps(one) for one in rows]
        (self.lines / f"{self._files}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def run(self) -> list[BatchTold]:
        told: list[BatchTold] = []
        serve(
            SUMS,
            session=self._session,
            sources=[FolderSource(folder=self.lines)],
            target=FolderTarget(folder=self.out),
            checkpoint=self.checkpoint,
            every_s=None,
            partitions=2,
            tell=told.append,
        )
        return told

    def answers(self, topic: str) -> list[dict[str, Any]]:
        files = sorted((self.out / topic).glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_service_goes_on_from_its_checkpoint_and_one_job_does_not_disturb_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    service = Service(spark, tmp_path)
    service.tell(*({"job": job, **row(1, number=5.0)} for job in "xyz"), "no JSON", '{"job": "w"}')
    (first,) = service.run()
    assert (first.batch, first.lines) == (0, 5)
    assert {one["job"]: one["total"] for one in service.answers("sums")} == {"x": 5.0, "y": 5.0, "z": 5.0}

    service.tell(
        {"job": "x", **row(1, number=5.0)}, {"job": "x", **row(3, number=1.0)}, {"job": "x", **row(2, number=2.0)}
    )
    service.tell({"job": "y", **row(2, number=None)}, {"job": "z", **row(2, number=0.5)})
    service.run()
    later = {one["job"]: one for one in service.answers("sums")[3:]}
    assert (later["x"]["total"], later["x"]["seen"]) == (8.0, "a2,a3")
    assert later["z"]["total"] == 5.5
    assert "y" not in later
    (problem,) = service.answers("sum-problems")
    assert problem["job"] == "y"
    assert "ValueError: there is no number" in problem["problem"]

    service.tell({"job": "y", **row(3, number=4.0)})
    service.run()
    last = service.answers("sums")[-1]
    assert {**last, "run": ""} == {"job": "y", "run": "", "total": 4.0, "seen": "a3"}

    # Begun anew with another checkpoint: other runs in other files, and none of those before is gone.
    told, files = service.answers("sums"), set((service.out / "sums").iterdir())
    assert {one["run"] for one in told} == {f"sums-{mark_of(service.checkpoint)}"}
    service.checkpoint = tmp_path / "another"
    service.run()
    new = set((service.out / "sums").iterdir()) - files
    added = [json.loads(line) for path in new for line in path.read_text(encoding="utf-8").splitlines()]
    assert {one["run"] for one in added} == {f"sums-{mark_of(service.checkpoint)}"}
    assert not {one["run"] for one in added} & {one["run"] for one in told}
    assert [one for one in service.answers("sums") if one not in added] == told


def test_a_folder_that_is_not_there_is_told(spark: SparkSession, tmp_path: Path) -> None:
    source, target = FolderSource(folder=tmp_path / "none"), FolderTarget(folder=tmp_path)
    with pytest.raises(BadInputError, match="there is no folder"):
        serve(SUMS, session=spark, sources=[source], target=target, checkpoint=tmp_path / "state", every_s=None)
