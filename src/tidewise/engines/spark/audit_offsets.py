"""Reads Spark's offset entries and follows each source through them: where it began, where it is, that it never
went back. An entry holds where each source ENDS after a batch; the batch begins where the one before it ended.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from operator import lt
from typing import Any, Literal

from tidewise.engines.spark.audit_findings import Findings

Kind = Literal["kafka", "counter", "files", "position", "delta", "other", "opaque"]
"""kafka: {"topic": {"0": 12}}; counter: {"records": 12} or {"offset": 12}; files: {"logOffset": 3}; position: one
number of unknown unit, or one per partition; delta: a table version and an index in it; other: several numbers;
opaque: no numbers to compare."""

COUNTED_KEYS = ("records", "offset")
_COUNTER = {*COUNTED_KEYS, "timestamp"}
_DELTA = {"reservoirVersion", "index"}
_NO_OFFSET = "-"
_STEADY = {"kafka", "counter", "files"}
_NUMBER = re.compile(r"(?<=[: ])(-?[0-9]+)(?=[,}])")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRange:
    """What is proved of one source: from `start` (None: from its beginning) to `end`, as Spark writes its offsets."""

    name: str
    kind: Kind
    start: str | None
    end: str
    count: int | None
    unit: Literal["records", "offsets"] | None


def shuffle_partitions(entry: str) -> int | None:
    """The number of shuffle partitions that an entry was written with: Spark keeps to it whatever is set later."""
    _, _, rest = entry.partition("\n")
    try:
        return int(json.loads(rest.partition("\n")[0])["conf"]["spark.sql.shuffle.partitions"])
    except (ValueError, KeyError, TypeError):
        return None


def source_offsets(entry: str) -> dict[str, str]:
    """The offset of each source by its name, or by its number in entries of version 1; ValueError if it is no entry."""
    version, _, rest = entry.partition("\n")
    if version not in {"v1", "v2"}:
        raise ValueError(f"its first line is {version[:20]!r} instead of v1 or v2")
    _, newline, sources = rest.rstrip("\n").partition("\n")
    if not newline:
        raise ValueError("no source is named after the metadata line")
    offsets: dict[str, str] = {}
    for number, line in enumerate(sources.split("\n")):
        name, offset = str(number), line
        if version == "v2":
            name, colon, offset = line.partition(":")
            if not colon:
                raise ValueError(f"the line {line[:40]!r} names no source")
        if name in offsets:
            raise ValueError(f"it names the source {name} twice")
        if offset != _NO_OFFSET:
            offsets[name] = offset
    return offsets


def kafka_offsets(offset: str) -> dict[str, dict[int, int]]:
    """An offset of Kafka by topic and partition; none for what is no offset of Kafka."""
    kind, numbers = _read(offset)
    if kind != "kafka" or not all(name.rpartition("/")[2].isdecimal() for name in numbers):
        return {}
    return {topic: {int(number): at for number, at in parts.items()} for topic, parts in json.loads(offset).items()}


def _is_number(value: object) -> bool:
    return type(value) is int  # a JSON true is no offset


def _read(offset: str) -> tuple[Kind, dict[str, int]]:
    """The kind of an offset and its numbers; a text that is no JSON is a source's own business."""
    try:
        value = json.loads(offset)
    except ValueError:
        return "opaque", {}
    if isinstance(value, dict):
        return _read_parts(value)
    return ("position", {"": value}) if _is_number(value) else ("opaque", {})


def _read_parts(value: dict[str, Any]) -> tuple[Kind, dict[str, int]]:
    numbers = {key: at for key, at in value.items() if _is_number(at)}
    kind: Kind = "other"
    if all(isinstance(part, dict) for part in value.values()):
        kind = "kafka"
        flat = {f"{topic}/{partition}": at for topic, part in value.items() for partition, at in part.items()}
        numbers = flat if all(map(_is_number, flat.values())) else {}
    elif numbers.keys() >= _DELTA:
        return "delta", {key: numbers[key] for key in _DELTA}
    elif len(numbers) < len(value):
        numbers = {}
    elif "logOffset" in numbers:
        kind = "files"
    elif numbers.keys() <= _COUNTER:
        kind = "counter"
    elif len(numbers) == 1 or all(key.isdecimal() for key in numbers):
        kind = "position"
    return (kind, numbers) if numbers or not value else ("opaque", {})


def _take_apart(offset: str) -> tuple[list[str], list[int]]:
    """The text between the numbers, and the numbers; for kinds whose keys hold neither colons nor spaces."""
    pieces = _NUMBER.split(offset)
    return pieces[::2], list(map(int, pieces[1::2]))


class SourceTrack:
    """One source, batch after batch, in constant memory."""

    def __init__(self, name: str, offset: str, *, from_the_beginning: bool, initial: str | None) -> None:
        self._name = name
        self._kind, self._now = _read(offset)
        self._text = offset
        self._shape, self._numbers = _take_apart(offset)
        self._start: str | None = offset
        self._first = dict(self._now)
        if not from_the_beginning:
            return
        if self._kind != "kafka":
            self._start = None
        elif initial is not None:
            self._start, self._first = initial, {**self._first, **_read(initial)[1]}
        if self._kind == "counter":
            self._first = dict.fromkeys(self._now, 0)  # where such sources begin; nothing in a checkpoint says so

    def advance(self, batch: int, offset: str, findings: Findings) -> bool:
        """Take the offset after a batch; answers whether the batch moved this source at all."""
        if offset == self._text:
            return False
        if self._advance_steadily(offset):
            return True
        self._settle()
        kind, new = _read(offset)
        where = f"source {self._name} in batch {batch}"
        if kind != self._kind and new and self._now:
            findings.violation(
                "source-changed", f"{where} has an offset of another kind: {self._text} was followed by {offset}"
            )
        elif kind == "opaque" and self._kind == "opaque":
            findings.warning(
                "not-ordered", f"the offsets of source {self._name} hold no numbers: their order cannot be checked"
            )
        else:
            self._compare(where, offset, new, findings)
        if kind == self._kind == "kafka":
            new = self._with_those_gone(where, new, findings)
        if new:
            self._kind = kind
        for key, at in new.items():
            # A partition that is added is read from 0 on; Spark takes any other beginning for a loss.
            self._first.setdefault(key, 0 if kind == "kafka" else at)
        self._now, self._text = new, offset
        self._shape, self._numbers = _take_apart(offset)
        return True

    def _advance_steadily(self, offset: str) -> bool:
        """The cheap path for nearly every batch: the same text but for numbers, none of which is smaller."""
        if self._kind not in _STEADY:
            return False
        shape, numbers = _take_apart(offset)
        if shape != self._shape or any(map(lt, numbers, self._numbers)):
            return False
        self._numbers, self._text = numbers, offset
        return True

    def _settle(self) -> None:
        """Take over what the cheap path went past."""
        self._now.update(_read(self._text)[1])

    def _compare(self, where: str, offset: str, new: dict[str, int], findings: Findings) -> None:
        now = self._now
        back = [key for key, at in new.items() if at < now.get(key, at)]
        if not back:
            return
        sentence = f"{where} went back from {self._text} to {offset}: records were given to the query again"
        if self._kind == "delta":
            if (new["reservoirVersion"], new["index"]) < (now["reservoirVersion"], now["index"]):
                findings.violation("went-back", sentence)
        elif self._kind == "other" and any(at > now.get(key, at) for key, at in new.items()):
            findings.warning(
                "not-ordered",
                f"{where} went from {self._text} to {offset}: some numbers grew and some fell, "
                "and only the source knows whether that is forward",
            )
        else:
            findings.violation("went-back", sentence)

    def _with_those_gone(self, where: str, new: dict[str, int], findings: Findings) -> dict[str, int]:
        """Partitions that are no longer read stay remembered: if one comes back it may not begin again."""
        gone = self._now.keys() - new.keys()
        if gone and not self._seen_gone(gone):
            findings.warning("partition-gone", f"{where} no longer reads {', '.join(sorted(gone))}")
        return {**self._now, **new} if gone else new

    def _seen_gone(self, gone: set[str]) -> bool:
        _, before = _read(self._text)
        return not gone & before.keys()

    def range(self) -> SourceRange:
        self._settle()
        count: int | None = None
        unit: Literal["records", "offsets"] | None = None
        if self._kind == "kafka":
            count, unit = sum(at - self._first[key] for key, at in self._now.items()), "offsets"
        elif self._kind == "counter":
            counted = [self._now[key] - self._first[key] for key in COUNTED_KEYS if key in self._now]
            count, unit = (counted[0], "records") if counted else (None, None)
        return SourceRange(name=self._name, kind=self._kind, start=self._start, end=self._text, count=count, unit=unit)
