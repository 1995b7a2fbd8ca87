"""Checks a file sink against its own log: every batch there, every listed file there and whole, none listed twice."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidewise.core import BadInputError
from tidewise.engines.spark.audit_findings import Findings

LOG = "_spark_metadata"
_COMPACT = ".compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFiles:
    """How many files the sink's log lists, and how many data files lie there unlisted."""

    listed: int
    orphans: int


@dataclass(frozen=True, slots=True)
class _Listed:
    batch: int
    size: int
    modified: int


def log_entries(sink: Path) -> dict[int, list[Path]]:
    """The log entries of a sink by batch."""
    log = sink / LOG
    if not log.is_dir():
        raise BadInputError(
            f"{sink} is not the folder of a Spark file sink: it has no {LOG} folder; "
            "name the folder that the query's writer was given as its path"
        )
    entries: dict[int, list[Path]] = {}
    for path in log.iterdir():
        batch = path.name.removesuffix(_COMPACT)
        if batch.isdecimal():
            entries.setdefault(int(batch), []).append(path)
    return entries


def check_sink(
    sink: Path, findings: Findings, *, entries: dict[int, list[Path]], committed: Iterable[tuple[int, bool]]
) -> SinkFiles:
    """Check the log and the files that it lists; `committed` gives the batches that must have an entry, and
    whether they read anything.
    """
    for batch, moved in committed:
        if batch in entries:
            continue
        if not moved:
            # Spark adds such a batch when it repartitions state, and leaves the sink's log alone.
            findings.warning(
                "sink-hole",
                f"the sink's log has no entry for batch {batch}, which read nothing: nothing is lost, but Spark 4.3 "
                "stops with BATCH_METADATA_NOT_FOUND when it next compacts that log",
            )
        else:
            findings.violation(
                "sink-batch-missing",
                f"batch {batch} is committed, but the sink's log does not have it: its files are not read",
            )
    files = _Listing(findings).read(entries)
    listed = _check_files(sink, files, findings)
    orphans = sum(1 for name in _data_files(sink) if name not in listed)
    return SinkFiles(listed=len(files), orphans=orphans)


def last_compact(entries: dict[int, list[Path]]) -> int:
    """The newest batch whose entry repeats all before it, or -1; the entries before it may be gone."""
    return max((batch for batch, paths in entries.items() if any(p.name.endswith(_COMPACT) for p in paths)), default=-1)


class _Listing:
    """Puts the log's entries together as a reader of the sink would, and compares them where they overlap."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._files: dict[str, _Listed] = {}

    def read(self, entries: dict[int, list[Path]]) -> dict[str, _Listed]:
        compact = last_compact(entries)
        for batch in sorted(entries):
            if len(entries[batch]) > 1:
                self._findings.violation("sink-batch-twice", f"the sink's log has two entries for batch {batch}")
            if batch == compact:
                path = next(p for p in entries[batch] if p.name.endswith(_COMPACT))
                self._take_compact(batch, path)
            else:
                # Older compact entries repeat what the newest one repeats.
                for path in (p for p in entries[batch] if not p.name.endswith(_COMPACT)):
                    self._take(batch, path)
        return self._files

    def _take(self, batch: int, path: Path) -> None:
        for name, action, listed in self._lines(batch, path):
            if action == "delete":
                self._files.pop(name, None)
                continue
            before = self._files.get(name)
            if before is not None:
                self._twice(name, before.batch, batch)
            self._files[name] = listed

    def _take_compact(self, batch: int, path: Path) -> None:
        before, self._files = self._files, {}
        self._take(batch, path)
        lost = {name: listed for name, listed in before.items() if name not in self._files}
        for name, listed in before.items():
            again = self._files.get(name)
            if again is not None:
                if again.size != listed.size:
                    self._findings.violation(
                        "sink-size-differs",
                        f"the sink's log lists {name} with {listed.size} bytes and with {again.size}",
                    )
                self._files[name] = listed
        oldest_kept = min((listed.modified for listed in self._files.values()), default=0)
        for name, listed in lost.items():
            if listed.modified < oldest_kept:
                # What the sink's retention option does: the oldest files leave the log first.
                self._findings.warning("sink-expired", f"{name} has left the sink's log, as by its retention option")
            else:
                self._findings.violation(
                    "sink-file-lost",
                    f"{name} was written by batch {listed.batch}, but the compact entry of batch {batch} leaves it "
                    "out: it is no longer read",
                )

    def _twice(self, name: str, first: int, second: int) -> None:
        where = f"twice by batch {first}" if first == second else f"by batch {first} and by batch {second}"
        self._findings.violation("sink-file-twice", f"the sink's log lists {name} {where}: its records are read twice")

    def _lines(self, batch: int, path: Path) -> Iterator[tuple[str, str, _Listed]]:
        try:
            version, *lines = path.read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return  # expired while we read: the compact entry that made it expire repeats it
        except UnicodeDecodeError:
            version, lines = "", []
        if not version.startswith("v"):
            self._findings.violation("unreadable", f"the sink's log entry {path} cannot be read")
        for line in filter(None, lines):
            try:
                value = json.loads(line)
                name, action = str(value["path"]), str(value["action"])
                listed = _Listed(batch, int(value["size"]), int(value["modificationTime"]))
            except (ValueError, TypeError, KeyError):
                self._findings.violation("unreadable", f"the sink's log entry {path} has a line that cannot be read")
                continue
            yield name, action, listed


def _check_files(sink: Path, files: dict[str, _Listed], findings: Findings) -> set[str]:
    """Look at every listed file; answers the names of those inside the sink, relative to it."""
    homes = tuple(f"{home.rstrip('/')}/" for home in (os.path.abspath(sink), os.path.realpath(sink)))  # noqa: PTH100 - text, for a million files
    inside: set[str] = set()
    for uri, listed in files.items():
        scheme, host, quoted, *_ = urlsplit(uri)
        if scheme not in {"", "file"} or host:
            findings.warning("sink-elsewhere", f"{uri} is not on this machine's file system: it was not looked at")
            continue
        path = unquote(quoted)
        for home in homes:
            if path.startswith(home):
                inside.add(path.removeprefix(home))
        try:
            size = os.stat(path).st_size  # noqa: PTH116 - one call per file, of which there may be a million
        except FileNotFoundError:
            findings.violation("file-missing", f"{path}, listed by batch {listed.batch}, is gone with its records")
            continue
        if size != listed.size:
            findings.violation(
                "file-size", f"{path} has {size} bytes instead of the {listed.size} that batch {listed.batch} wrote"
            )
    return inside


def _data_files(sink: Path) -> Iterator[str]:
    """The files that a reader without the log would take for data, relative to the sink."""
    for folder, folders, names in os.walk(sink):
        folders[:] = [name for name in folders if not _hidden(name)]
        home = os.path.relpath(folder, sink)
        yield from (name if home == "." else f"{home}/{name}" for name in names if not _hidden(name))


def _hidden(name: str) -> bool:
    """Spark's rule: a leading dot or underscore, unless it is a partition column such as _day=3."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)
