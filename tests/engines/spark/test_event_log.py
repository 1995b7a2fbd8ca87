"""The reader of event logs: every event once and in order, however the log is cut, rolled and compressed."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.spark.event_log_lines import a_steady_job, application_ended, line, started
from tidewise.core import BadInputError
from tidewise.engines.spark.event_log import EventLog

WANTED = ("SparkListenerApplicationStart", "SparkListenerApplicationEnd", "Mine")


def numbered(first: int, end: int) -> bytes:
    return b"".join(line({"Event": "Mine", "n": n}).encode() for n in range(first, end))


def read(log: EventLog) -> list[int]:
    return [event["n"] for event in log.events(WANTED) if event["Event"] == "Mine"]


def as_lz4(text: bytes, *, piece: int = 100, compress: bool = True) -> bytes:
    """As Java's LZ4BlockOutputStream writes it."""
    written = b""
    for begin in range(0, len(text), piece):
        block = text[begin : begin + piece]
        body = pa.compress(block, codec="lz4_raw", asbytes=True) if compress else block
        method = 0x20 if compress else 0x10
        written += struct.pack("<8sBiii", b"LZ4Block", method | 5, len(body), len(block), 0) + body
    return written + struct.pack("<8sBiii", b"LZ4Block", 0x10 | 5, 0, 0, 0)


@given(cuts=st.lists(st.integers(0, 2000), max_size=8))
def test_a_log_that_grows_in_any_pieces_is_read_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "app-1.inprogress"
    text = numbered(0, 40)
    path.write_bytes(b"")
    log, found = EventLog(path), []
    for cut in [*sorted(cuts), len(text)]:
        path.write_bytes(text[:cut])
        found += read(log)
    assert found == list(range(40))
    assert log.unreadable_lines == 0


def test_a_line_that_is_half_written_is_left_for_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "app-1.inprogress"
    path.write_bytes(numbered(0, 2)[:-5])
    log = EventLog(path)
    assert read(log) == [0]
    assert read(log) == []
    path.write_bytes(numbered(0, 3))
    assert read(log) == [1, 2]


def test_a_log_that_gets_its_name_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "app-1.inprogress"
    path.write_bytes(numbered(0, 2))
    log = EventLog(tmp_path / "app-1")
    assert log.is_in_progress
    assert read(log) == [0, 1]
    path.write_bytes(numbered(0, 3))
    path.rename(tmp_path / "app-1")
    assert not log.is_in_progress
    assert read(log) == [2]


def test_what_is_no_event_is_counted_and_passed_by(tmp_path: Path) -> None:
    path = tmp_path / "app-1"
    path.write_bytes(numbered(0, 1) + b'{"Event":"Mine","n":\n[1]\n\xff\xfe\n{}\n\n' + numbered(1, 2))
    log = EventLog(path)
    assert read(log) == [0, 1]
    assert log.unreadable_lines == 4


def test_files_that_are_rolled_over_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "eventlog_v2_app-1"
    folder.mkdir()
    status = folder / "appstatus_app-1.inprogress"
    status.touch()
    (folder / "events_9_app-1").write_bytes(numbered(0, 3))
    log = EventLog(tmp_path)
    assert log.is_in_progress
    assert read(log) == [0, 1, 2]
    (folder / "events_9_app-1").write_bytes(numbered(0, 4))
    (folder / "events_10_app-1").write_bytes(numbered(4, 6))
    assert read(log) == [3, 4, 5]
    assert read(log) == []
    status.rename(folder / "appstatus_app-1")
    assert not log.is_in_progress


def test_a_compact_file_stands_for_those_before_it(tmp_path: Path) -> None:
    folder = tmp_path / "eventlog_v2_app-1"
    folder.mkdir()
    (folder / "events_1_app-1").write_bytes(numbered(0, 5))
    (folder / "events_2_app-1").write_bytes(numbered(5, 9))
    (folder / "events_2_app-1.compact").write_bytes(numbered(7, 9))
    (folder / "events_3_app-1").write_bytes(numbered(9, 10))
    assert read(EventLog(folder)) == [7, 8, 9]


@pytest.mark.parametrize("codec", ["zstd", "lz4", "lz4-raw"])
def test_a_compressed_log_is_read_as_it_grows(tmp_path: Path, codec: str) -> None:
    text = numbered(0, 400)
    whole: bytes = (
        pa.compress(text, codec="zstd", asbytes=True) if codec == "zstd" else as_lz4(text, compress=codec == "lz4")
    )
    path = tmp_path / f"app-1.{codec.removesuffix('-raw')}.inprogress"
    log, found = None, []
    for share in (0.3, 0.7, 1.0):
        path.write_bytes(whole[: int(share * len(whole))])
        log = log or EventLog(path)
        found += read(log)
    assert found == list(range(400))


@pytest.mark.parametrize("codec", ["snappy", "lzf"])
def test_another_codec_is_refused_with_what_to_set_instead(tmp_path: Path, codec: str) -> None:
    (tmp_path / f"app-1.{codec}").write_bytes(b"...")
    with pytest.raises(BadInputError, match=r"spark\.eventLog\.compression\.codec"):
        EventLog(tmp_path / f"app-1.{codec}")


def test_what_is_not_lz4_is_told(tmp_path: Path) -> None:
    (tmp_path / "app-1.lz4").write_bytes(b"x" * 100)
    with pytest.raises(BadInputError, match="LZ4"):
        read(EventLog(tmp_path / "app-1.lz4"))


def test_no_log_and_too_many_logs_are_told(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="there is no event log"):
        EventLog(tmp_path / "gone")
    with pytest.raises(BadInputError, match="holds no event log"):
        EventLog(tmp_path)
    for name in ("app-1", "app-2"):
        (tmp_path / name).write_text("".join([*started(), application_ended(1.0)]), encoding="utf-8")
    with pytest.raises(BadInputError, match="app-1, app-2"):
        EventLog(tmp_path)


def test_only_what_is_wanted_is_given(tmp_path: Path) -> None:
    (tmp_path / "app-1").write_text("".join(a_steady_job(seconds=20)), encoding="utf-8")
    names = [event["Event"] for event in EventLog(tmp_path).events(WANTED)]
    assert names == ["SparkListenerApplicationStart", "SparkListenerApplicationEnd"]
