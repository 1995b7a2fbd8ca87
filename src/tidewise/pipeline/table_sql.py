"""Questions in plain SQL, as people write them: answered in bounded rows, and what is wrong with one as a sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidewise.core import BadInputError
from tidewise.core.checks import require
from tidewise.pipeline.context import spark_told, unreadable_file

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_LOOKS = re.compile(r"\s*(show|describe|desc|explain)\b", re.IGNORECASE)
"""What only looks, and is no query that another could be made of."""
_POSITION = re.compile(r"\s*(SQLSTATE: \w+\.?|\(line \d+, pos \d+\)).*", re.DOTALL)
_CLASS = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The first rows of an answer."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    is_cut: bool
    """Whether there are more."""

    def dicts(self) -> list[dict[str, object]]:
        """By the names of the columns."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def ask(session: SparkSession, sql: str, *, at_most: int) -> Answered:
    """The answer to a query over the views of this session; BadInputError where it is wrong, or would change something.

    Nothing is written: whatever is no query is refused before it runs. PermanentError where a file cannot be read.
    """
    require(at_most >= 1, f"at_most must be at least 1, not {at_most}")
    text = sql.strip().rstrip(";").strip()
    if not text:
        raise BadInputError(
            'the question is empty: write, for example, "SELECT job, sum(cost) FROM observations_60s GROUP BY job"'
        )
    with spark_told("the question"):
        columns, found = _answer(session, text, at_most=at_most + 1)
    return Answered(columns=columns, rows=tuple(tuple(row) for row in found[:at_most]), is_cut=len(found) > at_most)


def _answer(session: SparkSession, text: str, *, at_most: int) -> tuple[tuple[str, ...], list[Row]]:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - whoever has a session has it

    try:
        if not (_LOOKS.match(text) or _is_query(session, text)):
            raise BadInputError("only questions are answered here: write a query that begins with SELECT or WITH")
        frame = session.sql(text)
        return tuple(frame.columns), frame.limit(at_most).collect()
    except PySparkException as error:
        if unreadable_file(str(error)) is not None:
            raise  # the question is right
        raise BadInputError(f"this SQL cannot be answered: {_in_words(error)}") from error


def _is_query(session: SparkSession, text: str) -> bool:
    """Whether it is a query and nothing else; looked at and not run. ParseException where it is nothing at all."""
    from pyspark.errors import ParseException  # noqa: PLC0415 - whoever has a session has it

    try:
        # Only a query can stand in brackets.
        session.sql(f"SELECT * FROM (\n{text}\n)")  # noqa: S608 - it is the user's own query, over views alone
    except ParseException:
        # What is explained does not run; but what is wrong with it is told as it was written.
        session.sql(f"EXPLAIN {text}")
        return False
    return True


def _in_words(error: Exception) -> str:
    """The first sentence of what Spark says, without its codes and its picture of the text."""
    told = " ".join(_POSITION.sub("", _CLASS.sub("", str(error))).split())
    return told.rstrip(".") or type(error).__name__
