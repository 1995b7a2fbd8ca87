"""Tables for a terminal of some width: columns go before a figure is broken, and headings stand in short lines."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text


def fitted_table(
    cells: Mapping[str, Sequence[str]],
    *,
    width: int,
    title: str | None = None,
    words: Collection[str] = (),
    breaking: Collection[str] = (),
    first_to_go: Sequence[str] = (),
) -> Table:
    """The columns by their headings, as many as fit.

    `words`: the columns that hold text rather than numbers; `breaking`: those that may break between words;
    `first_to_go`: what a narrow terminal does without, the first first; the others always stay.
    """
    shown = dict(cells)
    for name in first_to_go:
        if 1 + sum(_column_width(each, column, breaks=each in breaking) for each, column in shown.items()) > width:
            del shown[name]
    table = Table(
        title=None if title is None else Text(title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for name in shown:
        side: Literal["left", "right"] = "left" if name in words else "right"
        table.add_column("\n".join(_heading(name)), justify=side, overflow="fold", no_wrap=name not in breaking)
    for row in zip(*shown.values(), strict=True):
        # Text, not str: names from runs, and what a failure says, must not be read as markup.
        table.add_row(*map(Text, row))
    return table


def _heading(name: str) -> list[str]:
    """The name in lines that are no wider than most figures."""
    return textwrap.wrap(name, width=9, break_long_words=False)


def _column_width(name: str, cells: Sequence[str], *, breaks: bool) -> int:
    """With the space beside it."""
    lines = [line for cell in cells for line in (cell.split() if breaks else cell.splitlines())]
    return max(map(len, [*_heading(name), *lines])) + 2
