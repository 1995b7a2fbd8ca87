"""The table of a backtest: one definition of its columns for the page, the terminal and the documents."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tidewise.experiments.backtest import INTERVAL_SHARE, Score
from tidewise.experiments.backtest_origins import BLOCKS
from tidewise.report import wording

BLOCK_NAMES = tuple(f"{10 * block}-{10 * block + 10} min" for block in range(BLOCKS))


def percents(share: float) -> str:
    """Errors differ in the second decimal, until they are large."""
    return f"{100 * share:.2f} %" if share < 0.9995 else f"{100 * share:.0f} %"


def milliseconds(seconds: float) -> str:
    """A computing time."""
    return f"{1e3 * seconds:.1f} ms" if seconds < 0.0995 else f"{1e3 * seconds:,.0f} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One figure of every model."""

    title: str
    meaning: str
    figure: Callable[[Score], float | None]
    form: Callable[[float], str]
    ideal: float | None = 0.0
    """The nearer to it, the better; None: the best is not marked."""

    def cells(self, scores: Mapping[str, Score]) -> dict[str, tuple[str, bool]]:
        """By model: what to show, and whether none is better."""
        figures = {model: self.figure(score) for model, score in scores.items()}
        shown = {model: wording.MISSING if value is None else self.form(value) for model, value in figures.items()}
        ideal = self.ideal
        known = {model: value for model, value in figures.items() if value is not None}
        if ideal is None or not known:
            return {model: (text, False) for model, text in shown.items()}
        best = shown[min(known, key=lambda model: abs(known[model] - ideal))]
        return {model: (text, text == best) for model, text in shown.items()}


def _error(block: int) -> Callable[[Score], float | None]:
    return lambda score: score.wape[block]


COLUMNS: tuple[Column, ...] = (
    *(
        Column(
            title=f"error {name}",
            meaning=f"Sum of the absolute errors of the median {name.replace('-', ' to ')} ahead, over the sum of what "
            "came (WAPE), over all origins and seeds.",
            figure=_error(block),
            form=percents,
        )
        for block, name in enumerate(BLOCK_NAMES)
    ),
    Column(
        title="in 90 % interval",
        meaning="Share of all samples to come that lay inside of their 90 % interval; 90 % would be right.",
        figure=lambda score: score.inside_all,
        form=wording.percent,
        ideal=INTERVAL_SHARE,
    ),
    Column(
        title="peak missed",
        meaning="By how much the highest median of the next 10 minutes was below their highest sample, over these "
        "samples: who scales by it has as much too little.",
        figure=lambda score: score.peak_missing,
        form=percents,
    ),
    Column(
        title="peak over interval",
        meaning="The same for the upper end of the interval.",
        figure=lambda score: score.peak_missing_upper,
        form=percents,
    ),
    Column(
        title="time",
        meaning="CPU time of a forecast where the one before was asked for a sample earlier: the median.",
        figure=lambda score: score.forecast_p50_s,
        form=milliseconds,
        ideal=None,
    ),
    Column(
        title="time p95",
        meaning="The same: 95 % of the forecasts took at most as long.",
        figure=lambda score: score.forecast_p95_s,
        form=milliseconds,
        ideal=None,
    ),
    Column(
        title="first",
        meaning="CPU time of the first forecast, which makes those of the last hours as well: the median over all "
        "parts that were computed by themselves.",
        figure=lambda score: score.first_s,
        form=milliseconds,
        ideal=None,
    ),
)


_FIRST_TO_GO = ("first", "time p95", "peak over interval", "time", "error 20-30 min", "error 10-20 min")
"""What a narrow terminal does without, the first first."""


def backtest_table(scores: Mapping[str, Score], *, width: int) -> Table:
    """For a terminal of this width; the best of a column has a star."""
    # Every figure has room for the star, so that their digits stay below each other.
    texts = {
        column.title: {
            model: Text(f"{text}*" if best else f"{text} ", style="bold green" if best else "")
            for model, (text, best) in column.cells(scores).items()
        }
        for column in COLUMNS
    }
    for name in _FIRST_TO_GO:
        if max(map(len, scores)) + 4 + sum(map(_column_width, texts, texts.values())) > width:
            del texts[name]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("model", no_wrap=True)
    for name in texts:
        table.add_column("\n".join(_heading(name)), justify="right", no_wrap=True)
    for model in scores:
        table.add_row(Text(model), *(column[model] for column in texts.values()))
    return table


def _heading(title: str) -> list[str]:
    """The title in lines that are no wider than most figures."""
    return textwrap.wrap(title, width=9, break_long_words=False)


def _column_width(title: str, cells: Mapping[str, Text]) -> int:
    """With the space beside it."""
    return max([*map(len, _heading(title)), *(len(text) for text in cells.values())]) + 2
