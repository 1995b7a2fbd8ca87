"""The clock of a stream goes on from where it stood, however this machine's is set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidewise.pipeline.telemetry_clock import ClockWentBackError, StreamClock

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000


def begin(checkpoint: Path, batch: int, *, at_ms: int, watermark_ms: int) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    told = json.dumps({"batchWatermarkMs": watermark_ms, "batchTimestampMs": at_ms, "conf": {}})
    (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{told}\n0")


def resumed(checkpoint: Path, now_ms: int = NOW_MS) -> StreamClock:
    return StreamClock.resumed(checkpoint, known_again_s=3600.0, now_unix_s=now_ms / 1000)


def test_without_a_checkpoint_it_is_that_of_this_machine(tmp_path: Path) -> None:
    assert resumed(tmp_path) == StreamClock()
    (tmp_path / "offsets").mkdir()
    assert resumed(tmp_path) == StreamClock()
    (tmp_path / "offsets" / "0").write_text("v9\nanother form")
    assert resumed(tmp_path) == StreamClock()


def test_while_this_machines_goes_on_nothing_is_added(tmp_path: Path) -> None:
    begin(tmp_path, 9, at_ms=NOW_MS - 5000, watermark_ms=NOW_MS - HOUR_MS - 9000)
    assert resumed(tmp_path).ahead_ms == 0


@pytest.mark.parametrize("at_ms", [NOW_MS + 5 * HOUR_MS, NOW_MS], ids=["in-the-last-batch", "before-it"])
def test_a_clock_that_was_set_back_goes_on_from_where_it_stood(tmp_path: Path, at_ms: int) -> None:
    begin(tmp_path, 9, at_ms=0, watermark_ms=0)
    begin(tmp_path, 10, at_ms=at_ms, watermark_ms=NOW_MS + (0 if at_ms > NOW_MS else 4 * HOUR_MS))
    assert resumed(tmp_path) == StreamClock(ahead_ms=5 * HOUR_MS, least_ms=NOW_MS + 5 * HOUR_MS)


def test_a_batch_that_would_drop_its_rows_is_stopped_and_taken_by_the_next_query(tmp_path: Path) -> None:
    clock = resumed(tmp_path)
    begin(tmp_path, 3, at_ms=NOW_MS, watermark_ms=NOW_MS - 1)
    clock.check(tmp_path, 3)
    begin(tmp_path, 4, at_ms=NOW_MS, watermark_ms=NOW_MS)
    with pytest.raises(ClockWentBackError, match="no row is lost"):
        clock.check(tmp_path, 4)
    # Also where it is started so much later that nothing has to be added: the batch keeps its time.
    for now_ms in (NOW_MS + 1000, NOW_MS + 48 * HOUR_MS):
        resumed(tmp_path, now_ms).check(tmp_path, 4)
