"""A run is one folder that every viewer reads; this is what lies in it, and how it gets there whole or not at all.

    NAME/run.json         what was run, what was changed, what it cost
    NAME/series.parquet   one row per second
    NAME/journal.sqlite   every decision with its reason, where a controller was at work

While a run is on, its folder is called NAME.partial and holds the journal only (`begin_run`). `finish_run` adds the
other two files and gives the folder its name, so that a folder without the suffix is always complete on disk.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError

from tidewise.control import SqliteJournal
from tidewise.core import (
    BadInputError,
    ChangeStatus,
    Configuration,
    InvalidValueError,
    Mechanism,
    Origin,
    PermanentError,
    Prices,
    Promises,
    Purpose,
    TidewiseError,
    Usage,
)
from tidewise.core.checks import require, require_finite, require_text
from tidewise.experiments.series import COLUMNS, Series

FORMAT_VERSION = 1
RUN_FILE = "run.json"
SERIES_FILE = "series.parquet"
JOURNAL_FILE = "journal.sqlite"
METER_FILE = "meter.json"
"""What a live run has cost so far; there while it is on."""
PARTIAL_SUFFIX = ".partial"
_OWN_FILES = frozenset(
    {
        RUN_FILE,
        SERIES_FILE,
        METER_FILE,
        f"{METER_FILE}.new",
        *(f"{JOURNAL_FILE}{ending}" for ending in ("", "-wal", "-shm", ".lock")),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRecord:
    """Something that was broken on purpose."""

    at_s: float
    kind: str
    """As the engine names it."""

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s, least=0.0)
        require_text("kind", self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRecord:
    """One change of the job, and what became of it."""

    requested_at_s: float
    finished_at_s: float | None
    """None: the run ended before the change did."""
    mechanism: Mechanism
    origin: Origin
    source: Configuration
    target: Configuration
    status: ChangeStatus | None
    """None: the run ended before the change did. A change that missed its deadline has failed."""
    gap_s: float = 0.0
    """How long the job gave no output because of it."""
    reason: str
    """Why, in a sentence."""

    def __post_init__(self) -> None:
        require_finite("requested_at_s", self.requested_at_s, least=0.0)
        if self.finished_at_s is not None:
            require_finite("finished_at_s", self.finished_at_s, least=self.requested_at_s)
        require((self.finished_at_s is None) == (self.status is None), "a finished change, and no other, has a status")
        require_finite("gap_s", self.gap_s, least=0.0)
        require_text("the reason of a change", self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One check of what a real job had committed."""

    at_s: float
    after: str
    """What it was checked after, in words."""
    clean: bool
    sentence: str

    def __post_init__(self) -> None:
        require_finite("at_s", self.at_s, least=0.0)
        require_text("after", self.after)
        require_text("the sentence of an audit", self.sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What `run.json` holds."""

    # Named by pydantic: a key that is not known here is damage, or a version this one does not read.
    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    engine: str
    profile: str | None
    """What the simulator was told to behave like; None: a real engine."""
    load: str
    policy: str
    seed: int
    duration_s: float
    """How long the run was to last."""
    start: Configuration
    promises: Promises
    prices: Prices
    faults: tuple[FaultRecord, ...] = ()
    changes: tuple[ChangeRecord, ...] = ()
    audits: tuple[AuditRecord, ...] = ()
    """Of what a real job had committed; a simulated one commits nothing."""
    meter: Mapping[Purpose, Usage]
    versions: Mapping[str, str]
    """Of tidewise, python and numpy, and the digests of the profile and the load."""
    plan: Mapping[str, JsonValue]
    """The whole plan as it was run, defaults filled in."""
    complete: bool
    """Whether the run lasted as long as it was to."""
    failed_decisions: int = 0
    """How often the policy or its forecaster raised an error instead of deciding; the job was kept as it was."""
    created: str
    """An ISO date, with or without the time of day."""
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        for name in ("name", "engine", "load", "policy"):
            require_text(name, getattr(self, name))
        require_finite("duration_s", self.duration_s, above=0.0)
        require(
            self.format_version == FORMAT_VERSION,
            f"this version writes runs of format {FORMAT_VERSION}, not {self.format_version}",
        )
        require(_ascends(fault.at_s for fault in self.faults), "faults must be in order of time")
        require(_ascends(change.requested_at_s for change in self.changes), "changes must be in order of time")
        require(all(fault.at_s < self.duration_s for fault in self.faults), "a fault lies after the end of the run")
        try:
            datetime.fromisoformat(self.created)
        except ValueError:
            raise InvalidValueError(f"created must be an ISO date, not {self.created!r}") from None


def _ascends(times_s: Iterable[float]) -> bool:
    ordered = list(times_s)
    return ordered == sorted(ordered)


_RECORD = TypeAdapter(RunRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished run on disk. Its series is read when asked for: a sweep would not fit into memory all at once."""

    folder: Path
    record: RunRecord

    @property
    def has_journal(self) -> bool:
        """Whether it has one that can be read; no figure of a finished run comes from it."""
        try:
            with SqliteJournal.open_readonly(self.folder / JOURNAL_FILE, is_over=True) as journal:
                return journal.latest_at_s() is not None
        except TidewiseError:
            return False

    def read_series(self) -> Series:
        path = self.folder / SERIES_FILE
        try:
            table = pq.read_table(path, columns=list(COLUMNS))
            return Series(**{name: table.column(name).to_numpy() for name in COLUMNS})
        except (OSError, pa.ArrowException, InvalidValueError) as error:
            raise BadInputError(f"{path} is damaged: {_first_line(error)}; run it again") from error


def begin_run(folder: Path) -> Path:
    """Make the folder `NAME.partial` for a run that will be called `folder`; what a killed run left there goes.

    Raises BadInputError where the run is there already, or where the partial folder holds somebody's other files.
    """
    if folder.exists():
        raise BadInputError(f"{folder} exists already; name another folder or remove it")
    clear_partial(folder)
    work = _partial(folder)
    try:
        work.mkdir(parents=True)
    except OSError as error:
        raise PermanentError(f"the folder {work} could not be made: {_cause(error)}") from error
    return work


def is_partial(folder: Path) -> bool:
    """Whether the run of this folder is on, or was killed."""
    return _partial(folder).exists()


def clear_partial(folder: Path) -> None:
    """Remove what a killed run left; BadInputError where the partial folder holds somebody's other files."""
    work = _partial(folder)
    try:
        if not work.exists():
            return
        strangers = sorted(path.name for path in work.iterdir() if path.name not in _OWN_FILES)
        if strangers:
            raise BadInputError(f"{work} holds files that no run wrote ({', '.join(strangers)}); remove it first")
        shutil.rmtree(work)
    except OSError as error:
        raise PermanentError(f"the folder {work} could not be removed: {_cause(error)}") from error


def _partial(folder: Path) -> Path:
    return folder.with_name(folder.name + PARTIAL_SUFFIX)


def resume_run(folder: Path) -> Path:
    """The partial folder of a run whose controller died, with all it holds; BadInputError where there is none."""
    work = _partial(folder)
    if not (work / JOURNAL_FILE).is_file():
        raise BadInputError(f"{work} holds no run that could be gone on with")
    return work


def finish_run(work: Path, record: RunRecord, series: Series) -> Run:
    """Write the run into the folder that `begin_run` made, and give that its name.

    Where this raises PermanentError (a full disk), there is no run folder, and the partial one holds what it held
    before: the journal may be all that is left of a long run.
    """
    require(work.name.endswith(PARTIAL_SUFFIX), f"{work} was not made by begin_run")
    require(len(series) <= record.duration_s + 1, "the series is longer than the run was to last")
    require(not record.complete or len(series) > record.duration_s - 1, "the series of a complete run is too short")
    folder = work.with_name(work.name.removesuffix(PARTIAL_SUFFIX))
    written = (work / SERIES_FILE, work / RUN_FILE)
    try:
        _write_series(written[0], series)
        _write_durably(written[1], _RECORD.dump_json(record, indent=2) + b"\n")
        if folder.exists():  # a rename would take the place of an empty folder
            raise FileExistsError(errno.EEXIST, "the folder exists already")
        work.rename(folder)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise PermanentError(f"the run {folder} could not be written: {_cause(error)}; nothing was kept") from error
    return Run(folder=folder, record=record)


def mark_incomplete(run: Run) -> Run:
    """The same run as one that does not count, on disk as well: what it was to show did not happen."""
    record = replace(run.record, complete=False)
    work = run.folder / f"{RUN_FILE}.new"
    try:
        _write_durably(work, _RECORD.dump_json(record, indent=2) + b"\n")
        work.replace(run.folder / RUN_FILE)
    except OSError as error:
        work.unlink(missing_ok=True)
        raise PermanentError(f"{run.folder} does not count, but that could not be written: {_cause(error)}") from error
    return Run(folder=run.folder, record=record)


def write_run(folder: Path, record: RunRecord, series: Series) -> Run:
    """Write a run that has no journal, whole or not at all."""
    work = begin_run(folder)
    try:
        return finish_run(work, record, series)
    finally:
        shutil.rmtree(work, ignore_errors=True)  # gone already where all went well


def load_run(folder: Path) -> Run:
    """The run in this folder; BadInputError where it is damaged, unfinished or of another format version."""
    if folder.name.endswith(PARTIAL_SUFFIX):
        raise BadInputError(f"{folder} belongs to a run that is on or was killed; only finished runs can be read")
    path = folder / RUN_FILE
    try:
        text = path.read_bytes()
        content = json.loads(text)
    except FileNotFoundError:
        raise BadInputError(f"{folder} is not a run: it has no {RUN_FILE}") from None
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path} cannot be read: {_first_line(error)}; run it again") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if version is None:
        raise BadInputError(f"{path} is not a run of Tidewise: it has no format_version")
    if version != FORMAT_VERSION:
        raise BadInputError(
            f"{path} has format {version}, and this version of Tidewise reads format {FORMAT_VERSION}; "
            "run it again, or read it with the version that wrote it"
        )
    try:
        record = _RECORD.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise BadInputError(f"{path} is damaged at {where}: {first['msg']}; run it again") from error
    _check_series_file(folder / SERIES_FILE)
    return Run(folder=folder, record=record)


def find_runs(paths: Iterable[Path], *, allow_incomplete: bool = False) -> list[Run]:
    """The runs in these folders and all folders below them, in order, each once; unfinished `*.partial` are passed by.

    BadInputError where there is none, where one is damaged, and where one was cut short (unless that is allowed:
    its costs cannot be compared).
    """
    asked = list(paths)
    found: dict[Path, Run] = {}
    for path in asked:
        if not path.is_dir():
            raise BadInputError(f"{path} is not a folder; name a run or a folder of runs")
        for folder in _run_folders(path):
            found.setdefault(folder.resolve(), load_run(folder))
    if not found:
        raise BadInputError(f"there is no finished run in {', '.join(map(str, asked)) or 'no folder at all'}")
    runs = list(found.values())
    cut = [run for run in runs if not run.record.complete]
    if cut and not allow_incomplete:
        raise BadInputError(f"{cut[0].folder} was cut short, so its figures cannot be compared; leave it out")
    return runs


def _run_folders(path: Path) -> Iterator[Path]:
    if path.name.endswith(PARTIAL_SUFFIX) or (path / RUN_FILE).exists() or (path / SERIES_FILE).exists():
        yield path  # an unfinished or damaged one as well: whoever loads it says so
        return
    for inner in sorted(path.iterdir()):
        if inner.is_dir() and not inner.name.endswith(PARTIAL_SUFFIX):
            yield from _run_folders(inner)


def _check_series_file(path: Path) -> None:
    try:
        names = set(pq.read_schema(path).names)
    except FileNotFoundError:
        raise BadInputError(f"{path.parent} is not a whole run: it has no {SERIES_FILE}") from None
    except (OSError, pa.ArrowException) as error:
        raise BadInputError(f"{path} is damaged: {_first_line(error)}; run it again") from error
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise BadInputError(f"{path} is damaged: it has no column {', '.join(missing)}; run it again")


def _write_series(path: Path, series: Series) -> None:
    columns = {
        name: pa.array(getattr(series, name), from_pandas=nullable)  # from_pandas: NaN becomes null
        for name, (_, nullable) in COLUMNS.items()
    }
    pq.write_table(pa.table(columns), path, compression="zstd")
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _cause(error: OSError) -> str:
    return error.strerror or _first_line(error)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
