"""What the commands about tables refuse, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewise.cli.telemetry_tables import compact_tables, write_tables
from tidewise.core import BadInputError, TemporaryError
from tidewise.core.errors import InvalidValueError


def test_a_source_that_cannot_be_one_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="kafka://HOST:PORT/TOPIC"):
        write_tables(source="ftp://somewhere", folder=tmp_path)
    with pytest.raises(BadInputError, match="there is no folder"):
        write_tables(source=str(tmp_path / "missing"), folder=tmp_path)
    with pytest.raises(TemporaryError, match=r"no broker listens at 127\.0\.0\.1:1: start it"):
        write_tables(source="kafka://127.0.0.1:1/metrics", folder=tmp_path)


def test_durations_have_units(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="'60' has no unit"):
        write_tables(source=str(tmp_path), folder=tmp_path / "tables", every="60")
    with pytest.raises(InvalidValueError, match="every must be above 0"):
        write_tables(source=str(tmp_path), folder=tmp_path / "tables", every="0s")


def test_tables_among_the_lines_or_lines_among_the_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "history" / "rows").mkdir(parents=True)
    for lines, tables in (("history", "history/tables"), ("history/rows", "history"), ("history", "history/rows/..")):
        with pytest.raises(BadInputError, match="name a folder beside it in place of"):
            write_tables(source=str(tmp_path / lines), folder=tmp_path / tables)
    assert [path.name for path in (tmp_path / "history").iterdir()] == ["rows"]


def test_more_buckets_than_their_folders_have_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="buckets must lie between 1 and 100, not 101"):
        write_tables(source=str(tmp_path), folder=tmp_path / "tables", buckets=101)


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ("reports", "--keep-days reports is no table with its days: write it like --keep-days reports=7"),
        ("reports=-1", "is no table with its days"),
        ("reports=1000000", "reports cannot be kept for 1000000 days: write at most 36500"),
        (f"reports={'9' * 5000}", "is no table with its days"),
        ("rumours=3", "there is no table 'rumours': write one of reports, "),
    ],
)
def test_a_retention_that_cannot_be_one_is_told_at_once(told: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "tidewise-tables.json").write_text('{"format": 1, "buckets": 16}')
    with pytest.raises(BadInputError) as error:
        compact_tables(tmp_path, keep_days=[told])
    assert sentence in str(error.value)


def test_a_folder_without_tables_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="there are no tables in"):
        compact_tables(tmp_path)
