"""The tables that a page about the queries of a benchmark must have: what the registry says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tidewise.jobs.query import Query

PAGES = Path(__file__).parents[2] / "docs"


def tables(queries: Mapping[str, Query]) -> dict[str, str]:
    """Each table by what it tells."""
    every = queries.values()
    return {
        "all queries": _all(every),
        "how they differ": _grouped(
            ((query.name, query.reshaped) for query in every), "query", "how, and why it is right"
        ),
        "real-time mode": _grouped(((query.name, query.real_time) for query in every), "query", "why it is refused"),
    }


def _all(queries: Iterable[Query]) -> str:
    rows = ((query.name, query.sentence, _said(query), _state(query), _written(query)) for query in queries)
    return _table("query", "what it answers", "rows", "state", "definition", rows=rows)


def _said(query: Query) -> str:
    return f"the last of each {', '.join(query.key)}" if query.key else "all"


def _state(query: Query) -> str:
    return ", ".join(query.stores) or "none"


def _written(query: Query) -> str:
    return "as written" if query.reshaped is None else "reshaped"


def _grouped(reasons: Iterable[tuple[str, str | None]], *head: str) -> str:
    """Each reason once, with all queries that have it."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons:
        if reason is not None:
            names.setdefault(reason, []).append(name)
    return _table(*head, rows=((", ".join(of), reason) for reason, of in names.items()))


def _table(*head: str, rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("| --- ", "|---").replace("--- |", "---|") for line in lines)
