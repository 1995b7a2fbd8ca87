"""A small fleet on a real Spark: from lines through the tables to models, backtests and reports."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tidewise.cli.fleet import fleet_commands
from tidewise.cli.history import history
from tidewise.core import BadInputError, PermanentError
from tidewise.core.telemetry import ChangeRow, Envelope, RecoveryRow, ReportRow, TelemetryRow
from tidewise.experiments.fleet_backtest import FleetBacktestSettings, backtest_fleet, fleet_summary
from tidewise.experiments.fleet_fit import fit_fleet, fitted_job, read_model
from tidewise.experiments.fleet_generate import KINDS, generated_job, write_fleet
from tidewise.experiments.fleet_samples import all_columns, samples_of
from tidewise.experiments.fleet_tables import OBSERVATIONS, open_fleet
from tidewise.experiments.fleet_warm_start import JobTraits, known_traits, warm_physics
from tidewise.experiments.history import ReportName, report_history
from tidewise.experiments.telemetry_forecasts import HORIZONS_S
from tidewise.experiments.tidalscale_service import known_loads
from tidewise.pipeline.job_files import buckets_in, listed
from tidewise.pipeline.job_rows import IS_WHOLE, OBSERVED, Thinning, rows_of
from tidewise.pipeline.table_sql import ask
from tidewise.pipeline.telemetry_stream import FolderSource, run_stream

pytestmark = pytest.mark.xdist_group("spark")

_MINUTES = 150
_FAILED_AT, _CHANGED_AT, _FULL_AT, _ODD_AT = 20, 50, 80, 110


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the stream writes them: a job that was too large, one that broke its promise, one that failed, and others."""
    folder = tmp_path_factory.mktemp("fleet")
    begin_s = 60.0 * math.floor(time.time() / 60.0 - _MINUTES - 5)
    jobs: dict[str, list[TelemetryRow]] = {"big-1": _oversized(begin_s), "late-1": _late(begin_s)}
    jobs["orders-0"] = _failing(begin_s)
    for number in range(1, 4):
        jobs[f"orders-{number}"] = [
            _report(begin_s, minute, load_per_s=1000.0 * (number + 1)) for minute in range(_MINUTES)
        ]
    lines = [
        Envelope(job=job, run=f"{job}-run", line=line, program="v1", row=row).to_json()
        for job, rows in jobs.items()
        for line, row in enumerate(rows, start=1)
    ]
    source = folder / "lines"
    source.mkdir()
    (source / "all.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    taken = run_stream(FolderSource(folder=source), folder / "tables", session=spark, once=True)
    assert (taken.rows, taken.dead_letters) == (len(lines), 0)
    return folder / "tables"


def _report(
    begin_s: float,
    minute: int,
    *,
    load_per_s: float,
    executors: int = 2,
    latency_p95_s: float = 5.0,
    busy_share: float | None = None,
) -> ReportRow:
    busy = min(1.0, load_per_s / (4000.0 * executors))
    return ReportRow(
        at_unix_s=begin_s + 60.0 * (minute + 1),
        window_s=60.0,
        status="running",
        executors=executors,
        slots_per_executor=1,
        cores_per_executor=1.0,
        memory_mib_per_executor=2048,
        commit_interval_s=2.0,
        state_partitions=None,
        load_per_s=load_per_s,
        input_rate_per_s=load_per_s,
        processed_rate_per_s=load_per_s,
        backlog_records=0.0,
        promised_latency_p95_s=10.0,
        cost_per_hour=0.1 * executors,
        currency="EUR",
        latency_p95_s=latency_p95_s,
        busy_share=busy if busy_share is None else busy_share,
        cpu_share=0.5,
        memory_share=0.4,
    )


def _oversized(begin_s: float) -> list[TelemetryRow]:
    half = _MINUTES // 2
    return [
        _report(begin_s, minute, load_per_s=1000.0, executors=4 if minute < half else 2) for minute in range(_MINUTES)
    ]


def _late(begin_s: float) -> list[TelemetryRow]:
    """Late for three minutes after a failure, for two after a change, for four at full load, and once for nothing."""
    rows: list[TelemetryRow] = []
    for minute in range(_MINUTES):
        full = _FULL_AT <= minute < _FULL_AT + 4
        late = full or minute == _ODD_AT or minute in range(_FAILED_AT, _FAILED_AT + 3) or minute in {_CHANGED_AT, 51}
        latency_s, busy = 30.0 if late else 5.0, 0.99 if full else None
        rows.append(_report(begin_s, minute, load_per_s=2000.0, latency_p95_s=latency_s, busy_share=busy))
    rows.append(
        RecoveryRow(
            at_unix_s=begin_s + 60.0 * _FAILED_AT,
            failure="driver-kill",
            took_s=150.0,
            is_bound=False,
            rate_per_s=2000.0,
            executors=2,
            configuration="2 executors",
        )
    )
    rows.append(_change(begin_s))
    return rows


def _change(begin_s: float) -> ChangeRow:
    return ChangeRow(
        at_unix_s=begin_s + 60.0 * _CHANGED_AT,
        request_id="c1",
        origin="policy",
        mechanism="redeploy",
        source="2 executors",
        target="3 executors",
        source_executors=2,
        target_executors=3,
        outcome="applied",
        took_s=60.0,
        gap_s=30.0,
        reason_code="load",
        sentence="More load is to come.",
    )


def _failing(begin_s: float) -> list[TelemetryRow]:
    """In time but for four failures: during a change, while it was full, during which it failed again, and that one."""
    rows: list[TelemetryRow] = [
        _report(begin_s, minute, load_per_s=1000.0, busy_share=0.99 if minute == _FULL_AT else None)
        for minute in range(_MINUTES)
    ]
    failures = (
        *((_CHANGED_AT, 90.0, False), (_FULL_AT + 1, 100.0, False), (_ODD_AT, 600.0, True), (_ODD_AT + 5, 61.0, False)),
        *((_MINUTES - 9, 60.0, True), (_MINUTES - 5, 9.0, False)),  # these were got over in time, as far as is known
    )
    rows += [
        RecoveryRow(
            at_unix_s=begin_s + 60.0 * minute,
            failure="executor-kill",
            took_s=took_s,
            is_bound=is_bound,
            rate_per_s=1000.0,
            executors=2,
            configuration="2 executors",
            promised_recovery_s=60.0,
        )
        for minute, took_s, is_bound in failures
    ]
    return [*rows, _change(begin_s)]


def test_a_generated_fleet_reads_as_a_table_and_is_the_same_for_the_same_seed(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        write_fleet(tmp_path / name, jobs=5, windows=1500, seed=seed)
    one, same, other = (open_fleet(spark, tmp_path / name)[OBSERVATIONS] for name in ("one", "same", "other"))
    assert one.count() == 7500
    assert one.exceptAll(same).count() == 0
    assert one.exceptAll(other).count() > 0
    assert {row[0] for row in one.selectExpr("split(job, '-')[0]").distinct().collect()} == {
        kind.prefix for kind in KINDS
    }
    assert one.where("load_per_s < 0 or busy_share > 1 or executors < 1 or running_s != 60").count() == 0
    assert {str(row[0]) for row in one.select("day").distinct().collect()} == {"2026-01-01", "2026-01-02"}


def test_rows_read_from_the_files_are_those_of_the_view(spark: SparkSession, tables: Path) -> None:
    looks, everything = all_columns(), Thinning(newest_s=1e9, whole=1_000_000)
    found: dict[tuple[str, int, int], dict[str, object]] = {}
    for bucket in buckets_in(tables, OBSERVATIONS):
        for job, rows in rows_of(bucket, listed(bucket).jobs, thinning=everything, wanted=looks.wanted):
            found |= {(job, row["window_start_unix_s"], row["executors"]): row for row in rows.to_pylist()}
    view = [row.asDict() for row in open_fleet(spark, tables)[OBSERVATIONS].collect()]
    assert len(view) == len(found) == 6 * _MINUTES
    for row in view:
        same = found[row["job"], row["window_start_unix_s"], row["executors"]]
        named = {name: row[name] for name in same if name in row}
        assert same == pytest.approx({**named, OBSERVED: row["window_s"], IS_WHOLE: True})


@pytest.mark.soak
def test_models_of_a_generated_fleet_find_what_it_was_made_of(spark: SparkSession, tmp_path: Path) -> None:
    write_fleet(tmp_path, jobs=10, windows=900)
    worked = fit_fleet(spark, tmp_path, tmp_path / "models", now_unix_s=1.0)
    assert (worked.groups, worked.failed) == (10, 0)
    truth = {job.name: job.records_per_core_s for job in map(generated_job, range(10))}
    for row in spark.read.parquet(str(tmp_path / "models")).collect():
        assert row["records_per_core_s"] == pytest.approx(truth[row["job"]], rel=0.2), row["job"]
        assert fitted_job(row.asDict()).forecaster().save()["model"] == "ensemble"
    # One that is new begins like those of its name.
    new, known = JobTraits(job="clicks-new"), known_traits(tmp_path)
    warm = warm_physics(new, known).records_per_core_s
    clicks = [value for job, value in truth.items() if job.startswith("clicks")]
    assert min(clicks) * 0.8 < warm.median < max(clicks) * 1.2


def test_what_is_read_from_the_table_is_what_was_fitted_here(spark: SparkSession, tmp_path: Path) -> None:
    write_fleet(tmp_path, jobs=2, windows=400)
    fit_fleet(spark, tmp_path, tmp_path / "models", now_unix_s=1.0)
    fitted = read_model(spark, tmp_path / "models", "orders-000000")
    rows = open_fleet(spark, tmp_path)[OBSERVATIONS].where("job = 'orders-000000'").orderBy("window_start_unix_s")
    samples = samples_of(rows.selectExpr("window_start_unix_s", "load_per_s", "window_s AS observed_s").toArrow())
    forecaster = fitted.forecaster()
    series = forecaster.save()["series"]
    assert isinstance(series, dict)
    assert series["end_s"] == samples.end_unix_s
    assert series["rates"] == pytest.approx(samples.rates_per_s.tolist(), rel=1e-4)
    assert forecaster.forecast(horizon_s=60.0, step_s=60.0).made_at_s == samples.end_unix_s
    with pytest.raises(BadInputError, match="has no job 'nobody'"):
        read_model(spark, tmp_path / "models", "nobody")
    with pytest.raises(BadInputError, match="no table of models"):
        read_model(spark, tmp_path / "nowhere", "nobody")


def test_a_fleet_is_judged_job_by_job_and_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    write_fleet(tmp_path, jobs=5, windows=200)
    settings = FleetBacktestSettings(models=("naive", "level"), origins=2, most_jobs=3)
    worked = backtest_fleet(spark, tmp_path, tmp_path / "backtest", settings)
    assert (worked.groups, worked.failed) == (3, 0)
    found = fleet_summary(spark, tmp_path / "backtest")
    assert [(each.horizon_s, each.model, each.jobs) for each in found] == [
        (horizon_s, model, 3) for horizon_s in HORIZONS_S for model in ("level", "naive")
    ]
    assert {each.beats_naive is None for each in found if each.model == "naive"} == {True}
    assert all(0.0 <= (each.beats_naive or 0.0) <= 1.0 for each in found)


@pytest.mark.usefixtures("spark")
def test_the_commands_fit_and_judge_what_the_stream_wrote(tables: Path) -> None:
    fitted = CliRunner().invoke(fleet_commands, ["fit", "--tables", str(tables), "--json"], catch_exceptions=False)
    told = json.loads(fitted.stdout)
    assert (told["groups"], told["failed"], told["with_capacity"]) == (6, 0, 6)
    assert told["bytes_per_job"] < 40_000
    judged = CliRunner().invoke(
        fleet_commands,
        ["backtest", "--tables", str(tables), "--models", "naive", "--jobs", "2", "--origins", "1"],
        catch_exceptions=False,
    )
    assert judged.stdout.startswith("2 of 2 jobs judged in ")
    asked = _ask(
        tables, "SELECT job, round(records_per_core_s, -2) AS speed FROM models WHERE job = 'orders-1'", "--json"
    )
    assert json.loads(asked)["rows"][0]["speed"] == pytest.approx(4000.0, rel=0.1)


def _ask(tables: Path, *words: str) -> str:
    app = typer.Typer()
    app.command()(history)
    return CliRunner().invoke(app, [*words, "--tables", str(tables)], catch_exceptions=False).stdout


def test_where_the_money_goes(spark: SparkSession, tables: Path) -> None:
    found = report_history(spark, tables, ReportName.MONEY, at_most=2)
    # 75 min at 0.40 and 75 min at 0.20 an hour; five others at 0.20.
    assert found.sentences[0].startswith("6 jobs cost 3.25 EUR in ")
    by_job = found.tables[0][1]
    assert by_job.is_cut
    assert by_job.dicts()[0]["job"] == "big-1"
    assert by_job.dicts()[0]["cost"] == pytest.approx(0.75)


def test_the_job_that_was_too_large_is_named(spark: SparkSession, tables: Path) -> None:
    found = report_history(spark, tables, ReportName.OVERSIZED, at_most=10)
    first = found.tables[0][1].dicts()[0]
    assert (first["job"], first["executors"]) == ("big-1", 2)
    assert first["saved_per_hour"] == pytest.approx(0.1)
    assert found.sentences[0].startswith("1 of 6 jobs are oversized: 0.10 EUR an hour could be saved")


def test_broken_promises_have_the_cause_that_was_nearest(spark: SparkSession, tables: Path) -> None:
    found = report_history(spark, tables, ReportName.PROMISES, at_most=10)
    (late,) = found.tables[0][1].dicts()
    assert late["job"] == "late-1"
    assert (late["failure_s"], late["change_s"], late["overload_s"], late["unexplained_s"]) == (
        180.0,
        120.0,
        240.0,
        60.0,
    )
    assert found.sentences[0].startswith("1 of 6 jobs were late for 10 min in all: 40% under too much load, 30% after")
    # Of the six failures of another, four took longer than was promised.
    failed = found.tables[1][1].dicts()
    assert [(one["job"], one["took_s"], one["is_bound"], one["reason"]) for one in failed] == [
        ("orders-0", 600.0, True, "it failed again meanwhile (executor-kill)"),
        ("orders-0", 100.0, False, "too much load: it was full before it failed"),
        ("orders-0", 90.0, False, "a change was on (redeploy, applied)"),
        ("orders-0", 61.0, False, None),
    ]
    assert "4 of 6 failures took longer to get over than was promised, in 1 job." in found.sentences
    assert found.sentences[-1].startswith("orders-0: 90 s in place of 60 s after executor-kill, 20")


@pytest.mark.usefixtures("spark")
def test_a_service_begins_with_what_the_table_of_all_jobs_knows(tables: Path) -> None:
    known = known_loads(tables)
    assert {
        job: [(one.configuration.executors, round(one.load_per_s)) for one in seen] for job, seen in known.items()
    } == {
        "big-1": [(2, 1000), (4, 1000)],  # what ran last comes first
        "late-1": [(2, 2000)],
        **{f"orders-{number}": [(2, 1000 * (number + 1))] for number in range(4)},
    }
    assert {one.cpu_share for seen in known.values() for one in seen} == {0.5}
    with pytest.raises(BadInputError, match="there are no tables"):
        known_loads(tables / "elsewhere")


def test_a_fit_that_was_stopped_leaves_the_tables_open_to_questions(spark: SparkSession, tmp_path: Path) -> None:
    write_fleet(tmp_path, jobs=1, windows=5)
    (tmp_path / "models" / ".spark-staging-1").mkdir(parents=True)
    assert "models" not in open_fleet(spark, tmp_path)
    with pytest.raises(BadInputError, match="there is no table of models"):
        read_model(spark, tmp_path / "models", "orders-000000")


@pytest.mark.usefixtures("spark")
def test_a_file_that_is_damaged_or_gone_is_named(spark: SparkSession, tmp_path: Path) -> None:
    write_fleet(tmp_path / "a b", jobs=1, windows=5)
    (file,) = (tmp_path / "a b" / OBSERVATIONS).rglob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PermanentError, match=r"cannot be read \(it is not a Parquet .+\): bring it back") as caught:
        _ask(tmp_path / "a b", "SELECT sum(load_per_s) FROM observations_60s")
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)
    file.write_bytes(whole)
    open_fleet(spark, tmp_path / "a b")
    file.unlink()
    with pytest.raises(PermanentError, match=r"\.parquet was taken away while it was read: try it again"):
        ask(spark, "SELECT sum(load_per_s) FROM observations_60s", at_most=1)


@pytest.mark.usefixtures("spark")
def test_answers_come_as_tables_csv_and_json(tables: Path) -> None:
    sql = "SELECT job, sum(cost) AS cost FROM observations_60s GROUP BY job ORDER BY cost DESC, job"
    lines = _ask(tables, sql, "--csv").splitlines()
    assert lines[0] == "job,cost"
    assert lines[1].startswith("big-1,0.7")
    assert len(lines) == 7
    shown = _ask(tables, sql, "--rows", "2")
    assert "These are the first 2 rows; there are more" in shown
    assert json.loads(_ask(tables, sql, "--rows", "2", "--json"))["is_cut"] is True
    with pytest.raises(BadInputError, match="cannot be answered"):
        _ask(tables, "SELECT nothing FROM observations_60s")
    with pytest.raises(BadInputError, match="ask something"):
        _ask(tables)
    with pytest.raises(BadInputError, match="there are no tables"):
        _ask(tables / "elsewhere", sql)


def test_a_folder_without_rows_says_so(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir()
    run_stream(FolderSource(folder=tmp_path / "lines"), tmp_path / "tables", session=spark, once=True)
    for name in ReportName:
        said = report_history(spark, tmp_path / "tables", name, at_most=5).sentences
        assert len(said) == 1
        assert said[0].startswith("No ")
