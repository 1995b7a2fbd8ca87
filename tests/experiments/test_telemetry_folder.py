"""A folder of lines: files appear whole, and writers do not disturb each other."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.experiments.telemetry_folder import LineFolder
from tidewise.experiments.telemetry_target import Target
from tidewise.kafka.publishing import TopicLines


def test_each_send_is_a_file_that_appears_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "rows"
    lines = LineFolder(folder)
    seen: list[list[str]] = []

    def look(descriptor: int) -> None:
        del descriptor
        seen.append([path.name for path in folder.iterdir() if not path.name.startswith(".")])

    monkeypatch.setattr(os, "fsync", look)
    lines.send([("a", '{"line": 1}'), ("b", '{"text": "ä"}')])
    # Nobody saw it while it was written; its name is kept once it has one.
    assert [len(names) for names in seen] == [0, 1]
    (path,) = folder.iterdir()
    assert path.suffix == ".jsonl"
    assert path.read_text(encoding="utf-8") == '{"line": 1}\n{"text": "ä"}\n'
    lines.send([])
    assert len(list(folder.iterdir())) == 1
    lines.close()


def test_writers_share_a_folder_and_files_are_in_order_of_time(tmp_path: Path) -> None:
    first = LineFolder(tmp_path, clock=lambda: 100.0)
    second = LineFolder(tmp_path, clock=lambda: 99.0)
    for number in range(3):
        first.send([("a", f"first {number}")])
        second.send([("a", f"second {number}")])
    told = [path.read_text(encoding="utf-8").strip() for path in sorted(tmp_path.iterdir())]
    assert told == ["second 0", "second 1", "second 2", "first 0", "first 1", "first 2"]


def test_what_a_killed_writer_left_half_written_goes_when_it_is_old(tmp_path: Path) -> None:
    old, new = tmp_path / ".0-a-1.jsonl.writing", tmp_path / ".0-b-1.jsonl.writing"
    for path in (old, new):
        path.write_text("{", encoding="utf-8")
    os.utime(old, (0.0, time.time() - 7200.0))
    LineFolder(tmp_path)
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, TemporaryError), (errno.EACCES, PermanentError)])
def test_a_disk_that_takes_nothing_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    lines = LineFolder(tmp_path)

    def full(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(kind, match="cannot be written to"):
        lines.send([("a", "{}")])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PermanentError, match="cannot be made"):
        LineFolder(tmp_path / "file" / "rows")


def test_a_target_is_a_folder_or_a_topic(tmp_path: Path) -> None:
    assert Target.parse("rows", beside=tmp_path).folder == tmp_path / "rows"
    assert Target.parse(str(tmp_path / "x"), beside=Path("/elsewhere")).folder == tmp_path / "x"
    topic = Target.parse("kafka://127.0.0.1:9092/history")
    assert (topic.folder, topic.brokers, topic.topic) == (None, "127.0.0.1:9092", "history")
    assert str(topic) == "kafka://127.0.0.1:9092/history"
    assert Target.parse("kafka://one:1,two:2").topic == "metrics"
    assert isinstance(topic.open(), TopicLines)
    assert isinstance(Target.parse(str(tmp_path / "x")).open(), LineFolder)


@pytest.mark.parametrize(
    "text", ["", " ", "kafka://", "kafka://host/t", "kafka://host:0/t", "http://host:1", "kafka://h:1/a b"]
)
def test_what_is_no_target_is_told_with_what_to_write(text: str) -> None:
    with pytest.raises(BadInputError, match=r"write a folder, or kafka://HOST:PORT/TOPIC"):
        Target.parse(text)
