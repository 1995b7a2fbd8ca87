"""Pieces that every page is made of: figures, tables, and the file they go into."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from tidewise.core import PermanentError
from tidewise.report.markup import page_text
from tidewise.report.palette import NEUTRAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure with what a reader has to know of it."""

    title: str
    caption: str
    drawn: go.Figure


def figure_parts(name: str, figure: Figure) -> list[str]:
    """A figure in the page; `name` is its anchor."""
    return [
        f'<h3 id="{name}">{figure.title}</h3>',
        f"<figure><figcaption>{figure.caption}</figcaption>",
        f'<div class="plot" id="{name}-plot" role="img" aria-label="{figure.title}"></div></figure>',
        # Plotly writes <, > and / as escapes, so nothing in it can end the script.
        f'<script type="application/json" data-figure="{name}-plot">{figure.drawn.to_json()}</script>',
    ]


def table_part(head: str, rows: Sequence[str]) -> str:
    """A table that scrolls by itself, of cells and rows that are markup already."""
    body = "\n".join(rows)
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def chip(colour: str = NEUTRAL) -> str:
    """The dot by which a name is found in the figures."""
    return f'<span class="chip" style="background:{colour}"></span>'


def list_part(sentences: Sequence[str], *, warnings: Sequence[str] = ()) -> str:
    """Sentences as a list, the warnings first."""
    items = [f'<li class="warning">{page_text(sentence)}</li>' for sentence in warnings]
    items += [f"<li>{page_text(sentence)}</li>" for sentence in sentences]
    return f"<ul>{''.join(items)}</ul>"


def definitions_part(definitions: Sequence[tuple[str, str]]) -> str:
    """Terms and what they mean."""
    return f"<dl>{''.join(f'<dt>{page_text(term)}</dt><dd>{page_text(text)}</dd>' for term, text in definitions)}</dl>"


def whole_page(
    *, title: str, origin: str, headlines: str, contents: str, sections: Sequence[str], definitions: str, runs: str
) -> str:
    """The page of these pieces, with its style and all that draws its figures."""
    return Template(_package_text("page.html")).substitute(
        title=page_text(title),
        style=_package_text("page.css"),
        origin=page_text(origin),
        headlines=headlines,
        contents=contents,
        scenarios="\n".join(sections),
        definitions=definitions,
        runs=runs,
        plotly=get_plotlyjs(),
    )


def write_page(page: str, path: Path) -> None:
    """Write a page whole or not at all; PermanentError where the disk does not take it."""
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = Path(file.name)
            file.write(page)
        temporary.chmod(0o644)  # a temporary file is for its owner only; a report is to be shared
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise PermanentError(f"the report {path} could not be written: {error.strerror or error}") from error


def _package_text(name: str) -> str:
    return files("tidewise.report").joinpath(name).read_text(encoding="utf-8")
