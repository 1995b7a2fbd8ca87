"""How a line becomes a row or a dead letter: the columns of every kind, and what is wrong with a line, as Spark SQL.

The columns are made from the rows in `tidewise.core.telemetry` and nowhere else. Everything here is text that Spark
compiles: no Python runs per line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from types import NoneType
from typing import get_args, get_type_hints

from tidewise.core.telemetry import (
    ROWS,
    SCHEMA,
    ChangeRow,
    Envelope,
    ForecastErrorRow,
    RecoveryRow,
    ReportRow,
    TelemetryRow,
)

MOST_RAW_CHARACTERS = 65_536
"""A longer line is no row, and no more of it is kept."""
_SQL_TYPES: dict[type, str] = {float: "DOUBLE", int: "BIGINT", str: "STRING", bool: "BOOLEAN"}
_WORDS = {"DOUBLE": "a number", "BIGINT": "a whole number", "STRING": "text", "BOOLEAN": "true or false"}
_MOST = 1e18
"""No rate, size or duration of a job is larger, and the sum of its squares is still a number."""
_CORRUPT = "_corrupt"
_SHARES = {"busy_share", "cpu_share", "error_share"}
_ABOVE_ZERO = {
    "window_s",
    "executors",
    "slots_per_executor",
    "cores_per_executor",
    "memory_mib_per_executor",
    "state_partitions",
    "source_executors",
    "target_executors",
}
"""Nothing runs on none of these."""
_NUMBERS = {"DOUBLE", "BIGINT"}
_CALLED: dict[type[TelemetryRow], str] = {
    ReportRow: "a report",
    ChangeRow: "a change",
    RecoveryRow: "a recovery",
    ForecastErrorRow: "a forecast error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    name: str
    sql_type: str
    is_required: bool
    """Whether a row without it cannot be taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """One thing that can be wrong with a line."""

    is_bad: str
    """A condition in SQL; what is unknown is not bad."""
    reason: str
    """The sentence, as an expression in SQL."""
    of_kind: str | None = None
    """The only kind of row that it is asked of."""


def _columns(of: type, names: Sequence[str]) -> tuple[Column, ...]:
    hints = get_type_hints(of)
    found = []
    for name in names:
        kinds = [kind for kind in get_args(hints[name]) if kind is not NoneType] or [hints[name]]
        optional = NoneType in get_args(hints[name])
        found.append(Column(name=name, sql_type=_SQL_TYPES[kinds[0]], is_required=not optional))
    return tuple(found)


ENVELOPE = _columns(Envelope, [one.name for one in fields(Envelope) if one.name != "row"])
"""Whose row it is."""


def row_columns(row: type[TelemetryRow]) -> tuple[Column, ...]:
    """The columns of one kind of row, without its envelope."""
    return _columns(row, [one.name for one in fields(row)])


def _all_columns() -> tuple[Column, ...]:
    """Those of all kinds; two kinds mean the same by the same name."""
    found: dict[str, Column] = {}
    for one in (*ENVELOPE, *(column for row in ROWS for column in row_columns(row))):
        before = found.setdefault(one.name, one)
        if before.sql_type != one.sql_type:
            raise TypeError(f"the column {one.name} is {before.sql_type} in one kind of row, {one.sql_type} in another")
    return tuple(found.values())


COLUMNS = _all_columns()


def ddl(columns: Sequence[Column]) -> str:
    """A schema as Spark reads it."""
    return ", ".join(f"{one.name} {one.sql_type}" for one in columns)


def parsed(raw: str) -> str:
    """The fields of a line as one struct: null where they are missing or of another type.

    A number where text belongs is taken as its text.
    """
    schema = f"schema BIGINT, kind STRING, {ddl(COLUMNS)}, {_CORRUPT} STRING"
    return f"from_json({raw}, '{schema}', map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{_CORRUPT}'))"


def is_bad(*, ahead_s: float, behind_s: float) -> str:
    """Whether a line cannot be taken, over the columns `raw`, `received_unix_s` and those of `parsed`."""
    rules = _rules(ahead_s=ahead_s, behind_s=behind_s)
    # By kind, so that a line is asked only what concerns it.
    asked = [_any(one for one in rules if one.of_kind is None)]
    asked += [f"(kind = {_text(row.kind)} AND {_any(one for one in rules if one.of_kind == row.kind)})" for row in ROWS]
    return f"coalesce({' OR '.join(asked)}, false)"


def reason(*, ahead_s: float, behind_s: float) -> str:
    """The first thing that is wrong with such a line, as one sentence."""
    cases = [
        f"WHEN {'' if one.of_kind is None else f'kind = {_text(one.of_kind)} AND '}({one.is_bad}) THEN {one.reason}"
        for one in _rules(ahead_s=ahead_s, behind_s=behind_s)
    ]
    return f"CASE {' '.join(cases)} END"


def _any(rules: Iterable[_Rule]) -> str:
    return f"({' OR '.join(f'({one.is_bad})' for one in rules)})"


def _rules(*, ahead_s: float, behind_s: float) -> list[_Rule]:
    """In the order in which they are asked: each may rely on those before it."""
    rules = [
        _Rule(is_bad="raw IS NULL OR trim(raw) = ''", reason=_text("The line is empty.")),
        _Rule(
            is_bad=f"length(raw) > {MOST_RAW_CHARACTERS}",
            reason=_text(f"The line has more than {MOST_RAW_CHARACTERS} characters."),
        ),
        _Rule(
            is_bad=f"NOT startswith(ltrim(raw), '{{') OR ({_CORRUPT} IS NOT NULL AND try_parse_json(raw) IS NULL)",
            reason=_text("The line is not a JSON object."),
        ),
        _Rule(is_bad=_has_more(), reason=_text("The line goes on after its JSON object.")),
        _Rule(is_bad="schema IS NULL OR schema < 1", reason=_text("Its schema is missing or no version.")),
        _Rule(
            is_bad=f"schema > {SCHEMA}",
            reason=f"concat('Its schema ', schema, ' is newer than {SCHEMA}, the newest that is known here.')",
        ),
        _Rule(
            is_bad=f"kind IS NULL OR kind NOT IN ({', '.join(_text(row.kind) for row in ROWS)})",
            reason="concat('There is no kind of row ', coalesce(concat('\"', left(kind, 40), '\"'), 'without a name'),"
            f" ', only {', '.join(row.kind for row in ROWS)}.')",
        ),
        *(_missing(one, "its envelope") for one in ENVELOPE if one.is_required),
        *(
            _Rule(is_bad=f"trim({name}) = ''", reason=_text(f"The field {name} of its envelope is empty."))
            for name in ("job", "run")
        ),
        _Rule(is_bad="line < 1", reason="concat('Lines are numbered from 1 on, not from ', line, '.')"),
    ]
    for row in ROWS:
        about, columns = _CALLED[row], row_columns(row)
        checks = [_missing(one, about) for one in columns if one.is_required]
        checks += [_mistyped(one, about) for one in columns if not one.is_required]
        checks += [_nonsense(one, about) for one in columns if one.sql_type in _NUMBERS and one.name != "at_unix_s"]
        rules += [replace(one, of_kind=row.kind) for one in checks]
    rules.append(_mistyped(next(one for one in ENVELOPE if one.name == "program"), "its envelope"))
    # What is not a number is larger than all numbers to Spark.
    rules.append(
        _Rule(
            is_bad=f"at_unix_s > received_unix_s + {ahead_s:.1f}",
            reason="concat('Its clock is ', cast(least(at_unix_s - received_unix_s, 1e18) AS BIGINT),"
            " ' s ahead of when it was received.')",
        )
    )
    rules.append(
        _Rule(
            is_bad=f"at_unix_s < received_unix_s - {behind_s:.1f}",
            reason="concat('It is ', cast(least(received_unix_s - at_unix_s, 1e18) AS BIGINT),"
            f" ' s older than when it was received, and no more than {behind_s:.0f} s are taken.')",
        )
    )
    return rules


def _has_more() -> str:
    """Whether a second object follows: two writers, or one that was killed, can leave two on one line.

    Only lines with a brace before their end are looked at closely, without what stands in quotes.
    """
    bare = r"""regexp_replace(replace(replace(raw, r'\\', ''), r'\"', ''), '"[^"]*"', '')"""
    return rf"instr(raw, '}}') < length(rtrim(raw)) AND {bare} RLIKE r'\}}\s*[^\s,\]\}}]'"


def _missing(column: Column, about: str) -> _Rule:
    return _Rule(
        is_bad=f"{column.name} IS NULL",
        reason=_text(f"The field {column.name} of {about} is missing or not {_WORDS[column.sql_type]}."),
    )


def _mistyped(column: Column, about: str) -> _Rule:
    """Only lines in which Spark found something odd are read a second time."""
    path = _text(f"$.{column.name}")
    return _Rule(
        is_bad=f"{_CORRUPT} IS NOT NULL AND {column.name} IS NULL AND get_json_object(raw, {path}) IS NOT NULL",
        reason=_text(f"The field {column.name} of {about} is not {_WORDS[column.sql_type]}."),
    )


def _nonsense(column: Column, about: str) -> _Rule:
    most = 1.0 if column.name in _SHARES else _MOST
    above = column.name in _ABOVE_ZERO
    within = f"{column.name} {'>' if above else '>='} 0 AND {column.name} <= {most:g}D"
    wanted = f"{'above 0' if above else 'at least 0'} and at most {most:g}"
    return _Rule(
        is_bad=f"NOT ({within})",
        reason=f"concat('The field {column.name} of {about} must be {wanted}, not ', {column.name}, '.')",
    )


def _text(words: str) -> str:
    """As SQL writes it."""
    escaped = words.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
