"""A table for a terminal gives columns up before it breaks a figure."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from tidewise.report.fitted_table import fitted_table

CELLS = {
    "what ran": ["a policy [red]", "another"],
    "promised latency": ["97.5 %\n(97.1..98.0)", "83.7 %"],
    "changes": ["26", "0"],
}


def shown(width: int) -> str:
    out = StringIO()
    table = fitted_table(CELLS, width=width, words=("what ran",), breaking=("what ran",), first_to_go=("changes",))
    Console(file=out, width=width).print(table)
    return out.getvalue()


@pytest.mark.parametrize(("width", "columns"), [(80, 3), (32, 2), (26, 2)])
def test_columns_go_and_figures_stay_whole(width: int, columns: int) -> None:
    text = shown(width)
    assert "97.5 %" in text
    assert "(97.1..98.0)" in text
    assert ("changes" in text) == (columns == 3)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


def test_headings_stand_in_short_lines_and_cells_are_no_markup() -> None:
    text = shown(80)
    assert "promised latency" not in text
    assert "[red]" in text
