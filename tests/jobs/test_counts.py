"""Losses and doubles put in on purpose are found, and only files that count are counted."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidewise.core import BadInputError
from tidewise.jobs.counts import LossReport, committed_end, count_losses


def write(file: Path, ordinals: list[int]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"ordinal": pa.array(ordinals, pa.int64())}), file)


def test_every_record_once_is_clean(tmp_path: Path) -> None:
    write(tmp_path / "batch=0" / "a.parquet", [0, 1, 2])
    write(tmp_path / "batch=1" / "a.parquet", [4, 3])
    report = count_losses(tmp_path, committed_end=5)
    assert report.clean
    assert report == LossReport(expected=5, found=5, lost=0, doubled=0, uncommitted=0, first_lost=(), first_doubled=())


def test_lost_doubled_and_uncommitted_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path / "batch=0" / "a.parquet", [0, 1, 1, 3])
    write(tmp_path / "batch=0" / "b.parquet", [3, 4, 3])
    write(tmp_path / "batch=1" / "a.parquet", [9, 10])
    report = count_losses(tmp_path, committed_end=7)
    assert not report.clean
    assert (report.expected, report.found, report.uncommitted) == (7, 4, 2)
    assert (report.lost, report.first_lost) == (3, (2, 5, 6))
    assert (report.doubled, report.first_doubled) == (2, (1, 3))


def test_unfinished_batch_folders_do_not_count(tmp_path: Path) -> None:
    write(tmp_path / "batch=0" / "a.parquet", [0])
    write(tmp_path / "_fresh-1-x" / "a.parquet", [0, 1])
    assert count_losses(tmp_path, committed_end=1).clean


def test_of_a_file_sink_only_logged_files_count(tmp_path: Path) -> None:
    out = tmp_path / "a folder"
    log = out / "_spark_metadata"
    log.mkdir(parents=True)

    def entry(*names: str) -> str:
        lines = [json.dumps({"path": (out / name).as_uri(), "action": "add"}) for name in names]
        return "\n".join(["v1", *lines])

    for name, ordinals in {"a": [0, 1], "b": [2], "c": [3], "stray": [0, 3]}.items():
        write(out / f"{name}.parquet", ordinals)
    (log / "0").write_text(entry("a.parquet"))
    (log / "1.compact").write_text(entry("a.parquet", "b.parquet"))
    (log / "2").write_text(entry("c.parquet"))
    (log / ".2.crc").write_text("")
    assert count_losses(out, committed_end=4).clean


def test_a_sink_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="is no folder"):
        count_losses(tmp_path / "nowhere", committed_end=1)


def test_the_committed_end_is_that_of_the_last_commit(tmp_path: Path) -> None:
    assert committed_end(tmp_path) == 0
    for folder, last in (("commits", 9), ("offsets", 10)):
        (tmp_path / folder).mkdir()
        for batch in range(last + 1):
            text = f'v1\n{{"batchWatermarkMs":0}}\n{{"records": {batch * 100}}}'
            (tmp_path / folder / str(batch)).write_text(text)
    assert committed_end(tmp_path) == 900
