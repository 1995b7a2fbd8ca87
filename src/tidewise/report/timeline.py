"""The configuration over time with every change, and on hover why it was made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go

from tidewise.core import ChangeStatus, Configuration, Mechanism, format_duration
from tidewise.experiments.measures import configurations_of
from tidewise.experiments.record import ChangeRecord
from tidewise.report import wording
from tidewise.report.downsample import MOST_POINTS, steps, thinned
from tidewise.report.drawing import Shown, TimeAxis, bare, mark_faults, over_time, rows_by_policy
from tidewise.report.markup import figure_text
from tidewise.report.palette import ALARM, NEUTRAL

MOST_MARKS = 600
"""Changes marked per policy: each carries its reason, and a page must stay small."""
_LONGEST_REASON = 320

_SYMBOLS = {
    Mechanism.LIVE: "circle",
    Mechanism.IN_PLACE_RESCALE: "square",
    Mechanism.QUERY_RESTART: "triangle-up",
    Mechanism.HANDOVER: "diamond",
    Mechanism.REDEPLOY: "triangle-down",
    Mechanism.OPERATOR_UPGRADE: "cross",
    Mechanism.REPARTITION: "star",
}
_FAILED = "x"


def timeline_figure(shown: Sequence[Shown], axis: TimeAxis) -> go.Figure:
    """Executors in a row per policy; a mark for each change."""
    figure = rows_by_policy(shown, 125)
    for row, one in enumerate(shown, start=1):
        executors = one.series.executors
        seconds = steps(executors)
        if seconds.size > MOST_POINTS:
            seconds = seconds[thinned(seconds.size)]
        figure.add_scatter(
            x=(seconds / axis.unit_s).astype(np.float32),
            y=executors[seconds].astype(np.float32),
            line={**one.line, "shape": "hv"},
            mode="lines",
            name="executors",
            showlegend=False,
            row=row,
            col=1,
        )
        marked = marked_changes(one.summary.record.changes)
        figure.add_scatter(
            x=[axis.at(_when_s(change)) for change in marked],
            y=[change.target.executors for change in marked],
            mode="markers",
            text=[_hover(change, axis) for change in marked],
            hoverinfo="text",
            showlegend=False,
            marker={
                "size": [8 if _failed(change) or len(marked) < 80 else 5 for change in marked],
                "opacity": 0.85,
                "symbol": [_symbol(change) for change in marked],
                "color": [ALARM if _failed(change) else one.colour for change in marked],
            },
            row=row,
            col=1,
        )
    _explain_symbols(figure, [change for one in shown for change in one.summary.record.changes])
    most = max(int(one.series.executors.max()) for one in shown)
    figure.update_yaxes(title={"text": "executors", "font": {"size": 11}}, range=[0, most * 1.25], nticks=4)
    mark_faults(figure, shown, axis)
    return over_time(figure, axis)


def configuration_figure(shown: Sequence[Shown], axis: TimeAxis) -> go.Figure | None:
    """All parameters but the executors, a row for each that some policy changed; None where none was."""
    held = [(one, configurations_of(one.summary.record)) for one in shown]
    rows = {
        title: value
        for title, value in _PARAMETERS.items()
        if any(len({value(configuration) for _, configuration in steps_of}) > 1 for _, steps_of in held)
    }
    if not rows:
        return None
    figure = bare(90 + 120 * len(rows), rows=len(rows), row_titles=list(rows))
    for row, value in enumerate(rows.values(), start=1):
        for one, steps_of in held:
            times = [axis.at(time_s) for time_s, _ in steps_of] + [axis.at(axis.seconds)]
            values = [value(configuration) for _, configuration in steps_of]
            figure.add_scatter(
                x=times,
                y=[*values, values[-1]],
                mode="lines",
                line={**one.line, "shape": "hv"},
                name=one.label,
                legendgroup=one.label,
                showlegend=row == 1,
                row=row,
                col=1,
            )
        # Room for the title of the row above the highest line.
        most = max(value(configuration) for _, steps_of in held for _, configuration in steps_of)
        figure.update_yaxes(range=[0, 1.5 * most], nticks=4, row=row, col=1)
    return over_time(figure, axis)


_PARAMETERS: dict[str, Callable[[Configuration], float]] = {
    "slots per executor": lambda one: one.slots_per_executor,
    "cores per executor": lambda one: one.cores_per_executor,
    "memory per executor (GiB)": lambda one: one.memory_mib_per_executor / 1024,
    "commit interval (s)": lambda one: one.commit_interval_s,
}


def marked_changes(changes: Sequence[ChangeRecord]) -> list[ChangeRecord]:
    """All of them, or so many that the page stays small; failed ones stay in any case."""
    failed = [change for change in changes if _failed(change)][:MOST_MARKS]
    others = [change for change in changes if not _failed(change)]
    room = MOST_MARKS - len(failed)
    kept = [others[index] for index in thinned(len(others), room)] if others and room else []
    return sorted(failed + kept, key=lambda change: change.requested_at_s)


def _explain_symbols(figure: go.Figure, changes: Sequence[ChangeRecord]) -> None:
    used = {change.mechanism: _SYMBOLS[change.mechanism] for change in changes if not _failed(change)}
    entries = [(name.value, symbol, NEUTRAL) for name, symbol in sorted(used.items())]
    if any(_failed(change) for change in changes):
        entries.append(("failed", _FAILED, ALARM))
    for name, symbol, colour in entries:
        figure.add_scatter(
            x=[None],
            y=[None],
            mode="markers",
            name=name,
            showlegend=True,
            marker={"symbol": symbol, "color": colour, "size": 9},
            row=1,
            col=1,
        )


def _failed(change: ChangeRecord) -> bool:
    return change.status is ChangeStatus.FAILED


def _symbol(change: ChangeRecord) -> str:
    return _FAILED if _failed(change) else _SYMBOLS[change.mechanism]


def _when_s(change: ChangeRecord) -> float:
    return change.requested_at_s if change.finished_at_s is None else change.finished_at_s


def _hover(change: ChangeRecord, axis: TimeAxis) -> str:
    reason = change.reason
    if len(reason) > _LONGEST_REASON:
        reason = f"{reason[:_LONGEST_REASON].rstrip()} …"
    status = "not finished when the run ended" if change.status is None else change.status.value
    gap = f", {format_duration(change.gap_s)} without output" if change.gap_s else ""
    when = f"{axis.at(change.requested_at_s):.2f} {axis.unit}"
    return "<br>".join(
        [
            f"<b>{when}: {change.mechanism.value}</b> ({change.origin.value}, {status}{gap})",
            figure_text(wording.difference(change.source, change.target), width=64),
            figure_text(reason, width=64),
        ]
    )
