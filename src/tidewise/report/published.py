"""Simulated runs beside what was published of the earlier systems: a part of the page, and a table for terminals."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tidewise.experiments.comparison import Aggregate
from tidewise.experiments.plan import load_origin
from tidewise.experiments.published import BEST_FIXED, NEVER_PUBLISHED, PHOEBE, Beside, beside, published_job
from tidewise.experiments.record import RunRecord
from tidewise.report import wording
from tidewise.report.markup import page_text
from tidewise.report.parts import table_part

_FORMS: dict[str, Callable[[float], str]] = {
    "ratio": wording.ratio,
    "share": wording.percent,
    "seconds": wording.whole_seconds,
    "latency": wording.seconds,
    "count": wording.count,
}
_GOALS = (
    "Goals for a policy that was rebuilt: core-h and GiB-h within 10 %, good seconds within 5 points, changes within "
    "30 %; ✓ reached, ✗ missed, always by the nearest end of the published range. A policy that is set up in another "
    "way than in the plan paper has no goals."
)
_UNLIKE = (
    "Recovery max is the longest of all runs, here and there; every other figure of ours is the mean over the seeds. "
    "≥: some were cut off by the end of a run or the next failure, so the true figure may be larger. "
    "Not alike: the published p99 leaves seconds without output out, here they count with the wait of their records. "
    "The published GB-h are of executors, as here; what an earlier system used to think (a pod of 10 cores and 40 GiB "
    "for Demeter) is in none of these sums."
)


def published_section(place: str, aggregates: Sequence[Aggregate], name: Callable[[str], str]) -> str | None:
    """The part of one scenario; None where nothing was published of its job. `name` gives a policy's markup."""
    rows = [_row(aggregate, found, name) for aggregate in aggregates if (found := beside(aggregate))]
    if not rows:
        return None
    titles = ["policy", *(one.figure for one in _columns(aggregates))]
    head = "".join(f'<th scope="col">{page_text(title)}</th>' for title in titles)
    said = "".join(f"<p>{page_text(sentence)}</p>" for sentence in _sentences(aggregates))
    return "\n".join(
        [
            f'<h3 id="{place}">Beside the published figures</h3>',
            table_part(head, rows),
            f'<div class="facts">{said}</div>',
        ]
    )


def published_table(aggregates: Sequence[Aggregate]) -> Table | None:
    """The same for a terminal; None where nothing was published of this job."""
    columns = _columns(aggregates)
    if not columns:
        return None
    table = Table(
        title=Text("Beside the published figures: here, published, misfit"),
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        leading=1,
    )
    for title in ("policy", *(one.figure for one in columns)):
        heading = "\n".join(textwrap.wrap(title, width=10))
        table.add_column(heading, justify="left" if title == "policy" else "right", no_wrap=True)
    for aggregate in aggregates:
        if found := beside(aggregate):
            table.add_row(Text(aggregate.policy), *(Text(_plain(one)) for one in found))
    return table


def _columns(aggregates: Sequence[Aggregate]) -> list[Beside]:
    """The same for every policy of which anything was published."""
    return next((found for aggregate in aggregates if (found := beside(aggregate))), [])


def _row(aggregate: Aggregate, found: Sequence[Beside], name: Callable[[str], str]) -> str:
    cells = [
        f"<td>{page_text(_ours(one))}<small>{page_text(their_range(one))}</small>"
        f"<small>{page_text(misfit(one))}</small></td>"
        for one in found
    ]
    return f'<tr><td class="name">{name(aggregate.policy)}</td>{"".join(cells)}</tr>'


def _sentences(aggregates: Sequence[Aggregate]) -> list[str]:
    record = next(aggregate for aggregate in aggregates if beside(aggregate)).summaries[0].record
    job = published_job(record) or ""
    core, gib = BEST_FIXED[job]
    best = (
        f"The best fixed configuration was never measured; an earlier trial simulation had {core:.2f} core-h and "
        f"{gib:.2f} GB-h of static. {PHOEBE} {NEVER_PUBLISHED}"
    )
    return [
        f"First line: simulated; second: published of {job}; third: the misfit. {_GOALS}",
        f"The load is {origin_of(record)}; the published runs had the released one.",
        best,
        _UNLIKE,
    ]


def origin_of(record: RunRecord) -> str:
    """Where the rates of a run's load come from, in words; empty where its plan does not tell."""
    loads = record.plan.get("loads")
    tables = [load for load in loads if isinstance(load, dict)] if isinstance(loads, list) else []
    return next((load_origin(load) for load in tables if load.get("name") == record.load), "")


def _ours(one: Beside) -> str:
    return one_figure(one) if one.longest else wording.spread(one.ours, _FORMS[one.unit])


def one_figure(one: Beside) -> str:
    """Ours without its range; `≥` where it was cut off."""
    return wording.MISSING if one.value is None else f"{'≥ ' if one.is_cut_off else ''}{_FORMS[one.unit](one.value)}"


def their_range(one: Beside) -> str:
    """The published figure, from the least to the most."""
    form = _FORMS[one.unit]
    least, most = form(one.theirs.least), form(one.theirs.most)
    if least == most:
        return most
    unit = most[most.rfind(" ") :] if " " in most else ""
    return f"{least.removesuffix(unit)}..{most}"


def misfit(one: Beside) -> str:
    """How far ours is from it, and whether that is within the goal."""
    if one.misfit is None:
        return wording.MISSING
    mark = "" if one.is_close is None else " ✓" if one.is_close else " ✗"
    if not one.misfit:
        return f"inside{mark}" if one.theirs.least < one.theirs.most else f"the same{mark}"
    told = f"{100 * one.misfit:+.1f} points" if one.unit == "share" else f"{100 * one.misfit:+.0f} %"
    return f"{told}{mark}"


def _plain(one: Beside) -> str:
    return f"{one_figure(one)}\n{their_range(one)}\n{misfit(one)}"
