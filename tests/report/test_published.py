"""Beside the published figures: what stands there, and where it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import JsonValue

from tests.report.samples import SECONDS, a_run
from tidewise.cli.summary import published_rows, summary_rows
from tidewise.core import Censored, Prices
from tidewise.experiments import compare, find_plan, published
from tidewise.experiments.plan import read_plan
from tidewise.experiments.published import Beside, beside
from tidewise.experiments.record import FaultRecord, Run, RunRecord
from tidewise.experiments.toml_file import TomlFile
from tidewise.report import build_report
from tidewise.report.published import origin_of, published_table
from tidewise.report.scenario import facts

PLAN: dict[str, JsonValue] = {
    **read_plan(TomlFile(find_plan("paper"))).resolved(),
    "loads": [{"name": "ysb", "shape": "trace", "file": "somewhere/ysb_18h.csv", "scale": 2.0}],
}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    def like_theirs(_record: RunRecord) -> str:
        return "YSB"

    monkeypatch.setattr(published, "published_job", like_theirs)
    monkeypatch.setattr("tidewise.report.published.published_job", like_theirs)
    return [
        a_run(tmp_path / "a", policy="static", plan=PLAN),
        a_run(tmp_path / "b", policy="reactive", executors=4, plan=PLAN),
        a_run(tmp_path / "c", policy="phoebe", executors=4, plan=PLAN),
    ]


def test_the_page_sets_runs_beside_what_was_published(runs: list[Run]) -> None:
    page = build_report(runs)
    part = page[page.index("Beside the published figures") : page.index("Load and forecast")]
    rows = [row for row in part.split("<tr>") if "<td" in row]
    assert [name for row in rows for name in ("static", "reactive", "phoebe") if f"</span>{name}</td>" in row] == [
        "static",
        "reactive",
    ]
    assert "<td>0.50<small>0.61</small><small>-18 % ✗</small></td>" in rows[1]
    assert "published of YSB" in part
    assert "The load is read from ysb_18h.csv, multiplied by 2" in part
    assert "14.4 of 24 workers" in part  # Phoebe's, in words: it was published on runs of its own


def test_a_terminal_shows_the_same(runs: list[Run]) -> None:
    table = published_table(compare(runs))
    assert table is not None
    assert table.row_count == 2
    cells = [str(cell) for cell in table.columns[1].cells]
    assert cells == ["1.00\n1.00\nthe same ✓", "0.50\n0.61\n-18 % ✗"]


def _cell(runs: list[Run], policy: str, figure: str) -> tuple[Beside, list[str]]:
    """A figure, and the three lines of its cell in a terminal."""
    aggregates = compare(runs)
    table = published_table(aggregates)
    assert table is not None
    found = next(beside(aggregate) for aggregate in aggregates if aggregate.policy == policy)
    column = [one.figure for one in found].index(figure)
    row = [str(cell) for cell in table.columns[0].cells].index(policy)
    return found[column], str(list(table.columns[column + 1].cells)[row]).split("\n")


def test_a_latency_keeps_the_digits_that_matter(runs: list[Run]) -> None:
    assert _cell(runs, "static", "latency p99")[1][1] == "1.50 s"


def test_an_endless_latency_is_said_in_words(tmp_path: Path, runs: list[Run]) -> None:
    never = np.full(SECONDS, np.nan)
    silent = {"latency_p50_s": never, "latency_p95_s": never, "latency_p99_s": never}
    runs[1] = a_run(tmp_path / "d", policy="reactive", executors=4, plan=PLAN, series=silent)
    one, cell = _cell(runs, "reactive", "latency p99")
    assert one.value == np.inf
    assert cell == ["never", "10.0..11.0 s", "–"]  # noqa: RUF001 - an en dash is what a table shows


def _slow_to_the_end(folder: Path) -> Run:
    """The failure comes 30 s before the end, and nobody sees the recovery."""
    latency = np.full(SECONDS, 1.0)
    latency[-30:] = 20.0
    columns = {"latency_p50_s": latency, "latency_p95_s": latency, "latency_p99_s": latency}
    faults = (FaultRecord(at_s=float(SECONDS - 30), kind="kill-executor"),)
    return a_run(folder, policy="reactive", executors=4, plan=PLAN, series=columns, faults=faults)


def test_a_recovery_that_was_cut_off_is_no_exact_figure(tmp_path: Path, runs: list[Run]) -> None:
    runs[1] = _slow_to_the_end(tmp_path / "d")
    assert any(isinstance(one.recovery_mean_s, Censored) for one in compare(runs)[-1].summaries)
    for figure in ("recovery mean", "recovery max"):
        one, cell = _cell(runs, "reactive", figure)
        assert cell[0] == "≥ 30 s"
        assert one.misfit is None  # below what was published, but nobody knows by how much
        assert cell[2] == "–"  # noqa: RUF001 - an en dash is what a table shows
    assert "<td>≥ 30 s<small>164 s</small>" in build_report(runs)
    row = next(
        row for row in published_rows(compare(runs)) if (row["policy"], row["figure"]) == ("reactive", "recovery max")
    )
    assert (row["ours"], row["ours_at_least"], row["misfit"]) == (None, 30.0, None)


def test_the_longest_recovery_is_that_of_all_runs(tmp_path: Path, runs: list[Run]) -> None:
    faults = (FaultRecord(at_s=580.0, kind="kill-executor"),)  # 20 s earlier, so 20 s longer
    runs += [
        a_run(tmp_path / "d", policy="static", plan=PLAN, seed=2),
        a_run(tmp_path / "e", policy="reactive", executors=4, plan=PLAN, seed=2, faults=faults),
    ]
    longest, cell = _cell(runs, "reactive", "recovery max")
    assert longest.ours is not None
    assert longest.value == longest.ours.most > longest.ours.mean
    assert cell[0] == f"{longest.ours.most:.0f} s"
    mean, _ = _cell(runs, "reactive", "recovery mean")
    assert mean.ours is not None
    assert mean.value == mean.ours.mean < longest.value


def test_a_policy_that_is_set_up_in_another_way_has_no_goals(tmp_path: Path, runs: list[Run]) -> None:
    assert _cell(runs, "reactive", "core-h / static")[0].is_close is False
    policies = [{"policy": "static", "name": None}, {"policy": "reactive", "name": None, "target_cpu": 0.9}]
    runs[1] = a_run(tmp_path / "d", policy="reactive", executors=4, plan=PLAN | {"policies": policies})
    one, cell = _cell(runs, "reactive", "core-h / static")
    assert one.is_close is None
    assert cell[2] == "-18 %"


def test_what_profiling_took_stands_beside_as_well(runs: list[Run]) -> None:
    found = beside(compare(runs)[0])
    assert [one.figure for one in found if one.figure.startswith("profiling")] == [
        "profiling core-h / static",
        "profiling GiB-h / static",
    ]


def test_programs_are_told_where_a_load_comes_from(tmp_path: Path, runs: list[Run]) -> None:
    assert {row["load_origin"] for row in summary_rows(compare(runs))} == {"read from ysb_18h.csv, multiplied by 2"}
    (row,) = summary_rows(compare([a_run(tmp_path / "x", policy="static", plan={})]))
    assert row["load_origin"] is None


def test_a_compressed_run_is_told_with_its_day_and_the_prices_of_its_plan(tmp_path: Path) -> None:
    plan: dict[str, JsonValue] = {"spark": {"day": 45.0 * SECONDS}}
    prices = Prices(core_hour=45 * 0.04, gib_hour=45 * 0.005)
    told = facts(compare([a_run(tmp_path / "a", policy="static", plan=plan, prices=prices)]))
    assert "22 h 30 min in 30 min" in told
    assert "0.04 USD per core-hour and 0.005 per GiB-hour" in told
    assert "core-h and GiB-h those of the 30 min that ran" in told
    plain = facts(compare([a_run(tmp_path / "b", policy="static", plan={}, prices=prices)]))
    assert "1.8 USD per core-hour" in plain
    assert "that ran" not in plain


def test_other_runs_have_nothing_published_beside_them(tmp_path: Path) -> None:
    run = a_run(tmp_path / "a", policy="static")
    assert published_table(compare([run])) is None
    assert "Beside the published figures" not in build_report([run])


def test_the_facts_say_where_a_load_comes_from(runs: list[Run], tmp_path: Path) -> None:
    assert "load read from ysb_18h.csv, multiplied by 2" in facts(compare(runs))
    assert origin_of(a_run(tmp_path / "x", policy="static", plan={}).record) == ""
