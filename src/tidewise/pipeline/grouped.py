"""One function over the rows of each job of a table, as one Spark job; none of them can stop it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import pyarrow as pa

from tidewise.core import BadInputError
from tidewise.pipeline.action import Action
from tidewise.pipeline.context import told_error
from tidewise.pipeline.job_files import JOB, Bucket, Listed, Wanted, buckets_in, listed
from tidewise.pipeline.job_rows import Thinning, rows_of

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    Frame: TypeAlias = DataFrame
    Session: TypeAlias = SparkSession

_CALLED = "the work"
_TASKS_PER_CORE = 4
"""So many tasks for each core at least, where there are as many jobs: none is waited for alone for long at the end."""
_ROWS_PER_TASK = 20_000_000
"""So many rows of a bucket are looked through by one task at most: it keeps a few bytes of each in memory."""
_ANSWERED_TOGETHER = 16
"""So many jobs are sent back to Spark at a time."""
_VERSION = "version"


class Work(Protocol):
    """What is done to each job: a function of a module that the workers have, or a partial one of such."""

    def __call__(self, job: str, rows: pa.Table, /) -> Sequence[Mapping[str, object]]:
        """The rows of the answer, by the names of the schema; the rows it is given are in the order of their time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """What of a table the work looks at."""

    table: str
    thinning: Thinning
    wanted: Wanted
    only: Callable[[Sequence[str]], Collection[str]] = tuple
    """Chooses the jobs from the names of all; by default all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """What came of it."""

    groups: int
    failed: int
    """Jobs whose function raised: each is a row with its error."""
    wall_s: float
    """From the first file found to the last row written."""
    work_s: float
    """Seconds that the function itself took, all jobs together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """Some jobs of a bucket."""

    bucket: Bucket
    jobs: tuple[str, ...]


def each_job(
    session: Session,
    tables: Path,
    work: Work,
    *,
    looks: Looks,
    schema: str,
    folder: str | Path,
    progress: Callable[[int, int], None] | None = None,
) -> Worked:
    """Write the answers of `work` to all jobs of a table to a folder of Parquet files, in place of what was there.

    `schema`: the columns of an answer as Spark writes them ("points int, season_s double"). Before them comes the
    job; after them `error`, the sentence of a job whose function raised and whose other columns are null, and `work_s`,
    the seconds that the function took, in the first row of a job. What was in the folder before stays until all answers
    are there. `progress` is told how many jobs of how many are done. The workers read the files of the table by
    themselves: they must see the folder under the same name. PermanentError where a file is damaged, or Spark itself
    gives up; TemporaryError where nobody takes its tasks; BadInputError where there are no tables, or no rows in this.
    """
    context = session.sparkContext
    began_s = time.monotonic()
    buckets = buckets_in(tables, looks.table)
    if not buckets:
        raise BadInputError(f"the table {looks.table} in {tables} has no rows yet: let some reports be taken in first")
    # Names alone are read so fast that Spark would take longer to begin.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        contents = list(pool.map(listed, buckets))
    tasks = _tasks(buckets, contents, looks.only, cores=context.defaultParallelism)
    total = sum(len(task.jobs) for task in tasks)
    ended = context.accumulator(0)

    def tell(done: int) -> None:
        if progress is not None:
            progress(min(done, total), total)

    def write() -> None:
        answers = _answers(session, tasks, partial(_answered, work=work, looks=looks), schema, ended)
        # A partition that is replaced dynamically is only taken away when all that replaces it is there.
        answers.selectExpr("*", f"1 as {_VERSION}").write.mode("overwrite").option(
            "partitionOverwriteMode", "dynamic"
        ).partitionBy(_VERSION).parquet(str(folder))

    tell(0)
    Action(context, write, called=_CALLED).wait(lambda: tell(ended.value))
    tell(total)
    wall_s = time.monotonic() - began_s
    failed, work_s = session.read.parquet(str(folder)).selectExpr("count(error)", "sum(work_s)").collect()[0]
    return Worked(groups=total, failed=int(failed), wall_s=wall_s, work_s=float(work_s))


def has_answers(folder: str | Path) -> bool:
    """Whether `each_job` has ever come to its end there: one that is stopped leaves a folder without any."""
    return any(Path(folder).glob(f"{_VERSION}=*/*.parquet"))


def _tasks(
    buckets: Sequence[Bucket],
    contents: Sequence[Listed],
    only: Callable[[Sequence[str]], Collection[str]],
    *,
    cores: int,
) -> list[_Task]:
    """The longest first, so that none is begun when all others are about to end."""
    chosen = set(only(sorted(job for content in contents for job in content.jobs)))
    found = []
    for bucket, content in zip(buckets, contents, strict=True):
        jobs = [job for job in content.jobs if job in chosen]
        # Each part of a bucket looks through the same files.
        parts = max(-(-_TASKS_PER_CORE * cores // len(buckets)), -(-content.rows // _ROWS_PER_TASK))
        at_once = max(1, -(-len(jobs) // parts))
        found += [
            _Task(bucket=bucket, jobs=tuple(jobs[begin : begin + at_once])) for begin in range(0, len(jobs), at_once)
        ]
    return sorted(found, key=lambda task: -len(task.jobs))


def _answers(
    session: Session,
    tasks: Sequence[_Task],
    answered: Callable[[_Task], Iterator[list[dict[str, object]]]],
    schema: str,
    ended: Accumulator[int],
) -> Frame:
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - an optional extra
    from pyspark.sql.types import StructType  # noqa: PLC0415 - the same

    columns = cast("StructType", StructType.fromDDL(f"{JOB} string, {schema}, error string, work_s double"))
    arrow = to_arrow_schema(columns)

    # Without types: Spark would look for the meaning of this function in them.
    def on_tasks(numbers):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as said
        for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
            for found in _together(answered(tasks[number])):
                ended.add(len({row[JOB] for row in found}))
                yield pa.RecordBatch.from_pylist(found, schema=arrow)

    return session.range(0, len(tasks), 1, len(tasks)).mapInArrow(on_tasks, columns)


def _answered(task: _Task, *, work: Work, looks: Looks) -> Iterator[list[dict[str, object]]]:
    """Runs on the workers."""
    for job, rows in rows_of(task.bucket, task.jobs, thinning=looks.thinning, wanted=looks.wanted):
        yield _answer(work, job, rows)


def _together(answers: Iterable[list[dict[str, object]]]) -> Iterator[list[dict[str, object]]]:
    gathered: list[dict[str, object]] = []
    for number, answer in enumerate(answers, start=1):
        gathered += answer
        if number % _ANSWERED_TOGETHER == 0:
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def _answer(work: Work, job: str, rows: pa.Table) -> list[dict[str, object]]:
    began_s = time.perf_counter()
    try:
        found = [{**row, JOB: job} for row in work(job, rows)]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told with the name of its job
        found = [{JOB: job, "error": told_error(error)}]
    found[:1] = [{**row, "work_s": time.perf_counter() - began_s} for row in found[:1]]
    return found
