"""The columns of tables are those of the rows, and who may write a folder: told without any Spark."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.core.telemetry import ROWS, RecoveryRow, ReportRow, TelemetryRow, field_names
from tidewise.pipeline.telemetry_claim import FACTS, claimed, read_facts
from tidewise.pipeline.telemetry_compact import kept_days, retain
from tidewise.pipeline.telemetry_schema import COLUMNS, ENVELOPE, is_bad, reason, row_columns
from tidewise.pipeline.telemetry_tables import ROW_TABLES, TABLES, Compacted, is_read


@pytest.mark.parametrize("row", ROWS)
def test_a_table_has_every_field_of_its_rows(row: type[TelemetryRow]) -> None:
    assert tuple(one.name for one in row_columns(row)) == field_names(row)
    named = [one.name for one in ROW_TABLES[row.kind].columns]
    assert named == ["job", "run", "line", "program", *field_names(row), "received_unix_s"]
    assert set(field_names(row)) <= {one.name for one in COLUMNS}


def test_fields_that_may_be_unknown_are_not_asked_for() -> None:
    report = {one.name: one for one in row_columns(ReportRow)}
    assert (report["executors"].sql_type, report["executors"].is_required) == ("BIGINT", True)
    assert (report["state_partitions"].sql_type, report["state_partitions"].is_required) == ("BIGINT", False)
    assert (report["cpu_share"].sql_type, report["cpu_share"].is_required) == ("DOUBLE", False)
    assert {one.name: one.sql_type for one in row_columns(RecoveryRow)}["is_bound"] == "BOOLEAN"
    assert [one.name for one in ENVELOPE if not one.is_required] == ["program"]


def test_every_field_is_asked_for_where_it_must_be_there() -> None:
    bad, why = (ask(ahead_s=1.0, behind_s=2.0) for ask in (is_bad, reason))
    for row in ROWS:
        for column in row_columns(row):
            if column.is_required:
                assert f"{column.name} IS NULL" in bad
            assert f"The field {column.name} of" in why


def test_no_table_has_two_columns_of_one_name() -> None:
    for table in TABLES.values():
        names = [one.name for one in table.columns]
        assert len(names) == len(set(names)), table.name


def test_a_compacted_day_is_read_from_its_last_generation_and_what_came_later() -> None:
    day = Compacted(generation=2, through=7)
    assert [batch for batch in (-3, -2, -1, 0, 7, 8, 9) if is_read(batch, day)] == [-2, 8, 9]
    assert [batch for batch in (-3, -2, -1, 0, 7, 8, 9) if is_read(batch, None)] == [0, 7, 8, 9]


def test_one_at_a_time_may_write_a_folder(tmp_path: Path) -> None:
    with claimed(tmp_path / "tables", buckets=4) as claim:
        claim.check()
        with pytest.raises(TemporaryError, match="another query writes the tables in"):
            claimed(tmp_path / "tables", buckets=4).__enter__()
    with (
        claimed(tmp_path / "tables", buckets=4),
        pytest.raises(PermanentError, match="somebody else writes"),
    ):
        claim.check()


def test_folders_of_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("hello")
    with pytest.raises(BadInputError, match="holds something else than tables of Tidewise"):
        claimed(tmp_path, buckets=4).__enter__()
    (tmp_path / FACTS).write_text(json.dumps({"format": 1, "buckets": 16}))
    with pytest.raises(BadInputError, match="have 16 buckets, not 4"):
        claimed(tmp_path, buckets=4).__enter__()
    (tmp_path / FACTS).write_text("[]")
    with pytest.raises(BadInputError, match="was not written by Tidewise"):
        read_facts(tmp_path)


def test_days_are_dropped_by_table(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    with claimed(tables, buckets=4):
        pass
    for table in ("reports", "performance"):
        for day in ("2026-01-01", "2026-01-09", "2026-01-10"):
            (tables / table / f"day={day}" / "bucket=00" / "batch=0").mkdir(parents=True)
    assert retain(tables, kept_days({"reports": 1}), today=date(2026, 1, 10)) == 1
    assert sorted(path.name for path in (tables / "reports").iterdir()) == ["day=2026-01-09", "day=2026-01-10"]
    assert len(list((tables / "performance").iterdir())) == 3
    with pytest.raises(BadInputError, match="there is no table 'rumours': write one of reports, "):
        retain(tables, {"rumours": 1}, today=date(2026, 1, 10))
