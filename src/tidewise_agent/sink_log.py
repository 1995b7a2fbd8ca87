"""The log of Spark's file sink, which names the files of each batch."""

from __future__ import annotations

from pathlib import Path

from tidewise_agent.files import write_whole

_HEADER = "v1"
_COMPACT_EVERY = 10
"""Spark's own default for `spark.sql.streaming.fileSink.log.compactInterval`."""


def fill_sink_log(log: Path, *, last_batch: int) -> bool:
    """Give the last batch an entry without files where it has none; whether one was written.

    Every tenth entry sums up all before it and has another name: Spark would look for that one.
    """
    if last_batch < 0 or not log.is_dir():
        return False
    if (log / str(last_batch)).exists() or (log / f"{last_batch}.compact").exists():
        return False
    every = _interval(log)
    if (last_batch + 1) % every:
        _write(log / str(last_batch), [])
    else:
        _write(log / f"{last_batch}.compact", _all_lines(log, last_batch))
    return True


def _interval(log: Path) -> int:
    """The distance between the summaries that are there; Spark's default before there are two."""
    found = sorted(int(path.name.split(".")[0]) for path in log.glob("*.compact"))
    if len(found) >= 2:
        return found[-1] - found[-2]
    return found[0] + 1 if found else _COMPACT_EVERY


def _all_lines(log: Path, before: int) -> list[str]:
    summaries = sorted(int(path.name.split(".")[0]) for path in log.glob("*.compact"))
    lines = _lines(log / f"{summaries[-1]}.compact") if summaries else []
    for batch in range(summaries[-1] + 1 if summaries else 0, before):
        lines += _lines(log / str(batch))
    return lines


def _lines(entry: Path) -> list[str]:
    try:
        return entry.read_text(encoding="utf-8").splitlines()[1:]
    except FileNotFoundError:
        return []


def _write(entry: Path, lines: list[str]) -> None:
    # Spark keeps a checksum beside each file it writes; one that is missing is not looked for.
    write_whole(entry, "\n".join([_HEADER, *lines]))
