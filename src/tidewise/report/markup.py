"""Text from runs on its way into the page: nothing that a run is called can become markup."""

from __future__ import annotations

import html
import re
import textwrap


def page_text(text: str) -> str:
    """For HTML, also inside of attributes."""
    return html.escape(text, quote=True)


def figure_text(text: str, *, width: int | None = None) -> str:
    """For labels and hovers, where Plotly reads a few tags; quotes are left: it does not know their entity."""
    lines = [text] if width is None else textwrap.wrap(text, width, break_long_words=True) or [""]
    return "<br>".join(html.escape(line, quote=False) for line in lines)


def anchor(text: str) -> str:
    """A name for a link into the page."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"
