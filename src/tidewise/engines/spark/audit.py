"""Proves from files alone that a streaming query committed every range of offsets once and in order.

Spark keeps about a hundred batches; the ledger that Tidewise writes beside them holds the rest. Reads only, and may be
run beside a live query: what that query commits meanwhile is taken or left out, never mistaken for a fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidewise.core import BadInputError
from tidewise.engines.spark.audit_findings import Findings, Violation
from tidewise.engines.spark.audit_history import History, Kept, Owner, read_ledger
from tidewise.engines.spark.audit_offsets import SourceRange, kafka_offsets, shuffle_partitions, source_offsets
from tidewise.engines.spark.audit_sink import SinkFiles, check_sink, last_compact, log_entries

LEDGER = Path("_tidewise") / "ledger.jsonl"
"""Where the ledger lies inside a checkpoint."""
_PARTS = ("offsets", "commits")
_SUGGESTIONS = 3

__all__ = ["LEDGER", "Audit", "Owner", "SourceRange", "Violation", "audit", "committed_in_kafka"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was proved of one query, and everything that contradicts it."""

    checkpoint: Path
    first_batch: int | None
    """None: no batch has been committed yet."""
    last_batch: int | None
    batches: int
    ledger_entries: int
    sources: tuple[SourceRange, ...]
    in_flight: int | None
    """The last batch, where it was begun and is not committed: it is running, or was cut and will be run again."""
    owners: tuple[Owner, ...]
    violations: tuple[Violation, ...]
    warnings: tuple[str, ...]
    files_checked: int | None
    """None: no sink was named."""
    orphan_files: int | None

    @property
    def clean(self) -> bool:
        return not self.violations

    def sentences(self) -> list[str]:
        """For people: the outcome first, then what it covers, then what else was noticed."""
        return [self._outcome(), *(f"Violation: {one.sentence}." for one in self.violations), *self._details()]

    def _outcome(self) -> str:
        if not self.clean:
            count = len(self.violations)
            return f"NOT proved: {count} violation{'s' if count > 1 else ''} found in {self.checkpoint}."
        if self.first_batch is None:
            return f"Nothing to prove yet: no batch has been committed in {self.checkpoint}."
        if self.first_batch == self.last_batch:
            return f"Proved: batch {self.first_batch} was committed once."
        return (
            f"Proved: batches {self.first_batch} to {self.last_batch} ({self.batches:,}) "
            "were each committed once and in order."
        )

    def _details(self) -> list[str]:
        told = [_range_sentence(source) for source in self.sources]
        if self.owners:
            epochs = f"epochs {self.owners[0].epoch} to {self.owners[-1].epoch}"
            told.append(f"Owners of the checkpoint: {len(self.owners)} ({epochs}).")
        if self.in_flight is not None:
            told.append(f"Batch {self.in_flight} is begun and not committed: it is running, or will be run again.")
        if self.files_checked is not None:
            told.append(f"Sink: {self.files_checked:,} listed files looked at.")
        if self.orphan_files:
            told.append(
                f"Sink: {self.orphan_files:,} data files that no batch lists; Spark does not read them, "
                "other readers might."
            )
        return [*told, *(f"Careful: {one}." for one in self.warnings)]


def _range_sentence(source: SourceRange) -> str:
    start = "its beginning" if source.start is None else source.start
    count = "" if source.count is None else f", {source.count:,} {source.unit}"
    return f"Source {source.name}: from {start} to {source.end}{count}."


def audit(checkpoint: Path, *, sink: Path | None = None, ledger: Path | None = None) -> Audit:
    """Check one query's checkpoint and ledger and, where one is named, its file sink; BadInputError if it is none."""
    try:
        return _audit(checkpoint, sink=sink, ledger=ledger)
    except OSError as error:
        raise BadInputError(f"{error.filename} cannot be read: {error.strerror}") from error


def _audit(checkpoint: Path, *, sink: Path | None, ledger: Path | None) -> Audit:
    _check_is_checkpoint(checkpoint)
    findings = Findings()
    sink_before = {} if sink is None else log_entries(sink)
    kept = _read_kept(checkpoint)
    history = History(kept, findings, initial=lambda source: _initial_offset(checkpoint, source))
    path = _ledger(checkpoint, ledger, findings)
    if path is not None:
        for entry in read_ledger(path, findings):
            history.add(entry)
    history.finish()
    files = None if sink is None else _audit_sink(sink, sink_before, history, findings)
    return Audit(
        checkpoint=checkpoint,
        first_batch=history.first_batch,
        last_batch=history.last_batch,
        batches=history.batches,
        ledger_entries=history.ledger_entries,
        sources=history.sources(),
        in_flight=history.in_flight,
        owners=history.owners(),
        violations=findings.violations,
        warnings=findings.warnings,
        files_checked=None if files is None else files.listed,
        orphan_files=None if files is None else files.orphans,
    )


def _audit_sink(sink: Path, before: dict[int, list[Path]], history: History, findings: Findings) -> SinkFiles:
    """Compare the sink with the history.

    A live query goes on writing: what was in the sink BEFORE the checkpoint was read must be begun in it, and what was
    committed then must be in the sink AFTER.
    """
    begun = history.in_flight if history.in_flight is not None else history.last_batch
    ahead = max(before, default=-1)
    if ahead > (-1 if begun is None else begun):
        findings.violation(
            "sink-ahead",
            f"the sink has batch {ahead}, but the checkpoint has only come to batch {begun}: it is the sink of another "
            "query, or the checkpoint was deleted or restored, and Spark will drop every batch up to that one",
        )
    entries = log_entries(sink)
    return check_sink(sink, findings, entries=entries, committed=history.committed_after(last_compact(entries)))


def _is_checkpoint(folder: Path) -> bool:
    return (folder / "metadata").is_file() and all((folder / part).is_dir() for part in _PARTS)


def _check_is_checkpoint(folder: Path) -> None:
    if not folder.is_dir():
        raise BadInputError(f"there is no folder {folder}: name the query's checkpointLocation")
    if _is_checkpoint(folder):
        return
    near = [one for one in (folder.resolve().parent, *_folders_below(folder)) if _is_checkpoint(one)]
    hint = "name the query's checkpointLocation"
    if near:
        more = " or another in there" if len(near) > _SUGGESTIONS else ""
        hint = f"did you mean {' or '.join(str(one) for one in near[:_SUGGESTIONS])}{more}?"
    raise BadInputError(f"{folder} is not a Spark checkpoint (a file metadata, folders offsets and commits); {hint}")


def _folders_below(folder: Path) -> list[Path]:
    near = sorted(one for one in folder.iterdir() if one.is_dir())
    return [*near, *(below for one in near for below in sorted(one.iterdir()) if below.is_dir())]


def _ledger(checkpoint: Path, named: Path | None, findings: Findings) -> Path | None:
    path = checkpoint / LEDGER if named is None else named
    if path.is_file():
        return path
    if named is not None:
        raise BadInputError(f"there is no ledger {named}: name the file, or leave it out to take the checkpoint's own")
    findings.warning(
        "no-ledger", f"there is no ledger in {checkpoint}: only the batches that Spark still keeps are proved"
    )
    return None


def _read_kept(checkpoint: Path) -> Kept:
    """The commits are read on both sides of the offsets: a live query adds to both, and deletes the oldest of both."""
    commits = _texts(checkpoint / "commits")
    offsets = _texts(checkpoint / "offsets")
    since = {batch: text for batch, text in _texts(checkpoint / "commits").items() if batch in offsets}
    return Kept(offsets=offsets, commits={**commits, **since})


def _texts(folder: Path) -> dict[int, str]:
    texts: dict[int, str] = {}
    for path in folder.iterdir():
        if path.name.isdecimal():
            try:
                texts[int(path.name)] = path.read_text(encoding="utf-8", errors="replace").strip()
            except FileNotFoundError:
                continue  # deleted by Spark, as the oldest are, since we saw its name
    return texts


def state_partitions(checkpoint: Path) -> int | None:
    """Into how many parts the state of this query is cut, as its last batch wrote down; None where it does not say."""
    offsets = checkpoint / "offsets"
    latest = max(
        (path for path in offsets.glob("*") if path.name.isdecimal()), key=lambda path: int(path.name), default=None
    )
    if latest is None:
        return None
    return shuffle_partitions(latest.read_text(encoding="utf-8", errors="replace"))


def committed_in_kafka(checkpoint: Path) -> dict[str, dict[int, int]]:
    """Up to where a query has committed the topics it reads, by topic and partition: the next offset to read.

    What its last committed batch says; before the first one, where it begins. Where two sources read one partition,
    the lesser offset: what both have committed. BadInputError where the query reads no Kafka.
    """
    try:
        _check_is_checkpoint(checkpoint)
        offsets = _last_committed(checkpoint)
    except OSError as error:
        raise BadInputError(f"{error.filename} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadInputError(f"the last offsets entry in {checkpoint} cannot be read: {error}") from error
    found: dict[str, dict[int, int]] = {}
    for offset in offsets:
        for topic, partitions in kafka_offsets(offset).items():
            known = found.setdefault(topic, {})
            for number, at in partitions.items():
                known[number] = min(at, known.get(number, at))
    if not found:
        raise BadInputError(
            f"the query of {checkpoint} has committed nothing from Kafka: name the checkpoint of a query that reads a "
            "topic, after its first batch"
        )
    return found


def _last_committed(checkpoint: Path) -> list[str]:
    """The offsets of all sources after the last committed batch, or those that they begin with."""
    committed = [int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()]
    if committed:
        entry = checkpoint / "offsets" / str(max(committed))
        return list(source_offsets(entry.read_text(encoding="utf-8", errors="replace")).values())
    begun = checkpoint / "sources"
    names = sorted(path.name for path in begun.iterdir()) if begun.is_dir() else []
    return [offset for name in names if (offset := _initial_offset(checkpoint, name)) is not None]


def _initial_offset(checkpoint: Path, source: str) -> str | None:
    """Where a Kafka source began, which it writes down beside its first batch; other sources write other things."""
    path = checkpoint / "sources" / source / "0"
    if not path.is_file():
        return None
    # A zero byte stands in front, for readers as old as Spark 2.1.
    version, _, offset = path.read_text(encoding="utf-8", errors="replace").lstrip("\0").partition("\n")
    return offset.strip() if version == "v1" else None
