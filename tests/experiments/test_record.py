"""Run folders: what is written is what is read, and nothing half-written can be taken for a run."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
    Usage,
)
from tidewise.experiments import record as record_module
from tidewise.experiments.record import (
    JOURNAL_FILE,
    RUN_FILE,
    SERIES_FILE,
    ChangeRecord,
    FaultRecord,
    RunRecord,
    begin_run,
    find_runs,
    finish_run,
    load_run,
    write_run,
)
from tidewise.experiments.series import COLUMNS, Series

START = Configuration(executors=4, settings=(("spark.sql.shuffle.partitions", "8"),), state_partitions=8)
SECONDS = 6


def a_series(**columns: object) -> Series:
    latency = np.array([1.0, 1.5, np.nan, 2.0, 1.0, 1.0])
    full: dict[str, Any] = {
        "second": np.arange(SECONDS),
        "input_rate_per_s": np.full(SECONDS, 100.0),
        "processed_rate_per_s": np.full(SECONDS, 100.0),
        "backlog_records": np.linspace(0, 1 / 3, SECONDS),
        "latency_p50_s": latency,
        "latency_p95_s": latency * 1.1,
        "latency_p99_s": latency * 1.2,
        "up": np.array([True, True, False, True, True, True]),
        "busy_share": np.full(SECONDS, 0.5),
        "cpu_share": np.full(SECONDS, np.nan),
        "memory_share": np.full(SECONDS, 1.1),
        "state_mib": np.full(SECONDS, np.nan),
        "executors": np.full(SECONDS, 4),
        "cores": np.full(SECONDS, 4.0),
        "memory_mib": np.full(SECONDS, 4096.0),
        "forecast_per_s": np.array([np.nan, 1.0, 2.0, 3.0, 4.0, 5.0]),
    }
    full.update(columns)
    return Series(**full)


def a_record(**values: object) -> RunRecord:
    full: dict[str, Any] = {
        "name": "ysb-static-1",
        "engine": "simulator",
        "profile": "paper-cluster",
        "load": "ysb",
        "policy": "static",
        "seed": 1,
        "duration_s": float(SECONDS),
        "start": START,
        "promises": Promises(latency_p95_s=2.0, recovery_s=180.0),
        "prices": Prices(currency="EUR"),
        "faults": (FaultRecord(at_s=2.5, kind="kill-executor"),),
        "changes": (
            ChangeRecord(
                requested_at_s=1.0,
                finished_at_s=2.0,
                mechanism=Mechanism.LIVE,
                origin=Origin.POLICY,
                source=START,
                target=START.with_executors(5),
                status=ChangeStatus.APPLIED,
                gap_s=0.0,
                reason="the load rises",
            ),
        ),
        "meter": {Purpose.EXECUTORS: Usage(core_s=24.0, memory_mib_s=24576.0), Purpose.DRIVER: Usage(core_s=6.0)},
        "versions": {"tidewise": "0.1.0", "python": "3.11", "numpy": "2.0", "profile": "abc"},
        "plan": {"loads": ["ysb"], "faults": {"every_s": 45.5, "kind": None}},
        "complete": True,
        "created": "2025-03-01",
    }
    full.update(values)
    return RunRecord(**full)


def test_every_column_of_a_series_has_its_kind() -> None:
    assert [field.name for field in fields(Series)] == list(COLUMNS)


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    record, series = a_record(), a_series()
    write_run(tmp_path / "run", record, series)
    run = load_run(tmp_path / "run")
    assert run.record == record
    read = run.read_series()
    for field in fields(Series):
        np.testing.assert_array_equal(getattr(read, field.name), getattr(series, field.name))
        assert getattr(read, field.name).dtype == getattr(series, field.name).dtype
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_what_is_not_known_is_null_in_the_file(tmp_path: Path) -> None:
    write_run(tmp_path / "run", a_record(), a_series())
    table = pq.read_table(tmp_path / "run" / SERIES_FILE)
    assert table.column("latency_p50_s").to_pylist() == [1.0, 1.5, None, 2.0, 1.0, 1.0]
    assert table.column("cpu_share").null_count == SECONDS
    assert table.column("second").null_count == 0


def test_a_series_cannot_be_changed() -> None:
    given = np.full(SECONDS, 100.0)
    series = a_series(input_rate_per_s=given)
    given[0] = 7.0
    assert series.input_rate_per_s[0] == 100.0
    with pytest.raises(ValueError, match="read-only"):
        series.input_rate_per_s[0] = 7.0


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"cores": np.full(SECONDS - 1, 4.0)}, "one length"),
        ({"second": np.arange(1, SECONDS + 1)}, "0, 1, 2"),
        ({"input_rate_per_s": np.full(SECONDS, np.nan)}, "known in every second"),
        ({"latency_p50_s": np.full(SECONDS, np.inf)}, "finite"),
        ({"latency_p95_s": np.full(SECONDS, 1.0)}, "same seconds"),
        ({"latency_p95_s": np.array([0.5, 1.5, np.nan, 2.0, 1.0, 1.0])}, "ascend"),
        ({"backlog_records": np.full(SECONDS, -1.0)}, "negative"),
        ({"executors": np.full(SECONDS, 1.5)}, "int64"),
        ({"up": np.full(SECONDS, 2)}, "bool"),
        ({"cores": np.full((SECONDS, 1), 1.0)}, "one-dimensional"),
        ({"cores": np.array(["a"] * SECONDS)}, "numbers"),
    ],
)
def test_an_illegal_series_cannot_be_built(columns: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidValueError, match=complaint):
        a_series(**columns)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"name": " "}, "name"),
        ({"created": "yesterday"}, "ISO date"),
        ({"faults": (FaultRecord(at_s=3.0, kind="a"), FaultRecord(at_s=1.0, kind="a"))}, "order of time"),
        ({"faults": (FaultRecord(at_s=6.0, kind="a"),)}, "after the end"),
        ({"format_version": 2}, "format"),
    ],
)
def test_an_illegal_record_cannot_be_built(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidValueError, match=complaint):
        a_record(**values)


def test_a_change_has_a_status_if_and_only_if_it_finished() -> None:
    with pytest.raises(InvalidValueError, match="status"):
        replace(a_record().changes[0], finished_at_s=None)
    assert replace(a_record().changes[0], finished_at_s=None, status=None).status is None


def test_the_journal_of_the_partial_folder_goes_with_the_run(tmp_path: Path) -> None:
    work = begin_run(tmp_path / "run")
    assert work.name == "run.partial"
    (work / JOURNAL_FILE).write_bytes(b"journal")
    run = finish_run(work, a_record(), a_series())
    assert run.folder == tmp_path / "run"
    assert (run.folder / JOURNAL_FILE).read_bytes() == b"journal"
    assert not work.exists()


def test_what_a_killed_run_left_is_cleared_away(tmp_path: Path) -> None:
    (begin_run(tmp_path / "run") / JOURNAL_FILE).write_bytes(b"old")
    assert list(begin_run(tmp_path / "run").iterdir()) == []


def test_a_strangers_files_are_never_removed(tmp_path: Path) -> None:
    (tmp_path / "run.partial").mkdir()
    (tmp_path / "run.partial" / "thesis.tex").write_text("dear")
    with pytest.raises(BadInputError, match=r"thesis\.tex"):
        begin_run(tmp_path / "run")
    assert (tmp_path / "run.partial" / "thesis.tex").exists()


def test_a_run_is_never_written_over(tmp_path: Path) -> None:
    write_run(tmp_path / "run", a_record(), a_series())
    with pytest.raises(BadInputError, match="exists already"):
        write_run(tmp_path / "run", a_record(seed=2), a_series())
    assert load_run(tmp_path / "run").record.seed == 1


def test_a_folder_that_appeared_meanwhile_is_left_alone(tmp_path: Path) -> None:
    work = begin_run(tmp_path / "run")
    (tmp_path / "run").mkdir()
    with pytest.raises(PermanentError, match="exists already"):
        finish_run(work, a_record(), a_series())
    assert list((tmp_path / "run").iterdir()) == []


def test_a_series_of_another_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="longer"):
        write_run(tmp_path / "a", a_record(duration_s=3.0), a_series())
    with pytest.raises(InvalidValueError, match="too short"):
        write_run(tmp_path / "b", a_record(duration_s=60.0), a_series())
    write_run(tmp_path / "c", a_record(duration_s=60.0, complete=False), a_series())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]


def full_disk(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("writer", ["_write_series", "_write_durably"])
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str) -> None:
    monkeypatch.setattr(record_module, writer, full_disk)
    with pytest.raises(PermanentError, match="No space left on device"):
        write_run(tmp_path / "run", a_record(), a_series())
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_while_the_table_is_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(_: object, path: Path, **__: object) -> None:
        path.write_bytes(b"PAR1")
        full_disk()

    monkeypatch.setattr(pq, "write_table", half)
    with pytest.raises(PermanentError, match="No space left"):
        write_run(tmp_path / "run", a_record(), a_series())
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_spares_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = begin_run(tmp_path / "run")
    (work / JOURNAL_FILE).write_bytes(b"journal")
    monkeypatch.setattr(record_module, "_write_durably", full_disk)
    with pytest.raises(PermanentError, match="No space left"):
        finish_run(work, a_record(), a_series())
    assert [path.name for path in work.iterdir()] == [JOURNAL_FILE]


def test_another_format_is_refused_by_its_number(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", a_record(), a_series()).folder
    content = json.loads((folder / RUN_FILE).read_text())
    (folder / RUN_FILE).write_text(json.dumps(content | {"format_version": 7}))
    with pytest.raises(BadInputError, match="format 7, and this version of Tidewise reads format 1"):
        load_run(folder)


def _cut_json(folder: Path) -> None:
    path = folder / RUN_FILE
    path.write_bytes(path.read_bytes()[:100])


def _edit(folder: Path, **values: object) -> None:
    path = folder / RUN_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def _drop_column(folder: Path) -> None:
    path = folder / SERIES_FILE
    pq.write_table(pq.read_table(path).drop_columns(["up"]), path)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_cut_json, r"run\.json cannot be read"),
        (lambda folder: (folder / RUN_FILE).unlink(), r"no run\.json"),
        (lambda folder: (folder / RUN_FILE).write_text("[]"), "no format_version"),
        (lambda folder: _edit(folder, seed="one"), "damaged at seed"),
        (lambda folder: _edit(folder, colour="red"), "damaged at colour"),
        (lambda folder: _edit(folder, duration_s=-1.0), "duration_s must be above 0"),
        (lambda folder: (folder / SERIES_FILE).unlink(), r"no series\.parquet"),
        (lambda folder: (folder / SERIES_FILE).write_bytes(b"PAR1 and rubbish"), "damaged"),
        (_drop_column, "no column up"),
    ],
)
def test_a_damaged_folder_is_refused_with_what_is_wrong(
    tmp_path: Path, damage: Callable[[Path], object], complaint: str
) -> None:
    write_run(tmp_path / "runs" / "good", a_record(), a_series())
    folder = write_run(tmp_path / "runs" / "bad", a_record(), a_series()).folder
    damage(folder)
    with pytest.raises(BadInputError, match=complaint):
        load_run(folder)
    with pytest.raises(BadInputError, match=complaint):
        find_runs([tmp_path / "runs"])


def test_a_table_that_breaks_the_rules_is_refused_when_read(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", a_record(), a_series())
    table = pq.read_table(run.folder / SERIES_FILE)
    index = table.column_names.index("cores")
    pq.write_table(table.set_column(index, "cores", pa.array([None] * SECONDS, pa.float64())), run.folder / SERIES_FILE)
    with pytest.raises(BadInputError, match="cores must be known in every second"):
        run.read_series()


def test_runs_are_found_at_any_depth_each_once(tmp_path: Path) -> None:
    for name in ("b/run-2", "a/run-1", "c"):
        write_run(tmp_path / name, a_record(name=name), a_series())
    begin_run(tmp_path / "a" / "run-9")
    (tmp_path / "empty").mkdir()
    found = find_runs([tmp_path, tmp_path / "a" / "run-1", tmp_path / "b"])
    assert [run.record.name for run in found] == ["a/run-1", "b/run-2", "c"]


def test_no_run_at_all_is_an_error(tmp_path: Path) -> None:
    begin_run(tmp_path / "run")
    with pytest.raises(BadInputError, match="no finished run"):
        find_runs([tmp_path])
    with pytest.raises(BadInputError, match="not a folder"):
        find_runs([tmp_path / "nowhere"])
    with pytest.raises(BadInputError, match="is on or was killed"):
        find_runs([tmp_path / "run.partial"])


def test_a_run_that_was_cut_short_is_read_only_when_asked_for(tmp_path: Path) -> None:
    write_run(tmp_path / "run", a_record(complete=False), a_series())
    with pytest.raises(BadInputError, match="cut short"):
        find_runs([tmp_path])
    assert len(find_runs([tmp_path], allow_incomplete=True)) == 1
