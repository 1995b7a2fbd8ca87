"""What the end of a run left undecided is told on the page, and nowhere shown as late."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tidewise.experiments.comparison import compare
from tidewise.report import build_report, markdown_table
from tidewise.report.table import COLUMNS

from .samples import SECONDS, a_run


def waiting_at_the_end(seconds: int) -> dict[str, object]:
    """A job whose last records were not output before the run ended; the limit of a good second is 2.02 s."""
    latency = np.full(SECONDS, 1.01)
    latency[SECONDS - seconds :] = np.nan
    return {f"latency_p{level}_s": latency for level in (50, 95, 99)}


def test_seconds_that_were_still_waiting_are_left_out_with_a_note(tmp_path: Path) -> None:
    page = build_report([a_run(tmp_path / "run", policy="mpc", faults=(), series=waiting_at_the_end(2))])
    assert "were still waiting when the run ended, and not too long yet (over all seeds): mpc 2." in page
    assert "never output before the run ended, counted" not in page
    assert '"never output"' not in page


def test_seconds_that_had_waited_too_long_are_late_for_ever(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", policy="mpc", faults=(), series=waiting_at_the_end(50))
    page = build_report([run])
    assert "counted as infinitely late (over all seeds): mpc 48." in page
    assert "not too long yet (over all seeds): mpc 2." in page
    assert '"never output"' in page
    assert "never" in markdown_table(compare([run]))


def test_every_share_and_percentile_says_what_it_leaves_out() -> None:
    meanings = {column.title: column.meaning for column in COLUMNS}
    for title in ("good seconds", "latency p50"):
        assert "still waiting when the run ended" in meanings[title]
    assert "good or not" in meanings["recovery mean"]
