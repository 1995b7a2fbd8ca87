"""Beside the published figures: what stands there, and where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.samples import a_run
from tidewise.experiments import compare, published
from tidewise.experiments.record import Run, RunRecord
from tidewise.report import build_report
from tidewise.report.published import origin_of, published_table
from tidewise.report.scenario import facts

PLAN = {
    "name": "paper",
    "loads": [{"name": "ysb", "shape": "trace", "file": "somewhere/ysb_18h.csv", "scale": 2.0}],
    "failures": {"every": 2700.0},
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


def test_other_runs_have_nothing_published_beside_them(tmp_path: Path) -> None:
    run = a_run(tmp_path / "a", policy="static")
    assert published_table(compare([run])) is None
    assert "Beside the published figures" not in build_report([run])


def test_the_facts_say_where_a_load_comes_from(runs: list[Run], tmp_path: Path) -> None:
    assert "load read from ysb_18h.csv, multiplied by 2" in facts(compare(runs))
    assert origin_of(a_run(tmp_path / "x", policy="static", plan={}).record) == ""
