"""How policies and loads are listed, each with its settings: for people, or as JSON for programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from rich.markup import escape
from rich.table import Table

from tidewise.cli.output import console
from tidewise.core.settings import Setting


class Choice(Protocol):
    """What a plan can name, and how it can be set up."""

    @property
    def name(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def settings(self) -> Sequence[Setting]: ...


def choice_row(choice: Choice) -> dict[str, object]:
    """A choice as plain data; a default of null: the setting has to be given."""
    return {
        "name": choice.name,
        "summary": _in_one_line(choice.summary),
        "settings": [
            {
                "name": setting.name,
                "allowed": setting.allowed,
                "default": setting.default,
                "meaning": _in_one_line(setting.doc),
            }
            for setting in choice.settings
        ],
    }


def _in_one_line(doc: str) -> str:
    """A docstring as a person reads it in a table: its line breaks are the source's, and so is Python's None."""
    return re.sub(r"\bNone\b", "none", " ".join(doc.split()))


def print_choice(choice: Choice, *, problem: str | None = None) -> None:
    """A choice for people; `problem` says why it cannot be used."""
    screen = console()
    screen.print(f"[bold]{escape(choice.name)}[/bold]  {escape(_in_one_line(choice.summary))}")
    if problem is not None:
        screen.print(f"  [red]cannot be used:[/red] {escape(problem)}")
    if choice.settings:
        table = Table(box=None, padding=(0, 2), show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column()
        for setting in choice.settings:
            default = "[italic]required[/italic]" if setting.default is None else escape(setting.default)
            table.add_row(escape(setting.name), default, escape(_in_one_line(setting.doc)))
        screen.print(table)
    screen.print()
