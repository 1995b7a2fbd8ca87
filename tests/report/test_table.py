"""The summary table says the same on a terminal and in a document."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tidewise.experiments.comparison import Spread, compare
from tidewise.report import markdown_table, terminal_table, wording
from tidewise.report.table import COLUMNS

from .samples import SECONDS, a_change, a_comparison, a_run


def cells(markdown: str) -> list[dict[str, str]]:
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in markdown.splitlines()]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


def test_each_policy_has_a_row_with_its_figures_over_static(tmp_path: Path) -> None:
    aggregates = compare(a_comparison(tmp_path))
    rows = cells(markdown_table([one for one in aggregates if one.scenario.load == "ysb"]))
    assert [row["policy"] for row in rows] == ["static", "mpc", "reactive"]
    static, mpc, reactive = rows
    assert static["core-h / static"] == "1.00"
    assert reactive["core-h / static"] == "0.75"
    assert mpc["core-h / static"] == "0.69 (0.62..0.75)"
    assert reactive["saves"] == "25 %"
    assert static["changes"] == "0"
    assert mpc["changes"] == "4: 1 handover, 3 live; 1 failed"
    assert static["good seconds"] == "97.8 %"
    assert static["recovery max"] == "40 s"
    assert static["over 180 s"] == "0 of 2"
    assert static["cost"] == "0.18 EUR"


def test_what_is_not_known_is_a_dash_and_not_a_number(tmp_path: Path) -> None:
    run = a_run(tmp_path / "alone", policy="mpc", faults=())
    (row,) = cells(markdown_table(compare([run])))
    assert row["core-h / static"] == row["saves"] == row["recovery mean"] == row["over 180 s"] == wording.MISSING


def test_seconds_that_never_came_out_are_never_and_not_infinite_digits(tmp_path: Path) -> None:
    none = np.full(SECONDS, np.nan)
    latencies = {f"latency_p{level}_s": none for level in (50, 95, 99)}
    (row,) = cells(markdown_table(compare([a_run(tmp_path / "run", policy="mpc", series=latencies)])))
    assert row["latency p99"] == "never"
    assert row["good seconds"] == "0.0 %"
    assert row["recovery max"].startswith("≥ ")


def test_the_terminal_shows_the_same_cells(tmp_path: Path) -> None:
    aggregates = compare(a_comparison(tmp_path))[:3]
    text = io.StringIO()
    Console(file=text, width=240).print(terminal_table(aggregates, title="[red]tsw[/red]", width=240))
    shown = text.getvalue()
    assert "[red]tsw[/red]" in shown  # not read as markup
    for column in COLUMNS:
        if column.brief:
            assert all(word in shown for word in column.title.split())
    assert "0.75" in shown
    assert "(0.62..0.75)" in shown


def test_a_hostile_name_stays_in_its_cell(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", policy="a | b\n| <script> [x](y)", changes=(a_change(10.0),))
    lines = markdown_table(compare([run])).splitlines()
    assert len(lines) == 3
    assert r"a \| b \| \<script\> \[x\](y)" in lines[2]
    Console(file=io.StringIO(), width=240).print(terminal_table(compare([run]), title="x", width=240))


@pytest.mark.parametrize(
    ("spread", "text"),
    [
        (None, "–"),  # noqa: RUF001 - the dash of a table
        (Spread(mean=2.0, least=1.0, most=3.0), "2.00 s (1.00..3.00 s)"),
        (Spread(mean=2.0, least=2.0, most=2.0, censored=True), "≥ 2.00 s"),
        (Spread(mean=math.inf, least=1.0, most=math.inf), "never (1.00 s..never)"),
        (Spread(mean=100.4, least=10.0, most=190.8), "100 s (10.0..191 s)"),
    ],
)
def test_a_spread_reads_well(spread: Spread | None, text: str) -> None:
    assert wording.spread(spread, wording.seconds) == text


def test_a_share_short_of_all_is_never_called_all() -> None:
    assert wording.percent(0.99999) == "99.9 %"
    assert wording.percent(1.0) == "100.0 %"


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_a_narrow_terminal_loses_columns_and_breaks_no_figure(tmp_path: Path, width: int) -> None:
    aggregates = compare(a_comparison(tmp_path))[:3]
    text = io.StringIO()
    Console(file=text, width=width).print(terminal_table(aggregates, title="x", width=width))
    shown = text.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    for aggregate in aggregates:
        assert aggregate.policy in shown
    for words in ("0.18 EUR", "31 %", "kept"):
        assert words in shown
