"""The rows of each job straight from the files of a table: all that count, parts of windows made one, the rest left."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from tests.pipeline.observation_files import BEGIN_S, TABLE, window, write_observations
from tidewise.core import BadInputError, PermanentError
from tidewise.pipeline.job_files import JOB, START, Wanted, buckets_in, listed
from tidewise.pipeline.job_rows import IS_WHOLE, LOAD, OBSERVED, Thinning, rows_of

ALL = Thinning(newest_s=1e9, whole=10_000)
WANTED = Wanted.of(means=("processed_rate_per_s", "latency_p95_s"), sums=("window_s", "changing_s"))


def _rows(tables: Path, *, thinning: Thinning = ALL, only: Collection[str] | None = None) -> dict[str, pa.Table]:
    found: dict[str, pa.Table] = {}
    for bucket in buckets_in(tables, TABLE):
        jobs = [job for job in listed(bucket).jobs if only is None or job in only]
        found |= dict(rows_of(bucket, jobs, thinning=thinning, wanted=WANTED))
    return found


def _minutes(rows: pa.Table) -> list[int]:
    return [(start - BEGIN_S) // 60 for start in rows.column(START).to_pylist()]


def test_all_rows_of_all_jobs_come_in_the_order_of_their_time(tmp_path: Path) -> None:
    # Two days, and neither jobs nor minutes in their order, as a batch may hold them.
    write_observations(
        tmp_path, (window(job, minute, load_per_s=float(minute)) for minute in range(1500, 1380, -1) for job in "cab")
    )
    found = _rows(tmp_path)
    assert sorted(found) == ["a", "b", "c"]
    for rows in found.values():
        assert _minutes(rows) == list(range(1381, 1501))
        assert rows.column(LOAD).to_pylist() == [float(minute) for minute in range(1381, 1501)]
        assert set(rows.column("executors").to_pylist()) == {2}
        assert set(rows.column("program").to_pylist()) == {"v1"}


def test_what_is_stored_in_parts_is_put_together(tmp_path: Path) -> None:
    part = window("a", 0, load_per_s=10.0, window_s=20.0, processed_rate_per_s__sum=600.0)
    write_observations(tmp_path, [{**part, "latency_p95_s__sum": 40.0, "latency_p95_s__known_s": 20.0}], batch=0)
    # The other part of the minute, without a latency; and half a minute of another configuration.
    write_observations(
        tmp_path,
        [
            window("a", 0, load_per_s=40.0, window_s=40.0, processed_rate_per_s__sum=600.0, changing_s=5.0),
            window("a", 0, load_per_s=70.0, window_s=30.0, executors=3),
            window("a", 1),
        ],
        batch=1,
    )
    (rows,) = _rows(tmp_path).values()
    assert _minutes(rows) == [0, 0, 1]
    first = rows.to_pylist()[0]
    assert (first["executors"], first["window_s"], first["changing_s"]) == (2, 60.0, 5.0)
    assert first[LOAD] == pytest.approx((20.0 * 10.0 + 40.0 * 40.0) / 60.0)
    assert (first["processed_rate_per_s"], first["latency_p95_s"]) == (20.0, 2.0)
    # What no file of it has is unknown.
    assert rows.to_pylist()[1]["executors"] == 3
    assert rows.column(OBSERVED).to_pylist() == [60.0, 30.0, 60.0]
    assert rows.column("latency_p95_s").to_pylist()[1:] == [None, None]


def test_only_what_is_committed_and_not_replaced_counts(tmp_path: Path) -> None:
    write_observations(tmp_path, [window("a", 0), window("a", 1)], batch=0)
    write_observations(tmp_path, [window("a", 0, load_per_s=7.0), window("a", 1, load_per_s=7.0)], batch=-1)
    write_observations(tmp_path, [window("a", 2, load_per_s=8.0)], batch=1)
    write_observations(tmp_path, [window("a", 3)], batch=2, committed=False)
    assert _rows(tmp_path)["a"].column(LOAD).to_pylist() == [7.0, 7.0, 8.0]


def test_the_newest_are_those_of_each_job_itself(tmp_path: Path) -> None:
    write_observations(tmp_path, [window("old", minute) for minute in range(100)])
    write_observations(tmp_path, [window("new", minute) for minute in range(2000)], batch=1)
    found = _rows(tmp_path, thinning=Thinning(newest_s=600.0))
    assert _minutes(found["old"]) == list(range(90, 100))
    assert _minutes(found["new"]) == list(range(1990, 2000))
    assert found["new"].column_names == [START, LOAD, OBSERVED, IS_WHOLE]
    assert not any(found["new"].column(IS_WHOLE).to_pylist())


@pytest.mark.parametrize("in_parts", [False, True])
def test_rare_kinds_come_whole_and_the_others_thinned(tmp_path: Path, *, in_parts: bool) -> None:
    rows = [
        window(job, minute, executors=9 if minute % 50 == 0 else 2)
        for job, count in (("a", 100), ("b", 200), ("c", 300))
        for minute in range(count)
    ]
    write_observations(tmp_path, rows)
    if in_parts:
        write_observations(tmp_path, rows, batch=1)
    found = _rows(tmp_path, thinning=Thinning(newest_s=600.0, whole=20))
    for job, count in (("a", 100), ("b", 200), ("c", 300)):
        whole = found[job].filter(found[job].column(IS_WHOLE))
        sizes = whole.column("executors").to_pylist()
        assert sizes.count(9) == count // 50
        assert 5 <= sizes.count(2) <= 25
        assert set(whole.column("window_s").to_pylist()) == {120.0 if in_parts else 60.0}
        others = found[job].filter(pa.compute.invert(found[job].column(IS_WHOLE)))
        assert set(others.column("window_s").to_pylist()) == {None}
        assert _minutes(found[job])[-1] == count - 1
    # Windows of one block come together.
    minutes = [
        minute
        for minute, is_whole, size in zip(
            _minutes(found["c"]),
            *(found["c"].column(name).to_pylist() for name in (IS_WHOLE, "executors")),
            strict=True,
        )
        if is_whole and size == 2
    ]
    assert any(later - before == 1 for before, later in pairwise(minutes))


def test_some_jobs_of_a_bucket_alone(tmp_path: Path) -> None:
    jobs = [f"job-{number:03d}" for number in range(40)]
    write_observations(tmp_path, [window(job, minute) for job in jobs for minute in range(20)])
    found = _rows(tmp_path, only=jobs[10:13])
    assert sorted(found) == jobs[10:13]
    assert {len(rows) for rows in found.values()} == {20}


def test_a_bucket_tells_its_jobs_and_how_many_rows_it_has(tmp_path: Path) -> None:
    write_observations(tmp_path, [window(job, minute) for job in ("b", "a") for minute in range(200)])
    told = [listed(bucket) for bucket in buckets_in(tmp_path, TABLE)]
    assert sorted(job for each in told for job in each.jobs) == ["a", "b"]
    assert sum(each.rows for each in told) == 400


def test_workers_find_the_files_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_observations(tmp_path / "tables", [window("a", 0)])
    monkeypatch.chdir(tmp_path)
    (bucket,) = buckets_in(Path("tables"), TABLE)
    monkeypatch.chdir("/")
    assert listed(bucket).jobs == ("a",)


def test_a_file_that_is_damaged_within_is_named(tmp_path: Path) -> None:
    write_observations(tmp_path, [window("a", minute) for minute in range(200)])
    (file,) = (tmp_path / TABLE).rglob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole[:4] + b"\xff" * 400 + whole[404:])
    with pytest.raises(PermanentError, match=r"part-0\.parquet cannot be read .*: bring it back"):
        [listed(bucket) for bucket in buckets_in(tmp_path, TABLE)]


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="there are no tables in"):
        buckets_in(tmp_path, TABLE)
    assert JOB == "job"
