"""Puts a query's batches in order, from the ledger and from what Spark still keeps, and checks each as it passes.

A ledger may hold millions of lines: it is read once, and what stays in memory is eight bytes per batch, a bounded
number of entries that came before their turn, and one track per source.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from tidewise.engines.spark.audit_findings import Findings
from tidewise.engines.spark.audit_offsets import SourceRange, SourceTrack, source_offsets

ENTRIES_BEFORE_START = 256
"""Owners that catch up may write in any order: the first batch is known only after this many lines."""
ENTRIES_OUT_OF_TURN = 4096
"""When so many entries wait for a batch that does not come, it is missing."""

_WANTED = itemgetter("batch", "offsets", "commit", "owner", "epoch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What Spark still keeps of a query: the text of its offset and commit entries by batch."""

    offsets: dict[int, str]
    commits: dict[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """An application that held the checkpoint under one epoch of its lease, and the batches it wrote down first."""

    name: str
    epoch: int
    first_batch: int
    last_batch: int


@dataclass(slots=True)
class _Entry:
    """One batch as it was written down; not frozen, for a million are made and frozen ones cost three times as much."""

    batch: int
    offsets: str
    commit: str
    owner: str | None = None
    epoch: int = 0

    def content(self) -> int:
        return hash((self.offsets, self.commit))


class _Claim(NamedTuple):
    batch: int
    owner: str
    epoch: int


@dataclass(slots=True)
class _Stretch:
    """Batches without a gap: the first, and a number per batch that tells its content from any other."""

    first: int
    contents: array[int]

    @property
    def end(self) -> int:
        return self.first + len(self.contents)


def read_ledger(path: Path, findings: Findings) -> Iterator[_Entry]:
    """The entries of a ledger, line by line; a torn one is told of, and what was glued behind it by a later owner read.

    A torn line is a warning wherever it stands: it says that a writer was killed, not that a batch went wrong. If its
    batch is written down nowhere else, the gap is the violation.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            entry = _entry(line)
            if entry is None:
                torn_at_end = not line.endswith(b"\n")
                what = "ends in a line that was cut off" if torn_at_end else f"has an unreadable line {number}"
                findings.warning("torn-ledger", f"the ledger {path} {what}: its writer was stopped in the middle of it")
                glued = line.rfind(b'{"batch"')
                entry = _entry(line[glued:]) if glued > 0 else None
            if entry is not None:
                yield entry


def _entry(line: bytes) -> _Entry | None:
    try:
        value = json.loads(line.decode())
        batch, offsets, commit, owner, epoch = _WANTED(value)
    except (ValueError, TypeError, KeyError):
        return None
    if not (type(batch) is type(epoch) is int and type(offsets) is type(commit) is type(owner) is str and batch >= 0):
        return None
    return _Entry(batch, offsets.strip(), commit.strip(), owner, epoch)


class History:
    """Takes ledger entries in any near order; after `finish` it knows what was committed."""

    def __init__(self, kept: Kept, findings: Findings, *, initial: Callable[[str], str | None]) -> None:
        self._kept = kept
        self._kept_order = sorted(kept.offsets)
        self._findings = findings
        self._initial = initial
        self._next: int | None = None
        self._waiting: dict[int, _Entry] = {}
        self._also: dict[int, int] = {}
        self._stretches: list[_Stretch] = []
        self._empty = array("q")
        self._tracks: dict[str, SourceTrack] = {}
        self._owners: dict[tuple[str, int], tuple[int, int]] = {}
        self._highest: _Claim | None = None
        self._fallen: dict[int, tuple[_Claim, _Claim]] = {}
        self.ledger_entries = 0
        self.in_flight: int | None = None

    def add(self, entry: _Entry) -> None:
        self.ledger_entries += 1
        if self._next is None:
            self._wait(entry)
            if len(self._waiting) >= ENTRIES_BEFORE_START:
                self._start()
            return
        if entry.batch < self._next:
            self._again(entry)
            return
        if entry.batch > self._next or self._waiting:
            self._wait(entry)
            self._drain()
            return
        self._accept(entry)

    def finish(self) -> None:
        if self._next is None:
            self._start()
        self._drain_all(keep=0)
        if self._kept_order:
            self._catch_up(self._kept_order[-1] + 1, last=self._kept_order[-1])
        known = -1 if self._next is None else self._next - 1
        for batch in sorted(batch for batch in self._kept.commits if batch > known):
            self._findings.violation("commit-without-offsets", f"batch {batch} has a commit but no offsets entry")
        self._check_owners()

    def sources(self) -> tuple[SourceRange, ...]:
        return tuple(track.range() for track in self._tracks.values())

    def owners(self) -> tuple[Owner, ...]:
        """In the order of their first batch."""
        return tuple(
            Owner(name=name, epoch=epoch, first_batch=first, last_batch=last)
            for (name, epoch), (first, last) in self._owners.items()
        )

    @property
    def first_batch(self) -> int | None:
        return self._stretches[0].first if self._stretches else None

    @property
    def last_batch(self) -> int | None:
        return self._stretches[-1].end - 1 if self._stretches else None

    @property
    def batches(self) -> int:
        return sum(len(stretch.contents) for stretch in self._stretches)

    def committed_after(self, batch: int) -> Iterator[tuple[int, bool]]:
        """The committed batches after this one, and whether each moved any source."""
        for stretch in self._stretches:
            for one in range(max(stretch.first, batch + 1), stretch.end):
                at = bisect_left(self._empty, one)
                yield one, at == len(self._empty) or self._empty[at] != one

    def _start(self) -> None:
        first = [*self._waiting, *self._kept_order[:1]]
        if first:
            self._next = min(first)
            self._drain()

    def _wait(self, entry: _Entry) -> None:
        before = self._waiting.setdefault(entry.batch, entry)
        if before is not entry:
            self._same(entry, before.content())
            self._also[entry.batch] = max(entry.epoch, self._also.get(entry.batch, 0))

    def _drain(self) -> None:
        """Take those whose turn has come; when too many wait, what they wait for is not in the ledger."""
        while self._next in self._waiting:
            self._accept(self._waiting.pop(self._next))
        if len(self._waiting) > ENTRIES_OUT_OF_TURN:
            self._drain_all(keep=ENTRIES_BEFORE_START)

    def _drain_all(self, *, keep: int) -> None:
        for batch in sorted(self._waiting)[: len(self._waiting) - keep]:
            self._catch_up(batch, last=None)
            self._accept(self._waiting.pop(batch))

    def _catch_up(self, end: int, *, last: int | None) -> None:
        """Take the batches before `end` from what Spark keeps; those that it does not keep either are missing."""
        while self._next is not None and self._next < end:
            batch = self._next
            if batch not in self._kept.offsets:
                at = bisect_right(self._kept_order, batch)
                found = min(end, self._kept_order[at]) if at < len(self._kept_order) else end
                self._missing(batch, found - 1)
                self._next = found
            elif batch in self._kept.commits:
                self._accept(_Entry(batch, self._kept.offsets[batch], self._kept.commits[batch]))
            else:
                if batch == last:
                    self.in_flight = batch
                else:
                    self._findings.violation(
                        "missing-commit",
                        f"batch {batch} was begun and has no commit, yet later batches were begun: "
                        "what it read was skipped, or given to a later batch after it reached the sink",
                    )
                self._next = batch + 1

    def _missing(self, first: int, last: int) -> None:
        which = f"batch {first} is" if first == last else f"batches {first} to {last} are"
        self._findings.violation(
            "gap", f"{which} neither in the ledger nor in the checkpoint: nothing is proved of what was read there"
        )

    def _accept(self, entry: _Entry) -> None:
        batch = entry.batch
        self._next = batch + 1
        self._agrees(entry)
        if not self._stretches or self._stretches[-1].end != batch:
            self._stretches.append(_Stretch(batch, array("q")))
        self._stretches[-1].contents.append(entry.content())
        if entry.owner is not None:
            self._own(entry, entry.owner)
        if entry.commit[:1] != "v":
            self._findings.violation("unreadable", f"the commit entry of batch {batch} cannot be read")
        try:
            offsets = source_offsets(entry.offsets)
        except ValueError as error:
            self._findings.violation("unreadable", f"the offsets entry of batch {batch} cannot be read: {error}")
            return
        if not self._move(batch, offsets):
            self._empty.append(batch)

    def _move(self, batch: int, offsets: dict[str, str]) -> bool:
        moved = False
        for name, offset in offsets.items():
            track = self._tracks.get(name)
            if track is None:
                self._tracks[name] = SourceTrack(
                    name, offset, from_the_beginning=self.first_batch == 0, initial=self._initial(name)
                )
                moved = True
            elif track.advance(batch, offset, self._findings):
                moved = True
        if len(offsets) < len(self._tracks):
            gone = ", ".join(sorted(self._tracks.keys() - offsets.keys()))
            self._findings.warning("source-gone", f"batch {batch} no longer names source {gone}")
        return moved

    def _agrees(self, entry: _Entry) -> None:
        kept = self._kept.offsets.get(entry.batch, entry.offsets)
        commit = self._kept.commits.get(entry.batch, entry.commit)
        if kept != entry.offsets:
            self._findings.violation(
                "ledger-differs",
                f"batch {entry.batch} was committed twice: the ledger and the checkpoint have different offsets for it",
            )
        elif commit != entry.commit:
            self._findings.violation(
                "ledger-differs",
                f"batch {entry.batch} was committed twice: the ledger and the checkpoint have different commits of it",
            )

    def _again(self, entry: _Entry) -> None:
        """An entry for a batch that has passed: the same is fine, another is a second commit."""
        fallen = self._fallen.get(entry.batch)
        if fallen is not None and entry.epoch >= fallen[1].epoch:
            del self._fallen[entry.batch]
        at = bisect_right(self._stretches, entry.batch, key=lambda stretch: stretch.first) - 1
        if at < 0 or entry.batch >= self._stretches[at].end:
            self._findings.warning(
                "late", f"the ledger has batch {entry.batch} far behind its place: it was left out of the proof"
            )
            return
        stretch = self._stretches[at]
        self._same(entry, stretch.contents[entry.batch - stretch.first])

    def _same(self, entry: _Entry, content: int) -> None:
        if entry.content() != content:
            self._findings.violation(
                "committed-twice",
                f"batch {entry.batch} was committed twice: the ledger has two different entries for it, "
                f"the second from {entry.owner} under epoch {entry.epoch}",
            )

    def _own(self, entry: _Entry, owner: str) -> None:
        key = (owner, entry.epoch)
        known = self._owners.get(key)
        self._owners[key] = (entry.batch if known is None else known[0], entry.batch)
        claim = _Claim(entry.batch, owner, entry.epoch)
        epoch = max(entry.epoch, self._also.pop(entry.batch, 0))
        if self._highest is not None and epoch < self._highest.epoch:
            # Not yet a violation: the owner of the higher epoch may have written the same batch down as well.
            self._fallen[entry.batch] = (claim, self._highest)
        elif self._highest is None or entry.epoch >= self._highest.epoch:
            self._highest = claim

    def _check_owners(self) -> None:
        for fallen, above in self._fallen.values():
            self._findings.violation(
                "epoch-went-down",
                f"batch {fallen.batch} was committed by {fallen.owner} under epoch {fallen.epoch}, after batch "
                f"{above.batch} was committed by {above.owner} under epoch {above.epoch}: "
                "an owner that had lost its lease went on",
            )
        names: dict[int, str] = {}
        for name, epoch in self._owners:
            other = names.setdefault(epoch, name)
            if other != name:
                self._findings.warning("epoch-shared", f"{other} and {name} both wrote under epoch {epoch}")
