"""docs/benchmarks.md: one section per benchmark, each replaced whole when it is measured again."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable
from pathlib import Path

Bench = Callable[[Path | None], str]
"""Measures, and answers the section's Markdown without its heading."""

_HEAD = """\
# Benchmarks
Every table is written by the command above it. Figures that fall short stand here as they came out, with the reason.
"""


def update_page(page: Path, name: str, section: str, *, command: str, date: str) -> None:
    """Put this section in the place of its older self, or at the end."""
    text = page.read_text(encoding="utf-8") if page.exists() else _HEAD
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    body = f"<!-- {name} -->\n## {name}\n`{command}`, {date}, {machine}\n\n{section.strip()}\n<!-- end {name} -->\n"
    old = re.compile(rf"<!-- {re.escape(name)} -->.*?<!-- end {re.escape(name)} -->\n", re.DOTALL)
    text = old.sub(lambda _: body, text) if old.search(text) else f"{text.rstrip()}\n\n{body}"
    page.parent.mkdir(exist_ok=True)
    page.write_text(text, encoding="utf-8")


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
