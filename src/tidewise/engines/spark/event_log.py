"""Reads Spark's event log while it grows: events in order, each once, in little memory, whatever is half-written."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidewise.core import BadInputError

STREAMING = "org.apache.spark.sql.streaming.StreamingQueryListener$"
"""How the events of streaming queries begin."""
IN_PROGRESS = ".inprogress"

Event = dict[str, Any]

_FOLDER = "eventlog_v2_"
_STATUS = "appstatus_"
_COMPACT = ".compact"
_ROLLED = re.compile(r"events_(\d+)_.+")
_CODECS = ("zstd", "lz4")
_OTHER_CODECS = ("snappy", "lzf")
_NAME = re.compile(rb'\s*\{\s*"Event"\s*:\s*"([^"]+)"')
_NAME_WITHIN = 200
_PIECE = 1 << 18
_ZSTD_PIECE = 1 << 12
"""Small: of a frame that is still written, what is left at its end is only told in whole pieces."""
_LONGEST_LINE = 1 << 26
"""A line that is longer is passed by: no event that is wanted comes near it."""
_LZ4_MAGIC = b"LZ4Block"
_LZ4_HEADER = struct.Struct("<8sBiii")
_LZ4_RAW, _LZ4_COMPRESSED = 0x10, 0x20
_NAMED = 8


@dataclass(slots=True)
class _Reading:
    """How far a file has been read."""

    path: Path
    codec: str | None
    text_bytes: int = 0
    """Of its text, in whole lines."""
    file_bytes: int = 0
    """How long the file was when it was last looked into."""


class EventLog:
    """The log of one application: a file, or a folder of files that Spark rolls over.

    `events` is called again and again; a line that is not finished is left for the next time. Lines that are no events
    are counted and passed by. Files of compressed logs are read from their beginning whenever they have grown, which
    Spark bounds by rolling them over.
    """

    def __init__(self, path: Path) -> None:
        """BadInputError where there is no log, more than one, or one that cannot be read here."""
        self.path = find_log(path)
        self.unreadable_lines = 0
        """How many lines were no events."""
        self._readings: dict[str, _Reading] = {}
        self._read_up_to = 0  # the number of the last rolled file that has been read to its end
        self._files()

    @property
    def is_in_progress(self) -> bool:
        """Whether Spark says that the application has not ended; it also does where the driver was killed."""
        if self.path.is_dir():
            return any(self.path.glob(f"{_STATUS}*{IN_PROGRESS}"))
        return not _ended(self.path).exists()

    def events(self, wanted: Sequence[str]) -> Iterator[Event]:
        """The events of these names that have been written since the last call."""
        names = {name.encode() for name in wanted}
        files = self._files()
        for index, (number, path) in enumerate(files):
            reading = self._readings.setdefault(_key(path), _Reading(path=path, codec=_codec(path)))
            reading.path = path
            for line in self._lines(reading):
                event = self._event(line, names)
                if event is not None:
                    yield event
            if index + 1 < len(files):
                # Spark has begun the next one, so that this one has its end.
                self._read_up_to = max(self._read_up_to, number)
                self._readings.pop(_key(path), None)

    def _files(self) -> list[tuple[int, Path]]:
        """What is to be read, in order, with its number."""
        if not self.path.is_dir():
            path = self.path if self.path.exists() else _ended(self.path)
            _check_codec(path)
            _check_begin(path)
            return [(1, path)]
        found = sorted(
            (int(match[1]), not path.name.endswith(_COMPACT), path)
            for path in self.path.iterdir()
            if (match := _ROLLED.fullmatch(path.name)) is not None
        )
        # A compact file stands for all before it and for the one of its number.
        compact = max((number for number, is_plain, _ in found if not is_plain), default=0)
        files = [
            (number, path)
            for number, is_plain, path in found
            if number > self._read_up_to and (number > compact or not is_plain)
        ]
        for _, path in files:
            _check_codec(path)
        return files

    def _lines(self, reading: _Reading) -> Iterator[bytes]:
        try:
            size = reading.path.stat().st_size
            if size == reading.file_bytes:
                return
            left, is_too_long = b"", False
            for piece in _text(reading):
                *whole, left = (left + piece).split(b"\n")
                for line in whole:
                    reading.text_bytes += len(line) + 1
                    if is_too_long:
                        is_too_long = False
                    else:
                        yield line
                if len(left) > _LONGEST_LINE:
                    self.unreadable_lines += not is_too_long
                    reading.text_bytes += len(left)
                    left, is_too_long = b"", True
            reading.file_bytes = size
        except OSError as error:
            raise BadInputError(f"{reading.path} cannot be read: {error.strerror or error}") from error

    def _event(self, line: bytes, names: set[bytes]) -> Event | None:
        """The event of a line; None for one that is not wanted, or cannot be read."""
        if not line.strip():
            return None
        # Plans and stack traces are most of a log: what is not wanted is not even parsed.
        name = _NAME.match(line[:_NAME_WITHIN])
        if name is not None and name[1] not in names:
            return None
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            self.unreadable_lines += 1
            return None
        if not isinstance(event, dict) or not isinstance(event.get("Event"), str):
            self.unreadable_lines += 1
            return None
        return event if event["Event"].encode() in names else None


def find_log(path: Path) -> Path:
    """The log that this path is, or the only one in this folder; BadInputError where there is none, or several."""
    if not path.exists():
        for other in (path.with_name(path.name + IN_PROGRESS), _ended(path)):
            if other.is_file():
                return other
        raise BadInputError(f"there is no event log {path}; name a file or folder that spark.eventLog.dir holds")
    if path.is_file() or any(_ROLLED.fullmatch(inner.name) for inner in path.iterdir()):
        return path
    logs = sorted(
        inner
        for inner in path.iterdir()
        if (inner.is_dir() and inner.name.startswith(_FOLDER)) or (inner.is_file() and not inner.name.startswith("."))
    )
    if len(logs) == 1:
        return logs[0]
    if not logs:
        raise BadInputError(f"{path} holds no event log; start the program with spark.eventLog.enabled=true")
    more = ", ..." if len(logs) > _NAMED else ""
    names = ", ".join(inner.name for inner in logs[:_NAMED])
    raise BadInputError(f"{path} holds {len(logs)} event logs; name one of them: {names}{more}")


def _ended(path: Path) -> Path:
    """What a log is called when its application has ended."""
    return path.with_name(path.name.removesuffix(IN_PROGRESS))


def _key(path: Path) -> str:
    return _ended(path).name


def _codec(path: Path) -> str | None:
    name = path.name.removesuffix(IN_PROGRESS).removesuffix(_COMPACT)
    return next((codec for codec in (*_CODECS, *_OTHER_CODECS) if name.endswith(f".{codec}")), None)


def _check_codec(path: Path) -> None:
    codec = _codec(path)
    if codec in _OTHER_CODECS:
        raise BadInputError(
            f"{path} is compressed with {codec}, which cannot be read here; set spark.eventLog.compression.codec to "
            f"{' or '.join(_CODECS)}, or spark.eventLog.compress to false"
        )


def _check_begin(path: Path) -> None:
    """BadInputError for a file of something else; one that has just been begun may be any log."""
    if _codec(path) is not None:
        return
    try:
        with path.open("rb") as file:
            begins = file.read(_NAME_WITHIN).lstrip()
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror or error}") from error
    if begins and not begins.startswith(b"{"):
        raise BadInputError(f"{path} is not an event log of Spark; name a file or folder that spark.eventLog.dir holds")


def _text(reading: _Reading) -> Iterator[bytes]:
    """What comes after the lines that have been read."""
    with reading.path.open("rb") as file:
        if reading.codec is None:
            file.seek(reading.text_bytes)
            while piece := file.read(_PIECE):
                yield piece
            return
        passed, known = 0, reading.text_bytes
        for piece in _zstd(file) if reading.codec == "zstd" else _lz4(file):
            end = passed + len(piece)
            if end > known:
                yield piece[max(0, known - passed) :]
            passed = end


def _zstd(file: Any) -> Iterator[bytes]:  # noqa: ANN401 - a binary file, for which pyarrow has no type either
    with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd") as stream:
        while True:
            try:
                piece = stream.read(_ZSTD_PIECE)
            except OSError:
                # Its end is still to be written; what is damaged for good looks the same.
                return
            if not piece:
                return
            yield piece


def _lz4(file: Any) -> Iterator[bytes]:  # noqa: ANN401 - as above
    """The blocks that Java's LZ4BlockOutputStream writes; a header of 21 bytes before each."""
    while True:
        header = file.read(_LZ4_HEADER.size)
        if len(header) < _LZ4_HEADER.size:
            return
        magic, token, compressed, original, _check = _LZ4_HEADER.unpack(header)
        if magic != _LZ4_MAGIC or compressed < 0 or original < 0 or original > _LONGEST_LINE:
            raise BadInputError(f"{file.name} is not the LZ4 that Spark writes, or it is damaged")
        body = file.read(compressed)
        if len(body) < compressed:
            return
        method = token & 0xF0
        if original == 0:
            continue  # the mark at the end of a stream
        if method == _LZ4_RAW:
            yield body
        elif method == _LZ4_COMPRESSED:
            try:
                yield pa.decompress(body, decompressed_size=original, codec="lz4_raw", asbytes=True)
            except (OSError, pa.ArrowException) as error:
                raise BadInputError(f"{file.name} is damaged: {error}") from error
        else:
            raise BadInputError(f"{file.name} is not the LZ4 that Spark writes, or it is damaged")
