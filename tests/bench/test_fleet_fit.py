"""The benchmark of a fleet's models, on a handful of jobs: it runs from its own table to its section."""

from __future__ import annotations

import os

import pytest

from bench import fleet_fit

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("spark")]


def test_the_section_has_a_row_for_each_fleet_and_says_what_was_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_fit, "_WARM_UP", 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # no processes of its own for so few jobs
    section = fleet_fit.measure(jobs=(2, 3), windows=400)
    rows = [line for line in section.splitlines() if line.startswith(("| 2 |", "| 3 |"))]
    assert [row.split("|")[2].strip() for row in rows] == ["800", "1,200"]
    assert all(row.rstrip(" |").endswith("| 0") for row in rows), "none failed"
    assert "Goals: 50 ms per job (" in section
    assert "Spark's share at most 20% (" in section
