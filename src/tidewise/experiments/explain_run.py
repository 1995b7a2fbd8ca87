"""Finds the journal of a run, whether it is over, was killed or is on, and the times that people name in it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tidewise.control import SqliteJournal
from tidewise.core import BadInputError, Prices, Promises, parse_duration_s
from tidewise.experiments.controller import BEGAN_FILE, KEPT_JOB_FILE
from tidewise.experiments.job_file import JobTable
from tidewise.experiments.record import JOURNAL_FILE, PARTIAL_SUFFIX, RUN_FILE, RunRecord, load_run
from tidewise.experiments.toml_file import TomlFile

_NAMED = 8
"""How many runs are named where somebody has to choose one."""
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?\s*[a-zA-Z]+)")
_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A run with a journal, which is only ever read."""

    folder: Path
    """The one that holds the journal."""
    record: RunRecord | None
    """None: the run is on, or its controller was killed."""
    job: JobTable | None
    """The job file that a run under `tidewise run` began with; None for other runs."""
    began_unix_s: float | None
    """When the clock of the run began; None where it keeps a clock of its own, as in the simulator."""

    @property
    def name(self) -> str:
        return self.folder.name.removesuffix(PARTIAL_SUFFIX)

    @property
    def prices(self) -> Prices | None:
        """None where nobody wrote them down."""
        if self.record is not None:
            return self.record.prices
        return None if self.job is None else self.job.prices.prices()

    @property
    def promises(self) -> Promises | None:
        """None where nobody wrote them down."""
        if self.record is not None:
            return self.record.promises
        return None if self.job is None else self.job.promises.promises()

    def open_journal(self) -> SqliteJournal:
        """For reading, also while a controller writes it."""
        return SqliteJournal.open_readonly(self.folder / JOURNAL_FILE, is_over=self.record is not None)


def find_recorded(path: Path) -> RecordedRun:
    """The run that this folder is, or the only one in it; BadInputError where there is none, or more than one."""
    folder = _folder_with_journal(path)
    is_over = (folder / RUN_FILE).exists()
    kept = folder.parent / KEPT_JOB_FILE
    return RecordedRun(
        folder=folder,
        record=load_run(folder).record if is_over else None,
        job=TomlFile(kept).read(JobTable) if kept.is_file() else None,
        began_unix_s=_began_unix_s(folder.parent / BEGAN_FILE),
    )


def _folder_with_journal(path: Path) -> Path:
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    for folder in (path, partial):
        if (folder / JOURNAL_FILE).is_file():
            return folder
    if not path.is_dir():
        raise BadInputError(f"there is no run {path}; name a folder that `tidewise run` or `experiment` wrote")
    inside = sorted(journal.parent for journal in path.glob(f"*/{JOURNAL_FILE}"))
    if len(inside) == 1:
        return inside[0]
    if inside:
        more = ", ..." if len(inside) > _NAMED else ""
        names = ", ".join(str(folder) for folder in inside[:_NAMED])
        raise BadInputError(f"{path} holds {len(inside)} runs; name one of them: {names}{more}")
    raise BadInputError(f"{path} is not a run: it has no {JOURNAL_FILE}")


def _began_unix_s(path: Path) -> float | None:
    try:
        return float(json.loads(path.read_text(encoding="utf-8"))["unix_s"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{path} cannot be read: {error}") from error


def stamp(at_s: float) -> str:
    """A time of a run, to the second, as `--at` takes it: 1h02m05s."""
    hours, rest = divmod(round(max(0.0, at_s)), 3600)
    minutes, seconds = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes:02d}m{seconds:02d}s"
    return f"{minutes}m{seconds:02d}s" if minutes else f"{seconds}s"


def moment_s(text: str, *, began_unix_s: float | None, lasted_s: float) -> float:
    """Seconds since the run began, of a time such as 90s, 1h30min or 14:05; BadInputError where it is not in the run.

    `began_unix_s`: when that was on the wall clock; None where the run has none. Times of day are those of this
    machine's time zone.
    """
    at_s = _duration_s(text)
    if at_s is None:
        at_s = _wall_s(text, began_unix_s=began_unix_s, lasted_s=lasted_s)
    # Half a second: what is shown is rounded, and what is shown may be asked for.
    if not -0.5 <= at_s <= lasted_s + 0.5:
        wall = ""
        if began_unix_s is not None:
            begin, end = (f"{_local(began_unix_s + each):%Y-%m-%d %H:%M:%S}" for each in (0.0, lasted_s))
            wall = f", which is from {begin} to {end}"
        raise BadInputError(f"{text} is not in this run; it has the times from 0s to {stamp(lasted_s)}{wall}")
    return min(max(at_s, 0.0), lasted_s)


def _duration_s(text: str) -> float | None:
    """The sum of parts such as 1h and 30min; None for what is no duration."""
    parts = _PART.findall(text)
    return sum(parse_duration_s(part) for part in parts) if parts and not _PART.sub("", text).strip() else None


def _wall_s(text: str, *, began_unix_s: float | None, lasted_s: float) -> float:
    of_day = _OF_DAY.fullmatch(text.strip())
    try:
        moment = None if of_day else datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadInputError(f"{text!r} is no time; write it like 90s, 1h30min or 14:05") from None
    if began_unix_s is None:
        raise BadInputError(f"this run has no wall clock, so {text} means nothing in it; write it like 90s or 1h30min")
    if moment is not None:
        return moment.astimezone().timestamp() - began_unix_s
    began = _local(began_unix_s)
    hour, minute, second = (int(part or 0) for part in of_day.groups()) if of_day else (0, 0, 0)
    first = began.replace(hour=hour, minute=minute, second=second, microsecond=0)
    # The minute in which a run began is that of its first second as well.
    if first.timestamp() + 60 <= began_unix_s:
        first += timedelta(days=1)
    at_s = first.timestamp() - began_unix_s
    if at_s + 86_400 <= lasted_s:
        raise BadInputError(f"{text} comes more than once in this run; write the day too, like {first:%Y-%m-%dT%H:%M}")
    return max(at_s, 0.0)


def _local(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, tz=UTC).astimezone()
