"""What a reader is told beside the figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.samples import a_run
from tidewise.report import write_report


@pytest.mark.parametrize(
    ("spark", "told"),
    [
        (
            {"day": 18_000.0},
            "Time is compressed: 30 min show 5 h. Loads are that much faster, and prices 10 times",
        ),
        ({"day": None}, None),
        (None, None),
    ],
    ids=["compressed", "not compressed", "simulated"],
)
def test_a_compressed_time_is_told(tmp_path: Path, spark: dict[str, float | None] | None, told: str | None) -> None:
    run = a_run(tmp_path / "run", policy="static", engine="spark", profile=None, plan={"name": "x", "spark": spark})
    write_report([run], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert ("Time is compressed" in page) == (told is not None)
    if told is not None:
        assert told in page
