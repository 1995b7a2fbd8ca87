"""One function over the rows of each group of a table, as one Spark job; none of them can stop it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import pyarrow as pa

from tidewise.core import BadInputError
from tidewise.core.checks import require
from tidewise.pipeline.action import Action
from tidewise.pipeline.context import told_error

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    Frame: TypeAlias = DataFrame
    Session: TypeAlias = SparkSession

_CALLED = "the work"
_PARTS_PER_CORE = 8
"""So many tasks for each core at least: none is waited for alone for long at the end."""
_GROUPS_PER_PART = 200
"""At most about so many groups in a task: progress is seen, and a task that is lost costs little."""
_KIND, _NEWEST, _EVERY, _HASH = "_kind", "_newest", "_every", "_hash"
IS_WHOLE = "is_whole"
"""The column of the rows that travel which says whether all other columns came along."""
_VERSION = "version"


class Work(Protocol):
    """What is done to each group: a function of a module that the workers have, or a partial one of such."""

    def __call__(self, key: str, rows: pa.Table, /) -> Sequence[Mapping[str, object]]:
        """The rows of the answer, by the names of the schema; the rows it is given are in the order of their time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinning:
    """How much of each group travels to Python: its newest rows in a few columns, and some rows whole.

    The whole ones are spread over all of the group's time, in blocks of neighbours, and evenly over the kinds of rows
    there are: of a kind with few rows all are taken.
    """

    by: str
    """The column that names the group."""
    order: str
    """The column of the time, in seconds."""
    newest_s: float
    """So much of the end of each group, by its own newest row."""
    narrow: tuple[str, ...]
    """The columns of those."""
    whole: int = 0
    """About how many rows come with all their columns; 0: none."""
    block_s: float = 300.0
    """Rows of the same kind and block come together or not at all."""
    kinds: tuple[str, ...] = ()
    """The columns by whose values kinds of rows are told apart."""

    def __post_init__(self) -> None:
        require(self.newest_s > 0.0 and self.block_s > 0.0, "newest_s and block_s must be above 0")
        require(self.whole >= 0, f"whole must not be negative, not {self.whole}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """What came of it."""

    groups: int
    failed: int
    """Groups whose function raised: each is a row with its error."""
    wall_s: float
    """From the first row read to the last row written."""
    work_s: float
    """Seconds that the function itself took, all groups together."""


def each_group(
    frame: Frame,
    work: Work,
    *,
    thinning: Thinning,
    schema: str,
    folder: str | Path,
    progress: Callable[[int, int], None] | None = None,
) -> Worked:
    """Write the answers of `work` to all groups of the frame to a folder of Parquet files, in place of what was there.

    `schema`: the columns of an answer as Spark writes them ("points int, season_s double"). Before them comes the
    group's own column; after them `error`, the sentence of a group whose function raised and whose other columns are
    null, and `work_s`, the seconds that the function took, in the first row of a group. What was in the folder before
    stays until all answers are there. `progress` is told how many groups of how many are done. PermanentError where
    Spark itself gives up; TemporaryError where nobody takes its tasks; BadInputError where the frame lacks a column, or
    has no rows.
    """
    require_columns(frame, (thinning.by, thinning.order, *thinning.narrow, *thinning.kinds))
    session, context = frame.sparkSession, frame.sparkSession.sparkContext
    began_s = time.monotonic()
    ended = context.accumulator(0)
    known = _known(frame, thinning).persist()
    try:
        total = Action(context, lambda: known.select(thinning.by).distinct().count(), called=_CALLED).wait()
        if total == 0:
            raise BadInputError("the table has no rows to work on: look whether it is the right one")

        def tell(done: int) -> None:
            if progress is not None:
                progress(min(done, total), total)

        def write() -> None:
            # Spark sorts groups by their keys: numbers first, because names that begin alike are slow to compare.
            rows = _joined(frame, known, thinning).selectExpr("*", f"xxhash64({_quoted(thinning.by)}) as {_HASH}")
            rows = rows.repartition(_parts(session, total), _HASH)
            answers = _applied(rows, work, thinning, schema, ended)
            # A partition that is replaced dynamically is only taken away when all that replaces it is there.
            answers.selectExpr("*", f"1 as {_VERSION}").write.mode("overwrite").option(
                "partitionOverwriteMode", "dynamic"
            ).partitionBy(_VERSION).parquet(str(folder))

        tell(0)
        Action(context, write, called=_CALLED).wait(lambda: tell(ended.value))
        tell(total)
    finally:
        known.unpersist()
    wall_s = time.monotonic() - began_s
    failed, work_s = session.read.parquet(str(folder)).selectExpr("count(error)", "sum(work_s)").collect()[0]
    return Worked(groups=total, failed=int(failed), wall_s=wall_s, work_s=float(work_s))


def thinned(frame: Frame, thinning: Thinning) -> Frame:
    """The rows that travel: the newest of each group in few columns, the chosen ones whole; null in the others."""
    return _joined(frame, _known(frame, thinning), thinning)


def require_columns(frame: Frame, names: Sequence[str]) -> None:
    """BadInputError where one is missing."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise BadInputError(f"the table has no column {missing[0]!r}: it has {', '.join(frame.columns)}")


def _with_kind(frame: Frame, thinning: Thinning) -> Frame:
    by, order = _quoted(thinning.by), _quoted(thinning.order)
    named = ", ".join(map(_quoted, thinning.kinds)) if thinning.whole else ""
    kind = f"xxhash64({named})" if named else "0L"
    return frame.selectExpr("*", f"{kind} as {_KIND}").where(f"{by} is not null and {order} is not null")


def _known(frame: Frame, thinning: Thinning) -> Frame:
    """By group and kind of row: when the group's newest row was, and each how many-th block comes whole."""
    from pyspark.sql.functions import expr  # noqa: PLC0415 - an optional extra

    by = _quoted(thinning.by)
    counted = (
        _with_kind(frame, thinning)
        .groupBy(thinning.by, _KIND)
        .agg(expr(f"max({_quoted(thinning.order)}) as _top"), expr("count(*) as _count"))
    )
    return counted.selectExpr(
        by,
        _KIND,
        f"max(_top) over (partition by {by}) as {_NEWEST}",
        f"greatest(1, ceil(_count * count(*) over (partition by {by}) / {max(1, thinning.whole)})) as {_EVERY}",
    )


def _joined(frame: Frame, known: Frame, thinning: Thinning) -> Frame:
    order = _quoted(thinning.order)
    narrow = {thinning.by, thinning.order, *thinning.narrow}
    others = [name for name in frame.columns if name not in narrow] if thinning.whole else []
    is_whole = f"pmod(floor({order} / {thinning.block_s}), {_EVERY}) = 0" if thinning.whole else "false"
    return (
        _with_kind(frame, thinning)
        .join(known, [thinning.by, _KIND])
        .selectExpr("*", f"{is_whole} as {IS_WHOLE}")
        .where(f"{IS_WHOLE} or {order} > {_NEWEST} - {thinning.newest_s}")
        .selectExpr(
            *(_quoted(name) for name in frame.columns if name in narrow),
            *(f"if({IS_WHOLE}, {_quoted(name)}, null) as {_quoted(name)}" for name in others),
            IS_WHOLE,
        )
    )


def _applied(rows: Frame, work: Work, thinning: Thinning, schema: str, ended: Accumulator[int]) -> Frame:
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - an optional extra
    from pyspark.sql.types import StructType  # noqa: PLC0415 - the same

    by, order = thinning.by, thinning.order
    answered = cast("StructType", StructType.fromDDL(f"{_quoted(by)} string, {schema}, error string, work_s double"))
    arrow = to_arrow_schema(answered)

    # Without types: Spark would look for the meaning of this function in them.
    def on_group(key, table):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as said
        found = _answer(work, key[1].as_py(), _in_order(table.drop_columns([_HASH]), order), by)
        ended.add(1)
        return pa.Table.from_pylist(found, schema=arrow)

    return rows.groupBy(_HASH, by).applyInArrow(on_group, answered)


def _in_order(rows: pa.Table, order: str) -> pa.Table:
    times = rows.column(order).to_numpy()
    return rows if bool((times[1:] >= times[:-1]).all()) else rows.sort_by(order)


def _answer(work: Work, key: str, rows: pa.Table, by: str) -> list[dict[str, object]]:
    """Runs on the workers."""
    began_s = time.perf_counter()
    try:
        found = [{**row, by: key} for row in work(key, rows)]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told with the name of its group
        found = [{by: key, "error": told_error(error)}]
    found[:1] = [{**row, "work_s": time.perf_counter() - began_s} for row in found[:1]]
    return found


def _parts(session: Session, groups: int) -> int:
    cores = session.sparkContext.defaultParallelism
    return max(1, min(groups, max(_PARTS_PER_CORE * cores, -(-groups // _GROUPS_PER_PART))))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
