"""The whole report as one page that needs nothing else: no server, no network, no second file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tidewise.core import BadInputError, format_duration
from tidewise.core.recovery import CALM_S
from tidewise.experiments.comparison import Aggregate, by_scenario, compare
from tidewise.experiments.record import Run
from tidewise.report import palette, wording
from tidewise.report.headlines import headlines, warnings
from tidewise.report.markup import anchor, page_text
from tidewise.report.parts import definitions_part, list_part, table_part, whole_page, write_page
from tidewise.report.scenario import Looks, Section, scenario_section
from tidewise.report.table import COLUMNS

DEFAULT_TITLE = "Tidewise report"

_FURTHER_DEFINITIONS = {
    "bad seconds per change": (
        "Bad seconds from the request of a change until the job was calm again after it "
        f"({CALM_S} good seconds in a row), or until the next change was asked for; without those within the recovery "
        "from a failure. Changes asked for during such a recovery are left out."
    ),
    "gap per change": "How long the job gave no output because of a change, as the engine reported it.",
    "promises kept": (
        "In the sentences at the top: the share of all seconds that met the promised latency is as high as promised "
        "for every seed, and no recovery took longer than promised."
    ),
}


def build_report(
    runs: Sequence[Run], *, title: str = DEFAULT_TITLE, aggregates: Sequence[Aggregate] | None = None
) -> str:
    """The page, as HTML; BadInputError without runs. The same runs give the same page.

    `aggregates`: what `compare` made of these runs, where the caller has it; every series is read for that.
    """
    if not runs:
        raise BadInputError("there are no runs to report on")
    aggregates = compare(runs) if aggregates is None else aggregates
    policies = [aggregate.policy for aggregate in aggregates]
    looks = Looks(colours=palette.colours(policies), dashes=palette.dashes(policies))
    sections = {
        f"load-{number}-{anchor(members[0].scenario.load)}": members
        for number, members in enumerate(by_scenario(aggregates), start=1)
    }
    origins = sorted({wording.origin(aggregate.scenario) for aggregate in aggregates})
    parts = {place: scenario_section(place, members, runs, looks) for place, members in sections.items()}
    return whole_page(
        title=title,
        origin=f"{len(runs)} runs, {wording.listing(origins)}.",
        headlines=_headlines(list(sections.values()), warnings(runs)),
        contents=_contents(sections, parts),
        sections=[part.markup for part in parts.values()],
        definitions=_definitions(),
        runs=_runs_table(runs),
    )


def write_report(
    runs: Sequence[Run], path: Path, *, title: str = DEFAULT_TITLE, aggregates: Sequence[Aggregate] | None = None
) -> None:
    """Write the page of `build_report`, whole or not at all; PermanentError where the disk does not take it."""
    write_page(build_report(runs, title=title, aggregates=aggregates), path)


def _headlines(scenarios: Sequence[Sequence[Aggregate]], warned: Sequence[str]) -> str:
    said = [sentence for aggregates in scenarios for sentence in headlines(aggregates)]
    return list_part(said, warnings=warned)


def _contents(sections: Mapping[str, Sequence[Aggregate]], parts: Mapping[str, Section]) -> str:
    items = []
    for place, aggregates in sections.items():
        inner = [f'<a href="#{place}-{name}">{name}</a>' for name in parts[place].names]
        load = page_text(aggregates[0].scenario.load)
        items.append(f'<li><a href="#{place}">{load}</a> <span class="inner">({" · ".join(inner)})</span></li>')
    items.append('<li><a href="#definitions">Definitions</a> · <a href="#runs">Runs</a></li>')
    return f"<ul>{''.join(items)}</ul>"


def _definitions() -> str:
    listed = [(column.title, column.meaning) for column in COLUMNS] + list(_FURTHER_DEFINITIONS.items())
    return definitions_part(listed)


def _runs_table(runs: Sequence[Run]) -> str:
    titles = ("run", "policy", "load", "seed", "engine", "profile", "length", "complete", "made", "start", "versions")
    rows = []
    for run in sorted(runs, key=lambda run: (run.record.load, run.record.policy, run.record.seed, run.record.name)):
        record = run.record
        cells = (
            record.name,
            record.policy,
            record.load,
            str(record.seed),
            record.engine,
            record.profile or wording.MISSING,
            format_duration(record.duration_s),
            "yes" if record.complete else "no",
            record.created,
            str(record.start),
            ", ".join(f"{name} {version}" for name, version in sorted(record.versions.items())),
        )
        rows.append(f"<tr>{''.join(f'<td>{page_text(cell)}</td>' for cell in cells)}</tr>")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    return (
        f"<details><summary>All {len(runs)} runs, their versions and where they started</summary>"
        f"{table_part(head, rows)}</details>"
    )
