"""One object for every job inside a streaming query: it is given its job's new rows, and Spark keeps what it saves."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tidewise.core.checks import require_finite
from tidewise.pipeline.context import told_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JobRow = dict[str, Any]  # Any: the columns are the caller's
"""A row of a job by its columns: `run`, `line`, `at_unix_s`, and whatever else was selected."""

NEEDED = ("job", "run", "line", "at_unix_s")
"""The columns by which rows are known and put in order."""
_RUNS_KEPT = 16
"""Of as many runs of a job it is known how far they were told; those that have been silent for longest are dropped."""


class PerJob(Protocol):
    """What is computed for one job; the same rows in the same order give the same answers, however they are cut."""

    def take(self, rows: list[JobRow]) -> list[dict[str, object]]:
        """The answers to the next rows, in the order in which they were told; each row comes once."""

    def save(self) -> str:
        """All that is needed to go on in another process."""

    def load(self, text: str) -> None:
        """Go on where `save` stood; an error of any kind where that cannot be read."""


def per_job(rows: DataFrame, make: Callable[[], PerJob], *, schema: str, forget_after_s: float) -> DataFrame:
    """The answers of one object per job to the job's rows, as a stream of `job`, the columns of `schema`, `problem`.

    `rows` has the columns of `NEEDED` and others; `make` is a function of a module that the workers have, or a partial
    of one. Where the object of a job raises, `problem` says what, in a row without answers: that job starts anew, and
    the others do not notice. A job that is silent for `forget_after_s` is forgotten. The query needs the settings of
    `streaming.own_session`.
    """
    from tidewise.pipeline.per_job_keeper import Keeper  # noqa: PLC0415 - only those who stream need PySpark

    require_finite("forget_after_s", forget_after_s, above=0.0)
    return rows.groupBy("job").transformWithState(
        Keeper(make, forget_after_ms=int(1000 * forget_after_s)),
        f"job string, {schema}, problem string",
        "append",
        "processingTime",  # without it Spark forgets nothing
    )


def fed(
    make: Callable[[], PerJob], held: tuple[str, str | None] | None, rows: Iterable[JobRow]
) -> tuple[list[dict[str, object]], list[str], tuple[str, str | None]]:
    """What comes of these rows and of what was kept: the answers, what went wrong, and what to keep now."""
    runs: dict[str, int] = json.loads(held[0]) if held is not None else {}
    new = _in_order(rows, runs)
    kept = held[1] if held is not None else None
    if held is not None and not new:
        return [], [], held
    problems: list[str] = []
    job = make()
    if kept is not None:
        try:
            job.load(kept)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the job starts anew
            problems.append(_sentence("what was saved could not be read", error))
            job = make()
    answers: list[dict[str, object]] = []
    try:
        answers = job.take(new)
        kept = job.save()
    except Exception as error:  # noqa: BLE001 - the same
        problems.append(_sentence("its rows could not be taken in", error))
        answers, kept = [], None
    return answers, problems, (json.dumps(runs), kept)


def _in_order(rows: Iterable[JobRow], runs: dict[str, int]) -> list[JobRow]:
    """The rows that were not told before, each run by its lines, and the runs merged by time; `runs` is brought on."""
    by_run: dict[str, dict[int, JobRow]] = {}
    for row in rows:
        if row["line"] > runs.get(row["run"], 0):
            by_run.setdefault(row["run"], {}).setdefault(row["line"], row)
    for run, lines in by_run.items():
        runs.pop(run, None)
        runs[run] = max(lines)
    for silent in list(runs)[:-_RUNS_KEPT]:
        del runs[silent]
    return [row for _, _, _, row in heapq.merge(*(_timed(run, lines) for run, lines in sorted(by_run.items())))]


def _timed(run: str, lines: Mapping[int, JobRow]) -> Iterator[tuple[float, str, int, JobRow]]:
    """The rows of a run by line, with a time that never goes back, even where the job's clock does."""
    latest_s = float("-inf")
    for line in sorted(lines):
        latest_s = max(latest_s, lines[line]["at_unix_s"])
        yield latest_s, run, line, lines[line]


def _sentence(what: str, error: Exception) -> str:
    return f"{what}, and the job starts anew: {told_error(error)}"
