"""The page and the table of a backtest: whole, from one definition, the best marked, and no name becomes markup."""

from __future__ import annotations

import json
import re
from io import StringIO

import numpy as np
import pytest
from plotly.offline import get_plotlyjs
from rich.console import Console

from tidewise.experiments.backtest import Backtest, BacktestSettings, Score, Subject
from tidewise.experiments.backtest_origins import Judged
from tidewise.report.backtest_page import backtest_headline, backtest_page, subject_facts
from tidewise.report.backtest_table import COLUMNS, backtest_table

NASTY = "<script>alert(1)</script>.csv"


def _judged(error: float) -> Judged:
    came = np.full((4, 3), 1000.0)
    return Judged(
        origins=np.array([120, 130, 140, 150]),
        errors_per_s=error * came,
        came_per_s=came,
        inside=np.full((4, 3), 1.0 - error),
        peaks_per_s=np.tile([100.0, 100.0 * (1.0 - error), 120.0], (4, 1)),
        ahead_per_s=np.tile([80.0, 95.0, 120.0, 100.0], (4, 1)),
        forecast_s=np.full(4, error / 10),
        first_s=np.array([error]),
    )


@pytest.fixture
def found() -> Backtest:
    models = ("naive", "ensemble", "line")
    subject = Subject(
        load=NASTY, compressed=30.0, samples={7: np.ones(200), 8: np.ones(200)}, origins=(120, 130, 140, 150)
    )
    errors = {"naive": 0.2, "ensemble": 0.1, "line": 0.3}
    return Backtest(
        settings=BacktestSettings(models=models, noise_share=0.1, seeds=(7, 8)),
        subjects=(subject,),
        judged={(NASTY, model, seed): _judged(errors[model]) for model in models for seed in (7, 8)},
    )


def _scores(found: Backtest) -> dict[str, Score]:
    return found.scores(found.subjects[0])


def test_the_page_needs_nothing_else_and_shows_every_model_and_figure(found: Backtest) -> None:
    page = backtest_page(found)
    own = page.replace(get_plotlyjs(), "")
    assert page.count(get_plotlyjs()) == 1
    assert not re.search(r"""(?:src|href)=["'](?!#)""", own)
    assert "<script>alert" not in own
    assert all(own.count(column.title) >= 2 for column in COLUMNS), "in the table and among the definitions"
    drawn = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', own, re.DOTALL)
    assert len(drawn) == 3
    assert {trace["name"] for trace in json.loads(drawn[0])["data"]} == {"naive", "ensemble", "line"}
    assert "Ten minutes ahead: ensemble" in own
    assert backtest_page(found) == page


def test_the_best_of_each_column_is_marked(found: Backtest) -> None:
    by_title = {column.title: column.cells(_scores(found)) for column in COLUMNS}
    assert by_title["error 0-10 min"] == {
        "naive": ("20.00 %", False),
        "ensemble": ("10.00 %", True),
        "line": ("30.00 %", False),
    }
    assert [model for model, (_, best) in by_title["in 90 % interval"].items() if best] == ["ensemble"]
    assert not any(best for _, best in by_title["time"].values())
    assert "<b>10.00 %</b>" in backtest_page(found)


def test_an_error_of_a_share_of_nothing_is_left_out() -> None:
    (first, *_) = COLUMNS
    none = Score(
        origins=1,
        wape=(None, 0.1, 0.1),
        inside=(1.0, 1.0, 1.0),
        inside_all=1.0,
        peak_missing=0.0,
        peak_missing_upper=0.0,
        forecast_p50_s=0.001,
        forecast_p95_s=0.001,
        first_s=0.001,
    )
    assert first.cells({"naive": none}) == {"naive": ("–", False)}  # noqa: RUF001 - what a table shows without a value


@pytest.mark.parametrize(("width", "columns"), [(160, len(COLUMNS)), (80, 5)])
def test_a_terminal_shows_as_many_columns_as_fit(found: Backtest, width: int, columns: int) -> None:
    screen = Console(width=width, file=StringIO())
    table = backtest_table(_scores(found), width=width)
    screen.print(table)
    shown = screen.file.getvalue()  # type: ignore[attr-defined]  # it is the StringIO from above
    assert len(table.columns) - 1 >= columns
    assert "10.00 %*" in shown
    assert "…" not in shown
    assert all(len(line) <= width for line in shown.splitlines())


def test_the_sentences_say_how_it_was_judged(found: Backtest) -> None:
    subject = found.subjects[0]
    assert backtest_headline(subject, _scores(found)).endswith(
        "ensemble has the least error over the next ten minutes, 10.00 %; naive has 20.00 %."
    )
    assert subject_facts(subject, found) == (
        "200 samples of 60 s · 4 origins, one every 10 min · every row is one sample: its time runs 30 times as fast · "
        "10 % noise on every second · seeds 7, 8"
    )
