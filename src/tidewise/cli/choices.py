"""How policies and loads are listed, each with its settings: for people, or as JSON for programs."""

from __future__ import annotations

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
        "summary": choice.summary,
        "settings": [
            {"name": setting.name, "allowed": setting.allowed, "default": setting.default, "meaning": setting.doc}
            for setting in choice.settings
        ],
    }


def print_choice(choice: Choice, *, problem: str | None = None) -> None:
    """A choice for people; `problem` says why it cannot be used."""
    screen = console()
    screen.print(f"[bold]{escape(choice.name)}[/bold]  {escape(choice.summary)}")
    if problem is not None:
        screen.print(f"  [red]cannot be used:[/red] {escape(problem)}")
    if choice.settings:
        table = Table(box=None, padding=(0, 2), show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column()
        for setting in choice.settings:
            default = "[italic]required[/italic]" if setting.default is None else escape(setting.default)
            table.add_row(escape(setting.name), default, escape(setting.doc))
        screen.print(table)
    screen.print()
